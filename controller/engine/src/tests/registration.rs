//! Jobs that come and go at run time: what a box said of one job changes no other, and what it said
//! once is not taken for what it says now.

use alloc::vec::Vec;

use weft_control::{AckMode, BoxIndex, Decision, OrderNumber, Role, Version};
use weft_wire::Members;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn third() -> JobConfig {
    JobConfig { name: "third".into(), index: 2, ..job(2) }
}

/// A world whose first job has committed a few updates.
fn busy() -> World {
    let mut network = network(2, 100, 100);
    network.hosts.push(world::host("s1", 100, 100));
    let mut world = World::new(network, vec![job(2)]);
    world.attach_all();
    for _ in 0..3 {
        for rank in 0..2 {
            world.ask(0, rank);
        }
        world.run_for(2 * SECOND);
    }
    world
}

/// Every box's old hello was taken in once more: versions went back, and every request after that
/// was refused, for it was computed on a model that the controller had forgotten.
#[test]
fn registering_a_job_changes_no_other() {
    let mut world = busy();
    let before = world.controller.server_state(JobId(0));
    assert_eq!(before, Some((Version(6), OrderNumber(6))));
    let status = world.status(0);
    let heard: Vec<_> = world.controller.nodes.iter().map(|node| node.heard_ns()).collect();
    let now_ns = world.now_ns + SECOND;
    world.controller.register_job(now_ns, third()).unwrap();
    assert_eq!(world.controller.server_state(JobId(0)), before);
    assert_eq!(world.status(0), status);
    let after: Vec<_> = world.controller.nodes.iter().map(|node| node.heard_ns()).collect();
    assert_eq!(after, heard, "a job that is registered is no word of a box");
}

/// A group that has ended was adopted from the old hello, with a generation that its row had had.
#[test]
fn registering_a_job_brings_no_group_id_back() {
    let mut world = busy();
    let open = |group| OpenGroup { group, order: OrderNumber(6), members: Members(1) };
    let mut hello = world.hello("s0", 1);
    let old = GroupId::new(5, 8);
    hello.roles[0].open_groups = vec![open(old)];
    let node = world.controller.handle_node(world.now_ns, &hello).unwrap();
    let decided = Event::Decided {
        group: old,
        order: OrderNumber(6),
        decision: Decision::Void,
        members: Members::EMPTY,
        norm: 0.0,
        momentum_norm: 0.0,
    };
    world.controller.handle_event(world.now_ns, node, JobId(0), &decided).unwrap();
    assert!(world.controller.groups.is_empty());
    world.controller.register_job(world.now_ns, third()).unwrap();
    assert!(world.controller.groups.is_empty(), "{:?}", world.controller.groups);
}

/// What a server decided before its job was registered counts.
#[test]
fn a_job_begins_where_its_server_is_when_it_is_registered() {
    let mut world = busy();
    let mut hello = world.hello("s0", 1);
    hello.roles.push(RoleState {
        job: JobId(2),
        next_order: OrderNumber(40),
        version: Version(30),
        ..hello.roles[0].clone()
    });
    let node = world.controller.handle_node(world.now_ns, &hello).unwrap();
    let decided = Event::Decided {
        group: GroupId::new(0x8000, 7),
        order: OrderNumber(44),
        decision: Decision::Committed(Version(33)),
        members: Members(1),
        norm: 1.0,
        momentum_norm: 2.5,
    };
    world.controller.handle_event(world.now_ns, node, JobId(2), &decided).unwrap();
    world.controller.register_job(world.now_ns, third()).unwrap();
    let state = world.controller.server_state(JobId(2));
    assert_eq!(state, Some((Version(33), OrderNumber(45))));
    // One that never spoke of it may not.
    let other = world.controller.handle_node(0, &world.hello("s1", 1)).unwrap();
    let refusal = world.controller.handle_event(0, other, JobId(9), &decided).unwrap_err();
    assert_eq!(refusal.field, "job");
}

/// Two jobs with one server, the second of them registered, and under way.
fn with_a_registered_job() -> World {
    let mut network = network(2, 10, 100);
    network.hosts.push(world::host("a0", 100, 100));
    let aggregated = |job| JobConfig { aggregators: vec!["a0".into()], ..job };
    let second = JobConfig { name: "second".into(), index: 1, ..aggregated(job(2)) };
    let mut world = World::new(network, vec![aggregated(job(2)), second.clone()]);
    // As if it had been registered: the world knows its jobs from the start.
    world.controller.registered.push(second);
    world.attach_all();
    world
}

#[test]
fn a_job_that_is_unregistered_leaves_nothing_behind() {
    let mut world = with_a_registered_job();
    let free = |world: &World| GROUPS as usize - world.controller.groups.len();
    for rank in 0..2 {
        world.ask(1, rank);
    }
    world.run_for(SECOND / 5);
    assert!(world.status(1).counters.granted > 0);
    for rank in 0..2 {
        world.ask(1, rank);
        world.ask(0, rank);
    }
    world.settle();
    let (before, groups) = (world.commands.len(), world.controller.jobs[&JobId(1)].open.len());
    assert!(groups > 0);
    let pending = world.status(1).pending as u64;
    let ended = world.controller.unregister_job(world.now_ns, "second").unwrap();
    assert_eq!((ended.job, ended.groups as usize), (JobId(1), groups));
    assert!(ended.dropped >= pending);
    assert_eq!(world.controller.unregister_job(0, "second"), Err(UnregisterError::Unknown));
    assert_eq!(world.controller.unregister_job(0, "digits"), Err(UnregisterError::Configured));
    assert!(world.controller.is_save_urgent(), "it would be back with the next start");
    assert!(world.controller.poll_saved().unwrap().registered.is_empty());
    assert!(world.controller.groups.values().all(|group| group.job == JobId(0)));
    assert!(world.controller.flights.paths().count() <= 3 * world.controller.groups.len());
    let row_count = free(&world) + world.controller.groups.len();
    assert_eq!(row_count, GROUPS as usize);
    // Its boxes and workers are told; what they still say of it is of no job.
    world.run_for(SECOND / 100);
    let removed = world.commands[before..].iter().filter(|(to, command)| {
        to == "s0" && matches!(command, Command::Remove { job: JobId(1), .. })
    });
    assert_eq!(removed.count(), groups);
    assert_eq!(world.drops.len() as u64, ended.dropped);
    assert!(world.drops.iter().all(|reason| *reason == weft_control::DropReason::JobEnded));
    // The other one goes on, and its links are its own again.
    world.run_for(20 * SECOND);
    let other = world.status(0);
    assert_eq!((other.counters.committed, other.pending, other.in_flight), (2, 0, 0));
}

/// It begins where its boxes are, though nobody told the controller since.
#[test]
fn a_job_that_is_registered_again_goes_on() {
    let mut world = with_a_registered_job();
    for rank in 0..2 {
        world.ask(1, rank);
    }
    world.run_for(5 * SECOND);
    let before = world.controller.server_state(JobId(1)).unwrap();
    assert_eq!(before.0, Version(2));
    let job = world.controller.registered[0].clone();
    world.controller.unregister_job(world.now_ns, "second").unwrap();
    world.controller.register_job(world.now_ns, job).unwrap();
    assert_eq!(world.controller.server_state(JobId(1)), Some(before));
    for rank in 0..2 {
        let rank = weft_wire::Rank::new(rank).unwrap();
        world.controller.handle_worker(JobId(1), rank, 1, None).unwrap();
    }
    for rank in 0..2 {
        world.ask(1, rank);
    }
    world.run_for(5 * SECOND);
    assert_eq!(world.status(1).version, 4);
}

/// A generation that a box names may be an old one.
#[test]
fn rows_never_go_back() {
    let mut rows = Rows::new(10);
    let ids: Vec<GroupId> = (0..GROUPS).map_while(|_| rows.take()).collect();
    ids.iter().for_each(|id| rows.free(*id));
    let again: Vec<GroupId> = (0..GROUPS).map_while(|_| rows.take()).collect();
    again.iter().for_each(|id| rows.free(*id));
    assert_eq!((ids[3], again[3]), (GroupId::new(3, 11), GroupId::new(3, 12)));
    // An adopted one of another life that is ahead, and one that was given here long ago.
    for (row, generation, next) in [(3, 11, 13), (4, 12, 13), (5, 500, 501), (6, 9, 13)] {
        let claimed = GroupId::new(row, generation);
        assert!(rows.claim(claimed));
        rows.free(claimed);
        let given = (0..GROUPS).find_map(|_| rows.take().filter(|id| id.row() == row)).unwrap();
        assert_eq!(given, GroupId::new(row, next));
        assert!(rows.ceiling() >= u32::from(next), "a later controller begins above it");
        rows = Rows::new(10);
        let taken: Vec<GroupId> = (0..2 * GROUPS)
            .map_while(|at| {
                let id = rows.take()?;
                rows.free(id);
                (at < 2 * GROUPS).then_some(id)
            })
            .collect();
        assert_eq!(taken.len(), usize::from(2 * GROUPS));
    }
}

const GROUPS: u16 = weft_control::GROUPS_OPEN_MAX;

/// What may happen to two jobs whose server and replica are the same two boxes.
#[derive(Clone, Debug)]
enum Step {
    Hello { node: usize, is_new_life: bool },
    Decide { job: u16, count: u8 },
    Register,
    Refuse,
    Fit { job: u16, is_fit: bool },
    Silence { node: usize },
    Wait { ms: u16 },
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    use proptest::prelude::*;
    let step = prop_oneof![
        2 => (0..2usize, proptest::bool::weighted(0.2))
            .prop_map(|(node, is_new_life)| Step::Hello { node, is_new_life }),
        6 => (0..3u16, 1..4u8).prop_map(|(job, count)| Step::Decide { job, count }),
        1 => Just(Step::Register),
        2 => Just(Step::Refuse),
        2 => (0..2u16, any::<bool>()).prop_map(|(job, is_fit)| Step::Fit { job, is_fit }),
        2 => (0..2usize).prop_map(|node| Step::Silence { node }),
        4 => (10..5000u16).prop_map(|ms| Step::Wait { ms }),
    ];
    proptest::collection::vec(step, 1..60)
}

/// A box as it is.
#[derive(Clone, Debug, Default)]
struct Truth {
    life: u64,
    is_silent: bool,
    /// By job: next order number and version.
    at: [(u64, u64); 3],
}

struct Pair {
    controller: Controller,
    now_ns: u64,
    boxes: [Truth; 2],
    ids: [NodeId; 2],
    registered: u16,
    promoted: [bool; 3],
}

const NAMES: [&str; 2] = ["s0", "r0"];

fn of_the_pair(index: u16) -> JobConfig {
    JobConfig {
        name: format!("j{index}"),
        index,
        ack: AckMode::Replica,
        replica: Some("r0".into()),
        ..job(2)
    }
}

impl Pair {
    fn new() -> Self {
        let mut config = network(2, 100, 100);
        config.hosts.push(world::host("r0", 100, 100));
        config.jobs = vec![of_the_pair(0), of_the_pair(1)];
        let controller = Controller::new(config, &Saved::fresh(1), built_in_policies()).unwrap();
        let ids = NAMES.map(|name| {
            NodeId(controller.nodes.iter().position(|node| node.name() == name).unwrap() as u16)
        });
        let mut pair = Self {
            controller,
            now_ns: 1,
            boxes: [Truth::default(), Truth::default()],
            ids,
            registered: 2,
            promoted: [false; 3],
        };
        pair.hello(0);
        pair.hello(1);
        pair
    }

    fn hello(&mut self, node: usize) {
        let truth = &self.boxes[node];
        let role = |job: u16| {
            let (next_order, version) = truth.at[usize::from(job)];
            let role = if node == 0 { Role::Server } else { Role::Replica };
            let address = format!("10.0.0.{node}:1");
            RoleState {
                next_order: OrderNumber(next_order),
                version: Version(version),
                has_met_replica: node == 0,
                ..RoleState::new(JobId(job), role, BoxIndex(0), address)
            }
        };
        let roles = (0..3).filter(|job| !self.promoted[usize::from(*job)]).map(role).collect();
        let hello = NodeHello {
            name: NAMES[node].into(),
            life: truth.life,
            roles,
            holdings: Vec::new(),
            bands: None,
        };
        self.controller.handle_node(self.now_ns, &hello).unwrap();
    }

    fn event(&mut self, node: usize, job: u16, event: &Event) -> Result<(), Refusal> {
        self.controller.handle_event(self.now_ns, self.ids[node], JobId(job), event)
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Hello { node, is_new_life } => {
                let truth = &mut self.boxes[node];
                if is_new_life {
                    truth.life += 1;
                    // It has lost its files.
                    truth.at = <[(u64, u64); 3]>::default();
                }
                truth.is_silent = false;
                self.hello(node);
            }
            Step::Decide { job, count } => {
                for _ in 0..count {
                    let (order, version) = &mut self.boxes[0].at[usize::from(job)];
                    let decided = Event::Decided {
                        group: GroupId::new(0x8000, *order as u16),
                        order: OrderNumber(*order),
                        decision: Decision::Committed(Version(*version + 1)),
                        members: Members(1),
                        norm: 1.0,
                        momentum_norm: 1.0,
                    };
                    (*order, *version) = (*order + 1, *version + 1);
                    let taken = self.event(0, job, &decided);
                    assert!(taken.is_ok(), "{taken:?}");
                    self.boxes[0].is_silent = false;
                }
            }
            Step::Register if self.registered < 3 => {
                self.controller.register_job(self.now_ns, of_the_pair(2)).unwrap();
                self.registered = 3;
            }
            Step::Register => {}
            Step::Refuse => {
                for job in 0..self.registered {
                    let refused = Event::PromotionRefused { applied: OrderNumber(0) };
                    self.event(1, job, &refused).unwrap();
                }
                self.boxes[1].is_silent = false;
            }
            Step::Fit { job, is_fit } => {
                self.event(1, job, &Event::ReplicaFitness { is_fit }).unwrap();
                self.boxes[1].is_silent = false;
            }
            Step::Silence { node } => self.boxes[node].is_silent = true,
            Step::Wait { ms } => {
                for _ in 0..ms / 100 {
                    self.now_ns += 100_000_000;
                    for node in 0..2 {
                        if !self.boxes[node].is_silent {
                            let at_ns = self.now_ns;
                            let telemetry = Telemetry { at_ns, ..Telemetry::default() };
                            let id = self.ids[node];
                            self.controller.handle_telemetry(self.now_ns, id, &telemetry).unwrap();
                        }
                    }
                    self.controller.handle_timeout(self.now_ns);
                }
            }
        }
        self.controller.handle_timeout(self.now_ns);
        while self.controller.poll_action().is_some() {}
    }

    /// Of a job: its version, next order number, fitness, and who serves it.
    fn seen(&self, job: u16) -> Option<(u64, u64, bool, u32)> {
        let job = self.controller.jobs.get(&JobId(job))?;
        let (id, epoch) = (job.id, job.promotion.epoch().0);
        Some((job.version, job.numbers.next(), self.controller.is_fit(id), epoch))
    }

    /// True when a box has been silent for so long that it counts as dead.
    fn is_a_lease_over(&self) -> bool {
        let lease_ns = self.controller.config.tuning.server_lease_ns();
        self.heard().iter().flatten().any(|heard_ns| self.now_ns - heard_ns >= lease_ns)
    }

    fn heard(&self) -> [Option<u64>; 2] {
        self.ids.map(|id| self.controller.nodes[id.index()].heard_ns())
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

    /// Whatever comes when: versions and order numbers do not go back within a life, what a box did
    /// not say now does not count as heard, and a word of one job is none of another.
    #[test]
    fn nothing_goes_back_and_jobs_do_not_mix(steps in steps()) {
        let mut pair = Pair::new();
        let mut versions = [0; 3];
        // A new life that is not taken in yet: its server may be passed over.
        let mut is_new = [false; 3];
        for step in &steps {
            let before = [0, 1, 2].map(|job| pair.seen(job));
            let (heard, lives) = (pair.heard(), [0, 1].map(|node| pair.boxes[node].life));
            let is_silent = pair.is_a_lease_over();
            pair.apply(step);
            for job in 0..3u16 {
                let index = usize::from(job);
                let Some(seen) = pair.seen(job) else { continue };
                let of_others = match step {
                    Step::Decide { job: other, .. } | Step::Fit { job: other, .. } => *other != job,
                    Step::Register => true,
                    _ => false,
                };
                // A box that is heard again lets the other's silence be judged, in all its jobs.
                if of_others && !is_silent && let Some(before) = before[index] {
                    proptest::prop_assert_eq!(seen, before, "job {} after {:?}", job, step);
                }
                is_new[index] |= pair.boxes[0].life != lives[0];
                if seen.0 < versions[index] {
                    proptest::prop_assert!(is_new[index], "{:?} of {:?}", seen, step);
                    is_new[index] = false;
                }
                versions[index] = seen.0;
                if let Some(before) = before[index] {
                    proptest::prop_assert!(seen.1 >= before.1, "{:?} < {:?}", seen, before);
                }
                // As far as it was told: a server whose place is offered is not listened to, nor is
                // one that has lost commits.
                let job = &pair.controller.jobs[&JobId(job)];
                if job.is_known && job.lost.is_none() {
                    let (next_order, version) = pair.boxes[0].at[index];
                    proptest::prop_assert!(job.numbers.next() >= next_order);
                    proptest::prop_assert_eq!(job.version, version, "after {:?}", step);
                }
            }
            let is_word = |node: usize| match step {
                Step::Hello { node: from, .. } => *from == node,
                Step::Decide { .. } => node == 0,
                Step::Refuse | Step::Fit { .. } => node == 1,
                Step::Wait { .. } => !pair.boxes[node].is_silent,
                Step::Register | Step::Silence { .. } => false,
            };
            for (node, (now, before)) in pair.heard().into_iter().zip(heard).enumerate() {
                proptest::prop_assert!(is_word(node) || now == before, "after {:?}", step);
            }
        }
    }
}
