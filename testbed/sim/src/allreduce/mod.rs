//! Workers and aggregators that reduce: the engines of [`weft_engine::role::aggregator`] and
//! [`weft_engine::role::worker`].
//!
//! A [`run`] is a function of its [`scenario::Scenario`]. It judges every sum against plain loops
//! (I1, I2), every hostile frame against the slots (I6, I7), how the run ends against what the
//! scenario allows (I9), and gives a hash of all frames with their times (I10).

pub mod data;
pub mod judge;
pub mod member;
pub mod node;
pub mod scenario;
pub mod site;
pub mod topology;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;

use weft_wire::Nanos;

use crate::coverage::Coverage;
use crate::hash;
use crate::hostile::Enemy;
use crate::links::Links;
use crate::network::Network;
use crate::transcript::Fingerprint;
use crate::world::{Core, LIMIT, Next, Presence, World};

use member::{Member, MemberNode};
use node::BoxNode;
use scenario::{Action, Scenario};

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// Of all frames, events and messages, with their times.
    pub fingerprint: Fingerprint,
    /// What was provoked.
    pub coverage: Coverage,
    /// The members as they ended.
    pub members: Vec<MemberNode>,
    /// When the run ended.
    pub ended_at: Nanos,
    /// What the invariants say against it; empty is good.
    pub violations: Vec<String>,
}

/// A run as it ended.
#[derive(Debug)]
pub struct Ended<M> {
    /// The boxes.
    pub boxes: Vec<BoxNode>,
    /// The members.
    pub members: Vec<M>,
    /// What the links carried.
    pub links: Links,
    /// Of all frames, events and messages, with their times.
    pub fingerprint: Fingerprint,
    /// What was provoked.
    pub coverage: Coverage,
    /// Events that happened.
    pub events: u64,
    /// When it ended.
    pub ended_at: Nanos,
    /// What went against the simulator's invariants; empty is good.
    pub violations: Vec<String>,
}

/// Runs a scenario. `log` prints every frame.
#[must_use]
pub fn run(scenario: &Scenario, log: bool) -> Report {
    let boxes: Vec<_> = (0..scenario.boxes()).map(|index| BoxNode::new(scenario, index)).collect();
    let placements = topology::placements(scenario).into_iter().enumerate();
    let members: Vec<_> =
        placements.map(|(index, placement)| MemberNode::new(scenario, index, placement)).collect();
    let network = Network::new(scenario.seed, scenario.rates, log);
    let enemy = Enemy::new(scenario);
    let core = Core::new(boxes.len() + members.len(), &scenario.cues, network, enemy);
    let mut never = |_: Nanos, _: &[MemberNode]| false;
    let mut world = Allreduce::new(core, boxes, members, false, &mut never);
    for index in 0..world.members.len() {
        // Members start within a millisecond of each other.
        let at = Nanos(hash(&[scenario.seed, 5, index as u64]) % 1_000_000);
        world.begin(index, at);
    }
    world.cue();
    world.run();
    let Ended { members, fingerprint, coverage, ended_at, violations, .. } = world.finish();
    let mut report = Report { fingerprint, coverage, members, ended_at, violations };
    let verdict = judge::judge(scenario, &report);
    report.violations.extend(verdict);
    report
}

/// The next frame of a member's flood is due.
#[derive(Debug)]
struct Flood {
    member: usize,
}

struct Allreduce<'a, M> {
    core: Core<Action, Flood>,
    boxes: Vec<BoxNode>,
    members: Vec<M>,
    /// Members neither hear nor speak until then.
    paused_until: Vec<Nanos>,
    /// Its network is not a seed's.
    is_given: bool,
    ends: &'a mut dyn FnMut(Nanos, &[M]) -> bool,
}

impl<'a, M: Member> Allreduce<'a, M> {
    fn new(
        core: Core<Action, Flood>,
        boxes: Vec<BoxNode>,
        members: Vec<M>,
        is_given: bool,
        ends: &'a mut dyn FnMut(Nanos, &[M]) -> bool,
    ) -> Self {
        let paused_until = vec![Nanos(0); members.len()];
        Self { core, boxes, members, paused_until, is_given, ends }
    }

    /// A member begins its first life.
    fn begin(&mut self, index: usize, at: Nanos) {
        self.members[index].start(at);
        self.core.wake(self.boxes.len() + index, at);
    }

    /// Plans the actions that are due by what the members have done.
    fn cue(&mut self) {
        self.core.cue(self.members.iter().map(Member::progress).sum());
    }

    fn finish(mut self) -> Ended<M> {
        let coverage = &mut self.core.coverage;
        self.boxes.iter().for_each(|node| node.retire(coverage));
        self.members.iter_mut().for_each(|member| member.retire(coverage));
        Ended {
            fingerprint: self.core.network.transcript().fingerprint(),
            boxes: self.boxes,
            members: self.members,
            links: self.core.links,
            coverage: self.core.coverage,
            events: self.core.events,
            ended_at: self.core.now,
            violations: self.core.violations,
        }
    }
}

impl<M: Member> World for Allreduce<'_, M> {
    type Action = Action;
    type Message = Flood;
    const SPINS_MAX: u32 = 8;

    fn core(&self) -> &Core<Action, Flood> {
        &self.core
    }

    fn core_mut(&mut self) -> &mut Core<Action, Flood> {
        &mut self.core
    }

    fn boxes(&self) -> usize {
        self.boxes.len()
    }

    fn limit(&self) -> Nanos {
        if self.is_given { Nanos::MAX } else { LIMIT }
    }

    /// Boxes lose nothing of each other's, where the network is not a seed's.
    fn is_faulty(&self, from: usize, to: usize) -> bool {
        !self.is_given || from.max(to) >= self.boxes.len()
    }

    fn node_at(&self, addr: SocketAddr) -> Option<usize> {
        let boxes = self.boxes.iter().map(BoxNode::addr);
        let members = self.members.iter().map(Member::addr);
        boxes.chain(members).position(|known| known.ip() == addr.ip())
    }

    fn presence(&self, node: usize) -> Presence {
        match node.checked_sub(self.boxes.len()) {
            None if self.core.now < self.boxes[node].down_until => Presence::Gone,
            None => Presence::Here,
            Some(index) => {
                let until = self.paused_until[index];
                if self.core.now < until { Presence::Paused(until) } else { Presence::Here }
            }
        }
    }

    fn timeout(&self, node: usize) -> Nanos {
        match node.checked_sub(self.boxes.len()) {
            None => self.boxes[node].timeout(),
            Some(index) => self.members[index].timeout(),
        }
    }

    fn handle(&mut self, node: usize, frame: &[u8]) {
        let now = self.core.now;
        match node.checked_sub(self.boxes.len()) {
            None => {
                let out = self.boxes[node].handle(now, frame);
                self.send_all(node, out);
            }
            Some(index) => {
                let mut buffer = frame.to_vec();
                self.members[index].handle(now, &mut buffer);
                if frame != buffer {
                    let text = "a worker did not put a frame's octets back";
                    self.core.violations.push(text.to_owned());
                }
            }
        }
    }

    fn poll(&mut self, node: usize) {
        let now = self.core.now;
        let Some(index) = node.checked_sub(self.boxes.len()) else {
            let out = self.boxes[node].poll(now);
            return self.send_all(node, out);
        };
        let Core { coverage, network, .. } = &mut self.core;
        let out = self.members[index].poll(now, coverage, network.transcript());
        self.send_all(node, out);
        self.cue();
    }

    fn state(&self, node: usize, frame: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        if let Some(known) = self.boxes.get(node) {
            known.snapshot(frame).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn act(&mut self, action: Action) {
        let now = self.core.now;
        let coverage = &mut self.core.coverage;
        match action {
            Action::RestartBox { index, pause } => {
                coverage.fault(if index == 0 { "restart_root" } else { "restart_leaf" });
                let until = now.saturating_add(pause);
                self.boxes[index].restart(until, coverage);
                self.core.wake(index, until);
            }
            Action::Kill { member } => {
                coverage.fault("kill");
                self.members[member].kill(now, coverage);
            }
            Action::Start { member } => {
                coverage.fault("return");
                self.members[member].start(now);
                self.core.wake(self.boxes.len() + member, now);
            }
            Action::Pause { member, span } => {
                coverage.fault("pause");
                self.members.iter_mut().for_each(Member::note_pause);
                self.paused_until[member] = now.saturating_add(span);
            }
            Action::Flood { member } => {
                coverage.fault("flood");
                self.core.push(now, Next::Message(Flood { member }));
            }
        }
    }

    fn hear(&mut self, Flood { member }: Flood) {
        let (now, node) = (self.core.now, self.members[member].box_index());
        if let Some(frame) = self.core.enemy.flood() {
            self.core.push(now, Next::Arrive { node, frame, is_forged: false });
        }
        self.core.push(now.saturating_add(FLOOD_INTERVAL), Next::Message(Flood { member }));
    }

    /// True when every member has ended of which an end is wanted.
    fn is_over(&mut self) -> bool {
        let mut counted = self.members.iter().filter(|member| member.counts());
        // No cue will start a member again.
        let is_over = counted.all(|member| member.is_done() && member.timeout() == Nanos::MAX)
            && !self.core.actions().any(|action| matches!(action, Action::Start { .. }));
        is_over || (self.ends)(self.core.now, &self.members)
    }

    fn waiting(&self) -> String {
        let waiting = self.members.iter().filter(|member| !member.is_done()).count();
        format!("{waiting} members still run")
    }
}

/// Pause between the frames of a flood.
const FLOOD_INTERVAL: Nanos = Nanos::from_micros(20);
