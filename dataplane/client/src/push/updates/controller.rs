//! What the controller says, and what happens without its word.
//!
//! A request that is not granted is asked anew when the controller comes back, and goes directly
//! when it stays away: always under a fresh id, so that nothing the controller may still say of an
//! old one is taken for this turn's.

use std::net::SocketAddr;

use weft_engine::role::push::Pusher;
use weft_wire::frame::Endpoint;
use weft_wire::{MacAddr, Nanos};

use super::super::config::nanos;
use super::super::message::{FromController, Job, ToController};
use super::super::{Outcome, PushError};
use super::{Entry, Link, Stage, Updates};

impl Updates {
    /// A request found the controller's queue full: as if there were no controller.
    pub(in super::super) fn take_lost_request(
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

    /// Asks for a turn: the controller if it is there or may come back in time, else the server.
    pub(super) fn ask(&mut self, now: Nanos, index: usize, engine: &mut Pusher) {
        let entry = &mut self.entries[index];
        (entry.asked_at, entry.granted_at, entry.is_direct) = (now, None, false);
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
            (entry.granted_at, entry.is_direct) = (Some(now), true);
        }
    }

    /// A server that has a controller refuses what goes without a grant (SPEC#push): the controller
    /// is only not to be reached from here. It may be soon; until then the server is not asked at
    /// every round trip.
    pub(super) fn be_patient(&mut self, now: Nanos, index: usize) {
        if self.entries[index].is_direct
            && let Link::Down(since) = &mut self.link
        {
            *since = now;
        }
    }

    fn renumber(&mut self, index: usize, engine: &mut Pusher) {
        let fresh = self.fresh_id();
        let entry = &mut self.entries[index];
        if engine.renew(entry.id, fresh).is_ok() {
            entry.id = fresh;
        }
    }

    pub(super) fn is_silent(&self, now: Nanos, since: Nanos) -> bool {
        let silence = self.config.controller.as_ref().map_or(0, |c| nanos(c.silence));
        now.since(since).0 >= silence
    }

    pub(super) fn take_controller(
        &mut self,
        now: Nanos,
        said: FromController,
        engine: &mut Pusher,
    ) {
        match said {
            FromController::Welcome(job) => {
                self.link = Link::Up;
                if job.label > 0 {
                    self.label = job.label;
                }
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
            FromController::ServerMoved { address, epoch } => {
                self.take_server(now, address, epoch, engine);
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

    /// The job has another server (SPEC#promotion). The word of an earlier epoch is a stale one.
    fn take_server(
        &mut self,
        now: Nanos,
        address: Option<SocketAddr>,
        epoch: u32,
        engine: &mut Pusher,
    ) {
        let Some(addr) = address.filter(|_| epoch > self.epoch) else { return };
        let target = Endpoint { mac: MacAddr::BROADCAST, addr };
        // An address that cannot be reached from here ends the session when the old server is
        // missed.
        if engine.move_server(now, target).is_ok() {
            self.epoch = epoch;
        }
    }

    fn take_job(&mut self, now: Nanos, job: &Job, engine: &mut Pusher) {
        self.take_server(now, job.server, job.epoch, engine);
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

    /// Asks for another turn for an update that was never granted, or is void.
    pub(super) fn renew(&mut self, now: Nanos, index: usize, engine: &mut Pusher) {
        self.renumber(index, engine);
        self.ask(now, index, engine);
    }

    /// Does without a controller that is away for too long, or leaves a request for too long.
    pub(super) fn watch_controller(&mut self, now: Nanos, engine: &mut Pusher) {
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
    }

    /// When [`Updates::watch_controller`] has something to do.
    pub(super) fn link_timeout(&self) -> Nanos {
        let Some(controller) = &self.config.controller else { return Nanos::MAX };
        let waiting = self.entries.iter().filter(|entry| entry.granted_at.is_none());
        let asked_at = waiting.map(|entry| entry.asked_at).min();
        match self.link {
            Link::Down(since) if asked_at.is_some() || matches!(self.stage, Stage::Opening) => {
                since.saturating_add(Nanos(nanos(controller.silence)))
            }
            Link::Up => asked_at
                .map_or(Nanos::MAX, |at| at.saturating_add(Nanos(nanos(controller.grant_timeout)))),
            Link::Absent | Link::Down(_) => Nanos::MAX,
        }
    }
}
