//! One model on its way here (SPEC#pull): which version, then its chunks, within a window and with
//! repeats, for neither servers nor relays have timers for a puller. A wait behind others, such as
//! the models of jobs in better bands, is told from a loss: while nothing comes one chunk at a time
//! is asked for again, and an answer that was late gives the window back.
//!
//! A version that is gone (STALE) makes the pull begin anew with the newest; a relay that falls
//! silent is left for the server. Invariant: the model that is delivered is one version whole.

use alloc::vec::Vec;

use weft_control::Version;
use weft_kernel::Kernels;
use weft_wire::rows::ROW_MODEL;
use weft_wire::{GroupId, Nanos};

use super::config::PusherConfig;
use super::flight::{Flight, Turn};
use super::stats::PusherStats;
use super::update::Asking;
use crate::drops::DropReason;
use crate::send::path::Path;
use crate::send::retransmit::RttEstimator;
use crate::send::window::CongestionWindow;

/// The pull under way, and the last model.
#[derive(Debug)]
pub(super) struct Puller {
    phase: Phase,
    model: Vec<f32>,
    /// Elements of a chunk.
    elements: usize,
    chunks: u32,
    flight: Flight,
    path: Path,
    /// The version must be above this.
    newer_than: Option<Version>,
    version: Version,
    pub(super) asking: Asking,
    /// The host that is asked for chunks.
    host: usize,
    progress_at: Nanos,
    /// Something became overdue, and nothing has come since.
    is_silent: bool,
    /// The largest window of this pull that a timeout has reduced, and nothing has given back.
    window_before: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Idle,
    /// Which version?
    Asking,
    Fetching,
}

/// The place of the server among the hosts.
pub(super) const SERVER: usize = 0;

impl Puller {
    pub(super) fn new(config: &PusherConfig) -> Self {
        Self {
            phase: Phase::Idle,
            model: Vec::new(),
            elements: 0,
            chunks: 0,
            flight: Flight::new(),
            path: path(config),
            newer_than: None,
            version: Version(0),
            asking: Asking::NEVER,
            host: SERVER,
            progress_at: Nanos(0),
            is_silent: false,
            window_before: 0,
        }
    }

    /// Begins to pull the first `parameters` elements of the model.
    pub(super) fn begin(
        &mut self,
        now: Nanos,
        parameters: usize,
        elements: u16,
        newer_than: Option<Version>,
        host: usize,
    ) {
        self.elements = usize::from(elements);
        let chunks = parameters.div_ceil(self.elements);
        self.chunks = u32::try_from(chunks).expect("checked against the model's");
        // What an earlier pull left is overwritten, all of it, before this one is whole.
        self.model.resize(chunks * self.elements, 0.0);
        (self.newer_than, self.host) = (newer_than, host);
        self.ask(now);
    }

    fn ask(&mut self, now: Nanos) {
        self.phase = Phase::Asking;
        self.flight.stop();
        self.asking = Asking::after(now, 0);
        self.progress_at = now;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// True while the version is asked for.
    pub(super) fn is_asking(&self) -> bool {
        self.phase == Phase::Asking
    }

    /// The hosts are others: whatever was asked for is asked of the server, anew.
    pub(super) fn leave_host(&mut self, now: Nanos, stats: &mut PusherStats) {
        self.host = SERVER;
        self.restart(now, stats);
    }

    pub(super) fn host(&self) -> usize {
        self.host
    }

    pub(super) fn group(&self) -> GroupId {
        model_group(self.version)
    }

    /// The last model that was pulled whole.
    pub(super) fn model(&self) -> &[f32] {
        &self.model
    }

    /// How long the version has been asked for.
    pub(super) fn waited_ns(&self, now: Nanos) -> u64 {
        now.since(self.progress_at).0
    }

    /// Takes the server's word of its newest version. A pull without chunks ends here: true.
    pub(super) fn take_version(&mut self, now: Nanos, version: Version) -> bool {
        if self.phase != Phase::Asking || self.newer_than.is_some_and(|held| version <= held) {
            return false;
        }
        self.version = version;
        self.asking = Asking::NEVER;
        self.progress_at = now;
        (self.is_silent, self.window_before) = (false, 0);
        self.phase = Phase::Fetching;
        // A relay may have one chunk and lack another.
        self.flight.begin(self.chunks, self.host == SERVER);
        self.end_if_whole()
    }

    /// The chunk that is asked for next.
    pub(super) fn turn(&self) -> Option<Turn> {
        if self.phase != Phase::Fetching {
            return None;
        }
        let window = if self.is_silent { SILENT_WINDOW } else { self.path.window() };
        self.flight.turn(window.saturating_sub(self.flight.out()))
    }

    pub(super) fn sent(&mut self, turn: Turn, now: Nanos) {
        self.flight.sent(turn, now, &self.path);
    }

    /// Takes a chunk of the model; true when it was the last.
    pub(super) fn take_answer(
        &mut self,
        now: Nanos,
        kernels: &Kernels,
        chunk: u32,
        elements: &[u8],
        is_marked: bool,
        stats: &mut PusherStats,
    ) -> Result<bool, DropReason> {
        if self.phase != Phase::Fetching {
            self.restore_window();
            return Err(DropReason::Unsolicited);
        }
        self.is_silent = false;
        let is_limited = self.flight.out() >= self.path.window();
        let was_overdue = self.flight.is_overdue(chunk);
        let Some(sent) = self.flight.acknowledge(now, &self.path, chunk) else {
            self.restore_window();
            return Err(DropReason::Duplicate);
        };
        let is_late = match sent.is_repeated() {
            true => self.path.is_early(now, &sent),
            false => was_overdue,
        };
        let halved = self.path.on_answer(now, &sent, is_limited, is_marked);
        if is_late {
            // It was not lost but late, and so is what was asked for after it.
            self.restore_window();
            self.flight.renew(now, &self.path, chunk);
        }
        if halved {
            self.window_before = 0;
        }
        stats.congestion_marks += u64::from(is_marked);
        stats.window_reductions += u64::from(halved);
        let start = chunk as usize * self.elements;
        kernels.store_f32_ahead(&mut self.model[start..start + self.elements], elements);
        self.progress_at = now;
        Ok(self.end_if_whole())
    }

    /// Something was answered twice, or before its repeat: it had not been lost, but waited behind
    /// others (RFC 3708). That costs no window.
    fn restore_window(&mut self) {
        self.path.restore_window(core::mem::take(&mut self.window_before));
    }

    fn end_if_whole(&mut self) -> bool {
        let is_whole = self.flight.is_finished();
        if is_whole {
            self.phase = Phase::Idle;
        }
        is_whole
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Begins anew with the newest version: the server has forgotten this one, or lost us.
    pub(super) fn restart(&mut self, now: Nanos, stats: &mut PusherStats) {
        if self.phase == Phase::Fetching {
            stats.pulls_restarted += 1;
            self.ask(now);
        }
    }

    /// Repeats what is overdue, and leaves a relay that is silent.
    pub(super) fn handle_timeout(&mut self, now: Nanos, stats: &mut PusherStats) {
        if self.phase != Phase::Fetching {
            return;
        }
        let patience_ns = RELAY_PATIENCE_NS.max(4 * self.path.rtt().rto().0);
        let overdue = self.flight.expire(now, &self.path);
        if overdue.count == 0 {
            return;
        }
        if overdue.has_late() {
            self.is_silent = true;
            self.window_before = self.window_before.max(self.path.window());
        }
        stats.window_reductions += u64::from(self.path.on_timeout(now, &overdue));
        if self.host != SERVER && now.since(self.progress_at).0 > patience_ns {
            self.host = SERVER;
            stats.pulls_rerouted += 1;
        }
    }

    pub(super) fn deadline(&self) -> Nanos {
        match self.phase {
            Phase::Idle => Nanos::MAX,
            Phase::Asking => self.asking.at,
            Phase::Fetching => self.flight.deadline(&self.path),
        }
    }
}

/// A path of which nothing is known.
pub(super) fn path(config: &PusherConfig) -> Path {
    let rtt = RttEstimator::new(
        Nanos(config.rto_initial_ns),
        Nanos(config.rto_min_ns),
        Nanos(config.rto_max_ns),
    );
    Path::new(rtt, CongestionWindow::new(config.cwnd_initial, config.cwnd_max))
}

/// The group of a version of the model.
pub(super) fn model_group(version: Version) -> GroupId {
    GroupId::new(ROW_MODEL, low_16(version))
}

/// The group of the question for the newest version.
pub(super) const fn model_question() -> GroupId {
    GroupId::new(ROW_MODEL, 0)
}

#[expect(clippy::cast_possible_truncation, reason = "the generation is the low 16 bits")]
fn low_16(version: Version) -> u16 {
    version.0 as u16
}

/// Chunks that are asked for again at a time while nothing comes at all: one that is busy with
/// others has the questions, and each would be answered as often as it was asked.
const SILENT_WINDOW: u32 = 1;
/// How long a relay may bring nothing before the server is asked instead.
const RELAY_PATIENCE_NS: u64 = 100_000_000;

#[cfg(test)]
mod tests;
