//! Workers that die, or never come, and what is heard of it: a word names who is missing, a cohort
//! that had not begun is followed by another one, and one that had left is over.

use weft_control::CohortId;
use weft_controller_engine::SteerError;

use super::world::{Event, MS, Up, Word, World};

/// Who does not come of a cohort.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Absent {
    Nobody,
    All,
    One(u8),
}

/// When a worker is to die.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Dies {
    Never,
    /// Just before it says that it has left (1), or right behind (2).
    Leaving(usize),
}

/// A worker that was killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dead {
    /// Its last stream, until that is known to be gone.
    pub(super) stream: Option<u64>,
    /// The round that it gave its part of.
    pub(super) gave: Option<u64>,
}

impl World {
    /// One worker dies in some runs: at any moment, or as it leaves.
    pub(super) fn script_loss(&mut self) {
        match self.below(12) {
            0 => {
                let at_ns = 5 * MS + self.below(1100) * MS;
                self.push(at_ns, Event::KillWorker);
            }
            1 => self.dies = Dies::Leaving(1),
            2 => self.dies = Dies::Leaving(2),
            _ => {}
        }
    }

    /// Whoever starts workers may have gone too, or the machine of one of them.
    pub(super) fn who_is_absent(&mut self, cohort: CohortId, workers: u16) -> Absent {
        let drawn = if cohort.0 == 0 { u64::MAX } else { self.below(16) };
        match drawn {
            0 | 1 => {
                self.seen.forgotten += 1;
                Absent::All
            }
            2 if workers > 1 => {
                self.seen.one_missing += 1;
                Absent::One(u8::try_from(self.below(workers.into())).unwrap_or(0))
            }
            _ => Absent::Nobody,
        }
    }

    pub(super) fn kill_any_worker(&mut self) {
        let count = self.workers.len() as u64;
        if count > 0 {
            let drawn = usize::try_from(self.below(count)).unwrap_or(0);
            let rank = *self.workers.keys().nth(drawn).expect("one of them");
            self.kill_worker(rank, 0);
        }
    }

    /// A worker that leaves may be killed at this moment; true if it is.
    pub(super) fn may_kill_worker(&mut self, rank: u8, moment: usize) -> bool {
        let is_killed = self.dies == Dies::Leaving(moment) && self.below(3) == 0;
        if is_killed {
            self.dies = Dies::Never;
            self.kill_worker(rank, moment);
        }
        is_killed
    }

    fn kill_worker(&mut self, rank: u8, moment: usize) {
        let worker = self.workers.remove(&rank).expect("it is alive");
        self.seen.workers_killed[moment] += 1;
        // What it said before is heard before that it is gone.
        if let Some(stream) = worker.stream {
            self.send((true, stream), Event::FromWorker(rank, stream, Up::Gone));
        }
        if Some(worker.cohort) == self.cohort {
            self.dead.insert(rank, Dead { stream: worker.stream, gave: worker.within });
            self.push(1500 * MS, Event::Press(0));
        }
    }

    /// Another cohort has come.
    pub(super) fn forget_dead(&mut self) {
        self.seen.lost_replaced += u64::from(!self.dead.is_empty());
        self.dead.clear();
    }

    /// Somebody asks for the job by and by, and must hear who is missing.
    pub(super) fn press(&mut self, count: u64) {
        if !self.dead.is_empty() {
            self.say(if count.is_multiple_of(2) { Word::Resume } else { Word::Pause });
            self.push(1700 * MS, Event::Press(count + 1));
        }
    }

    /// A cohort has not begun in time: who came of it is told that it is over, or hears from the
    /// box that nobody serves it.
    pub(super) fn note_overdue(&mut self) {
        self.seen.overdue += 1;
        self.overdue = self.status().map(|status| CohortId(status.cohort));
    }

    /// Whether a worker may find that nobody serves it, and ends by that.
    pub(super) fn may_be_unserved(&self, rank: u8) -> bool {
        self.workers.get(&rank).is_some_and(|worker| Some(worker.cohort) <= self.overdue)
    }

    /// A word came to nothing.
    pub(super) fn note_given_up(&mut self, problem: &str) {
        self.seen.given_up += 1;
        let Some((_, listed)) = problem.split_once("rank ") else { return };
        let digits = |text: &str| text.trim().chars().take_while(char::is_ascii_digit).collect();
        let ranks: Vec<String> = listed.split(',').map(digits).collect();
        if self.dead.keys().any(|rank| ranks.contains(&rank.to_string())) {
            self.seen.lost_named += 1;
            self.is_lost = true;
        }
    }

    /// A job in its last round is not stopped, also if that never ends.
    pub(super) fn note_ending(&mut self, refused: Option<&SteerError>) {
        if matches!(refused, Some(SteerError::Ending { .. })) && !self.dead.is_empty() {
            self.is_lost = true;
        }
    }
}
