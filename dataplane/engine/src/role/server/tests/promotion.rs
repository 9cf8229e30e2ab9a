//! A server that dies for good, and its replica that takes over (SPEC#promotion, I1, I3, I9).

use alloc::vec::Vec;

use super::rig::{JOB as RIG_JOB, REPLICA_BIT, Rig, group, job, parse};
use super::world::{FRAME_LEN, Faults, JOB, REPLICA, REPLICA_BOX, Setup, World};
use super::*;
use crate::drops::DropReason;
use crate::role::channel::Peer;
use crate::send::datagram::plain_header;
use weft_control::{AckMode, OrderNumber, ServerEpoch};
use weft_wire::header::{Flags, Header, Kind, Outcome};
use weft_wire::rows::{ROW_LOG, ROW_MODEL};
use weft_wire::{ChunkIndex, GroupId, Members};

fn acknowledged_by_the_replica(job: &mut ServerJobConfig) {
    job.ack = AckMode::Replica;
}

/// Whose server waits for its disk and for its replica.
fn kept_twice(job: &mut ServerJobConfig) {
    (job.ack, job.is_durable) = (AckMode::Replica, true);
}

/// Whose log is full before its replica has what is in it: decisions wait.
fn of_a_short_log(job: &mut ServerJobConfig) {
    (job.ack, job.log_entries_max) = (AckMode::Replica, 2);
}

/// Whatever the moment: no update twice, none that a worker was told of lost, all in at the end.
#[test]
fn the_replica_goes_on_with_all_that_workers_were_told_of() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let has_controller = !seed.is_multiple_of(3);
        let faults = if seed.is_multiple_of(2) { Faults::HEAVY } else { Faults::default() };
        let adjust =
            [acknowledged_by_the_replica, kept_twice, of_a_short_log][(seed / 2 % 3) as usize];
        let setup = Setup { updates: 8, has_controller, faults, adjust, ..Setup::new(3) };
        let mut world = World::new(setup, 3_000 + seed);
        world.run(|world| world.model().version.0 > seed % 20 && is_fit(world));
        // Some way into what comes next.
        world.run_for((seed % 7) * 700_000, |_| false);
        let before = world.model().version.0;
        world.promote();
        lost += before - world.model().version.0;
        world.finish();
        assert_eq!(world.model().version.0, 24, "every update of every worker is in, once");
        let moved = world.workers.iter().all(|worker| worker.pusher.stats().servers_moved == 1);
        assert!(moved);
        let (_, epoch, stats) = world.successor.as_ref().unwrap().served().next().unwrap();
        assert_eq!((epoch, stats.overlaps), (ServerEpoch(1), 0));
    }
    assert!(lost > 0, "the servers died with commits that nobody else had");
}

/// Asks the replica of a world to take over.
fn ask(world: &mut World) -> Option<Event> {
    ask_from(world, OrderNumber(1_000))
}

/// Asks it to go on with this order number.
fn ask_from(world: &mut World, order: OrderNumber) -> Option<Event> {
    let now = world.now;
    let replica = world.replica.as_mut().unwrap();
    while replica.poll_event().is_some() {}
    let epoch = ServerEpoch(1);
    replica.handle_command(now, Command::Promote { job: JOB, epoch, order });
    core::iter::from_fn(|| replica.poll_event()).map(|(_, event)| event).last()
}

fn is_fit(world: &World) -> bool {
    world.replica.as_ref().unwrap().jobs().all(|(_, stats)| stats.is_fit)
}

/// Workers may know what its former life had: only its server can say that it has it again.
#[test]
fn a_replica_that_was_never_level_with_its_server_stays_a_replica() {
    let setup = Setup { adjust: acknowledged_by_the_replica, ..Setup::new(2) };
    let mut world = World::new(setup, 5);
    world.run(|world| world.model().version.0 >= 4);
    assert!(is_fit(&world));
    let setup = Setup { adjust: acknowledged_by_the_replica, ..Setup::new(2) };
    world.replica = Some(setup.replica(77));
    let refused = ask(&mut world);
    assert!(matches!(refused, Some(Event::PromotionRefused { applied: OrderNumber(0) })));
    assert!(world.replica.as_ref().unwrap().served().next().is_none());
    // The server lives, and its log has all: the new life catches up.
    world.run(is_fit);
    let next = world.replica.as_ref().unwrap().model(JOB).unwrap().next_order;
    assert!(next.0 >= 4, "{next:?}: it was fit before it had what its former life had");
    let promoted = ask(&mut world);
    assert!(matches!(promoted, Some(Event::Promoted { applied, .. }) if applied >= next));
}

#[test]
fn a_replica_that_its_server_goes_on_without_is_nobodys_heir() {
    let setup = Setup { adjust: acknowledged_by_the_replica, ..Setup::new(2) };
    let mut world = World::new(setup, 5);
    world.run(|world| world.model().version.0 >= 4);
    let now = world.now;
    let replica = world.replica.as_mut().unwrap();
    while replica.poll_event().is_some() {}
    replica.handle_command(now, Command::LeaveReplica { job: JOB });
    assert_eq!(replica.poll_event(), Some((JOB, Event::ReplicaFitness { is_fit: false })));
    let refused = ask(&mut world);
    assert!(matches!(refused, Some(Event::PromotionRefused { .. })), "{refused:?}");
}

/// No controller reaches it, and the one that had it left may be gone: the server says so.
#[test]
fn a_replica_hears_from_its_server_that_it_was_left() {
    let setup = Setup { adjust: acknowledged_by_the_replica, ..Setup::new(2) };
    let mut world = World::new(setup, 5);
    world.run(|world| world.model().version.0 >= 4 && is_fit(world));
    world.server.handle_command(world.now, Command::LeaveReplica { job: JOB });
    world.run(|world| !is_fit(world));
    let refused = ask(&mut world);
    assert!(matches!(refused, Some(Event::PromotionRefused { .. })), "{refused:?}");
}

/// The controller is told that a replica was met, though nothing was decided since: without that
/// word it would promote nobody.
#[test]
fn a_server_says_when_it_meets_its_replica() {
    let ask = |rig: &mut Rig| {
        let header = Header {
            flags: Flags::REPLICA,
            ..plain_header(Kind::Status, RIG_JOB, GroupId::new(ROW_LOG, 0), REPLICA_BIT)
        };
        let frame = rig.frame(REPLICA, &header, &[]);
        let state = rig.send(&frame).unwrap().unwrap();
        (state, core::iter::from_fn(|| rig.server.poll_event()).collect::<Vec<_>>())
    };
    let mut rig = Rig::new(ServerJobConfig { ack: AckMode::Replica, ..job() });
    let met = Event::ReplicaAt { order: OrderNumber(0), divergence_bound: 0.0, is_held: true };
    let (state, events) = ask(&mut rig);
    assert_eq!(events, [(RIG_JOB, met)]);
    assert!(!state.header.flags.contains(Flags::DIRECT));
    assert_eq!(ask(&mut rig).1, [], "once in its life");
    *rig.peer(REPLICA) = rig::client(REPLICA, Peer::Box(REPLICA_BOX), 99);
    rig.connect(REPLICA);
    assert_eq!(ask(&mut rig).1, [(RIG_JOB, met)]);
    rig.server.handle_command(rig.now, Command::LeaveReplica { job: RIG_JOB });
    assert!(ask(&mut rig).0.header.flags.contains(Flags::DIRECT), "it says that it left it");
}

/// A worker that computed on a version which only its server had would have seen a model that the
/// replica's promotion takes back.
#[test]
fn workers_are_shown_no_version_that_the_replica_lacks() {
    let status = |rig: &mut Rig, host: u8, row: u16, chunk: u32, flags: Flags, bit: Members| {
        let header = plain_header(Kind::Status, RIG_JOB, GroupId::new(row, 0), bit);
        let header = Header { flags, chunk: ChunkIndex(chunk), ..header };
        let frame = rig.frame(host, &header, &[]);
        rig.send(&frame).unwrap().unwrap().header
    };
    let shown = |rig: &mut Rig| {
        let said = status(rig, 1, ROW_MODEL, 0, Flags::NONE, Members(1));
        (said.kind == Kind::Ack).then_some(said.chunk.0)
    };
    let mut rig = Rig::new(ServerJobConfig { ack: AckMode::Replica, ..job() });
    rig.sum_first_group();
    rig.poll();
    assert_eq!((rig.version(), shown(&mut rig)), (2, None));
    status(&mut rig, REPLICA, ROW_LOG, 1, Flags::REPLICA, REPLICA_BIT);
    assert_eq!(shown(&mut rig), Some(2));
}

#[test]
fn a_server_of_an_earlier_epoch_stands_down_and_says_nothing_more() {
    let mut rig = Rig::new(job());
    rig.server.handle_command(Nanos(0), Command::StandDown { job: RIG_JOB, epoch: ServerEpoch(0) });
    assert_eq!(rig.server.poll_event(), None, "a word for an earlier server");
    rig.server.handle_command(Nanos(0), Command::StandDown { job: RIG_JOB, epoch: ServerEpoch(1) });
    let stood_down = Event::StoodDown { epoch: ServerEpoch(1) };
    assert_eq!(rig.server.poll_event(), Some((RIG_JOB, stood_down)));
    assert_eq!(rig.server.poll_timeout(), Nanos::MAX);
    assert_eq!(rig.direct(1, group(0), 0), Err(DropReason::UnknownJob));
    assert!(rig.poll().is_empty(), "it answers nothing");
}

/// A word that was meant for the server before it may come late.
#[test]
fn an_heir_stands_down_for_a_later_server_alone() {
    let setup = Setup { adjust: acknowledged_by_the_replica, ..Setup::new(2) };
    let mut world = World::new(setup, 5);
    world.run(|world| world.model().version.0 >= 4 && is_fit(world));
    world.promote();
    let now = world.now;
    let successor = world.successor.as_mut().unwrap();
    let mut stands_down = |epoch| {
        successor.handle_command(now, Command::StandDown { job: JOB, epoch });
        let mut events = core::iter::from_fn(|| successor.poll_event());
        events.any(|(_, event)| event == Event::StoodDown { epoch })
    };
    assert!(!stands_down(ServerEpoch(0)) && !stands_down(ServerEpoch(1)));
    assert!(stands_down(ServerEpoch(2)));
}

/// I9: acknowledgements that wait for a replica do not wait for a dead one.
#[test]
fn a_replica_that_is_left_holds_up_nobody() {
    let setup = Setup { adjust: acknowledged_by_the_replica, ..Setup::new(2) };
    let mut world = World::new(setup, 6);
    world.run(|world| world.model().version.0 >= 4);
    world.replica = None;
    world.run_for(20_000_000_000, World::all_done);
    assert!(!world.all_done(), "nobody is told without the replica");
    world.bounds.clear();
    world.server.handle_command(world.now, Command::LeaveReplica { job: JOB });
    world.finish();
    assert_eq!(world.model().version.0, 12);
    assert!(world.stats().acks_without_replica > 0);
    assert!(world.bounds.iter().any(|(_, is_held)| !is_held), "it is said");
}

/// A server that keeps a journal and is left by its replica tells nobody before the disk has it.
#[test]
fn without_its_replica_a_server_still_waits_for_its_journal() {
    let mut config = job();
    kept_twice(&mut config);
    let mut rig = Rig::new(config);
    rig.sum_first_group();
    let is_told = |rig: &mut Rig| rig.acks().iter().any(|(to, ..)| *to == 1);
    assert!(!is_told(&mut rig));
    rig.server.handle_command(rig.now, Command::LeaveReplica { job: RIG_JOB });
    assert!(!is_told(&mut rig));
    assert_eq!(rig.status(1, group(0)).header.outcome, Outcome::Wait);
    assert_eq!(rig.server.poll_journal(&mut Vec::new()), Some((RIG_JOB, 1)));
    rig.server.handle_durable(RIG_JOB, 1);
    assert!(is_told(&mut rig));
    assert_eq!(rig.status(1, group(0)).header.outcome, Outcome::Committed);
}

/// What a former life had to keep back for the replica is not kept back for a dead one.
#[test]
fn a_restored_outcome_does_not_wait_for_a_replica_that_is_left() {
    let config = || ServerJobConfig { ack: AckMode::Replica, ..job() };
    let mut rig = Rig::new(config());
    rig.sum_first_group();
    rig.acks();
    rig.crash(config());
    assert_eq!(rig.status(1, group(0)).header.outcome, Outcome::Wait);
    rig.server.handle_command(rig.now, Command::LeaveReplica { job: RIG_JOB });
    assert_eq!(rig.status(1, group(0)).header.outcome, Outcome::Committed);
}

/// The word that made it the server came from a controller, which gives the numbers from then on.
#[test]
fn an_heir_takes_no_announcements_while_its_controller_is_there() {
    let setup =
        Setup { has_controller: false, adjust: acknowledged_by_the_replica, ..Setup::new(2) };
    let mut world = World::new(setup, 8);
    world.run(|world| world.model().version.0 >= 3);
    let now = world.now;
    world.replica.as_mut().unwrap().handle_controller(now, true);
    world.promote();
    let before = world.model().version;
    world.run_for(300_000_000, World::all_done);
    assert_eq!(world.model().version, before);
    let now = world.now;
    let successor = world.successor.as_mut().unwrap();
    let refused = successor.served().map(|(_, _, stats)| stats.announcements_refused).sum::<u64>();
    assert!(refused > 0);
    successor.handle_controller(now, false);
    // The judge takes every announcement for a number; here most were refused.
    world.run_for(3_000_000_000, World::all_done);
    assert!(world.model().version > before);
}

/// No order number comes twice.
#[test]
fn a_replica_takes_over_behind_all_that_it_has_applied() {
    let setup = Setup { adjust: acknowledged_by_the_replica, ..Setup::new(2) };
    let mut world = World::new(setup, 5);
    world.run(|world| world.model().version.0 >= 4 && is_fit(world));
    let Some(Event::PromotionRefused { applied }) = ask_from(&mut world, OrderNumber(0)) else {
        panic!("it has applied some");
    };
    let refused = ask_from(&mut world, OrderNumber(applied.0 - 1));
    assert_eq!(refused, Some(Event::PromotionRefused { applied }));
    let Some(Event::Promoted { order, .. }) = ask_from(&mut world, applied) else {
        panic!("nothing is taken back");
    };
    assert_eq!(order, applied);
    let promotions = world.replica.as_ref().unwrap().jobs().map(|(_, stats)| stats.promotions);
    assert_eq!(promotions.sum::<u64>(), 1);
}

#[test]
fn members_are_told_once_when_the_replica_has_their_updates() {
    let mut rig = Rig::new(ServerJobConfig { ack: AckMode::Replica, ..job() });
    rig.sum_first_group();
    let told = |rig: &mut Rig| -> Vec<u8> { rig.acks().iter().map(|(to, ..)| *to).collect() };
    assert_eq!(told(&mut rig), [50]);
    rig.follow(1);
    assert_eq!(told(&mut rig), [1, 2]);
    rig.follow(1);
    assert_eq!(told(&mut rig), [0; 0]);
}

/// Else it would have to take a whole version, which a server in trouble may not live to send.
#[test]
fn decisions_wait_while_the_log_is_full_of_what_the_replica_needs() {
    let config = ServerJobConfig { ack: AckMode::Replica, log_entries_max: 2, ..job() };
    let mut rig = Rig::new(config);
    (0..3).for_each(|order| rig.void(order));
    assert_eq!(rig.next_order(), 2);
    rig.follow(1);
    rig.poll();
    assert_eq!(rig.next_order(), 3);
}

/// It may be another server by now, which knows nothing of the channel.
#[test]
fn a_replica_asks_a_server_that_answers_nothing_who_it_is() {
    let mut world = World::new(Setup::new(2), 9);
    world.finish();
    let mut replica = world.replica.take().unwrap();
    let mut kinds = Vec::new();
    let mut frame = alloc::vec![0; FRAME_LEN];
    let mut now = world.now;
    while kinds.len() < 40 {
        now = replica.poll_timeout().max(now);
        while let Some(len) = replica.poll_transmit(now, &mut frame) {
            kinds.push(parse(&frame[..len]).1.kind);
        }
    }
    let questions = kinds.iter().take_while(|kind| **kind == Kind::Status).count();
    assert!((7..=9).contains(&questions), "{kinds:?}");
    assert_eq!(kinds[questions], Kind::Hello);
}
