//! Compares what came out with what the box of the capture sent, receiver by receiver, and writes
//! it where that is wanted.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weft_io::pcap::PcapWriter;
use weft_wire::{MacAddr, Nanos};

use super::{Foreign, listed};
use crate::replay::load::ReplayError;
use crate::replay::recorded::align;

impl Foreign<'_> {
    /// Compares what came out with what the box of the capture sent.
    pub(super) fn finish(&mut self) -> Result<(), ReplayError> {
        self.write()?;
        if self.theirs.is_empty() {
            let note = "the capture has nothing that the box sent: nothing is compared";
            self.outcome.notes.push(note.to_owned());
        }
        let receivers: BTreeSet<_> = self.theirs.keys().chain(self.ours.keys()).collect();
        for to in receivers.into_iter().filter(|_| !self.theirs.is_empty()) {
            let place = (0, Nanos(0), &*format!("frame to {to}"));
            let expected = self.theirs.get(to).map_or(&[][..], Vec::as_slice);
            let got = self.ours.get(to).map_or(&[][..], Vec::as_slice);
            align(&mut self.outcome, place, expected, got, &self.options);
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
        let has_sent = |ip: &&IpAddr| self.survey.ranks.keys().any(|addr| addr.ip() == **ip);
        for ip in self.map.keys().filter(|ip| !has_sent(ip)) {
            self.outcome.notes.push(format!("the capture has no contribution of {ip} (--map)"));
        }
        if self.survey.joined > 0 {
            let note = format!(
                "{} packets hold several datagrams, as before a card that cuts them: each is taken \
                 for itself",
                self.survey.joined
            );
            self.outcome.notes.push(note);
        }
        if !self.outcome.skipped.is_empty() {
            let note = format!("without a place, in frames: {}", listed(&self.outcome.skipped));
            self.outcome.notes.push(note);
        }
        Ok(())
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
