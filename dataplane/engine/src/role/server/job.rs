//! A job at its server: the parts that it owns, and what it is told.
//!
//! Each part keeps its own rule and has private fields; the job hands one part's findings to the
//! next.

use weft_control::{Command, Event, ServerEpoch};
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::header::Header;
use weft_wire::{JobId, Nanos};

use super::config::ServerJobConfig;
use super::credits::Credits;
use super::holes::Holes;
use super::journal::Journal;
use super::link::ReplicaLink;
use super::log::Log;
use super::places::Places;
use super::presence::Presence;
use super::staging::Staging;
use super::stats::ServerJobStats;
use crate::drops::DropReason;
use crate::random::Random;
use crate::role::Verdict;
use crate::role::channel::{ChannelHost, Peer};
use crate::role::model::{
    EVENTS_MAX, Incoming, Ledger, ModelConfigError, ModelJob, ModelState, Queue, Refusal, Snapshots,
};

/// A job at its server.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) config: ServerJobConfig,
    pub(super) chunks: u32,
    pub(super) host: ChannelHost,
    /// Updates that are not committed.
    pub(super) staging: Staging,
    /// Who may send.
    pub(super) credits: Credits,
    /// What was decided.
    pub(super) ledger: Ledger,
    /// Order numbers that no group has.
    pub(super) holes: Holes,
    /// Past decisions, and their sums.
    pub(super) log: Log,
    pub(super) replica: Option<ReplicaLink>,
    /// What must be durable before it is told; `None` when nothing must.
    pub(super) journal: Option<Journal>,
    /// Versions that are being pulled.
    pub(super) snapshots: Snapshots,
    /// Header-only frames that wait to be sent.
    pub(super) outbox: Queue<(Peer, Header)>,
    events: Queue<Event>,
    pub(super) stats: ServerJobStats,
    /// How many servers the job had before this one.
    pub(super) epoch: ServerEpoch,
    /// Whether a controller plans it.
    pub(super) presence: Presence,
    /// Another server has the job: nothing is answered here any more.
    pub(super) is_retired: bool,
    /// A former life's state was taken over.
    pub(super) is_restored: bool,
    /// Something has happened since the last poll.
    pub(super) is_dirty: bool,
    /// When a decision may become possible by itself.
    pub(super) judge_at: Nanos,
}

impl ModelJob for Job {
    fn id(&self) -> JobId {
        self.id()
    }

    fn handle_frame(&mut self, incoming: &mut Incoming<'_>) -> Result<Verdict, Refusal> {
        if self.is_retired {
            return Err(DropReason::UnknownJob.into());
        }
        self.receive(incoming)
    }

    fn handle_command(&mut self, now: Nanos, command: &Command) {
        self.is_dirty = true;
        self.presence.note_command();
        match command {
            Command::Install(descriptor) => {
                let group = descriptor.group;
                let event = match self.install(now, descriptor) {
                    Ok(()) => Event::Installed { group },
                    Err(error) => {
                        self.stats.groups_refused += 1;
                        Event::Refused { group, error }
                    }
                };
                self.tell(event);
            }
            Command::Remove { group, .. } => {
                if let Some(index) = self.staging.find(*group) {
                    let all = self.staging.get(index).mask;
                    all.iter().for_each(|rank| self.close_member(index, rank, true));
                }
            }
            Command::CloseMember { group: Some(group), rank, .. } => {
                if let Some(index) = self.staging.find(*group) {
                    self.close_member(index, *rank, true);
                }
            }
            Command::CloseMember { group: None, rank, .. } => self.close_everywhere(*rank, true),
            Command::SetRate { rate_bytes_per_sec, .. } => {
                self.credits.set_rate((*rate_bytes_per_sec).max(1));
            }
            Command::Skip { below, .. } => self.holes.skip(*below),
            Command::StandDown { epoch, .. } => self.stand_down(*epoch),
            Command::LeaveReplica { .. } => self.leave_replica(),
            // A server has no server; bands are the host's.
            Command::Promote { .. }
            | Command::MoveServer { .. }
            | Command::Holding(_)
            | Command::SetBands { .. }
            | Command::SetLabel { .. } => {}
        }
    }

    fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        if self.is_retired { None } else { self.transmit(now, frame) }
    }

    fn poll_timeout(&self) -> Nanos {
        if self.is_retired { Nanos::MAX } else { self.due_at() }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }
}

impl Job {
    /// Takes the memory of a job whose configuration was checked.
    pub(crate) fn new(
        config: &ServerJobConfig,
        local: Endpoint,
        random: Random,
        kernels: &'static Kernels,
    ) -> Self {
        let (workers, boxes) = (config.workers.len(), config.boxes.len());
        let (chunks, elements) = (config.model.chunks(), usize::from(config.model.elements));
        let (copies, idle_ns) = (config.snapshots_max, config.snapshot_idle_ns);
        let initial = (&config.initial[..], config.initial_version, config.initial_order);
        let outbox_max = usize::from(config.groups_open_max) * (workers + 2) + OUTBOX_EXTRA;
        let places = Places { workers, boxes };
        Self {
            chunks,
            host: ChannelHost::new(&config.host(local), random),
            staging: Staging::new(config, kernels),
            credits: Credits::new(config, places, local),
            ledger: Ledger::new(&config.model, workers, initial, kernels),
            holes: Holes::default(),
            log: Log::new(config.log_entries_max, config.stages_logged() as usize),
            replica: ReplicaLink::new(config),
            journal: config.is_durable.then(|| Journal::new(config, places)),
            snapshots: Snapshots::new(kernels, copies, chunks, elements, idle_ns),
            outbox: Queue::new(outbox_max),
            events: Queue::new(EVENTS_MAX),
            stats: ServerJobStats::default(),
            epoch: ServerEpoch(0),
            presence: Presence::default(),
            is_retired: false,
            is_restored: false,
            is_dirty: false,
            judge_at: Nanos::MAX,
            config: config.clone(),
        }
    }

    pub(super) fn id(&self) -> JobId {
        self.config.model.job
    }

    pub(crate) fn stats(&self) -> &ServerJobStats {
        &self.stats
    }

    /// What was decided, to look at.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// A controller has attached, or its stream has ended.
    pub(crate) fn note_controller(&mut self, now: Nanos, is_there: bool) {
        self.presence.note_controller(now, is_there);
    }

    /// Goes on where a former life stopped, before the first frame. What the replica has is not
    /// known until it says so.
    pub(super) fn restore(&mut self, state: &ModelState) -> Result<(), ModelConfigError> {
        self.ledger.restore(state, self.is_held_for_replica())?;
        self.is_restored = true;
        self.log.begin(self.ledger.model().momentum_norm());
        if let Some(journal) = &mut self.journal {
            journal.begin(state);
        }
        self.forget_replica();
        Ok(())
    }

    /// Writes the next frame that no incoming frame asked for.
    fn transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        if self.is_dirty || now >= self.judge_at {
            self.advance(now);
        }
        while let Some((peer, header)) = self.outbox.pop() {
            // A peer without a channel asks when it has one.
            if let Some(len) = self.host.write(peer, &header, frame, 0) {
                return Some(len);
            }
        }
        let pull = self.credits.poll(now, &self.staging, &self.host, &mut self.stats);
        let len = pull.and_then(|(peer, header)| self.write_pull(peer, &header, frame));
        self.is_dirty = len.is_some();
        len
    }

    /// Writes a credit, padded where its answer may need the room.
    fn write_pull(&self, peer: Peer, header: &Header, frame: &mut [u8]) -> Option<usize> {
        let (start, padding_len) = (self.host.payload_start(peer), self.credits.padding_len(peer));
        frame.get_mut(start..start + padding_len)?.fill(0);
        self.host.write(peer, header, frame, padding_len)
    }

    /// When [`Job::transmit`] will have something to do.
    fn due_at(&self) -> Nanos {
        if self.is_dirty || !self.outbox.is_empty() {
            return Nanos(0);
        }
        self.credits.due_at().min(self.judge_at)
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.events.push(event, &mut self.stats.events_lost);
    }
}

/// Places in the queue of acknowledgements for what is repeated.
const OUTBOX_EXTRA: usize = 64;
