//! Decides what is there of Weft's, and what stands in its way. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    BARE_MINOR, ClassId, Family, LINK_MINOR, Place, REST_MINOR, Root, Wanted, minor, split,
};

/// What the kernel has, as far as it is Weft's.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(in crate::bands) struct Found {
    /// Weft's own root is there.
    pub(super) has_root: bool,
    /// The link's class is there, in the tree of an own root.
    pub(super) has_link: bool,
    /// So is the class of the rest.
    pub(super) has_rest: bool,
    /// Classes of jobs and of frames without elements, by their minor numbers.
    pub(super) classes: BTreeSet<u16>,
    /// Families of which there are filters, or were: the kernel keeps their tables.
    pub(super) tables: BTreeSet<Family>,
    /// Where each filter sends its label, and its handle.
    pub(super) filters: BTreeMap<(Family, u8), (String, ClassId)>,
    /// The class is there that says whose the others are, under a class of somebody else.
    pub(super) has_mark: bool,
    /// The words for the rate of the class that job classes live under.
    pub(super) ceil: Option<[String; 2]>,
    /// Of these classes, those that have others under them: what is sent to one goes to the rest.
    pub(super) inner: BTreeSet<u16>,
    /// Of these classes, and of the link's and the rest's, those that are at another rate.
    pub(super) altered: BTreeSet<u16>,
    /// Of these filters, those that match something else.
    pub(super) astray: BTreeSet<(Family, u8)>,
    /// In a tree of Weft's own, what somebody else has asked before Weft's filters.
    pub(super) before: Option<String>,
    /// What others have hung on Weft's: on which class, and what it is.
    pub(super) strangers: Vec<(u16, String)>,
}

impl Found {
    /// Nothing of Weft's is there.
    #[must_use]
    pub(in crate::bands) fn is_clean(&self) -> bool {
        let has_classes = self.has_mark || !self.classes.is_empty();
        !self.has_root && !has_classes && self.tables.is_empty()
    }

    /// What others have hung on Weft's, which cannot be removed without it; the first, for people.
    #[must_use]
    pub(in crate::bands) fn stranger(&self) -> Option<&str> {
        self.strangers.first().map(|(_, words)| words.as_str())
    }

    /// What others have put before frames that are to have these bands, for people.
    #[must_use]
    pub(in crate::bands) fn obstacle(&self, wanted: &Wanted) -> Option<&str> {
        if let Some(before) = self.before.as_deref().filter(|_| !wanted.is_empty()) {
            return Some(before);
        }
        let of_jobs = wanted.iter().map(|(label, band)| minor(*band, *label));
        let bare = (!wanted.is_empty()).then_some(BARE_MINOR);
        let under = bare.into_iter().chain(of_jobs).find(|minor| self.inner.contains(minor))?;
        let (_, words) = self.strangers.iter().find(|(on, _)| *on == under)?;
        Some(words.as_str())
    }

    pub(super) fn is_held(&self, minor: u16) -> bool {
        self.strangers.iter().any(|(on, _)| *on == minor)
    }

    /// The bands that labels have by the filters and classes that are there; none while a label has
    /// but half of what it takes, or has it otherwise than Weft makes it.
    #[must_use]
    pub(in crate::bands) fn bands(&self, place: &Place) -> Option<Wanted> {
        let major = place.major();
        let mut bands = Wanted::new();
        for ((family, label), (_, class)) in &self.filters {
            let is_there = class.major == major
                && self.classes.contains(&class.minor)
                && !self.altered.contains(&class.minor)
                && !self.astray.contains(&(*family, *label));
            let is_right = match family {
                Family::BareV4 | Family::BareV6 => class.minor == BARE_MINOR,
                Family::V4 | Family::V6 => split(class.minor).is_some_and(|(band, of_label)| {
                    of_label == *label
                        && bands.insert(*label, band).is_none_or(|other| other == band)
                }),
            };
            if !(is_there && is_right) {
                return None;
            }
        }
        let is_whole = self.filters.len() == bands.len() * Family::ALL.len();
        let has_base = match place.root {
            Root::Own { .. } => {
                let is_altered =
                    [LINK_MINOR, REST_MINOR].iter().any(|it| self.altered.contains(it));
                !self.has_root || self.has_link && self.has_rest && !is_altered
            }
            Root::Under(_) => self.has_mark || bands.is_empty(),
        };
        (is_whole && has_base).then_some(bands)
    }
}
