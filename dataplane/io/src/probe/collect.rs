//! Puts the datagrams of trains together as they arrive, with readings of the NIC's counter. Pure.
//!
//! Invariant: at most [`TRAINS_MAX`] trains are under way, of at most [`TRAIN_PACKETS_MAX`]
//! arrivals and as many readings each; the oldest gives way.

use std::net::SocketAddr;

use super::{ProbeArrival, TRAIN_PACKETS_MAX};

/// A train as it arrived, raw.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ArrivedTrain {
    /// Its number.
    pub train: u32,
    /// Length of each frame, Ethernet header included.
    pub frame_len: u32,
    /// When its datagrams arrived, in order, by `CLOCK_REALTIME`.
    pub at_ns: Vec<u64>,
    /// Readings of the receiver's NIC meanwhile: when, by the same clock, and all bytes received.
    pub readings: Vec<(u64, u64)>,
}

/// The trains under way to one socket.
#[derive(Debug, Default)]
pub struct Collector {
    trains: Vec<Underway>,
}

#[derive(Debug)]
struct Underway {
    source: SocketAddr,
    packets: u16,
    last_index: u16,
    last_ns: u64,
    train: ArrivedTrain,
}

impl Collector {
    /// Takes in a datagram.
    pub fn handle(&mut self, arrival: &ProbeArrival) {
        let ProbeArrival { probe, source, at_ns, frame_len } = *arrival;
        let is_it = |known: &Underway| (known.train.train, known.source) == (probe.train, source);
        let index = self.trains.iter().position(is_it).unwrap_or_else(|| {
            if self.trains.len() == TRAINS_MAX {
                self.trains.remove(0);
            }
            let room = usize::from(TRAIN_PACKETS_MAX);
            let (at_ns_list, readings) = (Vec::with_capacity(room), Vec::with_capacity(room));
            let train = ArrivedTrain { train: probe.train, frame_len, at_ns: at_ns_list, readings };
            let packets = probe.packets;
            self.trains.push(Underway { source, packets, last_index: 0, last_ns: at_ns, train });
            self.trains.len() - 1
        });
        let known = &mut self.trains[index];
        known.last_index = known.last_index.max(probe.index);
        known.last_ns = known.last_ns.max(at_ns);
        if known.train.at_ns.len() < usize::from(TRAIN_PACKETS_MAX) {
            known.train.at_ns.push(known.last_ns);
        }
    }

    /// Takes in a reading of the NIC's counter.
    pub fn handle_reading(&mut self, at_ns: u64, total_bytes: u64) {
        for known in &mut self.trains {
            if known.train.readings.len() < usize::from(TRAIN_PACKETS_MAX) {
                known.train.readings.push((at_ns, total_bytes));
            }
        }
    }

    /// The next train that is over: its last datagram has come, or none for a while
    /// (SPEC#probe-trains).
    pub fn poll(&mut self, now_ns: u64) -> Option<ArrivedTrain> {
        let is_over = |known: &Underway| {
            known.last_index.saturating_add(1) >= known.packets
                || now_ns.saturating_sub(known.last_ns) > SILENCE_NS
        };
        let index = self.trains.iter().position(is_over)?;
        Some(self.trains.remove(index).train)
    }

    /// Whether no train is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.trains.is_empty()
    }
}

/// Trains that may be under way to one socket.
const TRAINS_MAX: usize = 8;
/// A train of which nothing came for so long is over.
const SILENCE_NS: u64 = 50_000_000;

#[cfg(test)]
mod tests {
    use weft_wire::probe::Probe;

    use super::*;

    fn arrival(train: u32, index: u16, at_ns: u64) -> ProbeArrival {
        let probe = Probe { packets: 12, train, index, nonce: 1 };
        let source = "10.0.0.1:7".parse().unwrap();
        ProbeArrival { probe, source, at_ns, frame_len: 1514 }
    }

    #[test]
    fn a_train_ends_with_its_last_datagram_or_with_silence() {
        let mut collector = Collector::default();
        for index in 0..11 {
            collector.handle(&arrival(1, index, 1000 + u64::from(index)));
            collector.handle_reading(1000 + u64::from(index), 7);
            assert_eq!(collector.poll(1011), None);
        }
        // One that is late arrives when it arrives.
        collector.handle(&arrival(1, 11, 900));
        let train = collector.poll(1011).expect("its last has come");
        assert_eq!((train.train, train.at_ns.len(), train.readings.len()), (1, 12, 11));
        assert_eq!(train.at_ns[11], 1010);
        assert!(collector.is_idle());
        collector.handle(&arrival(2, 3, 5000));
        assert_eq!(collector.poll(5000 + SILENCE_NS), None);
        assert_eq!(collector.poll(5001 + SILENCE_NS).map(|train| train.at_ns.len()), Some(1));
    }

    #[test]
    fn trains_under_way_and_what_is_kept_of_each_are_bounded() {
        let mut collector = Collector::default();
        for train in 0..20 {
            collector.handle(&arrival(train, 0, 1000));
        }
        assert_eq!(collector.trains.len(), TRAINS_MAX);
        assert_eq!(collector.trains[0].train.train, 12, "the oldest have gone");
        for _ in 0..1000 {
            collector.handle(&arrival(19, 0, 1000));
            collector.handle_reading(1000, 7);
        }
        let last = collector.trains.last().unwrap();
        assert_eq!((last.train.at_ns.len(), last.train.readings.len()), (256, 256));
    }
}
