//! A worker: pulls a model, computes an update on it, offers it, waits for what becomes of it. What
//! it does about its controller is what the client's session does: a request that is not granted is
//! asked anew when the controller comes back, and goes to the server when it stays away, always
//! under a fresh number.

mod link;

use weft_control::{Decision, Version};
use weft_engine::role::push::{Event, NewUpdate, Pusher};
use weft_wire::frame::Endpoint;
use weft_wire::{GroupId, MacAddr, Nanos};

pub use link::Heard;
use link::{Link, link};

use super::application::{Application, Next, Standing, Update};
use super::judge::{Offer, Uid};
use super::scenario::Scenario;
use super::topology;
use crate::coverage::Coverage;
use crate::engine::FRAME_LEN_MAX;
use crate::hash;

/// What a worker says to others than the network.
#[derive(Clone, Debug)]
pub enum WorkerOutput {
    /// To the controller: may I send this?
    Request(Offer),
    /// To the controller: I will not send this.
    Cancel(u64),
    /// To the controller: a model has come, in so many nanoseconds.
    Pulled(u64),
    /// To the judge: this version was shown, with these weights.
    Shown(u64, Vec<f32>),
    /// To the judge: it goes into this group.
    Joined(GroupId, Offer),
    /// To the judge: I was told so.
    Told(Uid, Decision),
    /// To the judge: I cannot go on.
    Failed(String),
}

/// An update under way.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it is.
    pub offer: Offer,
    /// It has a group; the server will decide it.
    pub is_granted: bool,
    asked_at: Nanos,
}

/// An update that is ready at a time.
#[derive(Debug)]
struct Computed {
    ready_at: Nanos,
    number: u64,
    version: u64,
    update: Update,
}

/// A worker.
#[derive(Debug)]
pub struct WorkerNode {
    /// Its job and rank.
    pub job: usize,
    /// Its rank.
    pub rank: usize,
    /// Its life.
    pub life: u64,
    /// It is away until then.
    pub down_until: Nanos,
    /// Its engine.
    pub pusher: Pusher,
    is_connected: bool,
    pulling_since: Option<Nanos>,
    /// An update, until it is computed.
    computing: Option<Computed>,
    link: Link,
    /// Of its server.
    epoch: u32,
    /// Updates under way.
    pub entries: Vec<Entry>,
    committed: u32,
    counter: u64,
    is_closing: bool,
    is_closed: bool,
}

impl WorkerNode {
    /// A worker that begins at `now`.
    #[must_use]
    pub fn new(scenario: &Scenario, job: usize, rank: usize, now: Nanos) -> Self {
        Self {
            job,
            rank,
            life: 0,
            down_until: now,
            pusher: pusher(scenario, job, rank, 0, now),
            is_connected: false,
            pulling_since: None,
            computing: None,
            link: link(scenario, now),
            epoch: 0,
            entries: Vec::new(),
            committed: 0,
            counter: 0,
            is_closing: false,
            is_closed: false,
        }
    }

    /// Ends it; it comes back at `until` and knows nothing.
    pub fn restart(&mut self, scenario: &Scenario, until: Nanos, coverage: &mut Coverage) {
        self.count(coverage);
        self.life += 1;
        self.down_until = until;
        self.pusher = pusher(scenario, self.job, self.rank, self.life, until);
        (self.is_connected, self.pulling_since, self.computing) = (false, None, None);
        (self.is_closing, self.is_closed) = (false, false);
        (self.link, self.epoch) = (link(scenario, until), 0);
        self.entries.clear();
    }

    /// True when it has left, which it does when it has what it wants.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.is_closed
    }

    /// When it wants to be polled.
    #[must_use]
    pub fn timeout(&self, scenario: &Scenario) -> Nanos {
        let ready_at = self.computing.as_ref().map_or(Nanos::MAX, |computed| computed.ready_at);
        let timeout = self.pusher.poll_timeout().min(self.link_timeout(scenario));
        timeout.min(ready_at).max(self.down_until)
    }

    /// Lets it do what is due; returns what goes out, and what it says.
    pub fn poll(
        &mut self,
        scenario: &Scenario,
        now: Nanos,
        app: &mut dyn Application,
    ) -> (Vec<Vec<u8>>, Vec<WorkerOutput>) {
        let mut said = Vec::new();
        let mut frames = Vec::new();
        let mut buffer = vec![0; FRAME_LEN_MAX];
        if now >= self.pusher.poll_timeout() {
            self.pusher.handle_timeout(now);
        }
        self.watch_controller(scenario, now, &mut said);
        if let Some(computed) = self.computing.take_if(|computed| now >= computed.ready_at) {
            self.offer(scenario, now, computed, &mut said);
        }
        // What an event makes it do may give more to send, a few times in a row at most.
        for _ in 0..8 {
            while let Some(len) = self.pusher.poll_transmit(now, &mut buffer) {
                frames.push(buffer[..len].to_vec());
            }
            let mut is_idle = true;
            while let Some(event) = self.pusher.poll_event() {
                is_idle = false;
                self.take(scenario, now, event, &mut said, app);
            }
            self.go_on(scenario, now, app);
            if is_idle {
                break;
            }
        }
        (frames, said)
    }

    fn take(
        &mut self,
        scenario: &Scenario,
        now: Nanos,
        event: Event,
        said: &mut Vec<WorkerOutput>,
        app: &mut dyn Application,
    ) {
        match event {
            Event::Connected => self.is_connected = true,
            Event::Started { number } => app.started(now, self.standing(), number),
            Event::Reconnected | Event::Delivered { .. } => {}
            Event::Pulled { version } => {
                if let Some(since) = self.pulling_since.take()
                    && self.link == Link::Up
                {
                    said.push(WorkerOutput::Pulled(now.since(since).0));
                }
                said.push(WorkerOutput::Shown(version.0, self.pusher.model().to_vec()));
                let (number, worker) = (self.fresh(), self.standing());
                let model = (version, self.pusher.model());
                let Some(update) = app.compute(now, worker, number, model) else { return };
                let ready_at = now.saturating_add(update.span);
                let computed = Computed { ready_at, number, version: version.0, update };
                if ready_at == now {
                    self.offer(scenario, now, computed, said);
                } else {
                    self.computing = Some(computed);
                }
            }
            Event::Decided { number, decision } => {
                let Some(place) = self.place(number) else {
                    said.push(WorkerOutput::Failed(format!("update {number} is none of its own")));
                    return;
                };
                self.end(scenario, now, (place, decision), said, app);
            }
            Event::Closed => self.is_closed = true,
            Event::Failed(fault) => said.push(WorkerOutput::Failed(fault.to_string())),
        }
    }

    /// An update has come to its end.
    fn end(
        &mut self,
        scenario: &Scenario,
        now: Nanos,
        (place, decision): (usize, Decision),
        said: &mut Vec<WorkerOutput>,
        app: &mut dyn Application,
    ) {
        app.decided(now, self.standing(), decision);
        let number = self.entries[place].offer.uid.number;
        said.push(WorkerOutput::Told(self.entries[place].offer.uid, decision));
        match decision {
            Decision::Committed(_) => self.committed += 1,
            // It may be sent anew, under a fresh number.
            Decision::Void => {
                self.be_patient(now, place);
                return self.renew(scenario, now, place, said);
            }
            Decision::Dropped => {}
        }
        self.entries.swap_remove(place);
        if self.pusher.finish(number).is_none() {
            said.push(WorkerOutput::Failed(format!("update {number} cannot be finished")));
        }
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.offer.uid.number == number)
    }

    /// Offers an update that was computed on a version.
    fn offer(
        &mut self,
        scenario: &Scenario,
        now: Nanos,
        new: Computed,
        said: &mut Vec<WorkerOutput>,
    ) {
        let Computed { number, version, update, .. } = new;
        let uid = Uid { job: self.job, rank: self.rank, number };
        let Update { values, units, norm, max_abs, .. } = update;
        let new = NewUpdate { number, version: Version(version), values };
        if let Err((refusal, _)) = self.pusher.begin_update(new) {
            said.push(WorkerOutput::Failed(format!("update {number} is refused: {refusal}")));
            return;
        }
        let offer = Offer { uid, version, values: units, norm, max_abs };
        self.entries.push(Entry { offer, is_granted: false, asked_at: now });
        self.ask(scenario, now, self.entries.len() - 1, said);
    }

    /// Asks for another turn, for an update that was never granted or is void.
    fn renew(
        &mut self,
        scenario: &Scenario,
        now: Nanos,
        place: usize,
        said: &mut Vec<WorkerOutput>,
    ) {
        self.renumber(place, said);
        self.ask(scenario, now, place, said);
    }

    fn fresh(&mut self) -> u64 {
        self.counter += 1;
        self.life << 32 | (self.rank as u64) << 24 | self.counter
    }

    fn go_on(&mut self, scenario: &Scenario, now: Nanos, app: &mut dyn Application) {
        let is_busy = self.pulling_since.is_some() || self.computing.is_some();
        if !self.is_connected || is_busy || self.is_closing {
            return;
        }
        match app.next(now, self.standing()) {
            Next::Wait => {}
            Next::Leave => {
                self.is_closing = true;
                self.pusher.close(now);
            }
            Next::Pull(newer_than) => {
                let via =
                    scenario.relays.then(|| topology::box_index(self.rank % scenario.aggregators));
                // A server that is away is asked again when it is back.
                let begun = self.pusher.begin_pull(now, scenario.dimension(), newer_than, via);
                self.pulling_since = begun.is_ok().then_some(now);
            }
        }
    }

    /// How it stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let Self { job, rank, life, committed, .. } = *self;
        Standing { job, rank, life, committed, under_way: self.entries.len() }
    }

    /// What a scripted controller says became of an update.
    pub fn outcome(&mut self, number: u64, decision: Decision) {
        // The server's own word may have been there before.
        let _ = self.pusher.handle_outcome(number, decision);
    }

    /// Adds its counters, when it stops.
    pub fn count(&self, coverage: &mut Coverage) {
        let stats = self.pusher.stats();
        coverage.drops("wrk drop", &stats.drops);
        let counts = [
            ("chunks_sent", stats.chunks_sent),
            ("retransmissions", stats.retransmissions),
            ("replica_copies", stats.replica_copies),
            ("credits", stats.credits),
            ("credits_early", stats.credits_early),
            ("status_probes", stats.status_probes),
            ("pulls", stats.pulls),
            ("pull_repeats", stats.pull_repeats),
            ("pulls_restarted", stats.pulls_restarted),
            ("channels_lost", stats.channels_lost),
            ("servers_moved", stats.servers_moved),
            ("chunks_voided", stats.chunks_voided),
            ("chunks_dropped", stats.chunks_dropped),
        ];
        counts.iter().for_each(|(name, count)| coverage.add("pusher", name, *count));
    }
}

fn pusher(scenario: &Scenario, job: usize, rank: usize, life: u64, now: Nanos) -> Pusher {
    let seed = hash(&[scenario.seed, 51, job as u64, rank as u64, life]);
    let config = topology::pusher(scenario, job, rank);
    let mut pusher = Pusher::new(config, seed, now).expect("one address family");
    for node in 0..scenario.aggregators {
        let target = Endpoint { mac: MacAddr::BROADCAST, ..topology::box_endpoint(scenario, node) };
        pusher.add_box(now, topology::box_index(node), target, false).expect("few boxes");
    }
    if let Some(node) = scenario.replica() {
        let target = Endpoint { mac: MacAddr::BROADCAST, ..topology::box_endpoint(scenario, node) };
        let index = topology::replica_index(scenario);
        pusher.add_box(now, index, target, true).expect("few boxes");
    }
    pusher
}
