//! `weft top`: watches a controller, on a screen or once.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use weft_process::say;
use weft_rpc::v1::StatusReply;
use weft_testbed::interrupt;
use weft_testbed::operator::{Operator, OperatorError};
use weft_testbed::top::{View, draw, text};

use super::{Exit, Failure, Format, Outcome, csv_table, emit, emit_json, emit_text, lab};

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The controller: https://ADDRESS:PORT, or http:// where it listens without TLS.
    controller: String,
    /// Folder of `weft certs`, or that which `weft run` names: operator.pem there, else the one
    /// operator-NAME.pem; or the path of such a file. ca.pem and the key are beside it.
    #[arg(long, value_name = "FOLDER|FILE")]
    certs: Option<PathBuf>,
    /// Read the figures once, print them and exit; --format says how.
    #[arg(long)]
    once: bool,
    /// Append each reading to this file, a line of JSON with the keys of --once --format json.
    /// Without a terminal nothing is drawn, and it ends with the controller.
    #[arg(long, value_name = "FILE", conflicts_with = "once")]
    record: Option<PathBuf>,
    /// Seconds between two readings, 0.1 to 60.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds =
        text.parse::<f64>().ok().filter(|s| (INTERVAL_S_MIN..=INTERVAL_S_MAX).contains(s));
    seconds.ok_or_else(|| format!("use {INTERVAL_S_MIN} to {INTERVAL_S_MAX} seconds"))
}

pub(crate) fn run(arguments: &TopArgs, format: Format) -> Outcome {
    let mut reader = Reader { arguments, operator: None };
    if arguments.once {
        return once(&mut reader, format);
    }
    if format != Format::Text {
        let error = anyhow!("--format json and csv are of one reading: add --once");
        return Err(Exit::Usage.because(error));
    }
    if let Some(path) = arguments.record.as_deref().filter(|_| !io::stdout().is_terminal()) {
        return record(arguments, &mut reader, path);
    }
    if !io::stdout().is_terminal() {
        return Err(Exit::CannotRun.because(anyhow!("this is no terminal: add --once")));
    }
    lab::listen()?;
    let first = reader.read().map_err(unread)?;
    let mut terminal = ratatui::try_init()
        .context("cannot draw on this terminal")
        .map_err(|error| Exit::CannotRun.because(error))?;
    let watched = watch(arguments, &mut reader, first, &mut terminal);
    // Of a terminal that is gone nothing is to be restored.
    let _ = ratatui::try_restore();
    watched
}

fn once(reader: &mut Reader<'_>, format: Format) -> Outcome {
    let view = View::new(&reader.read().map_err(unread)?, None);
    match format {
        Format::Text => emit_text(&text(&view))?,
        Format::Json => emit_json(&view)?,
        Format::Csv => emit(&csv_table(&view.jobs)?)?,
    }
    Ok(0)
}

/// Records readings until the controller is gone or somebody ends it.
fn record(arguments: &TopArgs, reader: &mut Reader<'_>, path: &Path) -> Outcome {
    lab::listen()?;
    let mut recording = Recording::begin(path)?;
    let mut last = first(reader)?;
    recording.add(&View::new(&last, None))?;
    while !interrupt::is_raised() {
        // In pieces, so that a signal is heard soon.
        let next = Instant::now() + Duration::from_secs_f64(arguments.interval);
        while Instant::now() < next && !interrupt::is_raised() {
            thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
        }
        let Ok(reply) = reader.read() else { break };
        recording.add(&View::new(&reply, Some(&last)))?;
        last = reply;
    }
    say!("weft: {} readings in {}", recording.count, path.display());
    Ok(0)
}

/// The first reading, of a controller that may be about to start.
fn first(reader: &mut Reader<'_>) -> Result<StatusReply, Failure> {
    let until = Instant::now() + START_TIMEOUT;
    loop {
        match reader.read() {
            Err(error)
                if !error.is_usage() && Instant::now() < until && !interrupt::is_raised() =>
            {
                thread::sleep(LOOK);
            }
            read => return read.map_err(unread),
        }
    }
}

/// Readings in a file, one a line.
struct Recording {
    path: PathBuf,
    file: File,
    count: u64,
}

impl Recording {
    fn begin(path: &Path) -> Result<Self, Failure> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file
            .with_context(|| format!("cannot record in {}", path.display()))
            .map_err(|error| Exit::Usage.because(error))?;
        Ok(Self { path: path.to_owned(), file, count: 0 })
    }

    /// A line is written whole, so that whoever reads meanwhile reads whole ones.
    fn add(&mut self, view: &View) -> Result<(), Failure> {
        let line = serde_json::to_string(view).map_err(|error| Exit::Failed.because(error))?;
        self.count += 1;
        self.file
            .write_all((line + "\n").as_bytes())
            .with_context(|| format!("writing {}", self.path.display()))
            .map_err(|error| Exit::Failed.because(error))
    }
}

/// Draws a reading after the other until somebody has seen enough.
fn watch(
    arguments: &TopArgs,
    reader: &mut Reader<'_>,
    first: StatusReply,
    terminal: &mut ratatui::DefaultTerminal,
) -> Outcome {
    let every = Duration::from_secs_f64(arguments.interval);
    let keys = Keys::open().map_err(|error| Exit::CannotRun.because(error))?;
    let mut recording = arguments.record.as_deref().map(Recording::begin).transpose()?;
    let mut view = View::new(&first, None);
    let mut last = first;
    record_one(&mut recording, &view)?;
    let mut problem: Option<String> = None;
    loop {
        let drawn = terminal.draw(|frame| {
            draw(frame, &view, &arguments.controller, problem.as_deref());
        });
        drawn.context("drawing").map_err(|error| Exit::Failed.because(error))?;
        let next = Instant::now() + every;
        if is_over(&keys, next)? {
            return Ok(0);
        }
        match reader.read() {
            Ok(reply) => {
                view = View::new(&reply, Some(&last));
                record_one(&mut recording, &view)?;
                (last, problem) = (reply, None);
            }
            // A controller that is restarted comes back.
            Err(error) => problem = Some(error.to_string()),
        }
    }
}

fn record_one(recording: &mut Option<Recording>, view: &View) -> Result<(), Failure> {
    recording.as_mut().map_or(Ok(()), |recording| recording.add(view))
}

/// Whether somebody ends it before `until`.
fn is_over(keys: &Keys, until: Instant) -> Result<bool, Failure> {
    let failed = |error| Exit::Failed.because(anyhow::Error::new(error).context("keys"));
    loop {
        if interrupt::is_raised() {
            return Ok(true);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        match keys.wait(left.min(LOOK)).map_err(|errno| failed(errno.into()))? {
            Waited::Nothing => continue,
            Waited::Gone => return Ok(true),
            Waited::Key => {}
        }
        while event::poll(Duration::ZERO).map_err(failed)? {
            if let Event::Key(key) = event::read().map_err(failed)?
                && key.kind == KeyEventKind::Press
                && is_end(key)
            {
                return Ok(true);
            }
        }
    }
}

fn is_end(key: KeyEvent) -> bool {
    let is_break = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    is_break || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

/// The terminal that keys come from. It is waited for here, because crossterm reads one that is
/// gone again and again, and never returns.
enum Keys {
    Stdin(io::Stdin),
    Terminal(File),
}

/// What came of waiting for a key.
enum Waited {
    Nothing,
    Key,
    /// The terminal is gone.
    Gone,
}

impl Keys {
    /// As crossterm chooses.
    fn open() -> Result<Self, anyhow::Error> {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            return Ok(Self::Stdin(stdin));
        }
        File::open("/dev/tty").map(Self::Terminal).context("opening the terminal for keys")
    }

    fn wait(&self, timeout: Duration) -> Result<Waited, Errno> {
        let terminal = match self {
            Self::Stdin(stdin) => stdin.as_fd(),
            Self::Terminal(file) => file.as_fd(),
        };
        let mut asked = [PollFd::new(terminal, PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::ZERO);
        match poll(&mut asked, timeout) {
            Ok(0) | Err(Errno::EINTR) => Ok(Waited::Nothing),
            Ok(_) => match asked[0].revents() {
                Some(PollFlags::POLLIN) => Ok(Waited::Key),
                _ => Ok(Waited::Gone),
            },
            Err(errno) => Err(errno),
        }
    }
}

/// Who asks a controller, and calls it anew after a failure.
struct Reader<'a> {
    arguments: &'a TopArgs,
    operator: Option<Operator>,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<StatusReply, OperatorError> {
        let operator = match self.operator.take() {
            Some(operator) => operator,
            None => {
                let TopArgs { controller, certs, .. } = self.arguments;
                Operator::dial(controller, certs.as_deref(), CALL_TIMEOUT)?
            }
        };
        let reply = operator.status()?;
        self.operator = Some(operator);
        Ok(reply)
    }
}

fn unread(error: OperatorError) -> Failure {
    let exit = if error.is_usage() { Exit::Usage } else { Exit::CannotRun };
    exit.because(error)
}

/// How long a recording waits for its controller.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// What a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
const INTERVAL_S_MIN: f64 = 0.1;
const INTERVAL_S_MAX: f64 = 60.0;
/// How often it looks for a signal.
const LOOK: Duration = Duration::from_millis(100);
