//! Decides what the filters of jobs match. No I/O.

use std::collections::BTreeSet;

use weft_wire::frame::label::{BARE_AT_IPV4, BARE_AT_IPV6, BARE_LEN};

use super::keys::Key;
use super::{BARE_MINOR, PREFERENCE, minor};

/// What a filter looks at.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Family {
    /// IPv4 without elements.
    BareV4,
    /// IPv6 without elements.
    BareV6,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    pub(super) const ALL: [Self; 4] = [Self::BareV4, Self::BareV6, Self::V4, Self::V6];

    /// The preference that is asked first.
    pub(super) const FIRST: u64 = PREFERENCE as u64 - 2;

    pub(super) const fn protocol(self) -> &'static str {
        match self {
            Self::BareV4 | Self::V4 => "ip",
            Self::BareV6 | Self::V6 => "ipv6",
        }
    }

    /// What the filter of a label matches.
    pub(super) fn matches(self, label: u8) -> String {
        let class = label << 2;
        let bare = |at: usize| format!(" match u16 0x0000 {:#06x} at {at}", !(BARE_LEN - 1));
        match self {
            Self::V4 => format!("match ip dsfield {class:#04x} 0xfc"),
            Self::V6 => format!("match ip6 priority {class:#04x} 0xfc"),
            Self::BareV4 => Self::V4.matches(label) + &bare(BARE_AT_IPV4),
            Self::BareV6 => Self::V6.matches(label) + &bare(BARE_AT_IPV6),
        }
    }

    /// The same, as the kernel keeps it.
    pub(super) fn keys(self, label: u8) -> BTreeSet<Key> {
        let class = u32::from(label << 2);
        let of_label = |shift: u32| Key { at: 0, value: class << shift, mask: 0xfc << shift };
        let bare = |at: usize| {
            let mask = u32::from(!(BARE_LEN - 1)) << if at.is_multiple_of(4) { 16 } else { 0 };
            Key { at: (at - at % 4) as u64, value: 0, mask }
        };
        let (label, bare) = match self {
            Self::V4 => return BTreeSet::from([of_label(16)]),
            Self::V6 => return BTreeSet::from([of_label(20)]),
            Self::BareV4 => (of_label(16), bare(BARE_AT_IPV4)),
            Self::BareV6 => (of_label(20), bare(BARE_AT_IPV6)),
        };
        match label.at == bare.at {
            // `tc` makes one of those of one word.
            true => BTreeSet::from([Key { mask: label.mask | bare.mask, ..label }]),
            false => BTreeSet::from([label, bare]),
        }
    }

    /// Filters of less are asked first.
    pub(super) const fn preference(self) -> u16 {
        match self {
            Self::BareV4 => PREFERENCE - 2,
            Self::BareV6 => PREFERENCE - 1,
            Self::V4 => PREFERENCE,
            Self::V6 => PREFERENCE + 1,
        }
    }

    /// The class of a label's frames in a band.
    pub(super) const fn minor(self, band: u8, label: u8) -> u16 {
        match self {
            Self::BareV4 | Self::BareV6 => BARE_MINOR,
            Self::V4 | Self::V6 => minor(band, label),
        }
    }

    pub(super) fn of(preference: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|family| u64::from(family.preference()) == preference)
    }
}
