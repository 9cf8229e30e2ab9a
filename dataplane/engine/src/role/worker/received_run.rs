//! Runs of sums: datagrams of one message, whose addresses are looked at once.
//!
//! Invariant: what is taken here `handle_frame` would have taken, to the same effect (tests/
//! received_run.rs holds the two against each other).

use weft_wire::Nanos;
use weft_wire::frame::Udp;
use weft_wire::header::{HEADER_LEN, Packet};

use super::config::Payload;
use super::data::Arrived;
use super::{Worker, WorkerState};

impl Worker {
    /// Takes ordinary sums from the front of `datagrams`, each `datagram_len` bytes long but for
    /// the last, which may be shorter, all with these headers; returns how many. The next one is
    /// for [`Worker::handle_frame`], with headers of its own, and then the others may be for this
    /// again.
    pub fn handle_run(
        &mut self,
        now: Nanos,
        udp: &Udp,
        datagrams: &[u8],
        datagram_len: usize,
        payload: &mut dyn Payload,
    ) -> usize {
        let by_multicast = udp.target.ip().is_multicast();
        let Some(index) = self.lane_of(udp.target) else { return 0 };
        if udp.source != self.lanes[index].box_addr() {
            return 0;
        }
        let mut count = 0;
        for datagram in datagrams.chunks(datagram_len.max(1)) {
            if self.state == WorkerState::Stopped {
                break;
            }
            let (ctx, lane) = (&self.shared, &mut self.lanes[index]);
            let (Some(header), Some(lease)) = (datagram.first_chunk(), ctx.lease.as_ref()) else {
                break;
            };
            let packet = Packet::new_unchecked(&header[..HEADER_LEN]);
            let (chunk, shards) = (packet.chunk(), u32::from(lease.shards));
            let is_here = chunk.0 % shards == u32::from(lane.index) && lane.is_open();
            let known = lane.known.as_ref().filter(|_| is_here);
            let sum = known
                .and_then(|known| known.ordinary_sum(datagram, header, by_multicast, ctx.crc32c));
            let Some(sum) = sum else { break };
            let arrived = Arrived {
                now,
                chunk,
                exponent: packet.exponent(),
                flags: packet.flags(),
                by_multicast,
                is_marked: udp.congestion,
            };
            lane.take_word(now);
            let step = chunk.0 / shards;
            let taken = lane.take_answer(&arrived, ctx, step, sum, payload, &mut self.stats);
            let outcome = taken.map(|event| self.take_data_event(now, event, payload));
            // Counted; there is nothing else to do about it.
            let _ = self.note_refusal(outcome);
            count += 1;
        }
        count
    }
}
