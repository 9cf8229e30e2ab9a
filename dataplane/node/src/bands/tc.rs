//! Runs `tc`. Decides nothing; every run ends, by itself or after [`TC_TIMEOUT`].

use std::io::{ErrorKind, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use weft_control::BandError;

use super::counts::Counts;
use super::tree::{Found, Place, Problem, counts, failure};

/// Reads what is on an interface, and what the kernel has counted there.
///
/// # Errors
/// There is no `tc`, it failed, or what is there is somebody else's.
pub(super) fn read(place: &Place, counted: &mut Counts) -> Result<Found, Problem> {
    let [qdiscs, classes, filters] = place.listings();
    let qdiscs = run(&qdiscs, "")?;
    let classes = run(&classes, "")?;
    counted.note(counts(place, &classes));
    // There are none where there is no such root, which `tc` takes for an error.
    let filters = run(&filters, "").unwrap_or_default();
    place.read(&qdiscs, &classes, &filters)
}

/// Runs lines, all of them or as far as the first that fails.
///
/// # Errors
/// There is no `tc`, or a line failed.
pub(super) fn batch(lines: &[String]) -> Result<(), Problem> {
    if lines.is_empty() {
        return Ok(());
    }
    let text = lines.join("\n") + "\n";
    run(&["-batch".to_owned(), "-".to_owned()], &text).map(|_| ())
}

/// Runs `tc` with these arguments and this input; returns what it writes.
///
/// # Errors
/// There is no `tc`, or it failed.
pub(super) fn run(arguments: &[String], input: &str) -> Result<String, Problem> {
    let words = arguments.join(" ");
    let child = Command::new("tc")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.map_err(|error| {
        let is_absent = error.kind() == ErrorKind::NotFound;
        let reason = if is_absent { BandError::NoTool } else { BandError::Failed };
        Problem::new(reason, format!("starting tc: {error}"))
    })?;
    let (status, stdout, stderr) = wait(child, input)
        .map_err(|problem| Problem::new(BandError::Failed, format!("tc {words}: {problem}")))?;
    if status.success() {
        return Ok(stdout);
    }
    let why = match stderr.trim() {
        "" => format!("it ended with {status} and said nothing"),
        why => why.to_owned(),
    };
    Err(Problem::new(failure(&stderr), format!("tc {words}: {why}")))
}

/// Feeds a child and waits for it. What it is given, and what it says before it reads, fits a pipe.
fn wait(mut child: Child, input: &str) -> Result<(ExitStatus, String, String), String> {
    let stdin = child.stdin.take();
    // One that has failed already reads nothing; its words say why.
    let _ = stdin.map(|mut stdin| stdin.write_all(input.as_bytes()));
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let read = move || {
        let mut text = String::new();
        let _ = stdout.as_mut().map(|from| from.read_to_string(&mut text));
        text
    };
    let reader = std::thread::Builder::new().spawn(read).map_err(|error| {
        let _ = child.kill();
        let _ = child.wait();
        format!("no thread to read its answer: {error}")
    })?;
    let until = Instant::now() + TC_TIMEOUT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(POLL),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("did not end within {} s", TC_TIMEOUT.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    };
    let mut words = String::new();
    let _ = stderr.as_mut().map(|from| from.read_to_string(&mut words));
    Ok((status, reader.join().unwrap_or_default(), words))
}

/// How long one run may take.
pub(super) const TC_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is looked whether it has ended.
const POLL: Duration = Duration::from_millis(1);
