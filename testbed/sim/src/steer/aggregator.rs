//! The box: a name for what it holds. What it sums when all have begun.

use weft_control::{Event as BoxEvent, Holding, HoldingCommand, HoldingError, NodeHello};

use super::worker::Worker;
use super::world::{Event, JOB, MS, World};

/// The box.
#[derive(Debug, Default)]
pub(super) struct AggregatorBox {
    pub(super) is_up: bool,
    pub(super) life: u64,
    pub(super) stream: Option<u64>,
    /// It was told that it holds all that there is for it, and so may say what it does not serve.
    pub(super) is_settled: bool,
    pub(super) has_share: bool,
    pub(super) row: Option<u16>,
    /// Whose that is.
    pub(super) cohort: Option<u32>,
}

impl World {
    pub(super) fn kill_box(&mut self) {
        if !self.box_.is_up {
            return;
        }
        self.seen.boxes_killed[self.state_index()] += 1;
        let life = self.box_.life;
        if self.box_.stream.is_some()
            && let Some(controller) = &mut self.controller
        {
            controller.handle_node_gone(self.now_ns, self.node);
        }
        self.box_ = AggregatorBox { life, ..AggregatorBox::default() };
        let away_ns = 5 * MS + self.below(300) * MS;
        self.push(away_ns, Event::Back(false));
    }

    /// The box may be killed at this moment of a step; true if it is.
    pub(super) fn may_kill_box(&mut self, step: usize, moment: usize) -> bool {
        let is_killed = self.is_wild() && self.below(50) == 0;
        if is_killed {
            self.seen.killed_at_lease[step][moment] += 1;
            self.kill_box();
        }
        is_killed
    }

    pub(super) fn attach_box(&mut self) {
        if !self.box_.is_up || self.box_.stream.is_some() {
            return;
        }
        let Some(controller) = &mut self.controller else {
            return self.push(50 * MS, Event::BoxHello);
        };
        let mut holdings = Vec::new();
        holdings.extend(self.box_.has_share.then_some((JOB, Holding::Job)));
        holdings.extend(self.box_.row.map(|_| (JOB, Holding::Row(0))));
        let hello = NodeHello {
            name: "a0".into(),
            life: self.box_.life,
            roles: Vec::new(),
            holdings,
            bands: None,
        };
        self.node = controller.handle_node(self.now_ns, &hello).expect("it is configured");
        self.streams += 1;
        self.box_.stream = Some(self.streams);
    }

    pub(super) fn obey(&mut self, command: &HoldingCommand) -> BoxEvent {
        let holding = command.holding();
        let refused = |error| BoxEvent::HoldingRefused { holding, error };
        match command {
            HoldingCommand::InstallJob(_) if self.box_.has_share => refused(HoldingError::Taken),
            HoldingCommand::InstallJob(_) => {
                self.box_.has_share = true;
                BoxEvent::HoldingInstalled { holding }
            }
            HoldingCommand::InstallLease(_) if !self.box_.has_share => {
                refused(HoldingError::UnknownJob)
            }
            HoldingCommand::InstallLease(_) if self.box_.row.is_some() => {
                refused(HoldingError::Taken)
            }
            HoldingCommand::InstallLease(row) if row.members.len() > 4 && self.refuses > 0 => {
                self.refuses -= 1;
                refused(HoldingError::Full)
            }
            HoldingCommand::InstallLease(row) => {
                self.box_.row = u16::try_from(row.members.len()).ok();
                self.box_.cohort = self.status().map(|status| status.cohort);
                BoxEvent::HoldingInstalled { holding }
            }
            HoldingCommand::RemoveLease { .. } if self.box_.row.is_none() => {
                refused(HoldingError::Missing)
            }
            HoldingCommand::RemoveLease { .. } => {
                // Its sessions end with it.
                let cohort = self.box_.cohort;
                let uses = |w: &Worker| {
                    let is_over = Some(w.cohort) <= self.overdue;
                    Some(w.cohort.0) == cohort && w.uses_lease() && !is_over
                };
                if self.workers.values().any(uses) {
                    let problem = "a lease is taken away from workers that use it";
                    self.judge.violations.push(problem.into());
                }
                self.box_.row = None;
                BoxEvent::HoldingRemoved { holding }
            }
            _ => refused(HoldingError::Role),
        }
    }

    /// A worker asks for its lease; true if it is there. One that hears there is none gives up.
    pub(super) fn has_lease(&mut self, rank: u8) -> bool {
        let AggregatorBox { is_up, row, is_settled, .. } = self.box_;
        let is_other =
            self.workers.get(&rank).is_some_and(|w| self.box_.cohort != Some(w.cohort.0));
        if is_up && is_settled && (row.is_none() || is_other) && self.may_be_unserved(rank) {
            self.workers.remove(&rank);
            return false;
        }
        if is_up && row.is_none() && is_settled {
            let problem = format!("worker {rank} is told that the box does not serve its lease");
            self.judge.violations.push(problem);
        }
        is_up && row.is_some()
    }

    /// A round that all have begun, whose lease is there, ends.
    pub(super) fn sum(&mut self) {
        let Some(members) = self.box_.row.filter(|_| self.box_.is_up) else { return };
        // Whoever is left of a cohort that is over is no member of this lease.
        let Some(cohort) = self.cohort.filter(|it| self.box_.cohort == Some(it.0)) else { return };
        let of_it: Vec<(u8, u64, u64)> = (self.workers.iter())
            .filter(|(_, worker)| worker.cohort == cohort)
            .filter_map(|(rank, worker)| Some((*rank, worker.life, worker.within?)))
            .collect();
        let Some((_, _, round)) = of_it.first().copied() else { return };
        // What those gave that have died since is in the box.
        let gone = self.dead.values().filter(|dead| dead.gave == Some(round)).count();
        let is_whole = of_it.len() + gone == usize::from(members)
            && of_it.iter().all(|(_, _, within)| *within == round);
        if !is_whole || round < self.judge.rounds() {
            return;
        }
        self.judge.summed(round, cohort, members);
        if self.overdue == Some(cohort) {
            // It began late, and is none that did not come.
            self.overdue = None;
        }
        for (rank, life, round) in of_it {
            let after_ns = 10_000 + self.below(MS);
            self.push(after_ns, Event::Summed(rank, life, (round, members)));
        }
    }
}

/// Which step of a lease a command is: to remove it, to give a share, to install it.
pub(super) const fn told_step(command: &HoldingCommand) -> usize {
    match command {
        HoldingCommand::RemoveLease { .. } => 0,
        HoldingCommand::InstallJob(_) => 1,
        _ => 2,
    }
}

/// Which step was done.
pub(super) const fn answered_step(event: &BoxEvent) -> Option<usize> {
    match event {
        BoxEvent::HoldingRemoved { .. } => Some(0),
        BoxEvent::HoldingInstalled { holding: Holding::Job } => Some(1),
        BoxEvent::HoldingInstalled { .. } => Some(2),
        _ => None,
    }
}
