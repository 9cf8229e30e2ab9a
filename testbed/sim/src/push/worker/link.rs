//! A worker and its controller: what is asked, what a grant is taken for, and what is done without
//! one.

use std::net::SocketAddr;

use weft_control::Decision;
use weft_controller_engine::{self as controller, Gate, Reply};
use weft_engine::role::push::{Grant, SEGMENTS_MAX, Segment};
use weft_wire::frame::Endpoint;
use weft_wire::rows::ROW_DIRECT;
use weft_wire::{MacAddr, Nanos};

use super::{Entry, WorkerNode, WorkerOutput};
use crate::push::application::Application;
use crate::push::scenario::{Control, Scenario};

/// What the controller's engine says to a worker, and its stream.
#[derive(Clone, Debug)]
pub enum Heard {
    /// It is there, and the job's server there, in this epoch.
    Welcome(Option<(SocketAddr, u32)>),
    /// It is not there any more.
    Lost,
    /// It does not like a request.
    Refused(u64),
    /// Anything else.
    Reply(Reply),
}

/// How it stands with the controller's engine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Link {
    /// There is none.
    Absent,
    /// It listens.
    Up,
    /// Since then there is no stream.
    Down(Nanos),
}

impl WorkerNode {
    pub(super) fn renumber(&mut self, place: usize, said: &mut Vec<WorkerOutput>) {
        let number = self.fresh();
        let entry = &mut self.entries[place];
        if let Err(refusal) = self.pusher.renew(entry.offer.uid.number, number) {
            let uid = entry.offer.uid;
            said.push(WorkerOutput::Failed(format!("{uid:?} cannot be renewed: {refusal}")));
            return;
        }
        entry.offer.uid.number = number;
        entry.is_granted = false;
    }

    pub(super) fn ask(
        &mut self,
        scenario: &Scenario,
        now: Nanos,
        place: usize,
        said: &mut Vec<WorkerOutput>,
    ) {
        self.entries[place].asked_at = now;
        match (scenario.control, self.link) {
            (Control::Script, _) | (_, Link::Up) => {
                said.push(WorkerOutput::Request(self.entries[place].offer.clone()));
            }
            (_, Link::Down(since)) if now < since.saturating_add(scenario.silence()) => {}
            (_, Link::Absent) => self.send_direct(now, place, said),
            (_, Link::Down(_)) => self.fall_back(now, place, said),
        }
    }

    /// Goes to the server, under a number that the controller has never heard.
    fn fall_back(&mut self, now: Nanos, place: usize, said: &mut Vec<WorkerOutput>) {
        self.renumber(place, said);
        self.send_direct(now, place, said);
    }

    /// A server that has a controller refuses what goes without a grant: it is not asked again at
    /// every round trip.
    pub(super) fn be_patient(&mut self, now: Nanos, place: usize) {
        let group = self.pusher.group_of(self.entries[place].offer.uid.number);
        if group.is_some_and(|group| group.row() >= ROW_DIRECT)
            && let Link::Down(since) = &mut self.link
        {
            *since = now;
        }
    }

    fn send_direct(&mut self, now: Nanos, place: usize, said: &mut Vec<WorkerOutput>) {
        let offer = self.entries[place].offer.clone();
        if let Err(refusal) = self.pusher.send_direct(now, offer.uid.number) {
            said.push(WorkerOutput::Failed(format!("{:?} cannot be sent: {refusal}", offer.uid)));
            return;
        }
        self.entries[place].is_granted = true;
        let group = self.pusher.group_of(offer.uid.number).expect("it has just got one");
        said.push(WorkerOutput::Joined(group, offer));
    }

    /// What the controller's engine says.
    pub fn hear(
        &mut self,
        scenario: &Scenario,
        now: Nanos,
        heard: Heard,
        app: &mut dyn Application,
    ) -> Vec<WorkerOutput> {
        let mut said = Vec::new();
        match heard {
            Heard::Welcome(server) => {
                self.link = Link::Up;
                if let Some((address, epoch)) = server {
                    self.take_server(now, address, epoch, &mut said);
                }
                for place in 0..self.entries.len() {
                    if !self.entries[place].is_granted {
                        self.renew(scenario, now, place, &mut said);
                    }
                }
            }
            Heard::Lost if self.link == Link::Up => self.link = Link::Down(now),
            Heard::Lost => {}
            Heard::Refused(number) => {
                if let Some(place) = self.waiting(number) {
                    self.fall_back(now, place, &mut said);
                }
            }
            Heard::Reply(Reply::Grant(grant)) => self.hear_grant(now, &grant, &mut said),
            Heard::Reply(Reply::Drop { update_id, .. }) => {
                if let Some(place) = self.waiting(update_id) {
                    self.end(scenario, now, (place, Decision::Dropped), &mut said, app);
                }
            }
            // One for an update that has ended meanwhile is late, not wrong.
            Heard::Reply(Reply::Release { update_id, segment }) => {
                let segment = usize::try_from(segment).expect("small");
                let _ = self.pusher.handle_release(now, update_id, segment);
            }
            Heard::Reply(Reply::Delivered { update_id, decision }) => {
                let _ = self.pusher.handle_outcome(update_id, decision);
            }
            Heard::Reply(Reply::ServerMoved { address, epoch }) => match address.parse() {
                Ok(address) => self.take_server(now, address, epoch.0, &mut said),
                Err(_) => said.push(WorkerOutput::Failed(format!("`{address}` is no address"))),
            },
        }
        said
    }

    /// The job has another server. The word of an earlier epoch is a stale one.
    fn take_server(
        &mut self,
        now: Nanos,
        addr: SocketAddr,
        epoch: u32,
        said: &mut Vec<WorkerOutput>,
    ) {
        if epoch <= self.epoch {
            return;
        }
        self.epoch = epoch;
        let target = Endpoint { mac: MacAddr::BROADCAST, addr };
        if self.pusher.move_server(now, target).is_err() {
            said.push(WorkerOutput::Failed(format!("{addr} cannot be reached")));
        }
    }

    fn hear_grant(
        &mut self,
        now: Nanos,
        granted: &controller::Grant,
        said: &mut Vec<WorkerOutput>,
    ) {
        let number = granted.update_id;
        let segments = granted.segments.iter().map(|segment| Segment {
            is_open: segment.gate == Gate::Open,
            rate_bytes_per_sec: segment.rate_bytes_per_sec,
        });
        let grant = Grant {
            group: granted.group,
            via: granted.via,
            exponent: granted.exponent,
            member_count: granted.member_count,
            segments: segments.take(SEGMENTS_MAX).collect(),
            replicate: granted.replicate,
            train_chunks: granted.train_chunks,
        };
        if !self.grant(now, number, &grant, said) {
            // Renewed, or gone without the controller.
            said.push(WorkerOutput::Cancel(number));
            if let Some(place) = self.waiting(number) {
                self.fall_back(now, place, said);
            }
        }
    }

    fn waiting(&self, number: u64) -> Option<usize> {
        self.place(number).filter(|place| !self.entries[*place].is_granted)
    }

    /// Does without a controller that is away for too long, or leaves a request for too long.
    pub(super) fn watch_controller(
        &mut self,
        scenario: &Scenario,
        now: Nanos,
        said: &mut Vec<WorkerOutput>,
    ) {
        if scenario.control != Control::Engine {
            return;
        }
        for place in 0..self.entries.len() {
            let Entry { offer, is_granted: false, asked_at } = &self.entries[place] else {
                continue;
            };
            match self.link {
                Link::Up if now >= asked_at.saturating_add(scenario.patience()) => {
                    said.push(WorkerOutput::Cancel(offer.uid.number));
                    self.fall_back(now, place, said);
                }
                Link::Down(since) if now >= since.saturating_add(scenario.silence()) => {
                    self.fall_back(now, place, said);
                }
                _ => {}
            }
        }
    }

    /// When [`WorkerNode::watch_controller`] has something to do.
    pub(super) fn link_timeout(&self, scenario: &Scenario) -> Nanos {
        let waiting = self.entries.iter().filter(|entry| !entry.is_granted);
        let due = waiting.map(|entry| match self.link {
            Link::Absent => Nanos::MAX,
            Link::Up => entry.asked_at.saturating_add(scenario.patience()),
            Link::Down(since) => since.saturating_add(scenario.silence()),
        });
        due.min().unwrap_or(Nanos::MAX)
    }

    /// A grant of a controller; false when it is not taken.
    pub fn grant(
        &mut self,
        now: Nanos,
        number: u64,
        grant: &Grant,
        said: &mut Vec<WorkerOutput>,
    ) -> bool {
        let Some(place) = self.waiting(number) else { return false };
        let is_taken = self.pusher.handle_grant(now, number, grant).is_ok();
        if is_taken {
            let entry = &mut self.entries[place];
            entry.is_granted = true;
            said.push(WorkerOutput::Joined(grant.group, entry.offer.clone()));
        }
        is_taken
    }
}

pub(super) fn link(scenario: &Scenario, now: Nanos) -> Link {
    match scenario.control {
        Control::Engine => Link::Down(now),
        Control::Script | Control::Nobody => Link::Absent,
    }
}
