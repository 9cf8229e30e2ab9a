//! What a row of `weft bench aggregator` measures.

use serde::Serialize;

/// Where contributions come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// net_pcap, the same frames for ever.
    Pcap,
    /// A generator process over memif.
    Memif,
}

/// How long slots live.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lease {
    /// A window of slots with two banks.
    Windowed,
    /// A slot per chunk, 64 MiB a group: one gathers while the one before is released.
    Whole,
}

/// Steps that a member sends before it is the next member's turn.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub enum Order {
    /// One: the contributions to a step stand one behind another.
    #[default]
    #[serde(rename = "step")]
    Step,
    /// Two.
    #[serde(rename = "2")]
    Two,
    /// Eight: with four workers a burst holds some of every member's.
    #[serde(rename = "8")]
    Eight,
    /// Thirty-two: a burst holds one member's.
    #[serde(rename = "32")]
    ThirtyTwo,
}

impl Order {
    /// How many steps.
    #[must_use]
    pub const fn steps(self) -> u32 {
        match self {
            Self::Step => 1,
            Self::Two => 2,
            Self::Eight => 8,
            Self::ThirtyTwo => 32,
        }
    }

    /// Its name in tables and keys.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Two => "2",
            Self::Eight => "8",
            Self::ThirtyTwo => "32",
        }
    }
}

/// What surrounds a datagram.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Frames {
    /// IPv4.
    #[default]
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 behind a VLAN tag, which an aggregator refuses: what a row shows is the refusal's cost.
    Vlan,
}

impl Frames {
    /// Its name in tables and keys.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Vlan => "vlan",
        }
    }
}

/// What one row measures.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Where contributions come from.
    pub source: Source,
    /// How long slots live.
    pub lease: Lease,
    /// CRC32C over header and payload, checked and made anew.
    pub crc: bool,
    /// Elements of 4 bytes in a packet.
    pub elements: u16,
    /// Members of each job's group.
    pub workers: u8,
    /// Slots of each job, a power of two.
    pub window: u16,
    /// How the members' frames are mixed.
    pub order: Order,
    /// Jobs whose frames take turns.
    pub jobs: u8,
    /// What surrounds a datagram.
    pub frames: Frames,
    /// Each job has a quota, which it does not reach.
    pub quota: bool,
    /// Lanes of the aggregator, each on an lcore of its own.
    pub lcores: u8,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            source: Source::Pcap,
            lease: Lease::Windowed,
            crc: false,
            elements: 256,
            workers: 4,
            window: 256,
            order: Order::Step,
            jobs: 1,
            frames: Frames::Ipv4,
            quota: false,
            lcores: 1,
        }
    }
}

impl Case {
    /// True where such a row can be measured: whole leases on net_pcap, and like a generator over
    /// memif with one job's IPv4 frames, step by step.
    #[must_use]
    pub fn is_measurable(&self) -> bool {
        let is_plain = self.order == Order::Step && self.jobs == 1 && self.frames == Frames::Ipv4;
        let is_plain = is_plain && self.lcores == 1;
        let is_plain_pcap = self.source == Source::Pcap && self.lease == Lease::Windowed;
        is_plain_pcap
            || (is_plain && (self.source == Source::Pcap || self.lease == Lease::Windowed))
    }

    /// In a few words, for progress and failures.
    #[must_use]
    pub fn name(&self) -> String {
        let (source, lease) = (format!("{:?}", self.source), format!("{:?}", self.lease));
        let mut name = format!(
            "{} {}, crc {}, {} elements, {} workers, order {}",
            source.to_lowercase(),
            lease.to_lowercase(),
            if self.crc { "on" } else { "off" },
            self.elements,
            self.workers,
            self.order.name(),
        );
        if self.jobs > 1 {
            name += &format!(", {} jobs", self.jobs);
        }
        if self.frames != Frames::Ipv4 {
            name += &format!(", {}", self.frames.name());
        }
        if self.lcores > 1 {
            name += &format!(", {} lcores", self.lcores);
        }
        if self.quota {
            name += ", quota";
        }
        name
    }

    /// The same with a window that the rings of a memif hold for all workers together.
    #[must_use]
    pub fn fitted(mut self) -> Self {
        if self.source == Source::Memif {
            while self.window > 1
                && usize::from(self.window) * usize::from(self.workers) > IN_FLIGHT_MAX
            {
                self.window /= 2;
            }
        }
        self
    }
}

/// Half of a memif ring of 2^11 descriptors.
const IN_FLIGHT_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memif_window_fits_the_ring_for_all_workers() {
        let memif = Case { source: Source::Memif, workers: 16, ..Case::default() };
        assert_eq!(memif.fitted().window, 64);
        assert_eq!(Case { workers: 4, ..memif }.fitted().window, 256);
        assert_eq!(Case { workers: 16, ..Case::default() }.fitted().window, 256);
    }

    #[test]
    fn keys_of_a_row_are_the_names_that_tables_have() {
        for order in [Order::Step, Order::Two, Order::Eight, Order::ThirtyTwo] {
            assert_eq!(serde_json::to_value(order).unwrap(), order.name());
        }
        for frames in [Frames::Ipv4, Frames::Ipv6, Frames::Vlan] {
            assert_eq!(serde_json::to_value(frames).unwrap(), frames.name());
        }
    }
}
