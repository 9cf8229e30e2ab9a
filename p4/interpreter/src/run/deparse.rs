//! Checksums, and the frame that leaves.

use crate::fault::{FaultKind, GROWTH_MAX, Place};
use crate::program::{Checksum, Part};
use crate::value::Value;

use super::packet::Packet;
use super::{Ran, Run, at_place};

impl Run<'_> {
    /// Says in the metadata whether a checksum is wrong; where its header or its condition is not
    /// given, it is right.
    pub(super) fn verify(&self, packet: &mut Packet<'_>) -> Ran<()> {
        let mut is_wrong = false;
        for checksum in &self.program.verified {
            if self.applies(checksum, packet)? {
                let expected = self.calculate(checksum.calculation, packet);
                is_wrong |= *packet.raw(checksum.target) != Value::Small(i128::from(expected));
            }
        }
        if let Some(field) = self.program.standard.checksum_error {
            packet.put(self.program, field, u64::from(is_wrong));
        }
        Ok(())
    }

    pub(super) fn deparse(&self, mut packet: Packet<'_>) -> Ran<Vec<u8>> {
        for checksum in &self.program.updated {
            if self.applies(checksum, &packet)? {
                let value = self.calculate(checksum.calculation, &packet);
                packet.put(self.program, checksum.target, u64::from(value));
            }
        }
        let headers = || {
            let all = self.program.deparser.iter();
            let valid = all.copied().filter(|header| packet.is_valid(*header));
            valid.map(|header| &self.program.headers[header])
        };
        let len: usize = headers().map(|header| header.len_bytes).sum();
        if len > packet.parsed + GROWTH_MAX {
            let place = Place { name: "deparser".to_owned(), line: None };
            return Err(at_place(FaultKind::Growth(len - packet.parsed), &place));
        }
        let mut frame = vec![0; len];
        let mut at = 0;
        for header in headers() {
            for id in header.first..header.first + header.count {
                let field = &self.program.fields[id];
                let bytes = &mut frame[at..at + header.len_bytes];
                packet.raw(id).put_bits(bytes, field.skip, field.width);
            }
            at += header.len_bytes;
        }
        frame.extend_from_slice(packet.rest());
        frame.truncate(packet.len_max);
        Ok(frame)
    }

    fn applies(&self, checksum: &Checksum, packet: &Packet<'_>) -> Ran<bool> {
        let header = self.program.fields[checksum.target].header;
        match &checksum.cond {
            _ if !packet.is_valid(header) => Ok(false),
            None => Ok(true),
            Some(cond) => {
                let met = self.test(cond, packet, &[]);
                met.map_err(|kind| at_place(kind, &checksum.place))
            }
        }
    }

    /// The one's complement sum; fields and headers that are not valid are no part of it, as in
    /// BMv2.
    pub(super) fn calculate(&self, calculation: usize, packet: &Packet<'_>) -> u16 {
        let calculation = &self.program.calculations[calculation];
        let mut bytes = Vec::new();
        let mut bits = 0;
        let mut push = |value: &Value, width: usize| {
            bytes.resize((bits + width).div_ceil(8), 0);
            value.put_bits(&mut bytes, bits, width);
            bits += width;
        };
        for part in &calculation.parts {
            match part {
                Part::Const(value, width) => push(value, *width),
                Part::Field(field) => {
                    let info = &self.program.fields[*field];
                    if packet.is_valid(info.header) {
                        push(packet.raw(*field), info.width);
                    }
                }
                Part::Header(header) if packet.is_valid(*header) => {
                    let header = &self.program.headers[*header];
                    for id in header.first..header.first + header.count {
                        push(packet.raw(id), self.program.fields[id].width);
                    }
                }
                Part::Header(_) => {}
            }
        }
        if calculation.has_payload {
            bytes.extend_from_slice(packet.rest());
        }
        checksum(&bytes)
    }
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| match word {
        [high, low] => u64::from(u16::from_be_bytes([*high, *low])),
        word => u64::from(word[0]) << 8,
    });
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded to 16 bits")
}
