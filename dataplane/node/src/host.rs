//! The host side of a box's port that has no kernel behind it.
//!
//! Gets the frames that are not Weft's, one at a time, and may answer each with one frame, in the
//! buffer that it came in; what to answer [`HostStack`] knows. A token bucket bounds how many it
//! looks at, so that a flood of pings costs the lane little (I8).

use weft_config::node::HostAddr;
use weft_engine::send::pacer::TokenBucket;
use weft_io::host::{FRAMES_BURST_MAX, FRAMES_PER_SEC_MAX, HostStack};
use weft_io::{Frame, Port};
use weft_lane::HostSide;
use weft_wire::{MacAddr, Nanos};

/// What the host side did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Serialize)]
pub struct HostStats {
    /// Frames that were not Weft's.
    pub frames: u64,
    /// Of these, answered.
    pub answered: u64,
    /// Of these, dropped unseen because too many came.
    pub over_rate: u64,
}

/// The host side, or silence where a kernel answers.
#[derive(Default)]
pub struct Host {
    stack: Option<(HostStack, TokenBucket)>,
    stats: HostStats,
}

impl Host {
    /// Answers nothing and counts: for ports behind a kernel.
    #[must_use]
    pub fn silent() -> Self {
        Self::default()
    }

    /// Answers for `addr` at `mac`. `seed` is smoltcp's.
    #[must_use]
    pub fn answering(addr: HostAddr, mac: MacAddr, mtu: u16, seed: u64) -> Self {
        let stack = HostStack::new(addr.ip, addr.prefix_len, mac, mtu, seed);
        let bucket = TokenBucket::new(FRAMES_PER_SEC_MAX, FRAMES_BURST_MAX);
        Self { stack: Some((stack, bucket)), stats: HostStats::default() }
    }

    /// True when it answers anything.
    #[must_use]
    pub fn is_answering(&self) -> bool {
        self.stack.is_some()
    }

    /// What it did.
    #[must_use]
    pub fn stats(&self) -> HostStats {
        self.stats
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl<P: Port> HostSide<P> for Host {
    fn handle(&mut self, now: Nanos, _port: &mut P, mut frame: P::Frame) -> Option<P::Frame> {
        self.stats.frames += 1;
        let (stack, bucket) = self.stack.as_mut()?;
        if !bucket.take(now, 1) {
            self.stats.over_rate += 1;
            return None;
        }
        let answer = stack.answer(now, frame.as_ref())?;
        if answer.len() > frame.buffer_mut().len() {
            return None;
        }
        frame.set_len(answer.len());
        frame.as_mut().copy_from_slice(answer);
        self.stats.answered += 1;
        Some(frame)
    }
}

#[cfg(test)]
mod tests;
