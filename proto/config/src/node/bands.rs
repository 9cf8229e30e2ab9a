//! `[bands]`: this box gives jobs their bands on its host's link.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// `[bands]`. With it the box applies what the controller says of bands (`[bands]` in the
/// controller's file), and what `[[bands.fixed]]` says of frames that no controller speaks of.
///
/// With `by = "host"` on the interface `device`, for all jobs of the host: HTB classes, and filters
/// on the DSCP of Weft's frames. Of all nodes of a host one has it; it needs `tc` and
/// CAP_NET_ADMIN. Every second it looks whether all is there, and installs again what is not. With
/// `by = "port"` in queues of the box's own port, for what it sends itself: for ports that the
/// kernel's queues are not in front of, such as DPDK's. Needs `lcores.shards = 1`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BandsSection {
    /// `host` (default) or `port`.
    #[serde(default)]
    pub by: BandsBy,
    /// With `host`: the interface whose outgoing frames are ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What the link sends, bytes of Ethernet frames per second, from 125000 (1 Mb/s) to
    /// 50000000000 (400 Gb/s). A little less than the truth, so that frames wait where they are
    /// ordered. Needed without `under`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_sec: Option<u64>,
    /// With `host`: the HTB class, such as `"1:1"`, whose children the classes of jobs are to be:
    /// for an interface that is shaped already, as those of `weft lab` are. It has children, and
    /// its rate is the link's. Weft's have numbers from 100 to 73f there, and 100 Kbit of their
    /// own; a class of such a number that is otherwise is refused. One of a number from 8000 says
    /// that they are this node's. Default: none; an interface with
    /// a queueing discipline of its own is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// With `port`: frames of each of the eight bands that may wait; what finds its band full is
    /// lost and counted. Default: a sixteenth of `port.frame_count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_frames: Option<usize>,
    /// With `port`: a frame that has waited for so long, in milliseconds, goes before all bands, so
    /// that no job starves. Default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_max_ms: Option<u64>,
    /// `[[bands.fixed]]`: the bands of frames by DSCP, from the box's start on. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<FixedBand>,
}

/// `[[bands.fixed]]`: frames with this DSCP leave in this band, whatever controllers say: those of
/// tables of rows (`[[keys]]`), whose label no controller gives. A controller's job that has the
/// same label is refused its band.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FixedBand {
    /// The DSCP, 1 to 63. A controller gives odd ones from 3 on; even ones are never a job's.
    pub dscp: u8,
    /// The band, 0 (first) to 6.
    pub band: u8,
}

/// Where frames wait for their turn.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BandsBy {
    /// In classes of the kernel, on an interface of the host.
    #[default]
    Host,
    /// In queues of the box's port.
    Port,
}

impl BandsSection {
    /// Of a host's interface at this rate.
    #[must_use]
    pub const fn host(device: String, rate_bytes_per_sec: Option<u64>) -> Self {
        Self {
            by: BandsBy::Host,
            device: Some(device),
            rate_bytes_per_sec,
            under: None,
            queue_frames: None,
            age_max_ms: None,
            fixed: Vec::new(),
        }
    }

    /// The first key that makes no sense, and what would be right.
    #[must_use]
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        let dscps = self.fixed.iter().map(|it| it.dscp);
        if dscps.clone().any(|dscp| !(1..=DSCP_MAX).contains(&dscp)) {
            return Some(("fixed", "has a dscp that is none; it must be 1 to 63"));
        }
        if self.fixed.iter().any(|it| it.band > BAND_MAX) {
            return Some(("fixed", "has a band that is none; it must be 0 to 6"));
        }
        if dscps.clone().enumerate().any(|(at, dscp)| dscps.clone().take(at).any(|it| it == dscp)) {
            return Some(("fixed", "has a dscp twice; each has one band"));
        }
        match self.by {
            BandsBy::Host => self.host_problem(),
            BandsBy::Port => self.port_problem(),
        }
    }

    fn host_problem(&self) -> Option<(&'static str, &'static str)> {
        let is_name = |name: &String| {
            (1..=DEVICE_LEN_MAX).contains(&name.len())
                && name.chars().all(|c| c.is_ascii_graphic() && c != '/')
        };
        if !self.device.as_ref().is_some_and(is_name) {
            return Some(("device", "must be the name of an interface, 1 to 15 characters"));
        }
        if self.queue_frames.is_some() || self.age_max_ms.is_some() {
            return Some(("by", "is \"host\": queue_frames and age_max_ms are for \"port\""));
        }
        match (&self.under, self.rate_bytes_per_sec) {
            (Some(class), None) if is_class(class) => None,
            (Some(_), None) => Some(("under", "must be an HTB class, such as \"1:1\"")),
            (Some(_), Some(_)) => {
                Some(("rate_bytes_per_sec", "is that of the class `under`; remove one of them"))
            }
            (None, rate) => rate_problem(rate),
        }
    }

    fn port_problem(&self) -> Option<(&'static str, &'static str)> {
        if self.device.is_some() || self.under.is_some() {
            return Some(("by", "is \"port\": device and under are for \"host\""));
        }
        if self.queue_frames.is_some_and(|frames| !(32..=65_536).contains(&frames)) {
            return Some(("queue_frames", "must be 32, a burst, to 65536"));
        }
        if self.age_max_ms.is_some_and(|ms| !(1..=60_000).contains(&ms)) {
            return Some(("age_max_ms", "must be 1 to 60000, a minute"));
        }
        rate_problem(self.rate_bytes_per_sec)
    }
}

fn rate_problem(rate: Option<u64>) -> Option<(&'static str, &'static str)> {
    let problem = "must be what the link sends, from 125000 (1 Mb/s) to 50000000000";
    let is_good = rate.is_some_and(|rate| (RATE_MIN..=RATE_MAX).contains(&rate));
    (!is_good).then_some(("rate_bytes_per_sec", problem))
}

fn is_class(text: &str) -> bool {
    let hex = |part: &str| u16::from_str_radix(part, 16).is_ok_and(|number| number > 0);
    text.split_once(':').is_some_and(|(major, minor)| hex(major) && hex(minor))
}

const DSCP_MAX: u8 = 63;
/// The last band of a job; the one after it is that of the rest.
const BAND_MAX: u8 = 6;
/// Bytes of an interface's name in Linux.
const DEVICE_LEN_MAX: usize = 15;
/// Below, the floors of the classes would be most of it.
const RATE_MIN: u64 = 125_000;
const RATE_MAX: u64 = 50_000_000_000;
