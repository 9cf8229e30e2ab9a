//! A job at its replica: the parts that it owns, and what it is told.
//!
//! Each part keeps its own rule and has private fields; the job hands one part's findings to the
//! next.

use weft_control::{Command, Event, GroupDescriptor, InstallError, is_pushed};
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::quant::is_exponent;
use weft_wire::{JobId, Nanos};

use super::config::ReplicaJobConfig;
use super::copies::Copies;
use super::decisions::Decisions;
use super::draft::Draft;
use super::fetch::Fetch;
use super::fitness::Fitness;
use super::stats::ReplicaJobStats;
use crate::random::{Draw, Random};
use crate::role::Verdict;
use crate::role::channel::{ChannelClient, ChannelHost};
use crate::role::model::{EVENTS_MAX, Incoming, Ledger, ModelJob, Queue, Refusal};

/// A job at its replica.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) config: ReplicaJobConfig,
    pub(super) chunks: u32,
    /// Copies come in over these.
    pub(super) host: ChannelHost,
    /// Decisions and repairs come in over this.
    pub(super) server: ChannelClient,
    /// What was applied.
    pub(super) ledger: Ledger,
    pub(super) copies: Copies,
    pub(super) decisions: Decisions,
    pub(super) fetch: Fetch,
    pub(super) phase: Phase,
    /// The model that is being fetched.
    pub(super) draft: Draft,
    pub(super) status_at: Nanos,
    /// The server must be told of progress.
    pub(super) owes_status: bool,
    /// The server has restarted since the model came from it: its numbers are other ones.
    pub(super) is_anew: bool,
    pub(super) fitness: Fitness,
    /// When the server last said anything.
    pub(super) heard_at: Nanos,
    events: Queue<Event>,
    pub(super) stats: ReplicaJobStats,
    pub(super) is_dirty: bool,
    /// When something becomes due by itself.
    pub(super) grace_until: Nanos,
}

/// What the replica is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// Applying decisions.
    Follow,
    /// The sum of the next decision is being fetched.
    Repair,
    /// Asking for a version to begin with.
    Ask,
    /// Fetching it.
    Copy {
        /// Its generation.
        generation: u16,
    },
}

impl ModelJob for Job {
    fn id(&self) -> JobId {
        self.id()
    }

    fn handle_frame(&mut self, incoming: &mut Incoming<'_>) -> Result<Verdict, Refusal> {
        self.receive(incoming)
    }

    fn handle_command(&mut self, _now: Nanos, command: &Command) {
        self.is_dirty = true;
        match command {
            Command::Install(descriptor) => {
                let group = descriptor.group;
                let event = match self.install(descriptor) {
                    Ok(()) => Event::Installed { group },
                    Err(error) => Event::Refused { group, error },
                };
                self.tell(event);
            }
            Command::Remove { group, .. } => self.copies.remove_group(*group),
            Command::LeaveReplica { .. } => self.note_left(),
            // The server judges who is in a sum; what it says comes with the decision. A promotion
            // changes what the job is.
            Command::CloseMember { .. }
            | Command::SetRate { .. }
            | Command::Skip { .. }
            | Command::Promote { .. }
            | Command::MoveServer { .. }
            | Command::StandDown { .. }
            | Command::Holding(_)
            | Command::SetBands { .. }
            | Command::SetLabel { .. } => {}
        }
    }

    fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        self.transmit(now, frame)
    }

    fn poll_timeout(&self) -> Nanos {
        self.due_at()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }
}

impl Job {
    pub(super) fn new(
        config: &ReplicaJobConfig,
        local: Endpoint,
        mut random: Random,
        kernels: &'static Kernels,
    ) -> Self {
        let life = random.next_non_zero(Draw::Life);
        let server = ChannelClient::new(config.client(local), life, Nanos(0));
        let (rto_min, rto_max) = (Nanos(config.rto_min_ns), Nanos(config.rto_max_ns));
        let initial = (&config.initial[..], config.initial_version, config.initial_order);
        Self {
            chunks: config.model.chunks(),
            host: ChannelHost::new(&config.host(local), random),
            server: server.expect("the configuration was checked"),
            ledger: Ledger::new(&config.model, config.workers.len(), initial, kernels),
            copies: Copies::new(config, kernels),
            decisions: Decisions::new(config.initial_order.0),
            fetch: Fetch::new(config.window_max, rto_min, rto_max),
            phase: Phase::Follow,
            draft: Draft::new(&config.model),
            status_at: Nanos(0),
            owes_status: true,
            is_anew: false,
            fitness: Fitness::default(),
            heard_at: Nanos(0),
            events: Queue::new(EVENTS_MAX),
            stats: ReplicaJobStats::default(),
            is_dirty: true,
            grace_until: Nanos::MAX,
            config: config.clone(),
        }
    }

    pub(super) fn id(&self) -> JobId {
        self.config.model.job
    }

    pub(super) fn stats(&self) -> &ReplicaJobStats {
        &self.stats
    }

    /// What was applied, to look at.
    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// True when it has all that workers were told of, and knows every update in it.
    pub(super) fn is_fit(&self) -> bool {
        self.fitness.is_fit(self.ledger.next_order())
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.events.push(event, &mut self.stats.events_lost);
    }

    fn install(&mut self, descriptor: &GroupDescriptor) -> Result<(), InstallError> {
        let mask = descriptor.mask();
        let fits = !mask.is_empty()
            && mask.len() == descriptor.members.len()
            && self.host.worker_mask().contains(mask)
            && descriptor.chunks == self.chunks
            && descriptor.elements == self.config.model.elements
            && is_pushed(descriptor.element_type)
            && is_exponent(descriptor.exponent);
        if !fits {
            return Err(InstallError::Shape);
        }
        self.copies.install(descriptor, self.ledger.next_order())
    }

    /// Its server acknowledges without it.
    pub(super) fn note_left(&mut self) {
        self.fitness.note_left();
        self.tell_fitness();
    }

    /// Tells whether it could take over, when that changes.
    pub(super) fn tell_fitness(&mut self) {
        let is_fit = self.is_fit();
        if core::mem::replace(&mut self.stats.is_fit, is_fit) != is_fit {
            self.tell(Event::ReplicaFitness { is_fit });
        }
    }

    pub(super) fn measure_lag(&mut self) {
        self.stats.lag = self.decisions.lag(self.ledger.next_order());
        self.stats.lag_max = self.stats.lag_max.max(self.stats.lag);
    }
}
