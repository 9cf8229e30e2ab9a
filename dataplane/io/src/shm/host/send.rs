//! Frames of the box on their way to its workers: to one of them through its ring, or to all that
//! hear an address, written once.

use weft_wire::frame::{Datagram, UdpAddr};

use super::ShmHost;
use crate::port::{Burst, Port};
use crate::shm::count;
use crate::shm::ring::Broken;

/// What a burst has come to.
#[derive(Default)]
struct Outcome {
    /// Links that have something new, a bit for each.
    told: u64,
    /// A link whose memory makes no sense.
    broken: Option<usize>,
}

impl<P: Port> ShmHost<P> {
    /// Sends what is a worker's; what is left is the inner port's, in order.
    pub(super) fn send_shared(&mut self, tx: &mut Burst<P::Frame>) -> usize {
        let mut left = Burst::new();
        let mut done = Burst::new();
        let mut outcome = Outcome::default();
        let mut hint = 0;
        for frame in tx.drain(..) {
            let bytes = frame.as_ref();
            if let Some(group) = group(bytes) {
                self.cast(group, bytes, &mut outcome);
                let onward = if self.has_inner_casts { &mut left } else { &mut done };
                onward.push(frame);
                continue;
            }
            let Some(index) = self.link_of(bytes, hint) else {
                left.push(frame);
                continue;
            };
            hint = index + 1;
            let put = self.links[index].down.put(bytes);
            self.note_put(index, bytes.len(), put, &mut outcome);
            done.push(frame);
        }
        let sent = done.len();
        self.free(&mut done);
        *tx = left;
        let Outcome { mut told, broken } = outcome;
        while told != 0 {
            self.links[told.trailing_zeros() as usize].publish();
            told &= told - 1;
        }
        if let Some(index) = broken {
            self.give_up(index);
        }
        sent
    }

    /// Writes a frame where all workers read, and tells those that hear its address.
    fn cast(&mut self, group: UdpAddr, frame: &[u8], outcome: &mut Outcome) {
        let mut number = None;
        for index in 0..self.links.len() {
            let (Some(casts), link) = (&mut self.casts, &mut self.links[index]) else { return };
            if link.hears(group) {
                let number = *number.get_or_insert_with(|| casts.put(frame));
                let put = link.down.put_cast(number, frame.len());
                self.note_put(index, frame.len(), put, outcome);
            }
        }
    }

    /// Counts what became of a frame for a link.
    fn note_put(
        &mut self,
        index: usize,
        len: usize,
        put: Result<bool, Broken>,
        outcome: &mut Outcome,
    ) {
        match put {
            Ok(true) => {
                self.stats.tx_packets += 1;
                self.stats.tx_bytes += len as u64;
                outcome.told |= 1 << index;
            }
            Ok(false) => {
                count(&self.counts.0.ring_full);
                self.stats.tx_errors += 1;
            }
            Err(Broken) => {
                outcome.broken = Some(index);
                self.stats.tx_errors += 1;
            }
        }
    }

    /// The link of this frame's addressee; most often the one after `hint`.
    fn link_of(&self, frame: &[u8], hint: usize) -> Option<usize> {
        let target = Datagram::find(frame).ok()?.target(frame);
        let count = self.links.len();
        (hint..hint + count).map(|at| at % count).find(|at| self.links[*at].owns(target))
    }
}

/// The multicast address that a frame goes to, if it is one.
#[inline]
fn group(frame: &[u8]) -> Option<UdpAddr> {
    // The first bit of such an Ethernet address is set (IEEE 802).
    if frame.first()? & 1 == 0 {
        return None;
    }
    let target = Datagram::find(frame).ok()?.target(frame);
    target.is_multicast().then_some(target)
}
