//! Decides when a cohort has begun, and what becomes of one that does not: whoever asked for the
//! resize is told in time who is missing, and another word may follow.
//!
//! Nothing is lost meanwhile: no round of the cohort's has ended, so that its first round and the
//! checkpoint of that stand. Invariants: an overdue cohort that begins late has begun; one that
//! ever began, also under a former life of the controller, is never overdue.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use weft_control::{CohortId, RoundOrder};
use weft_wire::Rank;

use super::beginning::Beginning;
use super::job::{Out, Phase, Reduce, Worker};
use super::places::width;
use crate::steered::{Resize, SteerError};

impl Reduce {
    /// Why the cohort has not begun, once that took too long; else empty.
    pub(crate) fn unbegun(&self) -> &str {
        self.beginning.overdue.as_deref().unwrap_or_default()
    }

    /// It is the outcome of a resize, and waits for its workers.
    pub(super) fn is_awaited(&self) -> bool {
        let is_known = self.beginning.is_seen || self.beginning.is_known;
        self.cohort.id > CohortId(0) && self.phase == Phase::Running && !is_known
    }

    /// Nobody passes a round that not all have begun.
    pub(super) fn is_begun(&self) -> bool {
        let first = self.cohort.from_round;
        let is_second = |next: u64| next > first.saturating_add(1);
        self.all(|at| at.next > first)
            || self
                .workers
                .iter()
                .any(|worker| worker.is_attached && is_second(worker.position.next))
    }

    pub(super) fn note_begun(&mut self, now_ns: u64) {
        if self.beginning.is_seen || !self.is_begun() {
            return;
        }
        let before = self.state();
        self.is_unsaved |= !self.beginning.is_known;
        self.beginning = Beginning { is_seen: true, is_known: true, ..Beginning::default() };
        if let Some(mut resize) = self.begins.take() {
            resize.begun(now_ns);
            self.note_resize(resize);
            self.out.push(Out::Resized(Ok(resize)));
        }
        if self.state() != before {
            self.out.push(Out::State(self.state(), None));
        }
    }

    /// When the cohort is overdue.
    pub(super) fn overdue_ns(&self) -> Option<u64> {
        let since_ns = self.beginning.since_ns.filter(|_| self.beginning.overdue.is_none())?;
        Some(since_ns.saturating_add(self.begin_timeout_ns()))
    }

    fn begin_timeout_ns(&self) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        let timeout_ns = (self.config.begin_timeout_s * 1e9) as u64;
        timeout_ns
    }

    /// Gives up waiting for a cohort that does not begin. The first one nobody asked for.
    pub(super) fn check_begun(&mut self, now_ns: u64) {
        if !self.is_awaited() {
            return;
        }
        if self.beginning.overdue.is_some() {
            // It is told once; who looks sees what is missing by now.
            self.beginning.overdue = Some(self.overdue_problem());
            return;
        }
        let since_ns = *self.beginning.since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) < self.begin_timeout_ns() {
            return;
        }
        let problem = self.overdue_problem();
        self.beginning.overdue = Some(problem.clone());
        self.out.push(Out::Resized(Err(problem)));
    }

    fn overdue_problem(&self) -> String {
        format!(
            "name: the {} workers of `{}` have not begun round {} within {} s: {}; start them, or \
             resize the job again",
            self.cohort.workers,
            self.config.name,
            self.cohort.from_round,
            self.config.begin_timeout_s,
            self.what_is_missing(),
        )
    }

    /// Why workers are not welcomed, if they are not.
    pub(super) fn lease_problem(&self) -> Option<String> {
        if self.is_leased() {
            return None;
        }
        let aggregator = &self.config.aggregator;
        Some(match self.refused {
            _ if !self.box_.is_attached => format!("their aggregator `{aggregator}` is not here"),
            Some(error) => format!("their aggregator `{aggregator}` refuses the lease: {error}"),
            None => format!("their aggregator `{aggregator}` has not answered about the lease"),
        })
    }

    fn what_is_missing(&self) -> String {
        if let Some(problem) = self.lease_problem() {
            return problem;
        }
        let ranks = |is_so: &dyn Fn(&Worker) -> bool| {
            let of = self.workers.iter().zip(0u32..).filter(|(worker, _)| is_so(worker));
            of.map(|(_, rank)| rank.to_string()).collect::<Vec<String>>().join(", ")
        };
        let absent = ranks(&|worker| !worker.is_attached);
        match absent.is_empty() {
            false => format!("rank {absent} has no stream"),
            true => {
                let first = self.cohort.from_round;
                let waiting = ranks(&|worker| worker.position.next <= first);
                format!("rank {waiting} has a stream, and does not begin")
            }
        }
    }

    /// A cohort that did not begin in time makes room for another one, which begins where it was
    /// to.
    pub(super) fn resize_unbegun(
        &mut self,
        now_ns: u64,
        places: Vec<u16>,
    ) -> Result<(), SteerError> {
        if self.beginning.overdue.is_none() {
            return Err(SteerError::Resizing);
        }
        let (from, to) = (self.cohort.workers, width(&places));
        let over: Vec<Rank> = self.attached_ranks().collect();
        if self.is_leased() {
            // That lease fits: it is there.
            self.before = Some(self.places.clone());
        }
        let before = self.begins.take().unwrap_or_default();
        let stop = (before.stop_ns, before.checkpoint_ns);
        self.begins = Some(Resize {
            from: if before.from > 0 { before.from } else { from },
            to,
            round: self.cohort.from_round,
            stop_ns: stop.0,
            checkpoint_ns: stop.1,
            since_ns: now_ns,
            ..Resize::default()
        });
        self.begin_cohort(places, self.cohort.from_round);
        let turn = self.turn;
        self.out.extend(over.into_iter().map(|rank| Out::Order(rank, turn, RoundOrder::Bye)));
        self.lease();
        Ok(())
    }
}
