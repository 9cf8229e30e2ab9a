//! When a polling lcore sleeps, and for how long: not at all while frames come, then ever longer.
//! Decides only; the caller sleeps.

use weft_config::node::IdleSection;

/// Back-off of one lane.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    config: IdleSection,
    empty_breaths: u32,
    pause_us: u64,
}

impl Idle {
    /// Starts awake.
    #[must_use]
    pub fn new(config: IdleSection) -> Self {
        Self { config, empty_breaths: 0, pause_us: config.pause_min_us }
    }

    /// Takes in how many frames a breath found; returns how long to sleep, in nanoseconds.
    /// `until_due_ns` is the time to the engine's next own action, which a sleep must not pass.
    pub fn after_breath(&mut self, frames: usize, until_due_ns: u64) -> Option<u64> {
        if frames > 0 {
            *self = Self::new(self.config);
            return None;
        }
        self.empty_breaths = self.empty_breaths.saturating_add(1);
        match self.config.breaths {
            None | Some(0) => return None,
            Some(breaths) if self.empty_breaths < breaths => return None,
            Some(_) => {}
        }
        let pause_ns = (self.pause_us * 1000).min(until_due_ns);
        self.pause_us = (self.pause_us * 2).min(self.config.pause_max_us);
        (pause_ns > 0).then_some(pause_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: IdleSection =
        IdleSection { breaths: Some(3), pause_min_us: 50, pause_max_us: 150 };

    #[test]
    fn pauses_begin_after_the_empty_breaths_and_double_to_the_limit() {
        let mut idle = Idle::new(CONFIG);
        let pauses: Vec<_> = (0..6).map(|_| idle.after_breath(0, u64::MAX)).collect();
        let expected = [None, None, Some(50_000), Some(100_000), Some(150_000), Some(150_000)];
        assert_eq!(pauses, expected);
    }

    #[test]
    fn a_frame_wakes_it() {
        let mut idle = Idle::new(CONFIG);
        while idle.after_breath(0, u64::MAX) != Some(150_000) {}
        assert_eq!(idle.after_breath(1, u64::MAX), None);
        assert_eq!(idle.after_breath(0, u64::MAX), None);
        assert_eq!(idle.after_breath(0, u64::MAX), None);
        assert_eq!(idle.after_breath(0, u64::MAX), Some(50_000));
    }

    #[test]
    fn it_never_sleeps_past_what_is_due_nor_when_told_not_to() {
        let mut idle = Idle::new(IdleSection { breaths: Some(1), ..CONFIG });
        assert_eq!(idle.after_breath(0, 7), Some(7));
        assert_eq!(idle.after_breath(0, 0), None);
        let mut never = Idle::new(IdleSection { breaths: Some(0), ..CONFIG });
        assert!((0..1000).all(|_| never.after_breath(0, u64::MAX).is_none()));
    }
}
