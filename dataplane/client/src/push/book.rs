//! Which updates are under way, what to do when one is void or the controller is gone, and what was
//! measured. Decides, and does no I/O: time, frames' events and messages are arguments.
//!
//! Every turn of an update has its own id, greater than all before: the controller's `update_id`.
//! Invariants: each ticket gets one outcome; an update is renewed at most `resends_max` times; an
//! update that was granted is the server's to decide, whatever the controller does.

use std::collections::VecDeque;

use crossbeam_channel::Sender;
use weft_engine::push::{BoxIndex, Decision, Version};
use weft_engine::role::push::{Event, NewUpdate, PushRefusal, Pusher, Values};
use weft_io::PortStats;
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::{MacAddr, Nanos};

use super::config::nanos;
use super::message::{
    FromController, Job, Message, Permit, PullOrder, PushOrder, Ready, ToController,
};
use super::{Outcome, PushConfig, PushError, PushStatistics};

/// What the session keeps beside its engine.
#[derive(Debug)]
pub(super) struct Book {
    config: PushConfig,
    stage: Stage,
    entries: Vec<Entry>,
    next_id: u64,
    pull: Option<Pull>,
    /// Dropped updates that go with the next one.
    feedback: Option<Vec<f32>>,
    link: Link,
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

impl Book {
    pub(super) fn new(config: &PushConfig, has_controller: bool) -> Self {
        Self {
            config: config.clone(),
            stage: Stage::Opening,
            entries: Vec::with_capacity(config.updates_open_max),
            next_id: 0,
            pull: None,
            feedback: None,
            link: if has_controller { Link::Down(Nanos(0)) } else { Link::Absent },
            requests: VecDeque::new(),
            is_connected: false,
            shape: None,
            close_at: None,
            stats: PushStatistics::default(),
        }
    }

    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    /// What the controller is to be told next.
    pub(super) fn poll_request(&mut self) -> Option<ToController> {
        self.requests.pop_front()
    }

    /// A request found the controller's queue full: as if there were no controller.
    pub(super) fn take_lost_request(
        &mut self,
        now: Nanos,
        request: ToController,
        engine: &mut Pusher,
    ) {
        if let ToController::Request { id, .. } = request
            && let Some(index) = self.waiting(id)
        {
            self.go_direct(now, index, engine);
        }
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
            Message::Controller(said) => self.take_controller(now, said, engine),
        }
    }

    fn take_push(&mut self, now: Nanos, order: PushOrder, engine: &mut Pusher) {
        let PushOrder { mut update, version, mut norm, mut max_abs, outcome, permit } = order;
        if let Some(feedback) = self.feedback.take() {
            add(&mut update, &feedback);
            let squares = update.iter().map(|value| f64::from(*value) * f64::from(*value));
            (norm, max_abs) = (squares.sum::<f64>().sqrt(), Kernels::detect().max_abs_f32(&update));
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
            resends: 0,
            outcome,
            _permit: permit,
        });
        self.ask(now, self.entries.len() - 1, engine);
    }

    /// Asks for a turn: the controller if it is there or may come back in time, else the server.
    fn ask(&mut self, now: Nanos, index: usize, engine: &mut Pusher) {
        let entry = &mut self.entries[index];
        (entry.asked_at, entry.granted_at) = (now, None);
        let Entry { id, version, norm, max_abs, .. } = *entry;
        match self.link {
            Link::Up => {
                self.requests.push_back(ToController::Request { id, version, norm, max_abs });
            }
            Link::Down(since) if !self.is_silent(now, since) => {}
            Link::Absent | Link::Down(_) => self.go_direct(now, index, engine),
        }
    }

    /// Sends an update without the controller, under a number that the controller has never heard:
    /// what it may still say of the old one concerns another turn.
    fn go_direct(&mut self, now: Nanos, index: usize, engine: &mut Pusher) {
        if self.link != Link::Absent {
            self.stats.controller_fallbacks += 1;
            self.renumber(index, engine);
        }
        let entry = &mut self.entries[index];
        if engine.send_direct(now, entry.id).is_ok() {
            entry.granted_at = Some(now);
        }
    }

    fn renumber(&mut self, index: usize, engine: &mut Pusher) {
        let fresh = self.fresh_id();
        let entry = &mut self.entries[index];
        if engine.renew(entry.id, fresh).is_ok() {
            entry.id = fresh;
        }
    }

    fn is_silent(&self, now: Nanos, since: Nanos) -> bool {
        let silence = self.config.controller.as_ref().map_or(0, |c| nanos(c.silence));
        now.since(since).0 >= silence
    }

    fn begin_pull(&mut self, now: Nanos, engine: &mut Pusher) {
        let Some(pull) = &self.pull else { return };
        let (parameters, newer_than) = (pull.order.parameters, pull.order.newer_than);
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

    fn take_controller(&mut self, now: Nanos, said: FromController, engine: &mut Pusher) {
        match said {
            FromController::Welcome(job) => {
                self.link = Link::Up;
                self.take_job(now, &job, engine);
                self.open_if_ready(now, engine);
                // What was never granted is asked anew, under a number that no old grant has.
                for index in 0..self.entries.len() {
                    if self.entries[index].granted_at.is_none() {
                        self.renew(now, index, engine);
                    }
                }
            }
            FromController::Lost => {
                if self.link == Link::Up {
                    self.link = Link::Down(now);
                }
            }
            FromController::Refused(problem) => {
                self.stage = Stage::Over(PushError::Controller(problem));
            }
            FromController::RequestRefused { id: Some(id), .. } => {
                if let Some(index) = self.waiting(id) {
                    self.go_direct(now, index, engine);
                }
            }
            FromController::RequestRefused { id: None, .. } => {}
            FromController::Grant { id, grant } => match self.waiting(id) {
                Some(index) if engine.handle_grant(now, id, &grant).is_ok() => {
                    let entry = &mut self.entries[index];
                    entry.granted_at = Some(now);
                    self.stats.request_to_grant.take(now.since(entry.asked_at).0);
                }
                // Renewed, gone direct, or by way of a box that cannot be reached.
                _ => self.refuse_grant(now, id, engine),
            },
            FromController::BadGrant { id } => self.refuse_grant(now, id, engine),
            FromController::Drop { id } => {
                if let Some(index) = self.waiting(id) {
                    self.end(now, index, Outcome::Dropped, engine);
                }
            }
            // One for an update that has ended meanwhile is late, not wrong.
            FromController::Release { id, segment } => {
                let _ = engine.handle_release(now, id, segment);
            }
            FromController::Delivered { id, decision } => {
                let _ = engine.handle_outcome(id, decision);
            }
        }
    }

    /// Says that a grant will not be used, so that its group goes on without it.
    fn refuse_grant(&mut self, now: Nanos, id: u64, engine: &mut Pusher) {
        self.requests.push_back(ToController::Cancel { id });
        if let Some(index) = self.waiting(id) {
            self.go_direct(now, index, engine);
        }
    }

    fn take_job(&mut self, now: Nanos, job: &Job, engine: &mut Pusher) {
        let ours = self.config.numbers.element_type();
        if job.element_type.is_some_and(|theirs| theirs != ours) {
            self.stage = Stage::Over(PushError::Config {
                field: "numbers",
                problem: "is not the element type that the controller has for the job",
            });
            return;
        }
        self.shape = Some((job.chunks, job.elements));
        let boxes = job.aggregators.iter().map(|place| (place, false));
        for ((index, addr), is_replica) in
            boxes.chain(job.replica.iter().map(|place| (place, true)))
        {
            let target = Endpoint { mac: MacAddr::BROADCAST, addr: *addr };
            // One too many, or of another family: grants by way of it are refused.
            let _ = engine.add_box(now, *index, target, is_replica);
        }
    }

    /// The update that waits for the grant of this id.
    fn waiting(&self, id: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.id == id && entry.granted_at.is_none())
    }

    fn fresh_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Asks for another turn for an update that was never granted, or is void.
    fn renew(&mut self, now: Nanos, index: usize, engine: &mut Pusher) {
        self.renumber(index, engine);
        self.ask(now, index, engine);
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
        let Some(Pull { order, begun_at }) = self.pull.take() else { return };
        if self.link == Link::Up && order.newer_than.is_none() {
            let bytes = size_of_val(engine.model()) as u64;
            let duration_ns = now.since(begun_at).0;
            self.requests.push_back(ToController::PullSample { bytes, duration_ns });
        }
        let _ = order.reply.send((version, engine.model()[..order.parameters].to_vec()));
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
        if let Link::Down(since) = self.link
            && self.is_silent(now, since)
        {
            self.open_if_ready(now, engine);
            for index in 0..self.entries.len() {
                if self.entries[index].granted_at.is_none() {
                    self.go_direct(now, index, engine);
                }
            }
        }
        if let (Link::Up, Some(controller)) = (self.link, &self.config.controller) {
            let patience_ns = nanos(controller.grant_timeout);
            for index in 0..self.entries.len() {
                let entry = &self.entries[index];
                let id = entry.id;
                if entry.granted_at.is_none() && now.since(entry.asked_at).0 >= patience_ns {
                    self.requests.push_back(ToController::Cancel { id });
                    self.go_direct(now, index, engine);
                }
            }
        }
        self.close_if_done(now, engine);
    }

    /// When [`Book::handle_timeout`] has something to do.
    pub(super) fn poll_timeout(&self) -> Nanos {
        let is_waiting = self.entries.iter().any(|entry| entry.granted_at.is_none());
        let silence = self.config.controller.as_ref().map_or(0, |c| nanos(c.silence));
        let link = match self.link {
            Link::Down(since) if is_waiting || matches!(self.stage, Stage::Opening) => {
                since.saturating_add(Nanos(silence))
            }
            _ => Nanos::MAX,
        };
        link.min(self.close_at.unwrap_or(Nanos::MAX))
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

    /// All counters.
    pub(super) fn statistics(&self, engine: &Pusher, port: &PortStats) -> PushStatistics {
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
            bytes_sent: port.tx_bytes,
            bytes_received: port.rx_bytes,
            pulls: counted.pulls,
            pull_repeats: counted.pull_repeats,
            pulls_restarted: counted.pulls_restarted,
            window_reductions: counted.window_reductions,
            congestion_marks: counted.congestion_marks,
            frames_refused: counted.drops.total(),
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
