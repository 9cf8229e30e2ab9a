//! Does to an interface what is asked for, and looks after it.
//!
//! All that has been asked for by the time that the thread looks is one change: read what is there,
//! run the lines that are missing, read again, and answer. A change that fails is taken back. While
//! jobs have bands, it is looked every [`LOOK`] whether they still do: what somebody removed or
//! changed is as it was again, and where that cannot be, their bands are told as lost until it can.
//! The same readings have the kernel's counts.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use weft_control::{BandError, Event};

use super::counts::Counts;
use super::former::{self, remove};
use super::jobs::{Asked, Jobs, answer};
use super::tree::{Found, Place, Problem};
use super::{ASKED_MAX, TRIES_MAX, TRY_AGAIN, tc};
use crate::control::NodeControl;

pub(super) struct Applier {
    place: Place,
    jobs: Jobs,
    control: Arc<NodeControl>,
    counts: Counts,
    /// Nothing is wanted any more: all is removed as soon as nothing waits in it, or then.
    drained_by: Option<Instant>,
    /// When it is looked whether all is there, next.
    look_at: Instant,
    /// Why the bands that jobs had are lost, since it was told.
    lost: Option<BandError>,
    /// What the log said last, until all is well.
    said: String,
}

impl Applier {
    /// Of a node whose file gives these bands.
    pub(super) fn new(place: Place, jobs: Jobs, control: Arc<NodeControl>) -> Self {
        Self {
            place,
            jobs,
            control,
            counts: Counts::default(),
            drained_by: None,
            look_at: Instant::now() + LOOK,
            lost: None,
            said: String::new(),
        }
    }

    pub(super) fn run(mut self, asks: &Receiver<Asked>) {
        if let Err(problem) = former::remove_all(self.place.mark, Some(&self.place)) {
            self.say("what an earlier life left is not known", &problem);
        }
        // What a former life sent is not this one's.
        if let Err(problem) = remove(&self.place, &mut Counts::default()) {
            self.say("what an earlier life left is not removed", &problem);
        }
        self.begin();
        self.control.note_kernel_bands(&self.counts.figures());
        loop {
            match asks.recv_timeout(self.patience()) {
                Ok(first) => {
                    let mut all = vec![first];
                    all.extend(asks.try_iter().take(ASKED_MAX));
                    self.change(&all);
                }
                Err(RecvTimeoutError::Timeout) if self.drained_by.is_some() => {
                    self.look_whether_drained();
                }
                Err(RecvTimeoutError::Timeout) => self.look(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.control.note_kernel_bands(&self.counts.figures());
        }
        self.remove();
        self.control.note_kernel_bands(&self.counts.figures());
    }

    /// Has the bands that labels have for good; where that cannot be, it is tried again.
    fn begin(&mut self) {
        let jobs = self.jobs.clone();
        if jobs.is_empty() {
            return;
        }
        if let Err(problem) = self.apply(&jobs, true) {
            self.lost = Some(problem.error);
            self.say("those of the file are not there, and tried again every second", &problem);
        }
    }

    /// How long it may sleep: while no job has a band, until it is asked.
    fn patience(&self) -> Duration {
        match (self.drained_by, self.jobs.is_empty()) {
            (Some(_), _) => DRAIN_LOOK,
            (None, true) => Duration::MAX,
            (None, false) => self.look_at.saturating_duration_since(Instant::now()),
        }
    }

    fn change(&mut self, asked: &[Asked]) {
        let (next, judged) = self.jobs.after(asked);
        let is_given = asked.iter().any(|asked| asked.band.is_some());
        let outcome = self.apply_again(&next, is_given);
        let is_bare = outcome.as_ref().is_err_and(|problem| problem.is_bare);
        for (asked, refused) in asked.iter().zip(judged) {
            // Where there is nothing of Weft's, nothing is to be taken away.
            let is_gone = is_bare && asked.band.is_none();
            let failed = outcome.as_ref().err().filter(|_| !is_gone);
            let error = refused.or_else(|| failed.map(|problem| problem.error));
            self.control.tell(asked.job, answer(asked, error));
        }
        match outcome {
            Ok(()) => {
                self.jobs = next;
                // Whether what the others have is lost, the next look says.
                if is_given || self.jobs.is_empty() {
                    self.is_well();
                }
            }
            Err(problem) => {
                self.say("a change is refused", &problem);
                match is_bare {
                    true => self.jobs = self.jobs.without(asked),
                    false => self.take_back(),
                }
            }
        }
        self.look_at = Instant::now() + LOOK;
        let is_over = self.jobs.is_empty();
        self.drained_by = is_over.then(|| Instant::now() + DRAIN_MAX);
    }

    /// Applies a change, and applies it again after a failure that may pass: a `tc` of a former
    /// life that still runs, or a kernel that is short of memory. A `tc` that hangs is not waited
    /// for twice.
    fn apply_again(&mut self, next: &Jobs, is_given: bool) -> Result<(), Problem> {
        let until = Instant::now() + tc::TC_TIMEOUT;
        for _ in 1..TRIES_MAX {
            match self.apply(next, is_given) {
                Err(problem) if problem.error == BandError::Failed && Instant::now() < until => {
                    std::thread::sleep(TRY_AGAIN);
                }
                outcome => return outcome,
            }
        }
        self.apply(next, is_given)
    }

    /// Brings the kernel to these bands, and sees that it has them. None is given where others
    /// stand in the way of what is wanted; taken away they are all the same.
    fn apply(&mut self, next: &Jobs, is_given: bool) -> Result<(), Problem> {
        let wanted = next.wanted();
        let found = tc::read(&self.place, &mut self.counts)?;
        if let Some(words) = found.obstacle(&wanted).filter(|_| is_given) {
            return Err(Problem::new(BandError::Foreign, format!("there is {words}")));
        }
        let lines = self.place.lines(&found, &wanted);
        if lines.is_empty() {
            return Ok(());
        }
        tc::batch(&lines)?;
        let found = tc::read(&self.place, &mut self.counts)?;
        match found.bands(&self.place) {
            Some(bands) if bands == wanted => Ok(()),
            has => {
                let words = format!("by DSCP it has {has:?} and not {wanted:?} after all lines");
                Err(Problem::new(BandError::Failed, words))
            }
        }
    }

    /// Takes a change back that failed in the middle.
    fn take_back(&mut self) {
        let jobs = self.jobs.clone();
        let taken = match jobs.is_empty() {
            true => remove(&self.place, &mut self.counts),
            false => self.apply(&jobs, false),
        };
        // What failed in the first place may be why; that was said.
        if let Err(problem) = taken
            && problem.error == BandError::Failed
        {
            self.say("they are not as they were", &problem);
        }
    }

    /// Has what somebody removed or changed as it was again.
    fn look(&mut self) {
        self.look_at = Instant::now() + LOOK;
        let wanted = self.jobs.wanted();
        let found = tc::read(&self.place, &mut self.counts);
        let is_whole = |found: &Found| {
            found.obstacle(&wanted).is_none() && found.bands(&self.place).as_ref() == Some(&wanted)
        };
        if found.as_ref().is_ok_and(is_whole) {
            return self.is_well();
        }
        let jobs = self.jobs.clone();
        match found.and_then(|_| self.apply(&jobs, true)) {
            Ok(()) => {
                let (device, repairs) = (&self.place.device, self.control.count_band_repair());
                weft_process::say!(
                    "weft-node: bands on {device}: somebody had removed or changed a part or all \
                     of them; they are as they were again ({repairs} times since the start)"
                );
                self.is_well();
            }
            Err(problem) => {
                if self.lost.replace(problem.error) != Some(problem.error) {
                    let error = problem.error;
                    for (job, band) in self.jobs.bands() {
                        self.control.tell(job, Event::BandLost { band: Some(band), error });
                    }
                }
                self.say("they are lost, and looked after again every second", &problem);
            }
        }
    }

    /// All is as it is to be.
    fn is_well(&mut self) {
        self.said.clear();
        if self.lost.take().is_some() {
            for (job, band) in self.jobs.bands() {
                self.control.tell(job, Event::BandSet { band: Some(band) });
            }
        }
    }

    fn look_whether_drained(&mut self) {
        let waits = tc::read(&self.place, &mut self.counts).map(|_| self.counts.waiting() > 0);
        let is_late = self.drained_by.is_none_or(|by| by <= Instant::now());
        if waits == Ok(true) && !is_late {
            return;
        }
        self.drained_by = None;
        self.remove();
    }

    fn remove(&mut self) {
        match remove(&self.place, &mut self.counts) {
            Ok(()) => self.is_well(),
            Err(problem) if problem.is_bare => {}
            Err(problem) => self.say("what was installed is left as it is", &problem),
        }
    }

    /// Tells the log of a problem, once until all is well or it is another one.
    fn say(&mut self, what: &str, problem: &Problem) {
        let device = &self.place.device;
        let line = format!("bands on {device}: {what}: {}: {}", problem.error, problem.words);
        if line != self.said {
            weft_process::say!("weft-node: {line}");
            self.said = line;
        }
    }
}

/// How often it is looked whether all is there.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is looked whether the classes of jobs are empty, once nobody wants them.
const DRAIN_LOOK: Duration = Duration::from_millis(20);
/// How long that is waited for.
const DRAIN_MAX: Duration = Duration::from_secs(1);
