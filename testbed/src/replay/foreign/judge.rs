//! Compares what came out with what the box of the capture sent, receiver by receiver, and writes
//! it where that is wanted.

use std::net::SocketAddr;

use weft_io::pcap::PcapWriter;
use weft_wire::{MacAddr, Nanos};

use super::Foreign;
use crate::replay::difference::Difference;
use crate::replay::load::ReplayError;
use crate::replay::recorded::compare;

impl Foreign<'_> {
    /// Compares what came out with what the box of the capture sent.
    pub(super) fn finish(&mut self) -> Result<(), ReplayError> {
        self.write()?;
        if self.theirs.is_empty() {
            let note = "the capture has nothing that the box sent: nothing is compared";
            self.outcome.notes.push(note.to_owned());
        }
        let mut compared = std::mem::take(&mut self.theirs);
        let is_compared = !compared.is_empty();
        for (to, ours) in std::mem::take(&mut self.ours) {
            let theirs = compared.remove(&to).unwrap_or_default();
            let mut theirs = theirs.into_iter();
            for (now, frame) in ours {
                match theirs.next() {
                    Some((index, expected)) => {
                        let both = (&expected[..], &frame[..]);
                        compare(&mut self.outcome, 0, index, now, both, &self.options);
                    }
                    None if is_compared => self.lacks(0, now, to, "none", "a frame"),
                    None => {}
                }
            }
            compared.insert(to, theirs.collect());
        }
        for (to, missing) in compared {
            for (index, _) in missing {
                self.lacks(index + 1, Nanos(0), to, "a frame", "none");
            }
        }
        let port = &self.settings.config.port;
        if !self.survey.casts.is_empty() && port.multicast_base().is_none() {
            let note = "the capture has sums that left once for all members, and the configuration \
                        neither port.multicast nor port.shm";
            self.outcome.notes.push(note.to_owned());
        }
        if self.survey.ranks.values().any(|(_, mac)| *mac == MacAddr::MEMORY) && !port.shm {
            let note = "members of the capture share memory with their box, and the configuration \
                        has no port.shm";
            self.outcome.notes.push(note.to_owned());
        }
        if self.handshakes > 0 {
            let note = format!("{} frames of handshakes were replaced", self.handshakes);
            self.outcome.notes.push(note);
        }
        if self.cut > 0 {
            let cut = self.cut;
            self.outcome.notes.push(format!("{cut} frames are cut by the capture's snaplen"));
        }
        Ok(())
    }

    fn lacks(&mut self, packet: usize, now: Nanos, to: SocketAddr, expected: &str, got: &str) {
        self.outcome.differ(|| Difference {
            lane: 0,
            packet: packet as u64,
            at_ns: now.0,
            field: format!("frame to {to}"),
            expected: expected.to_owned(),
            got: got.to_owned(),
        });
    }

    /// Writes what came out, in the order of time.
    fn write(&self) -> Result<(), ReplayError> {
        let Some(path) = &self.options.write else { return Ok(()) };
        let mut all: Vec<&(Nanos, Vec<u8>)> = self.ours.values().flatten().collect();
        all.sort_by_key(|(now, _)| *now);
        let write = || {
            let file = std::fs::File::create(path)?;
            let mut writer = PcapWriter::new(std::io::BufWriter::new(file))?;
            for (now, frame) in all {
                writer.write(*now, frame)?;
            }
            writer.finish().map(|_| ())
        };
        write().map_err(|source| ReplayError::File { path: path.clone(), attempt: "write", source })
    }
}
