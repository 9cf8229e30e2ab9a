//! Keeps the CRC of a sealed datagram right while header fields of it are written anew: for
//! benches, whose frames were sealed when they were made, so that no figure pays for sealing each
//! of them again.
//!
//! A CRC is linear: which of its bits change depends on which bits of the datagram change, not on
//! what they were. So each field has a table of what its half-bytes change.

use weft_wire::header::{HEADER_LEN, Packet};

/// Fields of four bytes in a datagram's header, and what they change.
#[derive(Clone, Debug)]
pub struct Reseal {
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
struct Field {
    at: usize,
    /// By half-byte, the lowest first, and the bits of it that change.
    changes: [[u32; 16]; 8],
}

impl Reseal {
    /// For the fields that begin at `fields` of datagrams of `datagram_len` bytes.
    ///
    /// # Panics
    /// If a field does not lie in the header, or the datagram is shorter than that.
    #[must_use]
    pub fn new(crc32c: fn(&[u8]) -> u32, datagram_len: usize, fields: &[usize]) -> Self {
        let mut datagram = vec![0; datagram_len];
        let nothing = crc32c(&datagram);
        let mut field = |at: usize| {
            assert!(at + 4 <= HEADER_LEN, "a field of the header");
            let mut changes = [[0; 16]; 8];
            for (half_byte, changes) in (0..).zip(&mut changes) {
                for (bits, change) in (0_u32..).zip(changes) {
                    let word = bits << (4 * half_byte);
                    datagram[at..at + 4].copy_from_slice(&word.to_be_bytes());
                    *change = crc32c(&datagram) ^ nothing;
                }
            }
            datagram[at..at + 4].fill(0);
            Field { at, changes }
        };
        Self { fields: fields.iter().map(|at| field(*at)).collect() }
    }

    /// Writes the fields, in the order that they were named in, and mends the CRC.
    #[inline(always)]
    pub fn write(&self, header: &mut [u8; HEADER_LEN], words: &[u32]) {
        let mut change = 0;
        for (field, word) in self.fields.iter().zip(words) {
            let bytes = &mut header[field.at..field.at + 4];
            let before = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            bytes.copy_from_slice(&word.to_be_bytes());
            change ^= field.change(before ^ word);
        }
        Self::mend(header, change);
    }

    /// What changes in the CRC when these bits of the fields do, in the order that they were named
    /// in; those behind the last stay as they are.
    #[inline(always)]
    #[must_use]
    pub fn change(&self, bits: &[u32]) -> u32 {
        let of_field = |(field, bits): (&Field, &u32)| field.change(*bits);
        self.fields.iter().zip(bits).map(of_field).fold(0, |change, of| change ^ of)
    }

    /// Writes the CRC that a datagram has after such a change.
    #[inline(always)]
    pub fn mend(header: &mut [u8; HEADER_LEN], change: u32) {
        let mut packet = Packet::new_unchecked(header);
        let crc = packet.crc() ^ change;
        // A CRC of 0 is sent as all ones.
        packet.set_crc(if crc == 0 { u32::MAX } else { crc });
    }
}

impl Field {
    #[inline(always)]
    fn change(&self, changed: u32) -> u32 {
        let of_half = |(half_byte, changes): (usize, &[u32; 16])| {
            changes[(changed >> (4 * half_byte) & 0xf) as usize]
        };
        self.changes.iter().enumerate().map(of_half).fold(0, |change, of| change ^ of)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use weft_kernel::crc32c;

    use super::*;

    fn datagrams() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![Just(0), Just(64), Just(1024_usize)]
            .prop_flat_map(|payload_len| vec(any::<u8>(), HEADER_LEN + payload_len))
    }

    proptest! {
        #[test]
        fn a_mended_datagram_is_as_one_that_was_sealed_anew(
            mut datagram in datagrams(),
            chunk in 0..256_u32,
            group: u32,
            cookie: u32,
        ) {
            Packet::new_unchecked(&mut datagram[..]).seal(crc32c);
            let reseal = Reseal::new(crc32c, datagram.len(), &[12, 8, 4]);
            reseal.write(datagram.first_chunk_mut().unwrap(), &[chunk, group, cookie]);
            let mut packet = Packet::new_unchecked(&mut datagram[..]);
            prop_assert_eq!(packet.chunk().0, chunk);
            prop_assert_eq!((packet.group().0, packet.cookie().0), (group, cookie));
            prop_assert!(packet.verify_crc(crc32c));
        }
    }
}
