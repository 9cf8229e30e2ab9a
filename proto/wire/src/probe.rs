//! What the datagrams of a packet train say (SPEC#probe-trains).
//!
//! A probe is no Weft frame: it goes to a port of its own, and should one reach a box all the same,
//! the box refuses it by its kind. Only the first [`PROBE_LEN`] bytes speak; padding up to the MTU
//! follows.

use core::ops::Range;

/// Bytes before the padding.
pub const PROBE_LEN: usize = 20;
/// First byte: version 1, and the kind that no header has.
pub const MARK: u8 = 0x1f;
/// Fields by name, first byte and length.
pub const LAYOUT: &[(&str, usize, usize)] = &[
    ("mark", 0, 1),
    ("zero", 1, 1),
    ("packets", 2, 2),
    ("train", 4, 4),
    ("index", 8, 2),
    ("unused", 10, 2),
    ("nonce", 12, 8),
];

const PACKETS: Range<usize> = 2..4;
const TRAIN: Range<usize> = 4..8;
const INDEX: Range<usize> = 8..10;
const NONCE: Range<usize> = 12..20;

/// One datagram of a train.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Probe {
    /// Datagrams of the train, at least one.
    pub packets: u16,
    /// Number of the train, of the sender's choice.
    pub train: u32,
    /// Position in the train, from 0.
    pub index: u16,
    /// The same in all datagrams of a measurement: others' are not counted.
    pub nonce: u64,
}

impl Probe {
    /// Reads a datagram; `None` when it is no probe.
    #[must_use]
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let head = datagram.first_chunk::<PROBE_LEN>()?;
        let word = |range: Range<usize>| {
            head[range].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let short = |range| u16::try_from(word(range)).ok();
        let probe = Self {
            packets: short(PACKETS)?,
            train: u32::try_from(word(TRAIN)).ok()?,
            index: short(INDEX)?,
            nonce: word(NONCE),
        };
        (head[0] == MARK && head[1] == 0 && probe.index < probe.packets).then_some(probe)
    }

    /// Writes the datagram's first bytes; `None` when there is no room.
    pub fn emit(&self, datagram: &mut [u8]) -> Option<()> {
        let head = datagram.first_chunk_mut::<PROBE_LEN>()?;
        *head = [0; PROBE_LEN];
        head[0] = MARK;
        head[PACKETS].copy_from_slice(&self.packets.to_be_bytes());
        head[TRAIN].copy_from_slice(&self.train.to_be_bytes());
        head[INDEX].copy_from_slice(&self.index.to_be_bytes());
        head[NONCE].copy_from_slice(&self.nonce.to_be_bytes());
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; PROBE_LEN] =
        [0x1f, 0, 0, 32, 0, 0, 1, 2, 0, 31, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn a_probe_is_these_bytes() {
        let probe = Probe { packets: 32, train: 258, index: 31, nonce: 0x0102_0304_0506_0708 };
        let mut bytes = [0xff; PROBE_LEN + 3];
        probe.emit(&mut bytes).unwrap();
        assert_eq!(bytes[..PROBE_LEN], BYTES);
        assert_eq!(bytes[PROBE_LEN..], [0xff; 3], "padding is the sender's");
        assert_eq!(Probe::parse(&bytes), Some(probe));
    }

    #[test]
    fn what_is_no_probe_is_told_apart() {
        assert_eq!(Probe::parse(&BYTES[..19]), None);
        let with = |at: usize, byte: u8| {
            let mut bytes = BYTES;
            bytes[at] = byte;
            Probe::parse(&bytes)
        };
        assert_eq!((with(0, 0x11), with(1, 1)), (None, None));
        assert_eq!(with(9, 32), None, "beyond the train");
        assert_eq!(Probe { packets: 1, train: 0, index: 0, nonce: 0 }.emit(&mut [0; 19]), None);
    }

    #[test]
    fn the_layout_leaves_no_gap() {
        let mut next = 0;
        for (name, byte, bytes) in LAYOUT {
            assert_eq!(*byte, next, "{name}");
            next += bytes;
        }
        assert_eq!(next, PROBE_LEN);
    }

    #[test]
    fn no_box_takes_a_probe_for_a_frame() {
        use crate::header::Kind;
        assert!(Kind::ALL.iter().all(|(kind, _)| *kind as u8 != MARK & 0xf));
    }
}
