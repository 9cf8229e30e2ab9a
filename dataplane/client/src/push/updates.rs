//! Which updates are under way, what to do when one is void or the controller is gone, and what was
//! measured. Decides, and does no I/O: time, frames' events and messages are arguments.
//!
//! Every turn of an update has its own id, greater than all before: the controller's `update_id`.
//! Invariants: each ticket gets one outcome; an update is renewed at most `resends_max` times; an
//! update that was granted is the server's to decide, whatever the controller does.

mod controller;

use std::collections::VecDeque;

use crossbeam_channel::Sender;
use weft_control::{BoxIndex, Decision, Version};
use weft_engine::role::push::{Event, NewUpdate, PushRefusal, Pusher, Values};
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::{MacAddr, Nanos};

use super::config::nanos;
use super::message::{Message, Permit, PullOrder, PushOrder, Ready, ToController};
use super::{Outcome, PushConfig, PushError, PushStatistics};

/// What the session keeps beside its engine.
#[derive(Debug)]
pub(super) struct Updates {
    config: PushConfig,
    stage: Stage,
    entries: Vec<Entry>,
    next_id: u64,
    pull: Option<Pull>,
    /// Dropped updates that go with the next one.
    feedback: Option<Vec<f32>>,
    link: Link,
    /// Of the server that the controller named last.
    epoch: u32,
    /// DSCP of what is sent.
    label: u8,
    requests: VecDeque<ToController>,
    is_connected: bool,
    /// Chunks and elements of a chunk, as the controller has them.
    shape: Option<(u32, u32)>,
    close_at: Option<Nanos>,
    stats: PushStatistics,
}

/// Where the session stands.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    Opening,
    Open(Ready),
    Over(PushError),
}

/// An update under way.
#[derive(Debug)]
struct Entry {
    id: u64,
    version: Version,
    norm: f64,
    max_abs: f32,
    pushed_at: Nanos,
    asked_at: Nanos,
    granted_at: Option<Nanos>,
    /// It went without a grant.
    is_direct: bool,
    resends: u32,
    outcome: Sender<Result<Outcome, PushError>>,
    _permit: Permit,
}

#[derive(Debug)]
struct Pull {
    order: PullOrder,
    begun_at: Nanos,
}

/// How it stands with the controller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Link {
    /// There is none.
    Absent,
    Up,
    /// Since then there is no stream.
    Down(Nanos),
}

impl Updates {
    pub(super) fn new(config: &PushConfig, has_controller: bool) -> Self {
        Self {
            config: config.clone(),
            stage: Stage::Opening,
            entries: Vec::with_capacity(config.updates_open_max),
            next_id: 0,
            pull: None,
            feedback: None,
            link: if has_controller { Link::Down(Nanos(0)) } else { Link::Absent },
            epoch: 0,
            label: config.dscp,
            requests: VecDeque::new(),
            is_connected: false,
            shape: None,
            close_at: None,
            stats: PushStatistics::default(),
        }
    }

    /// DSCP of what is sent: as the controller gives it, else the configuration.
    pub(super) const fn label(&self) -> u8 {
        self.label
    }

    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    /// What the controller is to be told next.
    pub(super) fn poll_request(&mut self) -> Option<ToController> {
        self.requests.pop_front()
    }

    pub(super) fn take_message(&mut self, now: Nanos, message: Message, engine: &mut Pusher) {
        match message {
            Message::Push(order) => self.take_push(now, order, engine),
            Message::Pull(order) => {
                self.pull = Some(Pull { order, begun_at: now });
                self.begin_pull(now, engine);
            }
            Message::Close => {
                self.close_at = Some(now.saturating_add(Nanos(nanos(self.config.close_linger))));
                self.close_if_done(now, engine);
            }
            Message::Leave => self.leave(now, engine),
            Message::Controller(said) => self.take_controller(now, said, engine),
        }
    }

    fn take_push(&mut self, now: Nanos, order: PushOrder, engine: &mut Pusher) {
        let PushOrder { mut update, version, mut norm, mut max_abs, outcome, permit } = order;
        if let Some(feedback) = self.feedback.take() {
            add(&mut update, &feedback);
            (norm, max_abs) = (super::norm(&update), Kernels::detect().max_abs_f32(&update));
            self.stats.updates_fed_back += 1;
        }
        let id = self.fresh_id();
        self.stats.updates_pushed += 1;
        let new = NewUpdate { number: id, version, values: Values::Reals(update) };
        if let Err((refusal, _)) = engine.begin_update(new) {
            let why =
                PushError::System { what: "a place for an update", cause: refusal.to_string() };
            let _ = outcome.send(Err(why));
            return;
        }
        self.entries.push(Entry {
            id,
            version,
            norm,
            max_abs,
            pushed_at: now,
            asked_at: now,
            granted_at: None,
            is_direct: false,
            resends: 0,
            outcome,
            _permit: permit,
        });
        self.ask(now, self.entries.len() - 1, engine);
    }

    fn begin_pull(&mut self, now: Nanos, engine: &mut Pusher) {
        let Some(pull) = &self.pull else { return };
        let (parameters, newer_than) = (pull.order.model.len(), pull.order.newer_than);
        let via = self.config.pull_via.map(BoxIndex);
        let begun = match engine.begin_pull(now, parameters, newer_than, via) {
            // A relay that nobody told us of: the server itself.
            Err(PushRefusal::UnknownBox) => engine.begin_pull(now, parameters, newer_than, None),
            begun => begun,
        };
        if begun.is_err() {
            // The caller finds its reply gone, and the session's end.
            self.pull = None;
        }
    }

    fn fresh_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    pub(super) fn take_event(&mut self, now: Nanos, event: Event, engine: &mut Pusher) {
        match event {
            Event::Connected => {
                self.is_connected = true;
                for (index, addr) in self.config.aggregators.clone() {
                    let target = Endpoint { mac: MacAddr::BROADCAST, addr };
                    let _ = engine.add_box(now, BoxIndex(index), target, false);
                }
                self.open_if_ready(now, engine);
            }
            Event::Reconnected => {}
            Event::Started { number } => self.measure(number, now, |stats, span_ns| {
                stats.grant_to_first_chunk.take(span_ns);
            }),
            Event::Delivered { number } => self.measure(number, now, |stats, span_ns| {
                stats.grant_to_staged.take(span_ns);
            }),
            Event::Decided { number, decision } => {
                self.take_decision(now, number, decision, engine)
            }
            Event::Pulled { version } => self.take_model(now, version, engine),
            Event::Failed(fault) => self.stage = Stage::Over(PushError::Session(fault)),
            Event::Closed => self.stage = Stage::Over(PushError::Closed),
        }
    }

    fn measure(&mut self, id: u64, now: Nanos, take: impl FnOnce(&mut PushStatistics, u64)) {
        let entry = self.entries.iter().find(|entry| entry.id == id);
        if let Some(granted_at) = entry.and_then(|entry| entry.granted_at) {
            take(&mut self.stats, now.since(granted_at).0);
        }
    }

    fn take_decision(&mut self, now: Nanos, id: u64, decision: Decision, engine: &mut Pusher) {
        let Some(index) = self.entries.iter().position(|entry| entry.id == id) else { return };
        match decision {
            Decision::Committed(version) => {
                self.end(now, index, Outcome::Committed { version }, engine);
            }
            Decision::Dropped => self.end(now, index, Outcome::Dropped, engine),
            Decision::Void if self.entries[index].resends < self.config.resends_max => {
                self.entries[index].resends += 1;
                self.stats.updates_resent += 1;
                self.be_patient(now, index);
                self.renew(now, index, engine);
            }
            Decision::Void => self.end(now, index, Outcome::Void, engine),
        }
    }

    fn end(&mut self, now: Nanos, index: usize, outcome: Outcome, engine: &mut Pusher) {
        let entry = self.entries.swap_remove(index);
        let values = engine.finish(entry.id);
        match outcome {
            Outcome::Committed { .. } => self.stats.updates_committed += 1,
            Outcome::Dropped => self.stats.updates_dropped += 1,
            Outcome::Void => self.stats.updates_void += 1,
        }
        if outcome == Outcome::Dropped
            && self.config.error_feedback
            && let Some(Values::Reals(values)) = values
        {
            match &mut self.feedback {
                Some(feedback) => add(feedback, &values),
                None => self.feedback = Some(values),
            }
        }
        self.stats.push_to_outcome.take(now.since(entry.pushed_at).0);
        // A caller that dropped its ticket does not want to know.
        let _ = entry.outcome.send(Ok(outcome));
        self.close_if_done(now, engine);
    }

    fn take_model(&mut self, now: Nanos, version: Version, engine: &Pusher) {
        let Some(Pull { mut order, begun_at }) = self.pull.take() else { return };
        if self.link == Link::Up && order.newer_than.is_none() {
            let bytes = size_of_val(engine.model()) as u64;
            let duration_ns = now.since(begun_at).0;
            self.requests.push_back(ToController::PullSample { bytes, duration_ns });
        }
        let len = order.model.len();
        order.model.copy_from_slice(&engine.model()[..len]);
        let _ = order.reply.send((version, order.model));
    }

    /// The session is open when the server's channel is, and the controller has answered or has
    /// been silent for long enough.
    fn open_if_ready(&mut self, now: Nanos, engine: &Pusher) {
        let Some(terms) = engine.terms().filter(|_| self.is_connected) else { return };
        let (chunks, elements) = (terms.job.chunks, u32::from(terms.job.elements));
        if let Some(theirs) = self.shape.filter(|theirs| *theirs != (chunks, elements)) {
            self.stage = Stage::Over(PushError::Controller(format!(
                "it has {} chunks of {} elements for the job, the server {chunks} of {elements}: \
                 make their configurations agree",
                theirs.0, theirs.1
            )));
            return;
        }
        let is_settled = match self.link {
            Link::Absent | Link::Up => true,
            Link::Down(since) => self.is_silent(now, since),
        };
        if is_settled && matches!(self.stage, Stage::Opening) {
            self.stage = Stage::Open(Ready {
                parameters_max: terms.job.chunks as usize * usize::from(terms.job.elements),
                worker_count: terms.mask.len(),
            });
        }
    }

    /// Does what is due at `now`.
    pub(super) fn handle_timeout(&mut self, now: Nanos, engine: &mut Pusher) {
        self.watch_controller(now, engine);
        self.close_if_done(now, engine);
    }

    /// When [`Updates::handle_timeout`] has something to do.
    pub(super) fn poll_timeout(&self) -> Nanos {
        self.link_timeout().min(self.close_at.unwrap_or(Nanos::MAX))
    }

    /// The caller is gone, or wants to go and nothing is under way any more.
    fn close_if_done(&mut self, now: Nanos, engine: &mut Pusher) {
        if self.close_at.is_some_and(|at| self.entries.is_empty() || now >= at) {
            self.leave(now, engine);
        }
    }

    /// Closes the channels; [`Stage::Over`] follows.
    pub(super) fn leave(&mut self, now: Nanos, engine: &mut Pusher) {
        self.close_at = None;
        engine.close(now);
    }

    /// Tells those who wait why nothing follows.
    pub(super) fn abandon(&mut self, why: &PushError) {
        for entry in self.entries.drain(..) {
            let _ = entry.outcome.send(Err(why.clone()));
        }
        self.pull = None;
    }

    /// All counters. The port has carried so many bytes.
    pub(super) fn statistics(
        &self,
        engine: &Pusher,
        (bytes_received, bytes_sent): (u64, u64),
    ) -> PushStatistics {
        let counted = engine.stats();
        PushStatistics {
            chunks_sent: counted.chunks_sent,
            chunks_direct: counted.chunks_direct,
            chunks_aggregated: counted.chunks_aggregated,
            chunks_dropped: counted.chunks_dropped,
            chunks_voided: counted.chunks_voided,
            chunks_undecided: engine.chunks_undecided(),
            chunks_clamped: counted.chunks_clamped,
            replica_copies: counted.replica_copies,
            retransmissions: counted.retransmissions,
            bytes_sent,
            bytes_received,
            pulls: counted.pulls,
            pull_repeats: counted.pull_repeats,
            pulls_restarted: counted.pulls_restarted,
            window_reductions: counted.window_reductions,
            congestion_marks: counted.congestion_marks,
            frames_refused: counted.drops.total(),
            servers_moved: counted.servers_moved,
            ..self.stats.clone()
        }
    }
}

/// Adds `more` to `sum`, which grows if need be.
fn add(sum: &mut Vec<f32>, more: &[f32]) {
    if sum.len() < more.len() {
        sum.resize(more.len(), 0.0);
    }
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}
