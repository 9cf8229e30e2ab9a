//! Kills a process without a word in a step of a word: looks at what the controller saves, closely,
//! from a thread of its own. Decides nothing ([`super::step`] does).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weft_controller_engine::SavedReduce;

use super::plan::JOB;
use super::step::{Begun, step};
use crate::scenario::{KillSection, WordStep};

/// A process that was killed.
#[derive(Debug)]
pub(super) struct Fell {
    /// Its name.
    pub(super) name: String,
    /// Which word it followed.
    pub(super) word: usize,
    /// How far that had come; none: it came to nothing in time, and nobody was killed.
    pub(super) step: Option<WordStep>,
}

/// Where is seen what a word comes to.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    state: PathBuf,
    checkpoint: PathBuf,
}

impl Sight {
    /// Of a run in this directory.
    pub(super) fn new(state: PathBuf, checkpoint: PathBuf) -> Self {
        Self { state, checkpoint }
    }

    /// What the controller has saved of the job; none while it has saved nothing.
    fn saved(&self) -> Option<SavedReduce> {
        let text = fs::read_to_string(&self.state).ok()?;
        let mut saved = weft_controller::state::parse(&text).ok()?;
        saved.reduces.remove(JOB)
    }

    /// When a checkpoint was written, or is being.
    fn kept(&self) -> Option<SystemTime> {
        let of = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
        of(&self.checkpoint).max(of(&self.checkpoint.with_extension("ckpt.new")))
    }

    /// Kills the process in the step of the word that is said now, or in the next that is seen.
    pub(super) fn watch(self, kill_in: &KillSection, pid: u32, tell: Sender<Fell>) {
        let Some(wanted) = kill_in.step else { return };
        let (name, word) = (kill_in.name.clone(), kill_in.word);
        let cohort = self.saved().map_or(0, |saved| saved.cohort);
        let before = self.kept();
        thread::spawn(move || {
            let mut begun = Begun { cohort, is_heeded: false };
            let until = Instant::now() + STEP_TIMEOUT;
            while Instant::now() < until {
                let saved = self.saved();
                let seen = saved.and_then(|saved| step(begun, &saved, self.kept() > before));
                begun.is_heeded |= seen.is_some();
                if seen >= Some(wanted) {
                    if let Ok(pid) = i32::try_from(pid) {
                        // Its owner has not waited for it, so the number is its own.
                        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
                    }
                    // Whoever started this may have given the run up.
                    let _ = tell.send(Fell { name, word, step: seen });
                    return;
                }
                thread::sleep(LOOK_PERIOD);
            }
            let _ = tell.send(Fell { name, word, step: None });
        });
    }
}

/// How often it is looked: some steps take a millisecond.
const LOOK_PERIOD: Duration = Duration::from_micros(100);
/// How long a word may take to come to a step.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
