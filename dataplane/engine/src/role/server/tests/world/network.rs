//! The network: loses, doubles, delays and corrupts by seed; carries out what engines say.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::frame::{Datagram, Udp};

use super::{AGGREGATOR, FRAME_LEN, REPLICA, SERVER, World};
use crate::role::Verdict;

impl World {
    fn chance(&mut self, per_1024: u64) -> bool {
        self.random.next_u64() % 1024 < per_1024
    }

    pub(super) fn post(&mut self, mut frame: Vec<u8>) {
        let faults = self.setup.faults;
        if self.chance(faults.loss) {
            return;
        }
        if self.chance(faults.corruption)
            && let Ok(udp) = Udp::parse(&frame)
        {
            let range = udp.payload_range();
            let at = usize::try_from(self.random.next_u64() % range.len() as u64).unwrap();
            frame[range.start + at] ^= 1 << (self.random.next_u64() % 8);
        }
        for _ in 0..1 + u64::from(self.chance(faults.duplication)) {
            let jitter = match faults.jitter_ns {
                0 => 0,
                span => self.random.next_u64() % span,
            };
            self.serial += 1;
            self.flights.insert((self.now.0 + LATENCY_NS + jitter, self.serial), frame.clone());
        }
    }

    pub(super) fn deliver(&mut self, mut frame: Vec<u8>) {
        let Ok(udp) = Datagram::find(&frame) else { return };
        let host = frame[udp.payload_start() - 9];
        let len = frame.len();
        frame.resize(FRAME_LEN.max(len), 0);
        let now = self.now;
        let verdict = match host {
            SERVER if self.successor.is_some() => return,
            SERVER => self.server.handle_frame(now, &mut frame, len),
            REPLICA => match self.successor.as_mut().or(self.replica.as_mut()) {
                Some(replica) => replica.handle_frame(now, &mut frame, len),
                None => return,
            },
            AGGREGATOR => match &mut self.aggregator {
                Some(aggregator) => aggregator.handle_frame(now, &mut frame, len),
                None => return,
            },
            rank => {
                if let Some(worker) = self.workers.get_mut(usize::from(rank.wrapping_sub(1))) {
                    let _ = worker.pusher.handle_frame(now, &mut frame[..len]);
                }
                return;
            }
        };
        match verdict {
            Verdict::Send { len } => self.post(frame[..len].to_vec()),
            Verdict::Fan { len, push } => {
                let gather = self.aggregator.as_ref().unwrap().gather();
                let frame = frame[..len].to_vec();
                let mut copies = vec![frame.clone()];
                for peer in gather.copies(push, &frame) {
                    let mut copy = frame.clone();
                    let head_len = gather.copy_header_len(push);
                    if gather.address_copy(push, peer, &mut copy[..head_len], len) {
                        copies.push(copy);
                    }
                }
                copies.into_iter().for_each(|copy| self.post(copy));
            }
            Verdict::Drop(_) | Verdict::Hold | Verdict::Host => {}
            Verdict::Multicast { .. } => panic!("no allreduce here"),
        }
    }
}

const LATENCY_NS: u64 = 100_000;
