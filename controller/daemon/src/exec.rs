//! A policy that is another program: `exec:CMD`.
//!
//! The program is started once, through the shell. For every plan it gets one line, the case as in
//! docs/plan.md, and answers with one line, and no more, the plan; `order` alone will do. Does I/O
//! and decides nothing: [`weft_plan::policy::outside::accept`] judges the answer. A program that is
//! late, ends, or answers nonsense gives an error within its [`Limits`] and is killed, with all
//! that it started and that stayed in its process group; the next plan starts it again. Not more
//! than an answer is read of it. [`ExecJobPolicy`] is the same for a cluster's jobs, where lines
//! are deltas ([`weft_jobs::policy::outside`]) and every plan has a program of its own.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use weft_config::controller::{ControllerConfig, Tuning};
use weft_jobs::policy::outside::{Carrier, Outside};
use weft_jobs::policy::{Jobs, Scheduler, Setting};
use weft_plan::case::Case;
use weft_plan::plan::{Plan, PlanDocument};
use weft_plan::policy::{Policy, PolicyError, outside};
use weft_plan::spec::CaseSpec;

/// How long a program may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Over its start, besides its first answer.
    pub start: Duration,
    /// Over an answer.
    pub answer: Duration,
}

impl From<&Tuning> for Limits {
    fn from(tuning: &Tuning) -> Self {
        Self {
            start: Duration::from_millis(tuning.policy_start_timeout_ms),
            answer: Duration::from_millis(tuning.policy_timeout_ms),
        }
    }
}

/// Longest answer that is read.
const ANSWER_LEN_MAX: usize = 64 << 20;

/// A program that plans.
#[derive(Debug)]
pub struct ExecPolicy(Program);

impl ExecPolicy {
    /// The program behind `exec:CMD`; `None` for names without that prefix. It is started with the
    /// first plan.
    #[must_use]
    pub fn from_name(name: &str, limits: Limits) -> Option<Self> {
        Program::from_name(name, limits).map(Self)
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
    limits: Limits,
}

impl ExecJobPolicy {
    /// The program behind `exec:CMD`; `None` for names without that prefix.
    #[must_use]
    pub fn from_name(name: &str, limits: Limits) -> Option<Self> {
        command_of(name).map(|_| Self { name: name.to_owned(), limits })
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
        let program = Program::from_name(&self.name, self.limits).expect("its name was checked");
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
    limits: Limits,
    process: Mutex<Option<Process>>,
    /// What is to be killed to end a question under way.
    running: Mutex<Running>,
}

#[derive(Clone, Copy, Debug)]
enum Running {
    Nothing,
    Group(Pid),
    /// Nothing, and nothing more is started.
    Cancelled,
}

impl Program {
    fn from_name(name: &str, limits: Limits) -> Option<Self> {
        command_of(name).map(|command| Self {
            name: name.to_owned(),
            command: command.to_owned(),
            limits,
            process: Mutex::new(None),
            running: Mutex::new(Running::Nothing),
        })
    }

    fn no_answer(&self, reason: impl ToString) -> PolicyError {
        PolicyError::NoAnswer { policy: self.name.clone(), reason: reason.to_string() }
    }

    fn ask(&self, question: &str) -> Result<String, PolicyError> {
        let mut slot = lock(&self.process);
        let mut process = match slot.take() {
            Some(process) => process,
            None => self.start()?,
        };
        // Only a process that has answered is asked again: another one's late answer would be taken
        // for the next question's.
        match process.ask(question, self.limits) {
            Ok(answer) => {
                *slot = Some(process);
                Ok(answer)
            }
            Err(why) => {
                let mut running = lock(&self.running);
                drop(process);
                if let Running::Group(_) = *running {
                    *running = Running::Nothing;
                }
                Err(self.no_answer(why))
            }
        }
    }

    fn start(&self) -> Result<Process, PolicyError> {
        let mut running = lock(&self.running);
        if let Running::Cancelled = *running {
            return Err(self.no_answer("its job has ended"));
        }
        let process = Process::start(&self.command)
            .map_err(|error| self.no_answer(format!("starting it: {error}")))?;
        *running = Running::Group(process.group);
        Ok(process)
    }

    fn cancel(&self) {
        let mut running = lock(&self.running);
        if let Running::Group(group) = std::mem::replace(&mut *running, Running::Cancelled) {
            // Its process is there until it is waited for, under this lock.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn cancel(&self) {
        self.0.cancel();
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

/// The program while it runs, with whatever it started; all are killed when it is dropped.
#[derive(Debug)]
struct Process {
    child: Child,
    group: Pid,
    stdin: File,
    stdout: File,
    /// What was read and is no part of an answer.
    unread: Vec<u8>,
    is_new: bool,
}

impl Process {
    fn start(command: &str) -> std::io::Result<Self> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", &format!("exec {command}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let group = Pid::from_raw(i32::try_from(child.id()).expect("the kernel's ids are so"));
        let stdin = File::from(OwnedFd::from(child.stdin.take().expect("piped")));
        let stdout = File::from(OwnedFd::from(child.stdout.take().expect("piped")));
        // Dropped, it kills what was started.
        let process = Self { child, group, stdin, stdout, unread: Vec::new(), is_new: true };
        for pipe in [&process.stdin, &process.stdout] {
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(process)
    }

    fn ask(&mut self, question: &str, limits: Limits) -> Result<String, String> {
        let start = if self.is_new { limits.start } else { Duration::ZERO };
        let until = Instant::now() + start + limits.answer;
        // What it wrote since its answer would be taken for the answer to this question.
        if !self.is_new {
            self.read()?;
        }
        if !self.unread.is_empty() {
            let start: String = String::from_utf8_lossy(&self.unread).chars().take(60).collect();
            let start = start.lines().next().unwrap_or_default();
            return Err(format!(
                "it answered twice; one line answers a question, not also {start:?}"
            ));
        }
        let question = format!("{question}\n");
        let mut left = question.as_bytes();
        let mut searched = 0;
        loop {
            if let Some(end) = self.unread[searched..].iter().position(|byte| *byte == b'\n') {
                let end = searched + end;
                let rest = self.unread.split_off(end + 1);
                let line = std::mem::replace(&mut self.unread, rest);
                self.is_new = false;
                return match left.is_empty() {
                    true => String::from_utf8(line).map_err(|error| error.to_string()),
                    false => Err("it answered before it had read the question".to_owned()),
                };
            }
            searched = self.unread.len();
            if searched > ANSWER_LEN_MAX {
                return Err(format!("its answer is longer than {ANSWER_LEN_MAX} bytes"));
            }
            let wait = until.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                let answer = format!("{} ms (policy_timeout_ms)", limits.answer.as_millis());
                return Err(match start.is_zero() {
                    true => format!("not within {answer}"),
                    false => format!(
                        "not within {answer} and the {} ms (policy_start_timeout_ms) that its \
                         start may take",
                        start.as_millis()
                    ),
                });
            }
            let mut ends = [
                PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.stdin.as_fd(), PollFlags::POLLOUT),
            ];
            let wanted = if left.is_empty() { &mut ends[..1] } else { &mut ends[..] };
            let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
            if let Err(error) = poll(wanted, wait)
                && error != Errno::EINTR
            {
                return Err(error.to_string());
            }
            self.read()?;
            match self.stdin.write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if is_later(&error) => {}
                // It has closed its input, and may have answered before.
                Err(_) => left = &[],
            }
        }
    }

    /// Reads what is there.
    fn read(&mut self) -> Result<(), String> {
        let mut chunk = [0; 1 << 16];
        match self.stdout.read(&mut chunk) {
            Ok(0) => Err("it has ended".to_owned()),
            Ok(len) => {
                self.unread.extend_from_slice(&chunk[..len]);
                Ok(())
            }
            Err(error) if is_later(&error) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn is_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Drop for Process {
    fn drop(&mut self) {
        // All may have ended by themselves.
        let _ = killpg(self.group, Signal::SIGKILL);
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

    fn limits(answer_ms: u64) -> Limits {
        Limits { start: Duration::ZERO, answer: Duration::from_millis(answer_ms) }
    }

    fn plan(command: &str, timeout_ms: u64) -> Result<Plan, String> {
        let policy = ExecPolicy::from_name(&format!("exec:{command}"), limits(timeout_ms)).unwrap();
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
        let policy = ExecPolicy::from_name(&name, limits(20_000)).unwrap();
        let case = Case::from_json(CASE).unwrap();
        for _ in 0..3 {
            assert_eq!(policy.plan(&case).unwrap().makespan_ns(&case), 1_000_000_000);
        }
        assert_eq!(std::fs::read_to_string(starts).unwrap(), "x\n");
    }

    #[test]
    fn silence_end_and_nonsense_are_errors_in_bounded_time() {
        let error = plan("sleep 1000", 50).unwrap_err();
        assert!(error.contains("not within 50 ms (policy_timeout_ms)"), "{error}");
        let error = plan("true", 20_000).unwrap_err();
        assert!(error.contains("it has ended"), "{error}");
        let error = plan("echo nonsense", 20_000).unwrap_err();
        assert!(error.contains("cannot be used"), "{error}");
        let error = plan("/no/such/program", 20_000).unwrap_err();
        assert!(error.contains("it has ended"), "{error}");
        assert!(ExecPolicy::from_name("mlfabric", limits(1)).is_none());
        assert!(ExecPolicy::from_name("exec: ", limits(1)).is_none());
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
        let policy = ExecPolicy::from_name(&name, limits(20_000)).unwrap();
        let case = Case::from_json(CASE).unwrap();
        assert!(policy.plan(&case).is_ok());
        std::thread::sleep(Duration::from_millis(200));
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
        let policy = ExecPolicy::from_name(&name, limits(2000)).unwrap();
        let case = Case::from_json(CASE).unwrap();
        assert!(policy.plan(&case).is_err());
        assert!(policy.plan(&case).is_ok());
    }

    #[test]
    fn a_start_is_not_answer_time() {
        let slow = "sh -c 'sleep 1; while read -r line; do echo {\\\"order\\\":[\\\"u\\\"]}; done'";
        let case = Case::from_json(CASE).unwrap();
        let patient = Limits { start: Duration::from_secs(60), ..limits(400) };
        let policy = ExecPolicy::from_name(&format!("exec:{slow}"), patient).unwrap();
        assert!(policy.plan(&case).is_ok(), "its start may take longer than an answer");
        let hasty = Limits { start: Duration::from_millis(100), ..limits(50) };
        let policy = ExecPolicy::from_name("exec:sleep 1000", hasty).unwrap();
        let error = policy.plan(&case).unwrap_err().to_string();
        assert!(error.contains("100 ms (policy_start_timeout_ms)"), "{error}");
        assert!(error.contains("50 ms (policy_timeout_ms)"), "{error}");
    }

    /// Whether a process of that command line is there.
    fn is_running(command: &str) -> bool {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " ") == command
        })
    }

    #[test]
    fn what_a_program_started_is_killed_with_it() {
        // Numbers that no other test sleeps.
        let error = plan("sh -c 'sleep 98764.25 & sleep 98764.5'", 500).unwrap_err();
        assert!(error.contains("policy_timeout_ms"), "{error}");
        let begun = Instant::now();
        while is_running("sleep 98764.25") || is_running("sleep 98764.5") {
            assert!(begun.elapsed() < Duration::from_secs(30), "it outlives the program");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_program_that_writes_on_is_not_read() {
        // 64 MiB and one more in one line; between answers it fills its pipe and waits.
        let error = plan("head -c 100000000 /dev/zero", 60_000).unwrap_err();
        assert!(error.contains("longer than 67108864 bytes"), "{error}");
        let policy =
            ExecPolicy::from_name("exec:yes {\\\"order\\\":[\\\"u\\\"]}", limits(20_000)).unwrap();
        let case = Case::from_json(CASE).unwrap();
        assert!(policy.plan(&case).is_ok());
        assert!(lock(&policy.0.process).as_ref().unwrap().unread.len() <= 1 << 17);
        assert!(policy.plan(&case).unwrap_err().to_string().contains("it answered twice"));
    }

    #[test]
    fn a_question_that_is_cancelled_ends_at_once_and_its_program_with_it() {
        let policy = ExecPolicy::from_name("exec:sleep 98765.5", limits(60_000)).unwrap();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| policy.plan(&Case::from_json(CASE).unwrap()));
            while !is_running("sleep 98765.5") {
                assert!(begun.elapsed() < Duration::from_secs(30), "it is not started");
                std::thread::sleep(Duration::from_millis(5));
            }
            policy.cancel();
            assert!(asked.join().unwrap().is_err());
        });
        assert!(begun.elapsed() < Duration::from_secs(50) && !is_running("sleep 98765.5"));
        assert!(policy.plan(&Case::from_json(CASE).unwrap()).is_err(), "it is not started again");
    }
}
