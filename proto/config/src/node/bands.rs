//! `[bands]`: this box gives jobs their bands on its host's link.

use alloc::string::String;

use serde::{Deserialize, Serialize};

/// `[bands]`. With it the box applies what the controller says of bands (`[bands]` in the
/// controller's file): HTB classes on the host's interface, and filters on the DSCP of Weft's
/// frames. Of all nodes of a host one has it. It needs `tc` and CAP_NET_ADMIN.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BandsSection {
    /// The interface whose outgoing frames are ordered.
    pub device: String,
    /// What the link sends, bytes of Ethernet frames per second. A little less than the truth, so
    /// that frames wait where they are ordered. Needed without `under`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_sec: Option<u64>,
    /// The HTB class, such as `"1:1"`, whose children the classes of jobs are to be: for an
    /// interface that is shaped already, as those of `weft lab` are. It has children, and its rate
    /// is the link's. Default: none; an interface with a queueing discipline of its own is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
}

impl BandsSection {
    /// The first key that makes no sense, and what would be right.
    #[must_use]
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        let is_name = (1..=DEVICE_LEN_MAX).contains(&self.device.len())
            && self.device.chars().all(|c| c.is_ascii_graphic() && c != '/');
        if !is_name {
            return Some(("device", "must be the name of an interface, 1 to 15 characters"));
        }
        match (&self.under, self.rate_bytes_per_sec) {
            (Some(class), None) if is_class(class) => None,
            (Some(_), None) => Some(("under", "must be an HTB class, such as \"1:1\"")),
            (Some(_), Some(_)) => {
                Some(("rate_bytes_per_sec", "is that of the class `under`; remove one of them"))
            }
            (None, Some(rate)) if (RATE_MIN..=RATE_MAX).contains(&rate) => None,
            (None, _) => Some((
                "rate_bytes_per_sec",
                "must be what the link sends, from 125000 (1 Mb/s) to 50000000000",
            )),
        }
    }
}

fn is_class(text: &str) -> bool {
    let hex = |part: &str| u16::from_str_radix(part, 16).is_ok_and(|number| number > 0);
    text.split_once(':').is_some_and(|(major, minor)| hex(major) && hex(minor))
}

/// Bytes of an interface's name in Linux.
const DEVICE_LEN_MAX: usize = 15;
/// Below, the floors of the classes would be most of it.
const RATE_MIN: u64 = 125_000;
const RATE_MAX: u64 = 50_000_000_000;
