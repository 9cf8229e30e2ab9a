//! Decides how long a stop may take, and what is said of one that takes longer: whoever asked is
//! told who was waited for, and the job goes on as it was.
//!
//! A worker without a stream is waited for [`MISSING_MAX_NS`]; one that is there may take
//! `stop_timeout_s` until it stands at the boundary, and as long again for its checkpoint. Nothing
//! of a resize is done by then: the cohort and its lease are those of before, and the places that
//! it was to get are free. Invariant: a pause that a former life was told is not given up, for
//! nobody would hear that it does not stand.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use weft_control::Halt;

use super::job::{Out, Phase, Reduce, Why, Worker};
use super::stopping::{Part, Stopping};

impl Reduce {
    /// When a stop is given up.
    pub(super) fn given_up_ns(&self) -> Option<u64> {
        let Stopping { missing_since_ns, since_ns } = self.stopping;
        let missing = missing_since_ns.map(|since_ns| since_ns.saturating_add(MISSING_MAX_NS));
        let late = since_ns.map(|(_, since_ns)| since_ns.saturating_add(self.stop_timeout_ns()));
        missing.into_iter().chain(late).min()
    }

    fn stop_timeout_ns(&self) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        let timeout_ns = (self.config.stop_timeout_s * 1e9) as u64;
        timeout_ns
    }

    /// Gives a stop up that took too long.
    pub(super) fn check_stop(&mut self, now_ns: u64) {
        let stop = match self.phase {
            Phase::Halting { why: Why::Pause(_), asked_ns: None, .. } => None,
            Phase::Halting { why, .. } => Some((why, Part::Standstill)),
            Phase::Leaving { to, .. } => Some((Why::Resize(to), Part::Checkpoint)),
            Phase::Running | Phase::Paused { .. } => None,
        };
        let Some((why, part)) = stop else {
            self.stopping = Stopping::default();
            return;
        };
        let since = self.stopping.since_ns.filter(|(known, _)| *known == part);
        let (_, since_ns) = *self.stopping.since_ns.insert(since.unwrap_or((part, now_ns)));
        let is_missing = self.attached() < self.workers.len();
        let missing_ns = self.stopping.missing_since_ns.unwrap_or(now_ns);
        self.stopping.missing_since_ns = is_missing.then_some(missing_ns);
        let is_over = |since_ns: u64, most_ns| now_ns.saturating_sub(since_ns) >= most_ns;
        let problem = if is_missing && is_over(missing_ns, MISSING_MAX_NS) {
            let ranks = self.ranks_that(|worker| !worker.is_attached);
            format!(
                "name: the job has ended, or lost workers: rank {ranks} had no stream for {} s, \
                 and all must stop before the same round",
                MISSING_MAX_NS / 1_000_000_000
            )
        } else if is_over(since_ns, self.stop_timeout_ns()) {
            format!(
                "name: `{}` did not stop within {} s: {}; it goes on as it was",
                self.config.name,
                self.config.stop_timeout_s,
                self.what_is_awaited()
            )
        } else {
            return;
        };
        self.stopping = Stopping::default();
        self.give_up(why, problem);
    }

    /// Who a stop waits for, and what it has not done.
    fn what_is_awaited(&self) -> String {
        if let Some(problem) = self.lease_problem() {
            return problem;
        }
        let boundary = self.boundary();
        let (ranks, problem) = match (self.phase, boundary) {
            (Phase::Leaving { .. }, Some(boundary)) => (
                self.ranks_that(|worker| worker.position.halt != Halt::Left),
                format!("has not kept the checkpoint of round {boundary}"),
            ),
            (_, Some(boundary)) => (
                self.ranks_that(|worker| {
                    worker.position.halt < Halt::Stopped || worker.position.next != boundary
                }),
                format!("does not stand before round {boundary}"),
            ),
            (_, None) => (
                self.ranks_that(|worker| worker.position.halt < Halt::Held),
                "has not said where it is".into(),
            ),
        };
        format!("rank {ranks} {problem}")
    }

    /// The ranks of which something is so, or that have no stream.
    fn ranks_that(&self, is_so: impl Fn(&Worker) -> bool) -> String {
        let awaited = |worker: &Worker| !worker.is_attached || is_so(worker);
        let of = self.workers.iter().zip(0u32..).filter(|(worker, _)| awaited(worker));
        of.map(|(_, rank)| rank.to_string()).collect::<Vec<String>>().join(", ")
    }

    /// The job goes on as it was.
    pub(super) fn give_up(&mut self, why: Why, problem: String) {
        // First, so that nobody takes the job's going on for the answer.
        self.out.push(match why {
            Why::Pause(_) => Out::Unpaused(problem),
            Why::Resize(_) => Out::Resized(Err(problem)),
        });
        self.turn_to(Phase::Running);
    }
}

/// How long a stop waits for a worker that has no stream: more than one takes to call again, and
/// than it holds for a controller that has gone.
const MISSING_MAX_NS: u64 = 10_000_000_000;
