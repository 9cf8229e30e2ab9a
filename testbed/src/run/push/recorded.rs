//! A policy that is another program, in virtual time: its questions and answers are kept, and one
//! that does not answer ends the run, for what another program takes is not the run's clock.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use weft_controller::exec::{ExecPolicy, Limits};
use weft_plan::case::Case;
use weft_plan::plan::Plan;
use weft_plan::policy::{Policy, PolicyError};
use weft_plan::spec::CaseSpec;

/// What was asked and answered.
#[derive(Debug, Default)]
pub(super) struct Answers {
    lines: Vec<Value>,
    /// Why the run cannot go on.
    pub(super) silence: Option<String>,
}

impl Answers {
    /// Writes a line for each question into a run directory, if there was one.
    pub(super) fn write(&self, directory: &Path) -> Result<(), (PathBuf, std::io::Error)> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let text = self.lines.iter().fold(String::new(), |mut text, line| {
            writeln!(text, "{line}").expect("a string takes everything");
            text
        });
        let path = directory.join(ANSWERS_FILE);
        fs::write(&path, text).map_err(|error| (path, error))
    }
}

/// A program whose answers are kept.
pub(super) struct Recorded {
    program: ExecPolicy,
    answers: Arc<Mutex<Answers>>,
}

impl Recorded {
    /// The program behind `exec:CMD`; `None` for names without that prefix.
    pub(super) fn from_name(name: &str, answers: &Arc<Mutex<Answers>>) -> Option<Self> {
        let program = ExecPolicy::from_name(name, LIMITS)?;
        Some(Self { program, answers: Arc::clone(answers) })
    }
}

impl Policy for Recorded {
    fn name(&self) -> &str {
        self.program.name()
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        let answer = self.program.plan(case);
        let mut answers = self.answers.lock().expect("nobody panics with it");
        let mut line = json!({ "case": CaseSpec::from(case) });
        match &answer {
            Ok(plan) => line["plan"] = json!(plan.document(case)),
            Err(error) => line["error"] = error.to_string().into(),
        }
        answers.lines.push(line);
        if let Err(error @ PolicyError::NoAnswer { .. }) = &answer {
            let why = format!(
                "{error}: what the default policy would do from here on would depend on how fast \
                 this machine is"
            );
            answers.silence.get_or_insert(why);
        }
        answer
    }
}

/// How long a program may take, by this machine's clock.
const LIMITS: Limits = Limits { start: Duration::from_secs(30), answer: Duration::from_secs(10) };
/// Where questions and answers are in the run directory.
const ANSWERS_FILE: &str = "policy.jsonl";
