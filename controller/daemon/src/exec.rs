//! A policy that is another program: `exec:CMD`.
//!
//! The program is started once, through the shell. For every plan it gets one line, the case as in
//! docs/plan.md, and answers with one line, and no more, the plan; `order` alone will do. Does I/O
//! and decides nothing: [`weft_plan::policy::outside::accept`] judges the answer. A program that is
//! late, ends, or answers nonsense gives an error within the timeout; the caller falls back and
//! counts it, and the next plan starts the program anew. [`ExecJobPolicy`] is the same for a
//! cluster's jobs, where lines are deltas ([`weft_jobs::policy::outside`]) and every plan has a
//! program of its own.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use weft_config::controller::ControllerConfig;
use weft_jobs::policy::outside::{Carrier, Outside};
use weft_jobs::policy::{Jobs, Scheduler, Setting};
use weft_plan::case::Case;
use weft_plan::plan::{Plan, PlanDocument};
use weft_plan::policy::{Policy, PolicyError, outside};
use weft_plan::spec::CaseSpec;

/// How long a program may take over one plan unless told otherwise.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);

/// Longest answer that is read: what is longer counts as nonsense.
const ANSWER_LEN_MAX: u64 = 64 << 20;

/// A program that plans.
#[derive(Debug)]
pub struct ExecPolicy(Program);

impl ExecPolicy {
    /// The program behind `exec:CMD`; `None` for names without that prefix. It is started with the
    /// first plan.
    #[must_use]
    pub fn from_name(name: &str, timeout: Duration) -> Option<Self> {
        Program::from_name(name, timeout).map(Self)
    }

    /// The command, as the shell gets it.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.0.command
    }
}

/// A program that says which jobs of a cluster run. Each [`Policy::plan`] starts its own.
#[derive(Clone, Debug)]
pub struct ExecJobPolicy {
    name: String,
    timeout: Duration,
}

impl ExecJobPolicy {
    /// The program behind `exec:CMD`; `None` for names without that prefix.
    #[must_use]
    pub fn from_name(name: &str, timeout: Duration) -> Option<Self> {
        command_of(name).map(|_| Self { name: name.to_owned(), timeout })
    }
}

impl Policy<Jobs> for ExecJobPolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        let program = Program::from_name(&self.name, self.timeout).expect("its name was checked");
        Ok(Box::new(Outside::new(&self.name, setting, Box::new(program))))
    }
}

impl Carrier for Program {
    fn ask(&mut self, question: &str) -> Result<String, PolicyError> {
        Self::ask(self, question)
    }
}

/// A command and its process, once it is asked.
#[derive(Debug)]
struct Program {
    name: String,
    command: String,
    timeout: Duration,
    process: Mutex<Option<Process>>,
}

impl Program {
    fn from_name(name: &str, timeout: Duration) -> Option<Self> {
        command_of(name).map(|command| Self {
            name: name.to_owned(),
            command: command.to_owned(),
            timeout,
            process: Mutex::new(None),
        })
    }

    fn no_answer(&self, reason: impl ToString) -> PolicyError {
        PolicyError::NoAnswer { policy: self.name.clone(), reason: reason.to_string() }
    }

    fn ask(&self, question: &str) -> Result<String, PolicyError> {
        let mut slot = self.process.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut process = match slot.take() {
            Some(process) => process,
            None => Process::start(&self.command)
                .map_err(|error| self.no_answer(format!("starting it: {error}")))?,
        };
        // Only a process that has answered is asked again: another one's late answer would be taken
        // for the next question's.
        let answer = process.ask(question, self.timeout).map_err(|why| self.no_answer(why))?;
        *slot = Some(process);
        Ok(answer)
    }
}

/// The commands that may plan: all that a configuration names.
#[must_use]
pub fn programs(config: &ControllerConfig) -> BTreeSet<String> {
    let own = config.jobs.iter().filter_map(|job| job.policy.as_ref());
    let own = own.chain([&config.tuning.policy]).filter_map(|name| command_of(name));
    let listed = config.policies.exec.iter().map(|command| command.trim());
    own.chain(listed).map(str::to_owned).collect()
}

/// The command in `exec:CMD`; `None` for names without that prefix, or without a command.
#[must_use]
pub fn command_of(name: &str) -> Option<&str> {
    name.strip_prefix("exec:").map(str::trim).filter(|command| !command.is_empty())
}

impl Policy for ExecPolicy {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        let Self(program) = self;
        let question = serde_json::to_string(&CaseSpec::from(case))
            .map_err(|error| program.no_answer(format!("writing the case: {error}")))?;
        let answer = program.ask(&question)?;
        let document: PlanDocument = serde_json::from_str(&answer).map_err(|error| {
            PolicyError::BadAnswer { policy: program.name.clone(), reason: error.to_string() }
        })?;
        outside::accept(&program.name, case, &document)
    }
}

/// The program while it runs; killed when dropped.
#[derive(Debug)]
struct Process {
    child: Child,
    stdin: mpsc::Sender<String>,
    lines: Receiver<String>,
}

impl Process {
    fn start(command: &str) -> std::io::Result<Self> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", &format!("exec {command}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (sender, lines) = mpsc::channel();
        let stdout = child.stdout.take().expect("piped");
        thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            loop {
                let mut line = String::new();
                let mut limited = std::io::Read::take(&mut stdout, ANSWER_LEN_MAX);
                match limited.read_line(&mut line) {
                    Ok(len) if len > 0 && sender.send(line).is_ok() => {}
                    _ => return,
                }
            }
        });
        let stdin = child.stdin.take().expect("piped");
        Ok(Self { child, stdin: write_lines(stdin), lines })
    }

    fn ask(&mut self, question: &str, timeout: Duration) -> Result<String, String> {
        let ended = "it has ended".to_owned();
        // What it wrote since its answer would be taken for the answer to this question.
        if let Ok(line) = self.lines.try_recv() {
            let start: String = line.trim_end().chars().take(60).collect();
            return Err(format!(
                "it answered twice; one line answers a question, not also {start:?}"
            ));
        }
        self.stdin.send(format!("{question}\n")).map_err(|_| ended.clone())?;
        self.lines.recv_timeout(timeout).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("not within {} ms", timeout.as_millis()),
            RecvTimeoutError::Disconnected => ended,
        })
    }
}

/// Writes from a thread of its own: a program that does not read must not hold up the caller.
fn write_lines(mut stdin: ChildStdin) -> mpsc::Sender<String> {
    let (sender, questions) = mpsc::channel::<String>();
    thread::spawn(move || {
        for question in questions {
            if stdin.write_all(question.as_bytes()).and_then(|()| stdin.flush()).is_err() {
                return;
            }
        }
    });
    sender
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; there is nobody to tell otherwise.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASE: &str = r#"{"now_ns":0,"hosts":{
        "a":{"up_bytes_per_sec":10,"down_bytes_per_sec":10},
        "s":{"up_bytes_per_sec":10,"down_bytes_per_sec":10}},
        "servers":[{"name":"s0","host":"s","version":0}],
        "updates":[{"id":"u","server":"s0","host":"a","size_bytes":10,"version":0}]}"#;

    fn plan(command: &str, timeout_ms: u64) -> Result<Plan, String> {
        let timeout = Duration::from_millis(timeout_ms);
        let policy = ExecPolicy::from_name(&format!("exec:{command}"), timeout).unwrap();
        policy.plan(&Case::from_json(CASE).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn one_process_answers_line_by_line() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("policy.sh");
        let starts = directory.path().join("starts");
        std::fs::write(
            &script,
            format!(
                "echo x >> {}\nwhile read -r line; do echo '{{\"order\":[\"u\"]}}'; done\n",
                starts.display()
            ),
        )
        .unwrap();
        let name = format!("exec:sh {}", script.display());
        let policy = ExecPolicy::from_name(&name, Duration::from_secs(20)).unwrap();
        let case = Case::from_json(CASE).unwrap();
        for _ in 0..3 {
            assert_eq!(policy.plan(&case).unwrap().makespan_ns(&case), 1_000_000_000);
        }
        assert_eq!(std::fs::read_to_string(starts).unwrap(), "x\n");
    }

    #[test]
    fn silence_end_and_nonsense_are_errors_in_bounded_time() {
        let error = plan("sleep 1000", 50).unwrap_err();
        assert!(error.contains("not within 50 ms"), "{error}");
        let error = plan("true", 20_000).unwrap_err();
        assert!(error.contains("it has ended"), "{error}");
        let error = plan("echo nonsense", 20_000).unwrap_err();
        assert!(error.contains("cannot be used"), "{error}");
        let error = plan("/no/such/program", 20_000).unwrap_err();
        assert!(error.contains("it has ended"), "{error}");
        assert!(ExecPolicy::from_name("mlfabric", TIMEOUT_DEFAULT).is_none());
        assert!(ExecPolicy::from_name("exec: ", TIMEOUT_DEFAULT).is_none());
    }

    #[test]
    fn a_second_line_to_one_question_is_named_at_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("policy.sh");
        // Both lines in one write, so that the second is there when the first is read.
        let text =
            "while read -r line; do printf '{\"order\":[\"u\"]}\\n{\"order\":[]}\\n'; done\n";
        std::fs::write(&script, text).unwrap();
        let name = format!("exec:sh {}", script.display());
        let policy = ExecPolicy::from_name(&name, Duration::from_secs(20)).unwrap();
        let case = Case::from_json(CASE).unwrap();
        assert!(policy.plan(&case).is_ok());
        thread::sleep(Duration::from_millis(200));
        let error = policy.plan(&case).unwrap_err().to_string();
        assert!(error.contains("it answered twice") && error.lines().count() == 1, "{error}");
        assert!(policy.plan(&case).is_ok(), "it is started anew");
    }

    #[test]
    fn a_program_that_was_late_is_started_anew() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("policy.sh");
        // The first start hangs, the second answers.
        let mark = directory.path().join("mark");
        let text = format!(
            "[ -e {0} ] || {{ touch {0}; exec sleep 1000; }}\nread -r line\necho '{{\"order\":[\"u\"]}}'\n",
            mark.display()
        );
        std::fs::write(&script, text).unwrap();
        let name = format!("exec:sh {}", script.display());
        let policy = ExecPolicy::from_name(&name, Duration::from_secs(2)).unwrap();
        let case = Case::from_json(CASE).unwrap();
        assert!(policy.plan(&case).is_err());
        assert!(policy.plan(&case).is_ok());
    }
}
