//! The server, with everything around it real: see `world.rs`. Each test names the invariant of
//! DESIGN section 3 that it is about.

mod announce;
mod answer;
mod bound;
mod conduct;
mod counters;
mod credits;
mod decide;
mod durable;
mod exact;
mod hostile;
mod line;
mod open;
mod promotion;
mod rig;
mod trains;
mod world;

use weft_control::{
    AckMode, Command, CommitMode, ConductMode, Decision, HoldingCommand, LearningRate,
};
use weft_wire::Nanos;
use weft_wire::header::ElementType;

use super::*;
use world::{ELEMENTS, Faults, JOB, Setup, World};

#[test]
fn updates_are_summed_on_their_way_and_committed_in_the_plans_order() {
    let mut world = World::new(Setup::new(4), 1);
    world.finish();
    let stats = *world.stats();
    assert_eq!(stats.commits, 24);
    assert_eq!((stats.voids, stats.dropped, stats.fallbacks), (0, 0, 0));
    assert!(stats.chunks_aggregated > 0 && stats.chunks_direct > 0);
    assert_eq!(stats.delays.iter().sum::<u64>(), 24);
    let replica = world.replica.as_ref().unwrap().jobs().next().unwrap().1;
    assert_eq!((replica.commits, replica.lag), (24, 0));
    assert!(replica.chunks_copied > 0);
}

#[test]
fn without_a_controller_updates_are_committed_as_they_come() {
    let mut world = World::new(Setup { has_controller: false, ..Setup::new(3) }, 2);
    world.finish();
    assert_eq!(world.stats().commits, 18);
    assert_eq!(world.stats().chunks_aggregated, 0);
    let replica = world.replica.as_ref().unwrap().jobs().next().unwrap().1;
    assert_eq!(replica.chunks_copied, 0);
    assert_eq!(replica.chunks_repaired, 18 * 5);
}

#[test]
fn every_update_survives_loss_doubles_reordering_and_corruption() {
    for seed in 0..SEEDS {
        let setup = Setup {
            faults: Faults::HEAVY,
            has_controller: seed % 3 != 0,
            updates: 4,
            ..Setup::new(3)
        };
        let mut world = World::new(setup, seed);
        world.finish();
        let stats = world.stats();
        assert_eq!(stats.commits + stats.dropped, 12, "seed {seed}: {stats:?}");
    }
}

#[test]
fn float_updates_are_the_same_bits_at_the_replica() {
    for seed in 0..SEEDS / 2 {
        let setup = Setup {
            faults: Faults::HEAVY,
            element_type: ElementType::F32,
            updates: 3,
            ..Setup::new(4)
        };
        let mut world = World::new(setup, 1000 + seed);
        world.finish();
        assert_eq!(world.stats().commits, 12);
    }
}

/// Floating-point sums that the server put together itself have other bits than the copies that the
/// aggregator made before it died.
#[test]
fn copies_of_sums_that_the_server_put_together_are_not_used() {
    let (mut unusable, mut composed, mut repeated) = (0, 0, 0);
    for seed in 0..40 {
        let setup = Setup {
            faults: Faults { loss: 200, ..Faults::default() },
            element_type: ElementType::F32,
            is_inexact: true,
            dimension: 400,
            updates: 2,
            ..Setup::new(4)
        };
        let mut world = World::new(setup, 1500 + seed);
        world.run(|world| world.stats().chunks_aggregated >= 20 + seed % 13);
        world.aggregator = None;
        world.finish();
        composed += world.stats().chunks_composed;
        let stats = world.replica.as_ref().unwrap().jobs().next().unwrap().1;
        unusable += stats.copies_unusable;
        repeated += stats.questions_repeated;
    }
    assert!(composed > 0 && unusable > 0, "{composed} {unusable}");
    assert!(repeated > 0, "questions were lost");
}

#[test]
fn an_aggregator_that_dies_costs_time_and_no_update() {
    for seed in 0..20 {
        let mut world = World::new(Setup { updates: 8, ..Setup::new(4) }, 50 + seed);
        world.run(|world| world.stats().commits >= 5 + seed % 4);
        world.aggregator = None;
        world.finish();
        assert_eq!(world.stats().commits, 32);
    }
}

#[test]
fn a_restarted_aggregator_is_left_for_its_open_groups() {
    for seed in 0..20 {
        let mut world = World::new(Setup { updates: 8, ..Setup::new(4) }, 80 + seed);
        world.run(|world| world.stats().commits >= 3 + seed % 6);
        world.aggregator = Some(world.setup.aggregator(9000 + seed));
        world.finish();
        assert_eq!(world.stats().commits, 32);
    }
}

/// For good, or to come again at once: workers hold grants to send there, groups are open.
#[test]
fn a_push_job_that_is_taken_from_its_aggregator_costs_time_and_no_update() {
    for seed in 0..20 {
        let mut world = World::new(Setup { updates: 8, ..Setup::new(4) }, 300 + seed);
        world.run(|world| world.stats().commits >= 3 + seed % 6);
        let install = HoldingCommand::InstallPush(world.setup.push());
        let aggregator = world.aggregator.as_mut().unwrap();
        aggregator.handle_command(Command::Holding(HoldingCommand::RemovePush { job: JOB }));
        assert_eq!(aggregator.gather().reports().count(), 0);
        if seed % 2 == 0 {
            aggregator.handle_command(Command::Holding(install));
            assert_eq!(aggregator.gather().reports().count(), 1);
        }
        world.finish();
        assert_eq!(world.stats().commits, 32);
    }
}

#[test]
fn a_restarted_replica_takes_a_snapshot_or_the_log() {
    for (seed, log_entries_max) in [(1, 4), (2, 4), (3, 1000), (4, 1000)] {
        let adjust: fn(&mut ServerJobConfig) = match log_entries_max {
            4 => |job| job.log_entries_max = 4,
            _ => |_| {},
        };
        let setup = Setup { updates: 10, faults: Faults::HEAVY, adjust, ..Setup::new(3) };
        let mut world = World::new(setup, 200 + seed);
        world.run(|world| world.stats().commits >= 12);
        world.replica = Some(world.setup.replica(7777 + seed));
        world.finish();
        let replica = world.replica.as_ref().unwrap().jobs().next().unwrap().1;
        assert_eq!(replica.snapshots > 0, log_entries_max == 4, "{replica:?}");
    }
}

#[test]
fn a_worker_that_dies_holds_up_nobody_for_long() {
    for seed in 0..20 {
        let mut world = World::new(Setup { updates: 6, ..Setup::new(4) }, 300 + seed);
        world.run(|world| world.stats().commits >= 4 + seed % 5);
        world.kill_worker(3);
        world.run(|world| world.all_done_but(3) && world.replica_is_level());
        world.judge();
        assert!(world.stats().commits >= 18);
    }
}

#[test]
fn a_workers_new_life_takes_back_what_was_incomplete() {
    for seed in 0..20 {
        let setup = Setup { faults: Faults { loss: 30, ..Faults::default() }, ..Setup::new(4) };
        let mut world = World::new(setup, 400 + seed);
        world.run(|world| world.stats().commits >= 4 + seed % 7);
        world.restart_worker(2, 5_000 + seed);
        world.finish();
    }
}

#[test]
fn what_is_too_old_is_dropped_and_its_worker_told() {
    for seed in 0..20 {
        let setup = Setup { tau_max: 2, updates: 6, ..Setup::new(5) };
        let mut world = World::new(setup, 500 + seed);
        world.finish();
        assert!(world.stats().delay_max <= 2);
        if world.stats().dropped > 0 {
            assert!(world.told.values().any(|told| *told == Decision::Dropped));
        }
        assert!(world.stats().dropped > 0, "tau_max of 2 with 5 workers drops some");
    }
}

#[test]
fn delays_scale_updates_at_both_ends_alike() {
    for rate in [LearningRate::InverseDelay, LearningRate::AdaDelay] {
        let adjust: fn(&mut ServerJobConfig) = match rate {
            LearningRate::AdaDelay => |job| job.model.learning_rate = LearningRate::AdaDelay,
            _ => |job| job.model.learning_rate = LearningRate::InverseDelay,
        };
        let mut world = World::new(Setup { adjust, ..Setup::new(4) }, 600);
        world.finish();
        assert!(world.stats().delay_max > 1);
    }
}

#[test]
fn the_divergence_stays_below_its_bound_while_that_is_held() {
    let adjust: fn(&mut ServerJobConfig) = |job| job.div_max = Some(70.0);
    for seed in 0..20 {
        let faults = Faults { loss: 60, jitter_ns: 1_000_000, ..Faults::default() };
        let setup = Setup { adjust, faults, updates: 8, ..Setup::new(3) };
        let mut world = World::new(setup, 700 + seed);
        let mut worst = 0f64;
        while !(world.all_done() && world.replica_is_level()) {
            world.run_for(200_000, |_| false);
            let is_held = world.bounds.last().is_none_or(|(_, is_held)| *is_held);
            let distance = world.distance();
            if is_held {
                assert!(distance <= 70.0, "I5: {distance}");
            }
            assert!(distance <= world.stats().divergence_bound * (1.0 + 1e-5) + 1e-3);
            worst = worst.max(distance);
            assert!(world.now < Nanos(100_000_000_000), "{}", world.describe());
        }
        world.judge();
        assert!(worst > 0.0);
        assert!(world.stats().bound_waits > 0, "the bound was never met");
    }
}

#[test]
fn a_dead_replica_ends_the_bound_and_not_the_job() {
    let adjust: fn(&mut ServerJobConfig) = |job| {
        job.div_max = Some(70.0);
        job.divergence_wait_ns = 200_000_000;
    };
    let mut world = World::new(Setup { adjust, ..Setup::new(3) }, 800);
    world.run(|world| world.stats().commits >= 4);
    world.replica = None;
    world.finish();
    assert_eq!(world.stats().commits, 18);
    assert!(world.stats().bound_broken > 0);
    assert!(world.bounds.iter().any(|(_, is_held)| !is_held), "nobody was told");
}

#[test]
fn acknowledgements_can_wait_for_the_replica() {
    let adjust: fn(&mut ServerJobConfig) = |job| job.ack = AckMode::Replica;
    for seed in 0..10 {
        let setup = Setup { adjust, faults: Faults::HEAVY, updates: 3, ..Setup::new(3) };
        let mut world = World::new(setup, 900 + seed);
        let mut told = 0;
        while !world.all_done() {
            world.run_for(100_000, |_| false);
            if world.told.len() > told {
                told = world.told.len();
                let applied = world.replica.as_ref().unwrap().model(JOB).unwrap().version.0;
                let committed = world.told.values().filter_map(|told| match told {
                    Decision::Committed(version) => Some(version.0),
                    _ => None,
                });
                assert!(committed.max().unwrap_or(0) <= applied, "acknowledged too early");
            }
            assert!(world.now < Nanos(100_000_000_000), "{}", world.describe());
        }
        world.finish();
    }
}

#[test]
fn arrival_mode_commits_whatever_is_staged() {
    let adjust: fn(&mut ServerJobConfig) = |job| {
        job.commit = CommitMode::Arrival;
        job.conduct = ConductMode::Fair;
    };
    for seed in 0..10 {
        let setup = Setup { adjust, faults: Faults::HEAVY, ..Setup::new(3) };
        let mut world = World::new(setup, 1100 + seed);
        world.finish();
        assert_eq!(world.stats().commits, 18);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut world = World::new(Setup { faults: Faults::HEAVY, ..Setup::new(3) }, 77);
        world.finish();
        (world.now, *world.stats(), world.server.stats().frames)
    };
    assert_eq!(run(), run());
}

/// A server that restarts has lost its model: nothing of the old one may come back by itself.
#[test]
fn a_restarted_server_is_recognised_by_all() {
    let mut world = World::new(Setup { updates: 20, has_controller: false, ..Setup::new(3) }, 1300);
    world.run(|world| world.stats().commits >= 20);
    world.restart_server(4242);
    // The replica is away until the new sequence is longer than the old one was.
    let replica = world.replica.take();
    world.run(|world| world.stats().commits >= 30);
    world.replica = replica;
    world.run_for(2_000_000_000, |world| world.replica_is_level());
    let (own, server) =
        (world.replica.as_ref().unwrap().model(JOB).unwrap(), world.server.model(JOB).unwrap());
    assert_eq!((own.version, own.next_order), (server.version, server.next_order));
    assert_eq!(own.weights, server.weights);
    assert_eq!(world.replica.as_ref().unwrap().jobs().next().unwrap().1.snapshots, 1);
}

const SEEDS: u64 = 60;
const _: () = assert!(ELEMENTS == 8);

/// A run of order numbers that nobody has is passed over by the replica as by its server: in one
/// step, whatever its length.
#[test]
fn a_replica_passes_over_a_run_of_unused_numbers_at_once() {
    let mut world = World::new(Setup::new(2), 4);
    world.finish();
    let job = world.setup.job();
    let next = world.server.model(JOB).unwrap().next_order.0;
    let group = weft_control::GroupDescriptor {
        job: JOB,
        order: weft_control::OrderNumber(next + 1_000_000),
        chunks: job.model.chunks(),
        elements: job.model.elements,
        lateness_ns: 1,
        ..rig::descriptor(900, &[0], false)
    };
    world.server.handle_command(world.now, Command::Install(group));
    world.run_for(10_000_000_000, |world| {
        let at = |model: Option<ModelView<'_>>| model.unwrap().next_order.0;
        let replica = at(world.replica.as_ref().unwrap().model(JOB));
        at(world.server.model(JOB)) > next + 1_000_000 && replica > next + 1_000_000
    });
    let server = world.server.model(JOB).unwrap();
    let replica = world.replica.as_ref().unwrap().model(JOB).unwrap();
    assert_eq!(server.next_order.0, next + 1_000_001);
    assert_eq!((replica.next_order, replica.version), (server.next_order, server.version));
    assert_eq!(replica.momentum, server.momentum);
}
