//! Runs of contributions: those that follow another one of their lane in a burst.
//!
//! What `poll.rs` asks before each frame is asked once, before the first; here is what is left of
//! it for the others. Invariant: of one lane the frames are those that [`Worker::poll_transmit`]
//! would have given (tests/run.rs holds the two against each other).

use weft_wire::Nanos;

use super::Worker;
use super::config::Payload;
use super::lane::{Lane, Shared};
use super::slot::{Action, Send};
use super::stats::WorkerStats;

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
        let lane = self.run_lane.take().and_then(|index| self.lanes.get_mut(index));
        match lane {
            Some(lane) => lane.write_run(now, &self.shared, payload, frames, &mut self.stats),
            None => (0, 0),
        }
    }
}

impl Lane {
    fn write_run(
        &mut self,
        now: Nanos,
        ctx: &Shared,
        payload: &dyn Payload,
        frames: &mut [&mut [u8]],
        stats: &mut WorkerStats,
    ) -> (usize, usize) {
        let Some(lease) = ctx.lease.as_ref().filter(|_| self.is_open()) else { return (0, 0) };
        let (window, sent) = (self.path.window(), self.path.send(now));
        let deadline = self.path.deadline(&sent);
        let (mut count, mut len) = (0, 0);
        for frame in frames {
            let Some(step) = self.steps.as_ref().and_then(|steps| steps.next_of_run(window)) else {
                break;
            };
            let action = Action { step, send: Send::Contribution, repeat: false };
            let written = self.write_contribution(ctx, lease, action, payload, frame);
            let (Some(exponent), Some(steps)) = (written, &mut self.steps) else { break };
            steps.sent_in_run(step, now, sent, deadline, exponent);
            len = self.wrap(ctx, frame, lease.chunk_len(), false);
            count += 1;
        }
        stats.chunks_sent += count as u64;
        (count, len)
    }
}
