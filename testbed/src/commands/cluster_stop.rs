//! A simulation that ends when a signal comes, and lets go of what it has started: an outside
//! policy's process is killed and waited for when its scheduler is dropped.

use weft_jobs::policy::{Decision, Delta, PolicyError, Scheduler};
use weft_testbed::interrupt;

/// A scheduler that fails once a signal came.
#[derive(Debug)]
pub(super) struct Stoppable {
    pub(super) policy: String,
    pub(super) scheduler: Box<dyn Scheduler>,
}

impl Stoppable {
    fn check(&self) -> Result<(), PolicyError> {
        if !interrupt::is_raised() {
            return Ok(());
        }
        Err(PolicyError::NoAnswer { policy: self.policy.clone(), reason: "a signal came".into() })
    }
}

impl Scheduler for Stoppable {
    fn handle(&mut self, now_ns: u64, delta: Delta<'_>) -> Result<(), PolicyError> {
        self.check()?;
        self.scheduler.handle(now_ns, delta)
    }

    fn poll(&mut self, now_ns: u64, decision: &mut Decision) -> Result<(), PolicyError> {
        self.check()?;
        self.scheduler.poll(now_ns, decision)
    }
}
