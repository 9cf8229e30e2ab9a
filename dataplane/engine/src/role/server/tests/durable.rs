//! A server that begins anew with what a former life kept (PROTOCOL section 4).

use alloc::vec::Vec;

use super::rig::{CHUNKS, JOB as RIG_JOB, Out, REPLICA_BIT, Rig, descriptor, group, job, rank};
use super::world::{AGGREGATOR, Faults, JOB, REPLICA, Setup, World};
use super::*;
use crate::drops::DropReason;
use crate::role::model::journal::record_len_max;
use crate::role::model::{DecidedUpdate, WorkerOutcomes};
use crate::send::datagram::plain_header;
use weft_control::{AckMode, InstallError, LearningRate};
use weft_wire::header::{ElementType, Flags, Header, Kind, Outcome};
use weft_wire::rows::ROW_MODEL;
use weft_wire::{GroupId, Members};

fn committed(workers: &[WorkerOutcomes]) -> Vec<Vec<DecidedUpdate>> {
    let of = |worker: &WorkerOutcomes| {
        worker.decided.iter().filter(|d| d.outcome == Outcome::Committed).copied().collect()
    };
    workers.iter().map(of).collect()
}

#[test]
fn a_server_goes_on_where_its_former_life_stopped() {
    for seed in 0..SEEDS {
        let has_controller = !seed.is_multiple_of(3);
        let faults = if seed.is_multiple_of(2) { Faults::HEAVY } else { Faults::default() };
        let setup = Setup { updates: 8, has_controller, faults, ..Setup::new(3) };
        let mut world = World::new(setup, 2_000 + seed);
        for life in 0..3 {
            world.run(|world| world.server.model(JOB).unwrap().version.0 >= 4 + 5 * life);
            let state = world.server.state(JOB).unwrap();
            world.resume_server(9_000 + 10 * seed + life, &state);
            assert_eq!(world.server.state(JOB).unwrap(), state);
            // Workers may ask before the controller has said what is open.
            world.run_for((seed % 4) * 3_000_000, |_| false);
            world.install_open();
        }
        world.finish();
        let view = world.server.model(JOB).unwrap();
        assert_eq!(view.version.0, 24, "every update of every worker is in, once");
    }
}

/// I1, I3: between commit and append, between append and word, and at any other moment.
#[test]
fn a_crash_at_any_moment_loses_nothing_that_anybody_was_told() {
    let (mut untold, mut lost) = (0, 0);
    for seed in 0..SEEDS {
        let adjust: fn(&mut ServerJobConfig) = match seed % 4 {
            0 => |job| (job.is_durable, job.ack) = (true, AckMode::Replica),
            1 => |job| (job.is_durable, job.replica) = (true, None),
            2 => |job| (job.is_durable, job.log_entries_max) = (true, 2),
            _ => |job| job.is_durable = true,
        };
        let faults = if seed.is_multiple_of(2) { Faults::HEAVY } else { Faults::default() };
        let has_controller = !seed.is_multiple_of(3);
        let setup = Setup { updates: 8, has_controller, faults, adjust, ..Setup::new(3) };
        let mut world = World::new(setup, 3_000 + seed);
        if seed % 4 == 1 {
            world.replica = None;
        }
        for life in 0..3u64 {
            let is_due = |world: &World| {
                let is_writing = !world.disk.is_empty() || seed % 5 == 0;
                world.server.model(JOB).unwrap().version.0 >= 4 + 5 * life && is_writing
            };
            world.run(is_due);
            let before = world.rulings.len();
            let kept = usize::try_from(world.random.next_u64() % 3).unwrap();
            lost += u64::from(kept < world.disk.len());
            world.crash_server(9_000 + 10 * seed + life, kept);
            untold += world.rulings.len() - before;
            world.run_for((seed % 4) * 3_000_000, |_| false);
            world.install_open();
        }
        world.finish();
        assert_eq!(world.server.model(JOB).unwrap().version.0, 24, "seed {seed}");
    }
    assert!(untold > 10 && lost > 10, "both crashes happened: {untold} {lost}");
}

#[test]
fn a_replay_has_the_servers_bits() {
    for (seed, element_type) in [(1, ElementType::I32), (2, ElementType::F32)] {
        let adjust: fn(&mut ServerJobConfig) = |job| {
            job.is_durable = true;
            job.model.learning_rate = LearningRate::AdaDelay;
        };
        let is_inexact = element_type == ElementType::F32;
        let setup = Setup { element_type, is_inexact, adjust, ..Setup::new(4) };
        let mut world = World::new(setup, 3_500 + seed);
        world.finish();
        world.run_for(100_000_000, |_| false);
        assert!(!world.server.awaits_journal());
        let (replayed, events) = world.replayed();
        let state = world.server.state(JOB).unwrap();
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&replayed.weights), bits(&state.weights));
        assert_eq!(bits(&replayed.momentum), bits(&state.momentum));
        assert_eq!(replayed, state);
        assert_eq!(events.len(), world.rulings.len());
        assert!(replayed.momentum.iter().any(|term| *term != 0.0));
    }
}

/// A worker asks again sooner than a disk keeps a record. Offered the newest version each time, it
/// would wait for the next record each time, and pull nothing while commits go on.
#[test]
fn questions_that_are_repeated_do_not_put_off_the_offer() {
    let mut rig = Rig::new(ServerJobConfig { is_durable: true, ..job() });
    let ask = plain_header(Kind::Status, RIG_JOB, GroupId::new(ROW_MODEL, 0), rank(0).bit());
    let ask = rig.frame(1, &ask, &[]);
    let mut record = Vec::new();
    for order in 0..2 {
        rig.install(descriptor(order, &[0], false)).unwrap();
        for chunk in 0..CHUNKS {
            rig.direct(1, group(order), chunk).unwrap();
        }
        rig.poll();
        assert_eq!(rig.server.poll_journal(&mut record), Some((RIG_JOB, order + 1)));
        assert!(rig.send(&ask).unwrap().is_none(), "version {} may yet be lost", order + 1);
    }
    assert_eq!(rig.version(), 2);
    rig.server.handle_durable(RIG_JOB, 1);
    let offered = |out: &Out| (out.header.group.row() == ROW_MODEL).then_some(out.header.chunk.0);
    assert_eq!(rig.poll().iter().find_map(offered), Some(1));
    assert!(rig.send(&ask).unwrap().is_none());
    rig.server.handle_durable(RIG_JOB, 2);
    assert_eq!(rig.poll().iter().find_map(offered), Some(2));
}

/// Nobody is told of a decision before its record is kept: not its members, not the replica, not
/// the controller, and not a worker that pulls.
#[test]
fn nothing_is_told_before_it_is_durable() {
    let mut rig = Rig::new(ServerJobConfig { is_durable: true, ..job() });
    rig.sum_first_group();
    let is_ack = |out: &Out| out.ack().is_some();
    let is_decided = |(_, event): &(JobId, Event)| matches!(event, Event::Decided { .. });
    let mut record = Vec::new();
    assert!(!rig.poll().iter().any(is_ack));
    assert_eq!(rig.version(), 2, "it is committed");
    assert!(rig.server.awaits_journal());
    assert_eq!(rig.server.poll_journal(&mut record), Some((RIG_JOB, 1)));
    let stats = rig.stats();
    assert_eq!((stats.journal_records, stats.journal_bytes), (1, record.len() as u64));
    assert!(!rig.poll().iter().any(is_ack));
    assert!(core::iter::from_fn(|| rig.server.poll_event()).all(|event| !is_decided(&event)));
    assert_eq!(rig.status(1, group(0)).header.outcome, Outcome::Wait);
    let ask = plain_header(Kind::Status, RIG_JOB, GroupId::new(ROW_MODEL, 0), rank(0).bit());
    let ask = rig.frame(1, &ask, &[]);
    assert!(rig.send(&ask).unwrap().is_none(), "version 2 may yet be lost");
    rig.server.handle_durable(RIG_JOB, 1);
    assert!(!rig.server.awaits_journal());
    let out = rig.poll();
    let told: Vec<u8> = out.iter().filter(|out| is_ack(out)).map(|out| out.to).collect();
    assert_eq!(told, [REPLICA, AGGREGATOR, 1, 2, 1]);
    let offer = out.last().unwrap();
    assert_eq!((offer.header.group.row(), offer.header.chunk.0), (ROW_MODEL, 2));
    assert!(core::iter::from_fn(|| rig.server.poll_event()).any(|event| is_decided(&event)));
    assert!(rig.send(&ask).unwrap().is_some());
}

#[test]
fn decisions_wait_while_the_journal_has_no_room() {
    let mut rig = Rig::new(ServerJobConfig { is_durable: true, replica: None, ..job() });
    for order in 0..2 {
        rig.install(descriptor(order, &[u8::try_from(order).unwrap()], false)).unwrap();
    }
    rig.pulls();
    for order in 0..2 {
        for chunk in 0..CHUNKS {
            rig.direct(u8::try_from(order).unwrap() + 1, group(order), chunk).unwrap();
        }
    }
    rig.poll();
    rig.server.handle_journal_full();
    assert_eq!((rig.version(), rig.server.jobs().next().unwrap().1.journal_waits), (1, 1));
    let mut record = Vec::new();
    assert_eq!(rig.server.poll_journal(&mut record), Some((RIG_JOB, 1)));
    assert!(record.len() <= record_len_max(&job().model));
    rig.poll();
    assert_eq!(rig.version(), 2);
    assert_eq!(rig.server.poll_journal(&mut record), Some((RIG_JOB, 2)));
    assert_eq!(rig.server.poll_journal(&mut record), None);
    rig.server.handle_durable(RIG_JOB, 2);
    assert_eq!(rig.acks(), [(1, Outcome::Committed, 1), (2, Outcome::Committed, 2)]);
}

#[test]
fn the_replica_keeps_the_outcomes_too() {
    for seed in 0..10 {
        let mut world = World::new(Setup { faults: Faults::HEAVY, ..Setup::new(4) }, 2_200 + seed);
        world.finish();
        let server = world.server.state(JOB).unwrap();
        let replica = world.replica.as_ref().unwrap().state(JOB).unwrap();
        assert_eq!(committed(&replica.workers), committed(&server.workers));
        assert_eq!((replica.weights, replica.momentum), (server.weights, server.momentum));
        assert_eq!((replica.version, replica.next_order), (server.version, server.next_order));
        assert!(committed(&server.workers).iter().all(|updates| updates.len() == 6));
    }
}

/// A server that said of a group that it knows nothing of it must not commit that update when it is
/// given the group after all: its worker has sent it again by then.
#[test]
fn what_was_said_to_be_void_stays_out_of_a_group_that_comes_again() {
    let state = Rig::new(job()).server.state(RIG_JOB).unwrap();
    let mut rig = Rig::new(job());
    rig.server.restore(RIG_JOB, &state).unwrap();
    assert_eq!(rig.status(2, group(0)).header.outcome, Outcome::Stale);
    rig.install(descriptor(0, &[0, 1], true)).unwrap();
    rig.pulls();
    assert_eq!(rig.sum(group(0), 0, 0b11), Err(DropReason::BadMembers));
    rig.pulls();
    for chunk in 0..CHUNKS {
        rig.direct(1, group(0), chunk).unwrap();
    }
    assert_eq!(rig.acks(), [(50, Outcome::Committed, 1), (1, Outcome::Committed, 1)]);
    assert_eq!(rig.status(2, group(0)).header.outcome, Outcome::Void);
}

#[test]
fn outcomes_are_told_again_to_the_same_life_only() {
    let mut rig = Rig::new(job());
    rig.sum_first_group();
    rig.acks();
    let state = rig.crash(job());
    assert_eq!((state.workers[0].life, state.workers[1].life), (11, 12));
    assert_eq!(rig.status(1, group(0)).header.outcome, Outcome::Committed);
    rig.begin_life(2, 99);
    assert_eq!(rig.status(2, group(0)).header.outcome, Outcome::Stale);
    // Its order number is gone.
    assert_eq!(rig.install(descriptor(0, &[0], false)), Err(InstallError::Order));
}

#[test]
fn the_state_of_another_job_is_refused() {
    let mut rig = Rig::new(job());
    let state = rig.server.state(RIG_JOB).unwrap();
    let mut other = state.clone();
    other.momentum.pop();
    assert_eq!(rig.server.restore(RIG_JOB, &other).unwrap_err().field, "dimension");
    let mut other = state.clone();
    other.workers.pop();
    assert_eq!(rig.server.restore(RIG_JOB, &other).unwrap_err().field, "workers");
    assert_eq!(rig.server.restore(JobId(77), &state).unwrap_err().field, "job");
}

/// Also of one that has the same weights and is further in the sequence.
#[test]
fn every_peer_that_asked_hears_of_a_version_when_it_is_durable() {
    let mut rig = Rig::new(ServerJobConfig { is_durable: true, ..job() });
    rig.sum_first_group();
    rig.poll();
    let ask = |rig: &mut Rig, host: u8, flags: Flags, bit: Members| {
        let header = plain_header(Kind::Status, RIG_JOB, GroupId::new(ROW_MODEL, 0), bit);
        let frame = rig.frame(host, &Header { flags, ..header }, &[]);
        rig.send(&frame).unwrap()
    };
    let offers = |rig: &mut Rig| -> Vec<(u8, u32, u64)> {
        let out = rig.poll().into_iter().filter(|out| out.header.group.row() == ROW_MODEL);
        out.map(|out| (out.to, out.header.chunk.0, out.header.members.0)).collect()
    };
    for (host, flags, bit) in [
        (1, Flags::NONE, rank(0).bit()),
        (2, Flags::NONE, rank(1).bit()),
        (REPLICA, Flags::REPLICA, REPLICA_BIT),
    ] {
        assert!(ask(&mut rig, host, flags, bit).is_none(), "host {host}");
    }
    rig.server.poll_journal(&mut Vec::new()).unwrap();
    assert_eq!(offers(&mut rig), []);
    rig.server.handle_durable(RIG_JOB, 1);
    let told: Vec<_> = offers(&mut rig).iter().map(|(to, version, _)| (*to, *version)).collect();
    assert_eq!(told, [(1, 2), (2, 2), (REPLICA, 2)]);
    rig.void(1);
    assert!(ask(&mut rig, REPLICA, Flags::REPLICA, REPLICA_BIT).is_none(), "2 may be lost");
    rig.server.poll_journal(&mut Vec::new()).unwrap();
    rig.server.handle_durable(RIG_JOB, 2);
    assert_eq!(offers(&mut rig), [(REPLICA, 2, 2)]);
}

#[test]
fn that_a_group_is_not_known_is_told_when_it_is_durable() {
    let config = || ServerJobConfig { is_durable: true, ..job() };
    let mut rig = Rig::new(config());
    rig.crash(config());
    let outcome = |rig: &mut Rig| rig.status(2, group(0)).header.outcome;
    assert_eq!(outcome(&mut rig), Outcome::Wait);
    assert_eq!(outcome(&mut rig), Outcome::Wait);
    assert_eq!(rig.server.poll_journal(&mut Vec::new()), Some((RIG_JOB, 1)));
    assert_eq!(outcome(&mut rig), Outcome::Wait);
    rig.server.handle_durable(RIG_JOB, 1);
    assert_eq!(outcome(&mut rig), Outcome::Void);
}
