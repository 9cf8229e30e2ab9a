//! Runs of contributions: those that follow another one of their lane in a burst.
//!
//! What `poll.rs` asks before each frame is asked once, before the first; here is what is left of
//! it for the others. Invariant: of one lane the frames are those that [`Worker::poll_transmit`]
//! would have given (tests/run.rs holds the two against each other).

use weft_wire::Nanos;
use weft_wire::header::HEADER_LEN;

use super::Worker;
use super::config::Payload;
use super::lane::{Lane, Shared};
use super::slot::{Action, Send};

impl Worker {
    /// How many contributions [`Worker::poll_run`] would give now at most; often 0.
    #[must_use]
    pub fn run_len_max(&self) -> usize {
        let lane = self.run_lane.and_then(|index| self.lanes.get(index));
        lane.map_or(0, |lane| {
            let window = lane.path.window();
            lane.steps.as_ref().map_or(0, |steps| steps.run_len_max(window))
        })
    }

    /// To be called behind [`Worker::poll_transmit`] with the same `now`: writes contributions that
    /// follow what that gave, each to the next of `frames`. Returns how many, and the bytes of each
    /// frame. When there are no more, `poll_transmit` knows what else there is.
    ///
    /// # Panics
    /// If one of `frames` is shorter than [`Worker::frame_len_max`].
    pub fn poll_run(
        &mut self,
        now: Nanos,
        payload: &dyn Payload,
        frames: &mut [&mut [u8]],
    ) -> (usize, usize) {
        let mut len = 0;
        let count = self.write_run(now, frames.len(), |lane, ctx, action, index| {
            let frame = &mut *frames[index];
            let exponent = lane.write_chunk(ctx, action, payload, frame)?;
            len = lane.wrap(ctx, frame, ctx.body_len(), false);
            Some(exponent)
        });
        (count, len)
    }

    /// As [`Worker::poll_run`], of contributions that follow the first in its own frame: each is a
    /// datagram without headers, as long as that one, up to `count_max` of them. Returns how many.
    /// What goes so has no UDP checksum: whoever makes the headers makes it.
    pub fn poll_joined_run(
        &mut self,
        now: Nanos,
        payload: &dyn Payload,
        frame: &mut [u8],
        count_max: usize,
    ) -> usize {
        self.write_run(now, count_max, |lane, ctx, action, index| {
            let headers_len = lane.encap.header_len();
            let datagram_len = HEADER_LEN + ctx.body_len();
            // Headers would stand over the end of the datagram before, and are not written.
            let place = frame.get_mut((index + 1) * datagram_len..)?;
            let place = place.get_mut(..headers_len + datagram_len)?;
            let exponent = lane.write_chunk(ctx, action, payload, place)?;
            lane.seal(ctx, &mut place[headers_len..], false);
            Some(exponent)
        })
    }

    /// Has up to `count_max` contributions written by `write`, which is told the lane, what to
    /// write and how many it has written; returns how many.
    fn write_run(
        &mut self,
        now: Nanos,
        count_max: usize,
        mut write: impl FnMut(&Lane, &Shared, Action, usize) -> Option<i8>,
    ) -> usize {
        let lane = self.run_lane.take().and_then(|index| self.lanes.get_mut(index));
        let Some(lane) = lane.filter(|lane| lane.is_open()) else { return 0 };
        let (window, sent) = (lane.path.window(), lane.path.send(now));
        let deadline = lane.path.deadline(&sent);
        let mut count = 0;
        while count < count_max
            && let Some(step) = lane.steps.as_ref().and_then(|steps| steps.next_of_run(window))
        {
            let action = Action { step, send: Send::Contribution, repeat: false };
            let written = write(lane, &self.shared, action, count);
            let (Some(exponent), Some(steps)) = (written, &mut lane.steps) else { break };
            steps.sent_in_run(step, now, sent, deadline, exponent);
            count += 1;
        }
        self.stats.chunks_sent += count as u64;
        count
    }
}

impl Lane {
    fn write_chunk(
        &self,
        ctx: &Shared,
        action: Action,
        payload: &dyn Payload,
        frame: &mut [u8],
    ) -> Option<i8> {
        let lease = ctx.lease.as_ref()?;
        self.write_contribution(ctx, lease, action, payload, frame)
    }
}
