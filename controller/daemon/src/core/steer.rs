//! What operators have jobs do, and who waits for it.

use weft_control::JobState;
use weft_controller_engine::{Resize, Steerer};
use weft_wire::JobId;

use super::{Core, PauseAnswer, ResizeAnswer, ResumeAnswer, Unpaused, Unresized};

impl Core {
    /// Has a job pause. Its standstill is an action.
    pub(super) fn pause(&mut self, name: &str, answer: PauseAnswer) {
        // Whoever paused it before, and hears that it went on, hears so first.
        self.act_all();
        match self.controller.pause_job(self.now_ns(), name, Steerer::Operator) {
            // An operator's pause of a job that stands by a policy's word: nothing else comes.
            Ok(job) if self.controller.stands(job) => {
                self.answer_saved(move |_| drop(answer.send(Ok(0))));
            }
            Ok(job) => {
                if let Some(before) = self.pauses.insert(job, answer) {
                    let _ = before.send(Err(Unpaused::Resumed));
                }
            }
            Err(error) => {
                self.answer_saved(move |_| drop(answer.send(Err(Unpaused::Untold(error)))));
            }
        }
    }

    /// Has an allreduce job go on with so many workers. Its end is an action.
    pub(super) fn resize(&mut self, name: &str, workers: u32, answer: ResizeAnswer) {
        match self.controller.resize_job(self.now_ns(), name, workers) {
            Ok(job) => {
                self.resizes.insert(job, answer);
            }
            Err(error) => {
                self.answer_saved(move |_| drop(answer.send(Err(Unresized::Untold(error)))));
            }
        }
    }

    pub(super) fn tell_unpaused(&mut self, job: JobId, problem: String) {
        let name = self.job_name(job);
        weft_process::say!("weft-controller: job `{name}` is not paused: {problem}");
        self.write_event(|events| events.unpaused(&name, &problem));
        if let Some(waiting) = self.pauses.remove(&job) {
            // Who asked may have gone.
            let _ = waiting.send(Err(Unpaused::GivenUp(problem)));
        }
    }

    pub(super) fn tell_resized(&mut self, job: JobId, outcome: Result<Resize, String>) {
        let name = self.job_name(job);
        match &outcome {
            Ok(resize) => weft_process::say!(
                "weft-controller: job `{name}` has {} workers instead of {} from round {} on, after \
                 a pause of {:.3} s",
                resize.to,
                resize.from,
                resize.round,
                resize.pause_ns() as f64 / 1e9
            ),
            Err(problem) => weft_process::say!("weft-controller: job `{name}`: {problem}"),
        }
        self.write_event(|events| events.resized(&name, &outcome));
        if let Some(waiting) = self.resizes.remove(&job) {
            // Who asked may have gone.
            let _ = waiting.send(outcome.map_err(Unresized::Reverted));
        }
    }

    fn job_name(&self, job: JobId) -> String {
        let pushed = self.controller.job(job).map(|job| &job.name);
        let name = pushed.or_else(|| self.controller.reduce(job).map(|(job, _)| &job.name));
        name.map_or_else(|| "?".into(), String::clone)
    }

    /// Has a job go on.
    pub(super) fn resume(&mut self, name: &str, answer: ResumeAnswer) {
        let resumed = self.controller.resume_job(self.now_ns(), name, Steerer::Operator);
        self.answer_saved(move |_| drop(answer.send(resumed.map(drop))));
    }

    /// Tells people, and whoever waits, what a job does now.
    pub(super) fn tell_state(&mut self, job: JobId, state: JobState, after_ns: Option<u64>) {
        let name = self.job_name(job);
        match after_ns {
            Some(after_ns) => weft_process::say!(
                "weft-controller: job `{name}` is {state}, {:.3} ms after the word",
                after_ns as f64 / 1e6
            ),
            None => weft_process::say!("weft-controller: job `{name}` is {state}"),
        }
        self.write_event(|events| events.state(&name, state, after_ns));
        let answer = match state {
            JobState::Paused => Ok(after_ns.unwrap_or(0)),
            JobState::Running => Err(Unpaused::Resumed),
            JobState::Pausing | JobState::Resizing => return,
        };
        if let Some(waiting) = self.pauses.remove(&job) {
            // Who asked may have gone.
            let _ = waiting.send(answer);
        }
    }
}
