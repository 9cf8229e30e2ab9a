//! When a replica takes its server's place, and what then goes where.

use super::*;

#[test]
fn a_silent_server_is_replaced_after_its_lease_and_not_before() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.run_for(10 * SECOND);
    assert_eq!(rig.promote_command(), None, "everybody is there");
    let moves = |(_, command): &(String, Command)| matches!(command, Command::MoveServer { .. });
    assert!(!rig.commands.iter().any(moves), "the server is where the files say");
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
    assert_eq!(rig.status().counters.unknown, 1, "its worker asks the new server");
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
    rig.event("r0", Event::ReplicaFitness { is_fit: true }).unwrap();
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
    rig.attach("r0", 1, successor(0, 0));
    rig.run_for(10 * SECOND);
    rig.attach("s0", 1, role("s0", 0, 0, 0));
    rig.run_for(30 * SECOND);
    assert_eq!(rig.promote_command(), None);
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

/// The successor has no replica: it acknowledges at the commit, and when it dies people are told,
/// also if they were told before that nobody could take over.
#[test]
fn a_promoted_server_that_dies_strands_its_job() {
    let mut rig = Rig::attached(AckMode::Replica);
    let status = |rig: &Rig| rig.status().replica.map(|replica| replica.is_fit);
    assert_eq!(status(&rig), Some(true));
    rig.event("r0", Event::ReplicaFitness { is_fit: false }).unwrap();
    assert_eq!(status(&rig), Some(false));
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    rig.event("r0", Event::ReplicaFitness { is_fit: true }).unwrap();
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

/// A server that says it is of an earlier epoch is not the one that was promoted.
#[test]
fn a_server_that_goes_back_to_an_earlier_epoch_stands_down() {
    let serving = |epoch| RoleState {
        role: Role::Server,
        box_index: weft_control::BoxIndex(0),
        ..role("r0", 9, 9, epoch)
    };
    let mut rig = Rig::attached(AckMode::Replica);
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    rig.promoted(0, 0);
    rig.commands.clear();
    rig.attach("r0", 2, serving(0));
    let down = Command::StandDown { job: JobId(0), epoch: ServerEpoch(1) };
    assert!(rig.commands.contains(&(String::from("r0"), down.clone())), "{:?}", rig.commands);
    let (version, _) = rig.controller.server_state(JobId(0)).unwrap();
    assert_eq!(version, Version(0), "what it says of the model is nothing");
    rig.commands.clear();
    rig.attach("r0", 3, serving(1));
    assert!(!rig.commands.contains(&(String::from("r0"), down)), "{:?}", rig.commands);
    let (version, _) = rig.controller.server_state(JobId(0)).unwrap();
    assert_eq!(version, Version(9));
}

/// Its workers were told nothing: what they asked for is still to be granted.
#[test]
fn what_was_planned_and_not_granted_is_planned_anew() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.run_for(SECOND);
    for rank in 0..2 {
        rig.ask(rank, 1, 0);
    }
    rig.run_for(SECOND / 5);
    assert!(rig.granted.is_empty() && !rig.controller.groups.is_empty(), "nobody took a group");
    rig.dies("s0");
    for _ in 0..60 {
        rig.run_for(SECOND / 10);
        if rig.promote_command().is_some() {
            break;
        }
    }
    rig.commands.retain(|(_, command)| matches!(command, Command::Promote { .. }));
    rig.promoted(0, 0);
    assert_eq!(rig.status().counters.unknown, 0);
    rig.run_for(SECOND);
    rig.install();
    let updates: Vec<u64> = rig.granted.iter().map(|grant| grant.update_id).collect();
    assert_eq!(updates, [1, 1]);
}

/// The updates of a round that are in the new server's model are not asked for again.
#[test]
fn a_round_goes_on_with_the_updates_that_the_new_server_has() {
    for (version, base, within) in [(0, 0, 0), (4, 4, 0), (7, 6, 1)] {
        let mut config = config(AckMode::Replica);
        config.jobs[0].mode = Mode::Sync;
        let mut rig = Rig::of(config, &Saved::fresh(7));
        rig.attach_all();
        rig.dies("s0");
        rig.run_for(4 * SECOND);
        rig.promoted(version, version);
        let round = &rig.controller.jobs[&JobId(0)].round;
        assert_eq!(round.numbers(), (base, within, within));
    }
}

/// It is asked again as long as it could answer; that it cannot any more is said once.
#[test]
fn a_replica_that_dies_before_it_answers_strands_its_job_once() {
    let mut rig = Rig::attached(AckMode::Replica);
    rig.dies("s0");
    rig.run_for(4 * SECOND);
    assert!(rig.promote_command().is_some());
    // Somebody looks at whether it answers in time.
    let due_ns = rig.controller.poll_timeout().unwrap();
    assert!(due_ns > rig.now_ns && due_ns <= rig.now_ns + SECOND, "{due_ns}");
    rig.dies("r0");
    rig.run_for(4 * SECOND);
    rig.commands.clear();
    rig.run_for(30 * SECOND);
    assert_eq!(rig.promote_command(), None, "it is silent, too");
    let stranded = Notice::Stranded { server: "s0".into() };
    assert_eq!(rig.notices.iter().filter(|notice| **notice == stranded).count(), 1);
}

/// Nothing of its job moves then, and nobody waits for it.
#[test]
fn a_server_is_away_when_its_stream_is_gone_for_a_lease() {
    let mut rig = Rig::attached(AckMode::Commit);
    let is_away = |rig: &Rig| rig.controller.jobs[&JobId(0)].is_server_away;
    rig.run_for(SECOND);
    rig.dies("s0");
    rig.run_for(10 * SECOND);
    assert!(!is_away(&rig), "its stream stands");
    let server = rig.id("s0");
    rig.controller.handle_node_gone(rig.now_ns, server);
    rig.run_for(SECOND / 5);
    assert!(is_away(&rig));
    rig.attach("s0", 1, role("s0", 0, 0, 0));
    assert!(!is_away(&rig));
    rig.run_for(SECOND);
    rig.dies("s0");
    rig.controller.handle_node_gone(rig.now_ns, server);
    rig.run_for(SECOND);
    assert!(!is_away(&rig), "it may be dialling");
}
