//! A worker: pulls a model, computes an update on it, offers it, waits for what becomes of it. What
//! it does about its controller is what the client's session does: a request that is not granted is
//! asked anew when the controller comes back, and goes to the server when it stays away, always
//! under a fresh number.

mod link;

use weft_control::Decision;
use weft_engine::role::push::{Event, NewUpdate, Pusher, Values};
use weft_wire::frame::Endpoint;
use weft_wire::{GroupId, MacAddr, Nanos};

pub use link::Heard;
use link::{Link, link};

use super::judge::{Offer, Uid};
use super::node::FRAME_LEN_MAX;
use super::scenario::{Control, Scenario};
use super::topology;
use crate::coverage::Coverage;
use crate::hash;

/// What a worker says to others than the network.
#[derive(Clone, Debug)]
pub enum Said {
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
        (self.is_connected, self.pulling_since) = (false, None);
        (self.is_closing, self.is_closed) = (false, false);
        (self.link, self.epoch) = (link(scenario, until), 0);
        self.entries.clear();
    }

    /// True when all its updates are committed and it has left.
    #[must_use]
    pub fn is_done(&self, scenario: &Scenario) -> bool {
        self.committed >= scenario.updates && self.entries.is_empty() && self.is_closed
    }

    /// When it wants to be polled.
    #[must_use]
    pub fn timeout(&self) -> Nanos {
        self.pusher.poll_timeout().min(self.link_timeout()).max(self.down_until)
    }

    /// Lets it do what is due; returns what goes out, and what it says.
    pub fn poll(&mut self, scenario: &Scenario, now: Nanos) -> (Vec<Vec<u8>>, Vec<Said>) {
        let mut said = Vec::new();
        let mut frames = Vec::new();
        let mut buffer = vec![0; FRAME_LEN_MAX];
        if now >= self.pusher.poll_timeout() {
            self.pusher.handle_timeout(now);
        }
        self.watch_controller(scenario, now, &mut said);
        // What an event makes it do may give more to send, a few times in a row at most.
        for _ in 0..8 {
            while let Some(len) = self.pusher.poll_transmit(now, &mut buffer) {
                frames.push(buffer[..len].to_vec());
            }
            let mut is_idle = true;
            while let Some(event) = self.pusher.poll_event() {
                is_idle = false;
                self.take(scenario, now, event, &mut said);
            }
            self.go_on(scenario, now);
            if is_idle {
                break;
            }
        }
        (frames, said)
    }

    fn take(&mut self, scenario: &Scenario, now: Nanos, event: Event, said: &mut Vec<Said>) {
        match event {
            Event::Connected => self.is_connected = true,
            Event::Reconnected | Event::Started { .. } | Event::Delivered { .. } => {}
            Event::Pulled { version } => {
                if let Some(since) = self.pulling_since.take()
                    && self.link == Link::Up
                {
                    said.push(Said::Pulled(now.since(since).0));
                }
                said.push(Said::Shown(version.0, self.pusher.model().to_vec()));
                self.offer(scenario, now, version.0, said);
            }
            Event::Decided { number, decision } => {
                let Some(place) = self.place(number) else {
                    said.push(Said::Failed(format!("update {number} is none of its own")));
                    return;
                };
                self.end(scenario, now, place, decision, said);
            }
            Event::Closed => self.is_closed = true,
            Event::Failed(fault) => said.push(Said::Failed(fault.to_string())),
        }
    }

    /// An update has come to its end.
    fn end(
        &mut self,
        scenario: &Scenario,
        now: Nanos,
        place: usize,
        decision: Decision,
        said: &mut Vec<Said>,
    ) {
        let number = self.entries[place].offer.uid.number;
        said.push(Said::Told(self.entries[place].offer.uid, decision));
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
            said.push(Said::Failed(format!("update {number} cannot be finished")));
        }
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.offer.uid.number == number)
    }

    /// Computes an update on this version and offers it.
    fn offer(&mut self, scenario: &Scenario, now: Nanos, version: u64, said: &mut Vec<Said>) {
        let number = self.fresh();
        let uid = Uid { job: self.job, rank: self.rank, number };
        let words = |element: usize| {
            let word = hash(&[scenario.seed, 9, self.job as u64, number, element as u64]);
            i32::try_from(word % 17).expect("small") - 8
        };
        let values: Vec<i32> = (0..scenario.dimension()).map(words).collect();
        // A plan chooses the exponent; integers have theirs.
        let given = if scenario.is_fixed && scenario.control != Control::Engine {
            Values::Integers(values.clone())
        } else {
            let unit = f32::from(topology::EXPONENT).exp2();
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let real = |value: &i32| *value as f32 * unit;
            Values::Reals(values.iter().map(real).collect())
        };
        let version_of = weft_control::Version(version);
        let new = NewUpdate { number, version: version_of, values: given };
        if let Err((refusal, _)) = self.pusher.begin_update(new) {
            said.push(Said::Failed(format!("update {number} is refused: {refusal}")));
            return;
        }
        let offer = Offer { uid, version, values };
        self.entries.push(Entry { offer, is_granted: false, asked_at: now });
        self.ask(scenario, now, self.entries.len() - 1, said);
    }

    /// Asks for another turn, for an update that was never granted or is void.
    fn renew(&mut self, scenario: &Scenario, now: Nanos, place: usize, said: &mut Vec<Said>) {
        self.renumber(place, said);
        self.ask(scenario, now, place, said);
    }

    fn fresh(&mut self) -> u64 {
        self.counter += 1;
        self.life << 32 | (self.rank as u64) << 24 | self.counter
    }

    fn go_on(&mut self, scenario: &Scenario, now: Nanos) {
        if !self.is_connected || self.pulling_since.is_some() || self.is_closing {
            return;
        }
        let under_way = u32::try_from(self.entries.len()).expect("few");
        if self.committed >= scenario.updates && under_way == 0 {
            self.is_closing = true;
            self.pusher.close(now);
        } else if self.entries.len() < scenario.in_flight
            && self.committed + under_way < scenario.updates
        {
            let via =
                scenario.relays.then(|| topology::box_index(self.rank % scenario.aggregators));
            // A server that is away is asked again when it is back.
            let begun = self.pusher.begin_pull(now, scenario.dimension(), None, via);
            self.pulling_since = begun.is_ok().then_some(now);
        }
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
        let target = Endpoint { mac: MacAddr::BROADCAST, ..topology::box_endpoint(node) };
        pusher.add_box(now, topology::box_index(node), target, false).expect("few boxes");
    }
    if let Some(node) = scenario.replica() {
        let target = Endpoint { mac: MacAddr::BROADCAST, ..topology::box_endpoint(node) };
        let index = topology::replica_index(scenario);
        pusher.add_box(now, index, target, true).expect("few boxes");
    }
    pusher
}
