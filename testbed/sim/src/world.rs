//! The simulator: a clock, a queue of what happens, nodes on a network, an enemy on it, and what is
//! done to nodes when. Every kind of scenario is a world on it.
//!
//! Invariants: what happens depends on the scenario alone (I10); what is queued for one instant
//! happens in the order in which it was queued; an enemy's frame leaves its receiver as it was
//! (I7); no node is due at one instant for ever, and every run ends (I9).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;

use weft_wire::Nanos;
use weft_wire::frame::Udp;

use crate::coverage::Coverage;
use crate::hostile::Enemy;
use crate::links::Links;
use crate::network::Network;

/// Something that is done to nodes, once the run has come so far.
#[derive(Clone, Copy, Debug)]
pub struct Cue<A> {
    /// Sums taken, or updates decided, by all jobs together.
    pub after: u64,
    /// Time after that.
    pub delay: Nanos,
    /// What happens.
    pub action: A,
}

/// What happens next.
#[derive(Debug)]
pub(crate) enum Next<A, W> {
    /// Something is done to nodes.
    Act(A),
    /// A node is due.
    Wake { node: usize },
    /// A frame arrives.
    Arrive { node: usize, frame: Vec<u8>, is_forged: bool },
    /// Something of the kind of scenario.
    Message(W),
}

/// Whether a node hears what arrives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Presence {
    Here,
    /// It hears later what arrives now.
    Paused(Nanos),
    /// What arrives is lost.
    Gone,
}

/// What every world has.
#[derive(Debug)]
pub(crate) struct Core<A, W> {
    pub(crate) now: Nanos,
    /// By time and sequence number.
    queue: BTreeMap<(Nanos, u64), Next<A, W>>,
    pub(crate) sequence: u64,
    /// Taken off the queue.
    pub(crate) events: u64,
    /// When each node wakes next; other wakes in the queue are out of date.
    wake_at: Vec<Nanos>,
    /// Times in a row that a node was due at the same instant.
    spins: Vec<u32>,
    /// Cues that wait for their time.
    cues: Vec<Cue<A>>,
    pub(crate) network: Network,
    pub(crate) links: Links,
    pub(crate) enemy: Enemy,
    pub(crate) coverage: Coverage,
    pub(crate) violations: Vec<String>,
    pub(crate) log: bool,
}

impl<A: Copy, W> Core<A, W> {
    /// Of so many nodes.
    pub(crate) fn new(nodes: usize, cues: &[Cue<A>], network: Network, enemy: Enemy) -> Self {
        Self {
            now: Nanos(0),
            queue: BTreeMap::new(),
            sequence: 0,
            events: 0,
            wake_at: vec![Nanos::MAX; nodes],
            spins: vec![0; nodes],
            cues: cues.to_vec(),
            log: network.logs(),
            network,
            links: Links::default(),
            enemy,
            coverage: Coverage::of_one_seed(),
            violations: Vec::new(),
        }
    }

    /// Queues what happens at a time.
    pub(crate) fn push(&mut self, at: Nanos, next: Next<A, W>) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), next);
    }

    /// What will be done to nodes, as far as its time is known.
    pub(crate) fn actions(&self) -> impl Iterator<Item = &A> {
        self.queue.values().filter_map(|next| match next {
            Next::Act(action) => Some(action),
            _ => None,
        })
    }

    /// Wakes a node then, and not before.
    pub(crate) fn wake(&mut self, node: usize, at: Nanos) {
        if at != Nanos::MAX && self.wake_at[node] != at {
            self.push(at, Next::Wake { node });
        }
        self.wake_at[node] = at;
    }

    /// Plans the actions that are due when the run has come so far.
    pub(crate) fn cue(&mut self, progress: u64) {
        for cue in self.cues.extract_if(.., |cue| cue.after <= progress).collect::<Vec<_>>() {
            let at = self.now.saturating_add(cue.delay);
            self.push(at, Next::Act(cue.action));
        }
    }
}

/// A kind of scenario: its nodes, and what else happens to them.
pub(crate) trait World {
    /// What is done to nodes.
    type Action: Copy + Debug;
    /// What else happens.
    type Message: Debug;
    /// Times in a row that a node may be due at one instant.
    const SPINS_MAX: u32;

    fn core(&self) -> &Core<Self::Action, Self::Message>;
    fn core_mut(&mut self) -> &mut Core<Self::Action, Self::Message>;

    /// The run ends before this.
    fn limit(&self) -> Nanos {
        LIMIT
    }
    /// Nodes below this are boxes, the others workers.
    fn boxes(&self) -> usize;
    /// The node that has an address.
    fn node_at(&self, addr: SocketAddr) -> Option<usize>;
    /// The host of a node.
    fn host_of(&self, node: usize) -> usize {
        node
    }
    fn presence(&self, node: usize) -> Presence;
    /// When a node is due.
    fn timeout(&self, node: usize) -> Nanos;
    /// A node takes a frame; sends what it answers.
    fn handle(&mut self, node: usize, frame: &[u8]);
    /// A node does what is due; sends what goes out unasked.
    fn poll(&mut self, node: usize);
    /// What a forged frame must leave as it was.
    fn state(&self, node: usize, frame: &[u8]) -> u64;
    /// Whether the network may do something to the frames between two nodes.
    fn is_faulty(&self, from: usize, to: usize) -> bool {
        let _ = (from, to);
        true
    }
    /// A frame is on its way, and through the links then.
    fn overhear(&mut self, from: usize, to: usize, through: Nanos, frame: &[u8]) {
        let _ = (from, to, through, frame);
    }
    fn act(&mut self, action: Self::Action);
    fn hear(&mut self, message: Self::Message);
    /// Nothing happens before `at`.
    fn pass(&mut self, at: Nanos) {
        let _ = at;
    }
    /// Something has happened: it is judged.
    fn judge(&mut self) {}
    fn is_over(&mut self) -> bool;
    /// Who waits for what, when the time is up.
    fn waiting(&self) -> String;

    /// Runs to the end.
    fn run(&mut self) {
        while let Some(((at, _), next)) = self.core_mut().queue.pop_first() {
            self.pass(at);
            let core = self.core_mut();
            core.now = at;
            core.events += 1;
            if at > self.limit() {
                let text = format!("not over after {:?}: {}", self.limit(), self.waiting());
                return self.core_mut().violations.push(text);
            }
            match next {
                Next::Act(action) => {
                    if self.core().log {
                        println!("{:>12} {action:?}", at.0);
                    }
                    self.act(action);
                }
                Next::Wake { node } => {
                    if self.core().wake_at[node] == at {
                        self.core_mut().wake_at[node] = Nanos::MAX;
                        self.rouse(node);
                    }
                }
                Next::Arrive { node, frame, is_forged } => self.arrive(node, frame, is_forged),
                Next::Message(message) => self.hear(message),
            }
            self.judge();
            if self.is_over() || self.core().violations.len() > VIOLATIONS_MAX {
                return;
            }
        }
        self.core_mut().violations.push("nothing happens any more".to_owned());
    }

    /// Lets a node do what is due, if it is there.
    fn rouse(&mut self, node: usize) {
        match self.presence(node) {
            Presence::Here => self.poll(node),
            Presence::Paused(until) => return self.core_mut().wake(node, until),
            Presence::Gone => {}
        }
        self.settle(node);
    }

    /// A frame comes. A forged one may be answered, and changes nothing.
    fn arrive(&mut self, node: usize, frame: Vec<u8>, is_forged: bool) {
        match self.presence(node) {
            Presence::Here => {}
            Presence::Paused(until) => {
                return self.core_mut().push(until, Next::Arrive { node, frame, is_forged });
            }
            Presence::Gone => return,
        }
        let core = self.core_mut();
        core.network.arrive(core.now, node, &frame, is_forged);
        core.coverage.frames += 1;
        let before = is_forged.then(|| self.state(node, &frame));
        self.handle(node, &frame);
        if let Some(before) = before {
            let is_same = self.state(node, &frame) == before;
            let core = self.core_mut();
            core.coverage.fault("forged");
            if !is_same {
                let text = format!("at {:?} a forged frame changed node {node}", core.now);
                core.violations.push(text);
            }
        }
        self.rouse(node);
    }

    /// Sends frames on their way.
    fn send_all(&mut self, from: usize, frames: Vec<Vec<u8>>) {
        for frame in frames {
            let target = Udp::parse(&frame).expect("the engines send whole datagrams").target;
            let Some(to) = self.node_at(target) else {
                let text = format!("node {from} sends to {target}, which is nobody's");
                self.core_mut().violations.push(text);
                continue;
            };
            let (boxes, sender, receiver) = (self.boxes(), self.host_of(from), self.host_of(to));
            let core = self.core_mut();
            let through = core.links.pass(core.now, sender, receiver, frame.len());
            if let Some((delay, frame)) = core.enemy.answer(&frame, to < boxes) {
                let at = through.saturating_add(delay);
                core.push(at, Next::Arrive { node: to, frame, is_forged: true });
            }
            self.overhear(from, to, through, &frame);
            let is_faulty = self.is_faulty(from, to);
            let core = self.core_mut();
            let link = from * core.wake_at.len() + to;
            for passing in core.network.send(through, (link, is_faulty), frame, &mut core.coverage)
            {
                let frame = passing.frame;
                core.push(passing.at, Next::Arrive { node: to, frame, is_forged: false });
            }
        }
    }

    /// Plans a node's next wake, and notices one that never sleeps.
    fn settle(&mut self, node: usize) {
        let timeout = self.timeout(node);
        let core = self.core_mut();
        let mut at = timeout.max(core.now);
        if timeout > core.now {
            core.spins[node] = 0;
        } else {
            core.spins[node] += 1;
            if core.spins[node] > Self::SPINS_MAX {
                let text = format!("node {node} is due at {timeout:?} for ever");
                core.violations.push(text);
                at = core.now.saturating_add(Nanos::from_millis(1));
            }
        }
        core.wake(node, at);
    }
}

/// Every run ends before this, unless its world says otherwise.
pub(crate) const LIMIT: Nanos = Nanos::from_millis(300_000);
/// A run with more has shown enough.
pub(crate) const VIOLATIONS_MAX: usize = 8;
