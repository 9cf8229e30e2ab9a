//! A job at a replica: followed, or served since its server died (SPEC#promotion).
//!
//! Decides what of the replica's becomes the server's: what is applied, and what can be applied
//! from what is here; never what only the dead server could say. Invariant (I1, I3): the server
//! that begins has exactly a prefix of its predecessor's sequence, and every outcome in it.
//!
//! Becoming a server takes the memory of one, and copies the model: the one command for which a
//! lane pauses.

use alloc::boxed::Box;

use weft_control::{Command, Event, OrderNumber, ServerEpoch};
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::{JobId, Nanos};

use super::job::Job;
use super::stats::ReplicaJobStats;
use crate::random::{Owner, Random};
use crate::role::Verdict;
use crate::role::model::{Incoming, Ledger, ModelJob, Refusal};
use crate::role::server::{self, Presence, ServerJobStats};

/// A job at a replica.
#[derive(Debug)]
pub(super) struct ReplicaJob {
    local: Endpoint,
    kernels: &'static Kernels,
    random: Random,
    /// What is known of the controller, for the server that this may become.
    presence: Presence,
    role: Role,
}

#[derive(Debug)]
enum Role {
    Following(Box<Job>),
    Serving(Box<Serving>),
}

/// A job whose server this is now.
#[derive(Debug)]
struct Serving {
    job: server::Job,
    epoch: ServerEpoch,
    /// All of the predecessor's order numbers below are in the model.
    applied: OrderNumber,
    /// What was counted before.
    stats: ReplicaJobStats,
}

impl ReplicaJob {
    pub(super) fn new(
        job: Job,
        local: Endpoint,
        random: Random,
        kernels: &'static Kernels,
    ) -> Self {
        let role = Role::Following(Box::new(job));
        Self { local, kernels, random, presence: Presence::default(), role }
    }

    /// Takes in whether a controller is there.
    pub(super) fn note_controller(&mut self, now: Nanos, is_there: bool) {
        self.presence.note_controller(now, is_there);
        if let Role::Serving(serving) = &mut self.role {
            serving.job.note_controller(now, is_there);
        }
    }

    pub(super) fn stats(&self) -> &ReplicaJobStats {
        match &self.role {
            Role::Following(job) => job.stats(),
            Role::Serving(serving) => &serving.stats,
        }
    }

    /// The epoch and the counters of a job whose server this is.
    pub(super) fn served(&self) -> Option<(ServerEpoch, &ServerJobStats)> {
        match &self.role {
            Role::Following(_) => None,
            Role::Serving(serving) => Some((serving.epoch, serving.job.stats())),
        }
    }

    /// What was applied, or decided.
    pub(super) fn ledger(&self) -> &Ledger {
        match &self.role {
            Role::Following(job) => job.ledger(),
            Role::Serving(serving) => serving.job.ledger(),
        }
    }

    fn any(&self) -> &dyn ModelJob {
        match &self.role {
            Role::Following(job) => &**job,
            Role::Serving(serving) => &serving.job,
        }
    }

    fn any_mut(&mut self) -> &mut dyn ModelJob {
        match &mut self.role {
            Role::Following(job) => &mut **job,
            Role::Serving(serving) => &mut serving.job,
        }
    }

    fn promote(&mut self, now: Nanos, epoch: ServerEpoch, order: OrderNumber) {
        let job = match &mut self.role {
            Role::Following(job) => job,
            Role::Serving(serving) => {
                // Its answer was lost; a word for another epoch is no word for this server.
                if serving.epoch == epoch {
                    serving.job.tell_promoted(serving.applied);
                }
                return;
            }
        };
        job.apply_what_is_here(now);
        let state = job.ledger().state();
        // One that does not know all that is in its model cannot say what became of an update.
        let applied = if job.fitness.is_patchy() { OrderNumber(0) } else { state.next_order };
        if !job.is_fit() || order < applied {
            job.tell(Event::PromotionRefused { applied });
            return;
        }
        let config = job.config.as_server();
        let random = self.random.child(Owner::Successor(config.model.job.0));
        let mut successor = server::Job::new(&config, self.local, random, self.kernels);
        if successor.succeed(&state, epoch, order, self.presence).is_err() {
            // Model and workers are of one configuration; a state of another shape cannot be.
            job.tell(Event::PromotionRefused { applied });
            return;
        }
        // What was said as a replica is still to be heard, and before the rest.
        while let Some(event) = job.poll_event() {
            successor.tell(event);
        }
        successor.tell_promoted(applied);
        let stats = ReplicaJobStats { promotions: 1, ..*job.stats() };
        let serving = Serving { job: successor, epoch, applied, stats };
        self.role = Role::Serving(Box::new(serving));
    }
}

impl ModelJob for ReplicaJob {
    fn id(&self) -> JobId {
        self.any().id()
    }

    fn handle_frame(&mut self, incoming: &mut Incoming<'_>) -> Result<Verdict, Refusal> {
        self.any_mut().handle_frame(incoming)
    }

    fn handle_command(&mut self, now: Nanos, command: &Command) {
        self.presence.note_command();
        match *command {
            Command::Promote { epoch, order, .. } => self.promote(now, epoch, order),
            _ => self.any_mut().handle_command(now, command),
        }
    }

    fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        self.any_mut().poll_transmit(now, frame)
    }

    fn poll_timeout(&self) -> Nanos {
        self.any().poll_timeout()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.any_mut().poll_event()
    }
}
