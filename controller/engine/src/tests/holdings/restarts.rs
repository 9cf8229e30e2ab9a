//! What boxes were told to hold comes back, whatever dies: single rules, and seeds of a box and a
//! controller that both die at any moment, between words, answers and restorations.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use weft_control::{MemberConfig, RowConfig, SumOrder};
use weft_wire::header::Operation;

use super::*;

fn install_lease(row: u16) -> HoldingCommand {
    let member =
        |port| MemberConfig { addr: ([10, 0, 0, 9], port).into(), weight: 1, is_box: false };
    HoldingCommand::InstallLease(RowConfig {
        row,
        job: JobId(9),
        members: vec![member(22500), member(22600)],
        element_type: ElementType::I32,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: Overflow::Wrap,
        integrity: Integrity::Crc32c,
        elements: 256,
        window: 64,
        chunks_max: 1 << 20,
        exponent: Some(-20),
        fan_in: 2,
        parent: None,
    })
}

fn hello(life: u64, holdings: &[Holding]) -> NodeHello {
    let holdings = holdings.iter().map(|holding| (JobId(9), *holding)).collect();
    NodeHello { name: "a0".into(), life, roles: Vec::new(), holdings, bands: None }
}

impl Rig {
    /// What the box is told now, in words; what it answers is left to the test.
    fn told(&mut self) -> Vec<String> {
        let all = core::iter::from_fn(|| self.controller.poll_action());
        let word = |action| match action {
            Action::Command { command: Command::Holding(command), .. } => {
                let verb = if command.is_install() { "hold" } else { "drop" };
                Some(format!("{verb} {}", command.holding()))
            }
            Action::Settled { .. } => Some("settled".into()),
            _ => None,
        };
        all.filter_map(word).collect()
    }

    fn installed(&mut self, holding: Holding) {
        self.report(Event::HoldingInstalled { holding });
    }

    /// With a share and a lease.
    fn holding() -> Self {
        let mut rig = Self::new();
        rig.told();
        for command in [share(), install_lease(5)] {
            let holding = command.holding();
            rig.controller.hold("a0", command).unwrap();
            rig.installed(holding);
        }
        rig.told();
        rig
    }

    fn missing(&self) -> Vec<Holding> {
        let node = self.controller.status(3).nodes.into_iter().find(|node| node.name == "a0");
        node.unwrap().missing.into_iter().map(|(_, holding)| holding).collect()
    }
}

const SHARE_AND_LEASE: [&str; 2] = ["hold the job's share", "hold the lease of row 5"];

#[test]
fn a_box_that_begins_anew_is_told_what_it_held_and_only_then_that_it_has_all() {
    let mut rig = Rig::holding();
    rig.controller.handle_node_gone(3, rig.node);
    rig.controller.handle_node(4, &hello(2, &[])).unwrap();
    assert_eq!(rig.told(), SHARE_AND_LEASE, "the share first");
    assert_eq!(rig.missing(), [Holding::Job, Holding::Row(5)]);
    rig.installed(Holding::Job);
    assert_eq!(rig.told(), Vec::<String>::new());
    let busy = rig.controller.hold("a0", lease()).unwrap_err();
    assert_eq!(busy.field, "holding", "it has not answered");
    rig.installed(Holding::Row(5));
    assert_eq!(rig.told(), ["settled"]);
    assert!(rig.missing().is_empty());
    // One that only lost its stream has all.
    rig.controller.handle_node_gone(5, rig.node);
    rig.controller.handle_node(6, &hello(2, &[Holding::Job, Holding::Row(5)])).unwrap();
    assert_eq!(rig.told(), ["settled"]);
}

#[test]
fn what_was_taken_back_does_not_come_again() {
    let mut rig = Rig::holding();
    rig.controller.hold("a0", lease()).unwrap();
    rig.report(Event::HoldingRemoved { holding: Holding::Row(5) });
    rig.told();
    rig.controller.handle_node(4, &hello(2, &[])).unwrap();
    assert_eq!(rig.told(), ["hold the job's share"]);
    // A removal that the box refuses changes nothing.
    rig.installed(Holding::Job);
    rig.controller.hold("a0", HoldingCommand::RemoveJob { job: JobId(9) }).unwrap();
    let error = HoldingError::InUse;
    rig.report(Event::HoldingRefused { holding: Holding::Job, error });
    rig.told();
    rig.controller.handle_node(5, &hello(3, &[])).unwrap();
    assert_eq!(rig.told(), ["hold the job's share"]);
}

#[test]
fn what_was_taken_back_and_put_there_again_is_kept() {
    let mut rig = Rig::holding();
    rig.controller.hold("a0", lease()).unwrap();
    rig.report(Event::HoldingRemoved { holding: Holding::Row(5) });
    rig.controller.hold("a0", install_lease(5)).unwrap();
    rig.installed(Holding::Row(5));
    rig.told();
    rig.controller.handle_node(4, &hello(2, &[])).unwrap();
    assert_eq!(rig.told(), SHARE_AND_LEASE);
}

#[test]
fn of_what_nobody_heard_an_answer_the_box_decides() {
    for (holds, expected) in [(true, &SHARE_AND_LEASE[..1]), (false, &[])] {
        let mut rig = Rig::new();
        rig.controller.hold("a0", share()).unwrap();
        rig.controller.handle_node_gone(3, rig.node);
        let held: &[Holding] = if holds { &[Holding::Job] } else { &[] };
        rig.controller.handle_node(4, &hello(1, held)).unwrap();
        rig.told();
        rig.controller.handle_node(5, &hello(2, &[])).unwrap();
        let told = rig.told();
        assert_eq!(told.iter().filter(|told| *told != "settled").collect::<Vec<_>>(), expected);
    }
    // A removal: the box has it still, or not.
    for (holds, expected) in [(true, &SHARE_AND_LEASE[..]), (false, &SHARE_AND_LEASE[..1])] {
        let mut rig = Rig::holding();
        rig.controller.hold("a0", lease()).unwrap();
        rig.controller.handle_node_gone(3, rig.node);
        let held: &[Holding] =
            if holds { &[Holding::Job, Holding::Row(5)] } else { &[Holding::Job] };
        rig.controller.handle_node(4, &hello(1, held)).unwrap();
        rig.told();
        rig.controller.handle_node(5, &hello(2, &[])).unwrap();
        assert_eq!(rig.told(), expected);
    }
}

#[test]
fn what_a_box_refuses_to_hold_again_it_is_asked_for_in_a_while() {
    let mut rig = Rig::holding();
    rig.controller.handle_node(4, &hello(2, &[Holding::Job])).unwrap();
    assert_eq!(rig.told(), ["hold the lease of row 5"]);
    let error = HoldingError::Full;
    rig.report(Event::HoldingRefused { holding: Holding::Row(5), error });
    assert_eq!(rig.told(), ["settled"], "it has all that it will have for now");
    assert_eq!(rig.missing(), [Holding::Row(5)]);
    // Nobody has another one put there meanwhile, or takes away what it needs.
    for command in [install_lease(5), HoldingCommand::RemoveJob { job: JobId(9) }] {
        assert_eq!(rig.controller.hold("a0", command).unwrap_err().field, "holding");
    }
    let due_ns = rig.controller.poll_timeout().expect("it will be asked");
    rig.controller.handle_timeout(due_ns - 1);
    assert_eq!(rig.told(), Vec::<String>::new());
    rig.controller.handle_timeout(due_ns);
    assert_eq!(rig.told(), ["hold the lease of row 5"]);
    rig.installed(Holding::Row(5));
    assert!(rig.missing().is_empty());
}

#[test]
fn what_boxes_hold_outlives_the_controller_as_text() {
    let mut rig = Rig::holding();
    assert!(rig.controller.is_save_urgent(), "whoever asked has heard that it is held");
    let saved = rig.controller.poll_saved().expect("it has changed");
    let text = serde_json::to_string(&saved).unwrap();
    let saved: Saved = serde_json::from_str(&text).unwrap();
    let mut config = network(1, 100, 100);
    config.nodes.push(world::node("a0", "s0"));
    config.jobs = vec![job(1)];
    let mut next = Controller::new(config.clone(), &saved, policies()).unwrap();
    next.handle_node(1, &hello(9, &[])).unwrap();
    let mut rig = Rig { controller: next, node: rig.node };
    assert_eq!(rig.told(), SHARE_AND_LEASE);
    // Of a box that the configuration has no more, nothing is kept.
    config.nodes.retain(|node| node.name != "a0");
    let mut without = Controller::new(config, &saved, policies()).unwrap();
    assert_eq!(without.poll_saved().expect("it is new").held, []);
}

/// A box with room for one share and two leases of job 9.
#[derive(Default)]
struct Box_ {
    life: u64,
    is_here: bool,
    holds: BTreeSet<Holding>,
    /// Commands on their way to it, and its answers on their way back.
    down: Vec<HoldingCommand>,
    up: Vec<Event>,
}

impl Box_ {
    fn obey(&mut self, command: &HoldingCommand, is_full: bool) -> Event {
        let holding = command.holding();
        let refused = |error| Event::HoldingRefused { holding, error };
        let is_there = self.holds.contains(&holding);
        let has_leases = self.holds.iter().any(|held| matches!(held, Holding::Row(_)));
        match (command.is_install(), holding) {
            (true, _) if is_there => refused(HoldingError::Taken),
            (true, Holding::Row(_)) if !self.holds.contains(&Holding::Job) => {
                refused(HoldingError::UnknownJob)
            }
            (true, _) if is_full => refused(HoldingError::Full),
            (true, _) => {
                self.holds.insert(holding);
                Event::HoldingInstalled { holding }
            }
            (false, _) if !is_there => refused(HoldingError::Missing),
            (false, Holding::Job) if has_leases => refused(HoldingError::InUse),
            (false, _) => {
                self.holds.remove(&holding);
                Event::HoldingRemoved { holding }
            }
        }
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

/// One seed: what was said and heard last of each thing, and whether the box holds that in the end.
struct World {
    dice: Dice,
    config: Config,
    saved: Saved,
    rig: Rig,
    box_: Box_,
    now_ns: u64,
    /// What whoever asked has heard last: held, not held; none: no answer.
    heard: BTreeMap<Holding, Option<bool>>,
    /// Who waits, and whether for an installation.
    waits: BTreeMap<Holding, bool>,
    restored: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut config = network(1, 100, 100);
        config.nodes.push(world::node("a0", "s0"));
        config.jobs = vec![job(1)];
        let saved = Saved::fresh(7);
        let controller = Controller::new(config.clone(), &saved, policies()).unwrap();
        let mut world = Self {
            dice: Dice(seed),
            config,
            saved,
            rig: Rig { controller, node: NodeId(0) },
            box_: Box_::default(),
            now_ns: 1,
            heard: BTreeMap::new(),
            waits: BTreeMap::new(),
            restored: 0,
        };
        world.hello();
        world
    }

    fn hello(&mut self) {
        let holds: Vec<Holding> = self.box_.holds.iter().copied().collect();
        let hello = hello(1 + self.box_.life, &holds);
        self.rig.node = self.rig.controller.handle_node(self.now_ns, &hello).unwrap();
        self.box_.is_here = true;
        self.act();
    }

    /// Saves before anything is told.
    fn act(&mut self) {
        self.rig.controller.handle_timeout(self.now_ns);
        if let Some(saved) = self.rig.controller.poll_saved() {
            let text = serde_json::to_string(&saved).unwrap();
            self.saved = serde_json::from_str(&text).unwrap();
        }
        while let Some(action) = self.rig.controller.poll_action() {
            match action {
                Action::Command { command: Command::Holding(command), .. } => {
                    self.restored += u32::from(!self.waits.contains_key(&command.holding()));
                    self.box_.down.push(command);
                }
                Action::Held { holding, outcome, .. } => {
                    let Some(installs) = self.waits.remove(&holding) else { continue };
                    let heard = match outcome {
                        Ok(()) => Some(installs),
                        Err(NotHeld::Refused(HoldingError::Taken | HoldingError::InUse)) => {
                            Some(true)
                        }
                        Err(NotHeld::Refused(_)) => Some(false),
                        Err(NotHeld::Gone) => None,
                    };
                    self.heard.insert(holding, heard);
                }
                _ => {}
            }
        }
    }

    fn lose_stream(&mut self) {
        self.box_.down.clear();
        self.box_.up.clear();
        if core::mem::take(&mut self.box_.is_here) {
            self.rig.controller.handle_node_gone(self.now_ns, self.rig.node);
            self.act();
        }
    }

    fn step(&mut self, may_fail: bool) {
        self.now_ns += 50_000_000;
        match self.dice.below(if may_fail { 12 } else { 4 }) {
            0 | 1 if !self.box_.down.is_empty() => {
                let command = self.box_.down.remove(0);
                let is_full = may_fail && self.dice.below(8) == 0;
                let answer = self.box_.obey(&command, is_full);
                self.box_.up.push(answer);
            }
            2 | 3 if !self.box_.up.is_empty() => {
                let event = self.box_.up.remove(0);
                let node = self.rig.node;
                self.rig.controller.handle_event(self.now_ns, node, JobId(9), &event).unwrap();
            }
            4..=7 if self.box_.is_here => {
                let command = match self.dice.below(8) {
                    0 | 1 => share(),
                    2 | 3 => install_lease(5),
                    4 => install_lease(6),
                    5 => lease(),
                    6 => HoldingCommand::RemoveLease { job: JobId(9), row: 6 },
                    _ => HoldingCommand::RemoveJob { job: JobId(9) },
                };
                let (holding, installs) = (command.holding(), command.is_install());
                if self.rig.controller.hold("a0", command).is_ok() {
                    self.waits.insert(holding, installs);
                }
            }
            8 => self.lose_stream(),
            9 => {
                self.lose_stream();
                self.box_.holds.clear();
                self.box_.life += 1;
            }
            10 => {
                // The controller dies: nobody hears an answer of it.
                self.box_.down.clear();
                self.box_.up.clear();
                self.box_.is_here = false;
                for (holding, _) in core::mem::take(&mut self.waits) {
                    self.heard.insert(holding, None);
                }
                let next = Controller::new(self.config.clone(), &self.saved, policies()).unwrap();
                self.rig.controller = next;
            }
            _ if !self.box_.is_here => self.hello(),
            _ => {}
        }
        self.act();
    }

    fn check(&mut self, seed: u64) {
        // A while in which nothing fails: the box comes, is told, and answers.
        for _ in 0..400 {
            self.step(false);
        }
        assert!(self.box_.is_here && self.waits.is_empty(), "seed {seed}: an answer is missing");
        for (holding, heard) in &self.heard {
            let holds = self.box_.holds.contains(holding);
            assert!(
                heard.is_none_or(|heard| heard == holds),
                "seed {seed}: {holding} was heard to be held: {heard:?}, and is: {holds}"
            );
        }
        assert_eq!(self.rig.missing(), [], "seed {seed}");
    }
}

/// What was heard last of each thing is so in the end.
#[test]
fn what_was_heard_is_so_in_the_end_whatever_dies() {
    let mut restored = 0;
    for seed in 0..2000 {
        let mut world = World::new(seed);
        for _ in 0..150 {
            world.step(true);
        }
        world.check(seed);
        restored += world.restored;
    }
    assert!(restored > 4000, "hardly anything was told again: {restored}");
}
