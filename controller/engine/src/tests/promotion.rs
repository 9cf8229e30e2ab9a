//! Servers that die for good, replicas that take over or are left (SPEC#promotion, DESIGN I9).

use alloc::string::String;
use alloc::vec::Vec;

use weft_control::{AckMode, Decision, OrderNumber, Role, ServerEpoch, Version};
use weft_wire::Rank;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A server, a replica, an aggregator and two workers, who say what the test says. Boxes that are
/// alive send telemetry.
struct Rig {
    controller: Controller,
    now_ns: u64,
    alive: Vec<&'static str>,
    commands: Vec<(String, Command)>,
    notices: Vec<Notice>,
    moved: Vec<(usize, String, u32)>,
    granted: Vec<Grant>,
    delivered: Vec<u64>,
}

const BOXES: [&str; 3] = ["s0", "r0", "a0"];

fn config(ack: AckMode) -> Config {
    let mut config = network(2, 100, 100);
    for name in ["r0", "a0"] {
        config.hosts.push(world::host(name, 100, 100));
    }
    let mut job = job(2);
    job.ack = ack;
    job.replica = Some("r0".into());
    job.aggregators = vec!["a0".into()];
    config.jobs = vec![job];
    config
}

fn role(name: &str, next_order: u64, version: u64, epoch: u32) -> RoleState {
    let (role, index) = match name {
        "s0" => (Role::Server, 0),
        "r0" if epoch > 0 => (Role::Server, 0),
        "r0" => (Role::Replica, 1),
        _ => (Role::Aggregator, 0),
    };
    RoleState {
        job: JobId(0),
        role,
        box_index: weft_control::BoxIndex(index),
        address: format!("10.0.0.{}:22341", name.as_bytes()[0]),
        next_order: OrderNumber(next_order),
        version: Version(version),
        momentum_norm: 0.0,
        epoch: ServerEpoch(epoch),
        is_fit: false,
        has_met_replica: name == "s0",
        has_left_replica: false,
        open_groups: Vec::new(),
    }
}

/// The replica's, once it was level with its server.
fn heir(next_order: u64, version: u64) -> RoleState {
    RoleState { is_fit: true, ..role("r0", next_order, version, 0) }
}

impl Rig {
    fn new(ack: AckMode) -> Self {
        Self::with_saved(ack, &Saved::fresh(7))
    }

    fn with_saved(ack: AckMode, saved: &Saved) -> Self {
        let controller = Controller::new(config(ack), saved, built_in_policies()).unwrap();
        Self {
            controller,
            now_ns: 0,
            alive: Vec::new(),
            commands: Vec::new(),
            notices: Vec::new(),
            moved: Vec::new(),
            granted: Vec::new(),
            delivered: Vec::new(),
        }
    }

    fn attached(ack: AckMode) -> Self {
        let mut rig = Self::new(ack);
        rig.attach_all();
        rig
    }

    fn attach_all(&mut self) {
        for name in BOXES {
            self.attach(name, 1, role(name, 0, 0, 0));
        }
        self.attach_workers();
        self.event("r0", Event::Heir { is_fit: true }).unwrap();
    }

    fn attach_workers(&mut self) {
        for rank in 0..2 {
            let rank = Rank::new(rank).unwrap();
            self.controller.handle_worker(JobId(0), rank, 1, None).unwrap();
        }
    }

    fn attach(&mut self, name: &'static str, life: u64, role: RoleState) {
        let hello = NodeHello { name: name.into(), life, roles: vec![role] };
        self.controller.handle_node(self.now_ns, &hello).unwrap();
        self.alive.retain(|alive| *alive != name);
        self.alive.push(name);
        self.settle();
    }

    /// It says nothing any more.
    fn dies(&mut self, name: &str) {
        self.alive.retain(|alive| *alive != name);
    }

    fn id(&self, name: &str) -> NodeId {
        let at = self.controller.nodes.iter().position(|node| node.name == name).unwrap();
        NodeId(u16::try_from(at).unwrap())
    }

    fn event(&mut self, name: &str, event: Event) -> Result<(), Refusal> {
        let node = self.id(name);
        let taken = self.controller.handle_event(self.now_ns, node, JobId(0), &event);
        self.settle();
        taken
    }

    fn settle(&mut self) {
        self.controller.handle_timeout(self.now_ns);
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Command { node, command } => {
                    let name = self.controller.nodes[node.index()].name.clone();
                    self.commands.push((name, command));
                }
                Action::Notice { notice, .. } => self.notices.push(notice),
                Action::Probe { .. } => {}
                Action::Reply { rank, reply, .. } => match reply {
                    Reply::ServerMoved { address, epoch } => {
                        self.moved.push((rank.index(), address, epoch.0));
                    }
                    Reply::Grant(grant) => self.granted.push(grant),
                    Reply::Delivered { update_id, .. } => self.delivered.push(update_id),
                    Reply::Drop { .. } | Reply::Release { .. } => {}
                },
            }
        }
    }

    /// Time passes; boxes that are alive speak every 100 ms, and take groups.
    fn run_for(&mut self, span_ns: u64) {
        for _ in 0..span_ns / (SECOND / 10) {
            self.now_ns += SECOND / 10;
            for name in self.alive.clone() {
                let node = self.id(name);
                let telemetry = Telemetry { at_ns: self.now_ns, ..Telemetry::default() };
                self.controller.handle_telemetry(self.now_ns, node, &telemetry).unwrap();
            }
            self.settle();
        }
    }

    fn ask(&mut self, rank: u8, update_id: u64, version: u64) {
        let request = TransferRequest {
            update_id,
            size_bytes: 0,
            version: Version(version),
            norm: 1.0,
            max_abs: 1.0,
        };
        let rank = Rank::new(rank).unwrap();
        self.controller.handle_request(self.now_ns, JobId(0), rank, &request).unwrap();
        self.settle();
    }

    /// Every box that was told of a group takes it.
    fn install(&mut self) {
        for (name, command) in self.commands.clone() {
            if let Command::Install(group) = command {
                let _ = self.event(&name, Event::Installed { group: group.group });
            }
        }
    }

    fn promote_command(&self) -> Option<(ServerEpoch, OrderNumber)> {
        self.commands.iter().rev().find_map(|(name, command)| match command {
            Command::Promote { epoch, order, .. } if name == "r0" => Some((*epoch, *order)),
            _ => None,
        })
    }

    fn promoted(&mut self, applied: u64, version: u64) {
        let (epoch, order) = self.promote_command().unwrap();
        let event = Event::Promoted {
            epoch,
            applied: OrderNumber(applied),
            order,
            version: Version(version),
            momentum_norm: 0.5,
        };
        self.event("r0", event).unwrap();
    }

    fn status(&self) -> JobStatus {
        self.controller.status(self.now_ns).jobs[0].clone()
    }
}

fn decided(rig: &Rig, group: GroupId, order: u64, version: u64) -> Event {
    let members = rig.controller.groups[&group].mask();
    Event::Decided {
        group,
        order: OrderNumber(order),
        decision: Decision::Committed(Version(version)),
        members,
        norm: 1.0,
        momentum_norm: 1.0,
    }
}

#[test]
fn a_silent_server_is_replaced_after_its_lease_and_not_before() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.run_for(10 * SECOND);
    assert_eq!(rig.promote_command(), None, "everybody is there");
    rig.dies("s0");
    let server = rig.id("s0");
    rig.controller.handle_node_gone(rig.now_ns, server);
    rig.run_for(2_900_000_000);
    assert_eq!(rig.promote_command(), None, "a restart within the lease is no promotion");
    rig.run_for(SECOND / 5);
    let (epoch, order) = rig.promote_command().unwrap();
    assert_eq!(epoch, ServerEpoch(1));
    assert!(order.0 > 1000, "order numbers that were given away unheard are left out");
    // The question is repeated while there is no answer.
    let asked = |rig: &Rig| {
        rig.commands.iter().filter(|(_, c)| matches!(c, Command::Promote { .. })).count()
    };
    assert_eq!(asked(&rig), 1);
    rig.run_for(4 * SECOND);
    assert_eq!(asked(&rig), 2);
    rig.promoted(0, 0);
    let status = rig.status();
    assert_eq!((status.epoch, status.counters.promotions, status.replica), (1, 1, None));
    assert!(status.is_replica_lost, "replication is not held any more");
    let address = format!("10.0.0.{}:22341", b'r');
    assert_eq!(rig.moved, [(0, address.clone(), 1), (1, address.clone(), 1)]);
    let server = address.parse().unwrap();
    let moves = (String::from("a0"), Command::MoveServer { job: JobId(0), server });
    assert!(rig.commands.contains(&moves));
    assert!(rig.notices.iter().any(|notice| matches!(notice, Notice::Promoted { .. })));
}

/// One whose stream never broke may go on, and would hear of it from nobody else.
#[test]
fn a_silent_server_with_a_stream_is_told_to_stand_down_at_once() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.run_for(SECOND);
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    rig.promoted(0, 0);
    let down = Command::StandDown { job: JobId(0), epoch: ServerEpoch(1) };
    assert!(rig.commands.contains(&(String::from("s0"), down)), "{:?}", rig.commands);
}

#[test]
fn a_server_that_comes_back_stands_down_and_is_not_believed() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.run_for(SECOND);
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    rig.promoted(0, 0);
    // Nor is one that says it serves in its successor's epoch, or in a later one.
    for (life, epoch) in [(2, 0), (3, 1), (4, 2)] {
        rig.commands.clear();
        rig.attach("s0", life, role("s0", 9, 9, epoch));
        let down = Command::StandDown { job: JobId(0), epoch: ServerEpoch(1) };
        assert_eq!(rig.commands, [(String::from("s0"), down)], "epoch {epoch}");
        let (version, _) = rig.controller.server_state(JobId(0)).unwrap();
        assert_eq!(version, Version(0), "what it says of the model is nothing");
    }
    let late = Event::MemberLost { job: JobId(0), rank: Rank::new(0).unwrap() };
    assert_eq!(rig.event("s0", late).unwrap_err().field, "event");
    // Groups go to the new server.
    rig.ask(0, 1, 0);
    rig.run_for(SECOND);
    let told = rig.commands.iter().filter(|(_, c)| matches!(c, Command::Install(_)));
    let told: Vec<&str> = told.map(|(name, _)| name.as_str()).collect();
    assert!(told.contains(&"r0") && !told.contains(&"s0"), "{told:?}");
}

#[test]
fn what_was_granted_is_asked_of_the_new_server_and_no_order_comes_again() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.run_for(SECOND);
    for rank in 0..2 {
        rig.ask(rank, 1, 0);
    }
    rig.run_for(SECOND / 5);
    rig.install();
    assert!(!rig.granted.is_empty());
    let last = rig.granted.iter().map(|grant| grant.order.0).max().unwrap();
    let first = rig.granted[0].clone();
    // The server commits one; its worker hears of that from the server alone.
    let event = decided(&rig, first.group, first.order.0, 1);
    rig.event("s0", event).unwrap();
    assert_eq!(rig.delivered, [0; 0]);
    let at = Event::ReplicaAt {
        order: OrderNumber(first.order.0 + 1),
        divergence_bound: 0.0,
        is_held: true,
    };
    rig.event("s0", at).unwrap();
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    let (_, order) = rig.promote_command().unwrap();
    assert!(order.0 > last);
    rig.promoted(first.order.0 + 1, 1);
    assert!(rig.controller.groups.is_empty(), "groups of the dead server are over");
    rig.granted.clear();
    rig.commands.clear();
    rig.ask(1, 7, 1);
    rig.run_for(SECOND);
    rig.install();
    assert!(rig.granted.iter().all(|grant| grant.order >= order), "{:?}", rig.granted);
    assert!(rig.granted.iter().any(|grant| grant.update_id == 7));
}

#[test]
fn nobody_takes_over_where_workers_are_told_at_the_commit() {
    let mut rig = Rig::attached(AckMode::Commit);
    rig.run_for(SECOND);
    rig.dies("s0");
    rig.run_for(60 * SECOND);
    assert_eq!(rig.promote_command(), None);
}

#[test]
fn a_replica_that_may_lack_what_was_told_does_not_take_over() {
    let stranded = Notice::Stranded { server: "s0".into() };
    let mut rig = Rig::attached(AckMode::Replica);
    // A new life of the replica has nothing, and says so.
    rig.attach("r0", 2, role("r0", 0, 0, 0));
    rig.dies("s0");
    rig.run_for(20 * SECOND);
    assert_eq!(rig.promote_command(), None);
    assert_eq!(rig.notices, [stranded]);
    // What it says may be late.
    rig.event("r0", Event::Heir { is_fit: true }).unwrap();
    rig.run_for(SECOND);
    assert!(rig.promote_command().is_some());
    rig.event("r0", Event::PromotionRefused { applied: OrderNumber(3) }).unwrap();
    let refused = Notice::Refused { server: "s0".into(), applied: 3 };
    assert!(rig.notices.ends_with(&[refused]), "{:?}", rig.notices);
    rig.commands.clear();
    rig.run_for(20 * SECOND);
    assert_eq!(rig.promote_command(), None, "it is not asked again");
    // The old server comes back with its state, and goes on.
    rig.attach("s0", 2, role("s0", 5, 5, 0));
    rig.ask(0, 1, 5);
    rig.run_for(SECOND);
    assert!(rig.commands.iter().any(|(to, c)| to == "s0" && matches!(c, Command::Install(_))));
}

/// Whoever was asked and begins anew has told nobody that it is the server.
#[test]
fn a_new_life_of_a_replica_takes_the_question_back() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    assert!(rig.promote_command().is_some());
    // The server was only cut off, and is not listened to while its replica may have its place.
    rig.commands.clear();
    rig.attach("s0", 1, role("s0", 5, 5, 0));
    assert_eq!(rig.controller.server_state(JobId(0)), None);
    rig.attach("r0", 2, role("r0", 0, 0, 0));
    let (version, order) = rig.controller.server_state(JobId(0)).unwrap();
    assert_eq!((version, order), (Version(5), OrderNumber(5)));
    rig.run_for(20 * SECOND);
    assert_eq!(rig.promote_command(), None);
}

/// A controller that was cut off hears one of them first.
#[test]
fn where_both_were_away_the_server_has_time_to_dial() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.run_for(SECOND);
    for name in BOXES {
        rig.dies(name);
        let node = rig.id(name);
        rig.controller.handle_node_gone(rig.now_ns, node);
    }
    rig.run_for(30 * SECOND);
    rig.attach("r0", 1, heir(0, 0));
    rig.run_for(10 * SECOND);
    rig.attach("s0", 1, role("s0", 0, 0, 0));
    rig.run_for(30 * SECOND);
    assert_eq!(rig.promote_command(), None);
}

#[test]
fn a_silent_replica_is_left_and_never_promoted() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.run_for(SECOND);
    rig.dies("r0");
    rig.run_for(4 * SECOND);
    let left = (String::from("s0"), Command::LeaveReplica { job: JobId(0) });
    assert_eq!(rig.commands.iter().filter(|command| **command == left).count(), 1);
    let told = (String::from("r0"), left.1.clone());
    let status = rig.status();
    assert!(status.is_replica_lost && !status.replica.unwrap().is_held);
    // Whatever it says of itself; and it is told.
    rig.attach("r0", 1, heir(0, 0));
    assert!(rig.commands.contains(&told));
    rig.dies("s0");
    rig.run_for(20 * SECOND);
    assert_eq!(rig.promote_command(), None);
    assert!(rig.notices.iter().any(|notice| matches!(notice, Notice::Stranded { .. })));
    // A server that comes back is told again: it may have forgotten.
    rig.commands.clear();
    rig.attach("s0", 2, role("s0", 0, 0, 0));
    assert!(rig.commands.contains(&left));
}

/// A controller that has lost its state, and hears a replica that was away when it was left, and
/// thinks itself fit: it lacks what its server has told workers since.
#[test]
fn a_replica_that_was_left_is_nobodys_heir_for_a_controller_without_state() {
    let mut rig = Rig::new(AckMode::Replica);
    rig.attach("r0", 1, heir(0, 0));
    rig.run_for(30 * SECOND);
    assert_eq!(rig.promote_command(), None, "its server may have left it");
    assert_eq!(rig.notices, [Notice::Stranded { server: "s0".into() }]);
    // Another one hears the server first, which says so; then the replica is told.
    let mut rig = Rig::new(AckMode::Replica);
    let left = Command::LeaveReplica { job: JobId(0) };
    rig.attach("r0", 1, heir(0, 0));
    rig.attach("s0", 1, RoleState { has_left_replica: true, ..role("s0", 9, 9, 0) });
    assert!(rig.commands.contains(&(String::from("r0"), left.clone())), "{:?}", rig.commands);
    assert!(rig.status().is_replica_lost);
    rig.dies("s0");
    rig.run_for(30 * SECOND);
    assert_eq!(rig.promote_command(), None);
    // It is known after the next restart, too.
    let saved = rig.controller.poll_saved().unwrap();
    let mut later = Rig::with_saved(AckMode::Replica, &saved);
    later.attach("r0", 1, heir(0, 0));
    later.run_for(30 * SECOND);
    assert_eq!(later.promote_command(), None);
    assert!(later.commands.contains(&(String::from("r0"), left)));
}

/// A server that began a new life has forgotten that it left its replica; that it has met it since
/// is what counts, for a replica that meets another life of its server takes a snapshot.
#[test]
fn a_server_vouches_for_a_replica_that_it_has_met() {
    let mut rig = Rig::new(AckMode::Replica);
    rig.attach("s0", 2, RoleState { has_met_replica: false, ..role("s0", 9, 9, 0) });
    rig.attach("r0", 1, heir(5, 5));
    assert_eq!(rig.status().replica.map(|replica| replica.is_fit), Some(false));
    // A bound that is not held is no sign of a meeting.
    let at = |is_held| Event::ReplicaAt { order: OrderNumber(9), divergence_bound: 0.0, is_held };
    rig.event("s0", at(false)).unwrap();
    assert_eq!(rig.status().replica.map(|replica| replica.is_fit), Some(false));
    rig.event("s0", at(true)).unwrap();
    assert_eq!(rig.status().replica.map(|replica| replica.is_fit), Some(true));
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    assert!(rig.promote_command().is_some());
}

/// A server cannot make itself another one, nor a replica take over in an epoch or with an order
/// number that it was not given.
#[test]
fn a_promotion_that_nobody_ordered_is_not_believed() {
    let promoted = |epoch, order| Event::Promoted {
        epoch: ServerEpoch(epoch),
        applied: OrderNumber(0),
        order: OrderNumber(order),
        version: Version(1_000),
        momentum_norm: 0.0,
    };
    let mut rig = Rig::attached(AckMode::Replica);
    rig.run_for(SECOND);
    assert_eq!(rig.event("s0", promoted(1, 5_000)).unwrap_err().field, "event");
    assert_eq!(rig.event("a0", promoted(1, 5_000)).unwrap_err().field, "event");
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    let (epoch, order) = rig.promote_command().unwrap();
    assert_eq!(rig.event("s0", promoted(1, order.0)).unwrap_err().field, "event");
    assert_eq!(rig.event("r0", promoted(epoch.0 + 1, order.0)).unwrap_err().field, "event");
    assert_eq!(rig.event("r0", promoted(epoch.0, order.0 - 1)).unwrap_err().field, "event");
    assert_eq!(rig.controller.server_epoch(JobId(0)), ServerEpoch(0));
    rig.event("r0", promoted(epoch.0, order.0)).unwrap();
    assert_eq!(rig.controller.server_epoch(JobId(0)), ServerEpoch(1));
    // Said again, as answers are.
    rig.event("r0", promoted(epoch.0, order.0)).unwrap();
}

#[test]
fn a_restarted_controller_knows_who_the_server_is() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.run_for(SECOND);
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    assert!(rig.controller.is_save_urgent(), "before the replica is told");
    let begun = rig.controller.poll_saved().unwrap();
    assert!(!rig.controller.is_save_urgent());
    rig.promoted(0, 0);
    let done = rig.controller.poll_saved().unwrap();
    for (saved, text) in [(&begun, "begun"), (&done, "done"), (&Saved::fresh(9), "lost")] {
        let mut later = Rig::with_saved(AckMode::Replica, saved);
        later.attach("a0", 1, role("a0", 0, 0, 0));
        later.attach_workers();
        // The replica says what it is by now.
        later.attach("r0", 1, role("r0", 4097, 3, 1));
        assert_eq!(later.controller.server_epoch(JobId(0)), ServerEpoch(1), "{text}");
        later.attach("s0", 2, role("s0", 2, 2, 0));
        let down = Command::StandDown { job: JobId(0), epoch: ServerEpoch(1) };
        assert!(later.commands.contains(&(String::from("s0"), down)), "{text}");
        assert_eq!(later.controller.server_state(JobId(0)).unwrap().0, Version(3), "{text}");
    }
    // One that stopped half way asks again, whatever the old server says meanwhile.
    let mut later = Rig::with_saved(AckMode::Replica, &begun);
    later.attach("s0", 2, role("s0", 0, 0, 0));
    later.attach("r0", 1, heir(0, 0));
    later.run_for(4 * SECOND);
    assert!(later.promote_command().is_some());
}

/// A server that dies before a restarted controller hears it: the state file says that it had not
/// left its replica, and its replica speaks of it.
#[test]
fn a_server_that_no_controller_heard_is_replaced() {
    let before = Rig::attached(AckMode::Replica).controller.poll_saved().unwrap();
    let mut rig = Rig::with_saved(AckMode::Replica, &before);
    rig.attach("a0", 1, role("a0", 0, 0, 0));
    rig.attach("r0", 1, heir(9_100, 100));
    // The server lived on for a while, without a controller.
    let decided = Event::Decided {
        group: GroupId::new(3, 1),
        order: OrderNumber(9_999),
        decision: Decision::Void,
        members: weft_wire::Members::EMPTY,
        norm: 0.0,
        momentum_norm: 0.0,
    };
    rig.event("r0", decided).unwrap();
    // A living one may take as long to dial.
    rig.run_for(10 * SECOND);
    assert_eq!(rig.promote_command(), None);
    rig.run_for(5 * SECOND);
    let (epoch, order) = rig.promote_command().unwrap();
    assert_eq!(epoch, ServerEpoch(1));
    assert!(order.0 > 14_000, "{order:?}: the dead one may have given those away");
}

#[test]
fn a_server_that_dials_late_stays_the_server() {
    let mut rig = Rig::new(AckMode::Replica);
    rig.attach("r0", 1, heir(9_100, 100));
    rig.run_for(12 * SECOND);
    rig.attach("s0", 1, role("s0", 9_100, 100, 0));
    rig.run_for(30 * SECOND);
    assert_eq!((rig.promote_command(), rig.notices), (None, Vec::new()));
}

/// Whether such a replica has what was told, only the server knew; people are told.
#[test]
fn a_server_that_nobody_heard_strands_its_job() {
    let mut rig = Rig::new(AckMode::Replica);
    rig.attach("r0", 2, role("r0", 0, 0, 0));
    rig.run_for(15 * SECOND);
    assert_eq!(rig.promote_command(), None);
    assert_eq!(rig.notices, [Notice::Stranded { server: "s0".into() }]);
}

/// The heir has no replica: it acknowledges at the commit, and when it dies people are told, also
/// if they were told before that nobody could take over.
#[test]
fn a_promoted_server_that_dies_strands_its_job() {
    let mut rig = Rig::attached(AckMode::Replica);
    let status = |rig: &Rig| rig.status().replica.map(|replica| replica.is_fit);
    assert_eq!(status(&rig), Some(true));
    rig.event("r0", Event::Heir { is_fit: false }).unwrap();
    assert_eq!(status(&rig), Some(false));
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    rig.event("r0", Event::Heir { is_fit: true }).unwrap();
    rig.run_for(SECOND);
    rig.promoted(0, 0);
    assert_eq!(status(&rig), None);
    rig.dies("r0");
    rig.run_for(4 * SECOND);
    let stranded = |name: &str| Notice::Stranded { server: name.into() };
    let told: Vec<_> =
        rig.notices.iter().filter(|notice| matches!(notice, Notice::Stranded { .. })).collect();
    assert_eq!(told, [&stranded("s0"), &stranded("r0")]);
}

/// An aggregator may find a restarted controller before its job's server does.
#[test]
fn an_aggregator_is_told_of_a_server_that_comes_after_it() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.run_for(SECOND);
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    rig.promoted(0, 0);
    let saved = rig.controller.poll_saved().unwrap();
    let mut later = Rig::with_saved(AckMode::Replica, &saved);
    later.attach("a0", 2, role("a0", 0, 0, 0));
    assert_eq!(later.commands, []);
    let promoted = role("r0", 4097, 3, 1);
    let server = promoted.address.parse().unwrap();
    later.attach("r0", 1, promoted);
    let moves = (String::from("a0"), Command::MoveServer { job: JobId(0), server });
    assert!(later.commands.contains(&moves), "{:?}", later.commands);
}
