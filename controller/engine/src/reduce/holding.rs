//! What the box is told to hold for an allreduce job: its share, and the lease of its cohort and no
//! other, one command at a time.
//!
//! Invariants: a lease counts as the cohort's only if it was installed for it, where there was none
//! before; one of which nothing is known is removed first. Before a box is told to install a lease
//! it is saved which, so that a controller that dies before the answer does not take it away from
//! workers that use it by then.

use weft_control::{Event, Holding, HoldingCommand, HoldingError};

use super::job::{BoxState, Out, Reduce};
use super::lease;

impl Reduce {
    pub(crate) fn attach_box(&mut self, has: impl Fn(Holding) -> bool) {
        self.box_ = BoxState {
            is_attached: true,
            has_share: has(Holding::Job),
            has_row: has(Holding::Row(self.config.row)),
            ..BoxState::default()
        };
        let known = self.leased;
        if !self.box_.has_row {
            self.leased = None;
        } else if self.leasing == Some(self.cohort.id) {
            // There was none when it was told to install this one.
            self.leased = self.leasing;
        }
        self.is_unsaved |= self.leased != known;
        self.lease();
        self.welcome();
    }

    pub(crate) fn detach_box(&mut self) {
        self.box_ = BoxState { has_row: self.box_.has_row, ..BoxState::default() };
    }

    pub(crate) fn handle_box(&mut self, now_ns: u64, event: &Event) {
        let own_row = Holding::Row(self.config.row);
        match *event {
            Event::HoldingInstalled { holding: Holding::Job } => self.box_.has_share = true,
            Event::HoldingRemoved { holding: Holding::Job } => self.box_.has_share = false,
            Event::HoldingInstalled { holding } if holding == own_row => {
                self.box_.has_row = true;
                // Else somebody else installed it, and it is not known to be the cohort's.
                if self.box_.asked.is_some() {
                    self.leased = self.box_.asked;
                    self.is_unsaved = true;
                }
                if self.leased == Some(self.cohort.id) {
                    (self.before, self.refused) = (None, None);
                    if let Some(resize) = &mut self.begins {
                        resize.leased(now_ns);
                    }
                }
            }
            Event::HoldingRemoved { holding } if holding == own_row => self.box_.has_row = false,
            Event::HoldingRefused { holding, error } => {
                if holding == Holding::Job && error == HoldingError::Taken {
                    self.box_.has_share = true;
                } else if holding == own_row && error == HoldingError::Missing {
                    self.box_.has_row = false;
                } else {
                    self.lease_refused(now_ns, error);
                }
            }
            _ => return,
        }
        self.box_.asked = None;
        self.lease();
        self.welcome();
    }

    /// The box has the cohort's lease, or will not have it: who asks for it may be told.
    pub(crate) fn is_box_settled(&self) -> bool {
        let is_refused = self.refused.is_some() && self.before.is_none();
        self.is_leased() || (is_refused && self.box_.asked.is_none())
    }

    /// When a lease that was refused is asked for again, a stop given up, or a cohort overdue.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.retry_ns().into_iter().chain(self.given_up_ns()).chain(self.overdue_ns()).min()
    }

    fn retry_ns(&self) -> Option<u64> {
        self.box_.retry_ns.filter(|_| self.box_.is_attached)
    }

    pub(crate) fn handle_timeout(&mut self, now_ns: u64) {
        if self.retry_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.box_.retry_ns = None;
            self.lease();
        }
        self.advance(now_ns);
        self.check_stop(now_ns);
        self.check_begun(now_ns);
    }

    /// Has the box hold the cohort's lease and no other, one command at a time.
    pub(super) fn lease(&mut self) {
        let BoxState { is_attached, has_share, has_row, asked, retry_ns } = self.box_;
        // Also while the cohort leaves: workers that have just come may be calling the box yet, and
        // keep nothing before it has answered them.
        if !is_attached || asked.is_some() || retry_ns.is_some() {
            return;
        }
        let job = self.id;
        let command = if has_row && self.leased != Some(self.cohort.id) {
            HoldingCommand::RemoveLease { job, row: self.config.row }
        } else if !has_share {
            HoldingCommand::InstallJob(lease::share(&self.config))
        } else if !has_row {
            self.leasing = Some(self.cohort.id);
            self.is_unsaved = true;
            HoldingCommand::InstallLease(lease::row(&self.config, &self.places))
        } else {
            return;
        };
        self.box_.asked = Some(self.cohort.id);
        self.out.push(Out::Hold(command));
    }

    fn lease_refused(&mut self, now_ns: u64, error: HoldingError) {
        self.refused = Some(error);
        self.leasing = None;
        self.box_.retry_ns = Some(now_ns.saturating_add(LEASE_RETRY_NS));
        // The width that was there before fits: it did.
        let Some(before) = self.before.take() else { return };
        let problem = format!(
            "the aggregator refuses the lease of {} workers, so the job goes on with {}: {}",
            self.cohort.workers,
            before.len(),
            error
        );
        self.box_.retry_ns = None;
        self.begins = None;
        self.begin_cohort(before, self.cohort.from_round);
        self.out.push(Out::Resized(Err(problem)));
    }
}

/// How long a box that refused a lease is left alone.
const LEASE_RETRY_NS: u64 = 1_000_000_000;
