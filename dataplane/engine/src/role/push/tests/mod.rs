mod fake;
mod granted;
mod hostile;
mod world;

use alloc::vec;
use alloc::vec::Vec;

use weft_control::{Decision, Version};
use weft_wire::{GroupId, Nanos};

use super::{Event, ModelFault, NewUpdate, PushFault, PushRefusal, Pusher, Values};
use fake::ELEMENTS;
use weft_wire::header::Outcome;
use world::{Faults, World, grant};

const CHUNKS: u32 = 40;

fn values(seed: i32) -> Vec<i32> {
    (0..(CHUNKS * u32::from(ELEMENTS)).cast_signed() - 3).map(|i| i * 7 - seed * 13).collect()
}

/// The model after these updates.
fn expected(updates: &[Vec<i32>]) -> Vec<i64> {
    let mut model = vec![0; (CHUNKS * u32::from(ELEMENTS)) as usize];
    for update in updates {
        model.iter_mut().zip(update).for_each(|(w, u)| *w += i64::from(*u));
    }
    model
}

fn floats(model: &[i64]) -> Vec<f32> {
    model.iter().map(|w| *w as f32).collect()
}

/// Chunks sent are accounted for, and nothing went where it was not wanted.
fn check_books(world: &World) {
    for worker in &world.workers {
        let stats = worker.stats();
        assert_eq!(
            stats.chunks_sent,
            stats.chunks_direct
                + stats.chunks_aggregated
                + stats.chunks_dropped
                + stats.chunks_voided
                + worker.chunks_undecided(),
            "{stats:?}"
        );
    }
    assert_eq!(world.server.uncalled, 0, "no data to a server without a credit");
}

#[test]
fn a_direct_update_is_committed_and_pulled() {
    let mut world = World::connected(1, 1, CHUNKS, Faults::default());
    world.begin(0, 0, values(1));
    world.workers[0].send_direct(world.now, 0).unwrap();
    world.run(|world| world.decision(0, 0).is_some());
    assert_eq!(world.decision(0, 0), Some(Decision::Committed(Version(1))));
    assert_eq!(world.server.model, expected(&[values(1)]));
    assert_eq!(world.server.contributions, CHUNKS as usize, "without loss each chunk goes once");
    assert_eq!(world.workers[0].stats().chunks_direct, u64::from(CHUNKS));
    assert_eq!(world.workers[0].finish(0), Some(Values::Integers(values(1))));
    let now = world.now;
    world.workers[0].begin_pull(now, 100, None, None).unwrap();
    assert_eq!(world.workers[0].begin_pull(now, 100, None, None), Err(PushRefusal::Pulling));
    world.run(|world| world.events.contains(&(0, Event::Pulled { version: Version(1) })));
    assert_eq!(world.workers[0].model()[..100], floats(&expected(&[values(1)]))[..100]);
    assert_eq!(world.workers[0].stats().pull_requests, 13, "chunks of 8, as many as asked for");
    check_books(&world);
}

#[test]
fn the_version_of_a_direct_update_is_named() {
    let mut world = World::connected(2, 1, CHUNKS, Faults::default());
    world.begin(0, 77, values(1));
    world.workers[0].send_direct(world.now, 77).unwrap();
    world.run(|world| world.decision(0, 77).is_some());
    assert_eq!(world.server.versions_named.len(), 1);
    assert_eq!(world.server.versions_named[0].1, 77);
}

#[test]
fn a_group_goes_by_the_box_when_its_gate_opens() {
    let mut world = World::connected(3, 2, CHUNKS, Faults::default());
    world.begin(0, 0, values(1));
    world.begin(1, 0, values(2));
    let group = GroupId::new(7, 3);
    world.grant(group, &[(0, 0), (1, 0)], true, grant(group, true, 2, false, 0));
    world.run_for(50_000_000, |_| false);
    assert!(world.fake_box.arrivals.is_empty(), "the gate is closed");
    for worker in 0..2 {
        world.workers[worker].handle_release(world.now, 0, 0).unwrap();
    }
    world.run(|world| (0..2).all(|worker| world.decision(worker, 0).is_some()));
    assert_eq!(world.decision(0, 0), Some(Decision::Committed(Version(2))));
    assert_eq!(world.server.model, expected(&[values(1), values(2)]));
    assert_eq!(world.server.contributions, 0);
    for worker in &world.workers {
        assert_eq!(worker.stats().chunks_aggregated, u64::from(CHUNKS));
    }
    assert!(world.events.contains(&(0, Event::Delivered { number: 0 })));
    check_books(&world);
}

#[test]
fn a_rate_is_a_ceiling() {
    let mut world = World::connected(4, 1, 4_000, Faults::default());
    let update = (0..32_000).collect();
    world.begin(0, 0, update);
    let group = GroupId::new(0, 0);
    let rate = 10_000_000;
    world.grant(group, &[(0, 0)], true, grant(group, true, 1, true, rate));
    world.run(|world| world.decision(0, 0).is_some());
    // 106-byte frames; in 10 ms the rate passes 100 kB, and the bucket 20 kB more.
    let busiest = world.fake_box.busiest(10_000_000);
    assert!(busiest <= 100_000 + 20_000 + 106, "{busiest} bytes in 10 ms");
    assert!(busiest >= 90_000, "the rate is used: {busiest} bytes in 10 ms");
}

#[test]
fn direct_answers_keep_to_the_rate_too() {
    let mut world = World::connected(5, 1, 400, Faults::default());
    world.server.credit_window = 400;
    world.begin(0, 0, (0..3_200).collect());
    let group = GroupId::new(0, 0);
    let begun = world.now;
    world.grant(group, &[(0, 0)], false, grant(group, false, 1, true, 1_000_000));
    world.run(|world| world.decision(0, 0).is_some());
    // 400 frames of 106 bytes, less a bucket of 3100, at 1 MB/s.
    let took_ns = world.now.since(begun).0;
    assert!(took_ns >= 39_000_000, "{took_ns} ns");
    assert_eq!(world.workers[0].stats().chunks_direct, 400);
}

#[test]
fn nothing_is_lost_doubled_or_torn_over_seeds() {
    for seed in 0..60 {
        let mut world = World::connected(1000 + seed, 3, CHUNKS, Faults::HEAVY);
        let mut all = Vec::new();
        for worker in 0..3 {
            for number in 0..2 {
                let update = values(i32::try_from(worker * 10 + number).unwrap());
                world.begin(worker, number as u64, update.clone());
                all.push(update);
            }
        }
        let group = GroupId::new(3, 9);
        world.grant(group, &[(0, 0), (1, 0)], true, grant(group, true, 2, true, 0));
        for (worker, number) in [(0, 1), (1, 1), (2, 0), (2, 1)] {
            world.workers[worker].send_direct(world.now, number).unwrap();
        }
        let now = world.now;
        world.workers[0].begin_pull(now, 300, Some(Version(3)), None).unwrap();
        world.run(|world| {
            let is_decided = |worker| (0..2).all(|number| world.decision(worker, number).is_some());
            let is_pulled = |(at, event): &(usize, Event)| {
                *at == 0 && matches!(event, Event::Pulled { version } if version.0 > 3)
            };
            (0..3).all(is_decided) && world.events.iter().any(is_pulled)
        });
        assert_eq!(world.server.model, expected(&all), "seed {seed}");
        assert_eq!(world.server.version, 6);
        check_books(&world);
    }
}

#[test]
fn a_void_update_is_sent_anew_under_a_fresh_number() {
    let mut world = World::connected(6, 1, CHUNKS, Faults::default());
    world.server.next_outcomes = vec![Outcome::Void, Outcome::Dropped];
    world.begin(0, 0, values(4));
    world.workers[0].send_direct(world.now, 0).unwrap();
    world.run(|world| world.decision(0, 0).is_some());
    assert_eq!(world.decision(0, 0), Some(Decision::Void));
    world.workers[0].renew(0, 1).unwrap();
    assert_eq!(world.workers[0].finish(0), None, "it has another number now");
    world.workers[0].send_direct(world.now, 1).unwrap();
    world.run(|world| world.decision(0, 1).is_some());
    assert_eq!(world.decision(0, 1), Some(Decision::Dropped));
    assert_eq!(world.workers[0].renew(1, 2), Err(PushRefusal::State), "dropped is dropped");
    assert_eq!(world.workers[0].finish(1), Some(Values::Integers(values(4))));
    assert_eq!(world.server.model, expected(&[]));
    let stats = world.workers[0].stats();
    assert_eq!((stats.chunks_voided, stats.chunks_dropped), (CHUNKS.into(), CHUNKS.into()));
    check_books(&world);
}

#[test]
fn a_silent_box_leaves_the_update_to_the_servers_credits() {
    let mut world = World::connected(7, 2, CHUNKS, Faults::default());
    world.begin(0, 0, values(1));
    world.begin(1, 0, values(2));
    world.fake_box.is_silent = true;
    let group = GroupId::new(7, 3);
    world.grant(group, &[(0, 0), (1, 0)], true, grant(group, true, 2, true, 0));
    world.run(|world| (0..2).all(|worker| world.decision(worker, 0).is_some()));
    assert_eq!(world.server.model, expected(&[values(1), values(2)]));
    assert_eq!(world.workers[0].stats().chunks_direct, u64::from(CHUNKS));
    check_books(&world);
}

#[test]
fn a_restarted_box_is_opened_again_and_the_server_pulls() {
    let mut world = World::connected(8, 1, CHUNKS, Faults::default());
    world.begin(0, 0, values(1));
    let group = GroupId::new(7, 3);
    world.grant(group, &[(0, 0)], true, grant(group, true, 1, true, 0));
    world.fake_box.restart(99);
    world.run(|world| world.decision(0, 0).is_some());
    assert_eq!(world.server.model, expected(&[values(1)]));
    assert_eq!(world.workers[0].stats().channels_lost, 1);
}

#[test]
fn a_box_that_forgot_the_group_is_sent_to_no_more() {
    let mut world = World::connected(8, 1, CHUNKS, Faults::default());
    world.run_for(100_000_000, |_| false);
    world.begin(0, 0, values(1));
    let group = GroupId::new(7, 3);
    world.grant(group, &[(0, 0)], true, grant(group, true, 1, true, 0));
    world.fake_box.forget(group);
    let begun = world.now;
    world.run(|world| world.decision(0, 0).is_some());
    assert!(world.fake_box.arrivals.len() >= 32, "a window was out already");
    let late = |(at, _): &&(Nanos, usize)| at.since(begun).0 > 2 * world::LATENCY_NS;
    assert_eq!(world.fake_box.arrivals.iter().filter(late).count(), 0);
}

#[test]
fn a_restarted_server_gets_a_direct_update_again() {
    for seed in 0..20 {
        let mut world = World::connected(2000 + seed, 2, CHUNKS, Faults::HEAVY);
        for worker in 0..2 {
            world.begin(worker, 0, values(i32::try_from(worker).unwrap()));
            world.workers[worker].send_direct(world.now, 0).unwrap();
        }
        world.run(|world| world.server.contributions > 10);
        world.server.restart(seed + 5);
        world.run(|world| (0..2).all(|worker| world.decision(worker, 0).is_some()));
        assert_eq!(world.server.model, expected(&[values(0), values(1)]), "seed {seed}");
        assert_eq!(world.server.version, 2);
    }
}

#[test]
fn a_granted_update_that_the_server_forgot_is_void() {
    let mut world = World::connected(9, 1, CHUNKS, Faults::default());
    world.begin(0, 0, values(1));
    let group = GroupId::new(1, 1);
    world.grant(group, &[(0, 0)], true, grant(group, true, 1, false, 0));
    // Long enough for the questions to be a second apart.
    world.run_for(1_500_000_000, |_| false);
    world.server.restart(1234);
    world.run(|world| world.events.contains(&(0, Event::Reconnected)));
    let reconnected = world.now;
    world.run(|world| world.decision(0, 0).is_some());
    assert_eq!(world.decision(0, 0), Some(Decision::Void));
    assert!(world.now.since(reconnected).0 < 10_000_000, "it is asked at once");
}

#[test]
fn a_server_that_answers_may_take_its_time() {
    let mut world = World::connected(18, 1, CHUNKS, Faults::default());
    world.server.credit_window = 0;
    world.begin(0, 0, values(1));
    world.workers[0].send_direct(world.now, 0).unwrap();
    world.run_for(40_000_000_000, |_| false);
    world.server.credit_window = 8;
    world.run(|world| world.decision(0, 0).is_some());
    assert_eq!(world.decision(0, 0), Some(Decision::Committed(Version(1))));
}

#[test]
fn a_credit_that_overtakes_its_grant_is_kept_for_it() {
    let mut world = World::connected(10, 1, CHUNKS, Faults::default());
    world.begin(0, 0, values(1));
    let group = GroupId::new(1, 1);
    world.server.install(group, weft_wire::Members(1), false, Nanos(0));
    world.run(|world| world.workers[0].stats().credits_early == 8);
    assert_eq!(world.server.contributions, 0);
    let granted = grant(group, false, 1, true, 0);
    world.workers[0].handle_grant(world.now, 0, &granted).unwrap();
    let after = world.now;
    world.run(|world| world.server.contributions >= 8);
    assert!(world.now.since(after).0 < 1_000_000, "before the server repeats its credits");
    world.run(|world| world.decision(0, 0).is_some());
    assert_eq!(world.server.model, expected(&[values(1)]));
}

#[test]
fn a_group_that_will_not_be_granted_is_declined() {
    let mut world = World::connected(17, 1, CHUNKS, Faults::default());
    let group = GroupId::new(1, 1);
    world.server.install(group, weft_wire::Members(1), false, Nanos(0));
    world.run(|world| world.server.declined == vec![group]);
    assert_eq!(world.server.contributions, 0);
}

#[test]
fn a_silent_server_is_an_error_in_bounded_time() {
    let mut world = World::connected(11, 1, CHUNKS, Faults::default());
    world.begin(0, 0, values(1));
    world.workers[0].send_direct(world.now, 0).unwrap();
    world.server.is_silent = true;
    let begun = world.now;
    world.run(|world| !matches!(world.events.last(), Some((_, Event::Connected))));
    let Some((0, Event::Failed(fault @ PushFault::ServerSilent { server }))) = world.events.last()
    else {
        panic!("{:?}", world.events.last())
    };
    let text = alloc::format!("{fault}");
    assert!(text.contains(&alloc::format!("{server}")), "the error names it: {text}");
    let took_ns = world.now.since(begun).0;
    assert!((30_000_000_000..31_000_000_000).contains(&took_ns), "{took_ns} ns");
}

#[test]
fn a_server_that_never_answers_is_an_error_in_bounded_time() {
    let mut world = World::new(12, 1, CHUNKS, Faults { loss: 1024, ..Faults::default() });
    world.run(|world| !world.events.is_empty());
    assert!(matches!(world.events[0].1, Event::Failed(PushFault::Channel(_))));
    assert!(world.now.0 < 6_000_000_000);
}

/// A worker whose update is in version 1 asks a server that offers version 0; and since when.
fn pulling_an_old_copy() -> (World, Nanos) {
    let mut world = World::connected(20, 1, CHUNKS, Faults::default());
    world.begin(0, 0, values(1));
    world.workers[0].send_direct(world.now, 0).unwrap();
    world.run(|world| world.decision(0, 0).is_some());
    world.server.version = 0;
    let begun = world.now;
    world.workers[0].begin_pull(begun, 320, None, None).unwrap();
    (world, begun)
}

#[test]
fn an_older_model_than_our_last_update_will_do_only_after_a_while() {
    // The server is busy, and offers an old copy for some time.
    let (mut world, begun) = pulling_an_old_copy();
    world.run_for(50_000_000, |_| false);
    assert_eq!(world.workers[0].stats().pull_requests, 0);
    world.server.version = 1;
    world.run(|world| world.events.contains(&(0, Event::Pulled { version: Version(1) })));
    assert!(world.now.since(begun).0 < 70_000_000);

    let (mut world, begun) = pulling_an_old_copy();
    world.run(|world| world.events.contains(&(0, Event::Pulled { version: Version(0) })));
    assert!((100_000_000..130_000_000).contains(&world.now.since(begun).0));
}

#[test]
fn chunks_that_do_not_fit_are_refused_at_the_start() {
    let mut world = World::new(19, 1, CHUNKS, Faults::default());
    let mut small = world::config(0);
    small.probe_len = 120;
    world.workers[0] = Pusher::new(small, 3, Nanos(0)).unwrap();
    world.run(|world| world.events.contains(&(0, Event::Connected)));
    let mut world = World::new(19, 1, CHUNKS, Faults::default());
    world.server.claim_elements(23);
    world.workers[0] = Pusher::new(small, 3, Nanos(0)).unwrap();
    world.run(|world| !world.events.is_empty());
    let fault = PushFault::BadModel(ModelFault::Elements);
    assert_eq!(world.events[0], (0, Event::Failed(fault)));
}

#[test]
fn a_version_that_is_gone_makes_the_pull_begin_anew() {
    let mut world = World::connected(13, 1, CHUNKS, Faults::default());
    let now = world.now;
    world.workers[0].begin_pull(now, 320, None, None).unwrap();
    world.run(|world| world.workers[0].stats().pull_requests > 0);
    // The requests are on their way; when they arrive their version is four versions old.
    for _ in 0..4 {
        let group = GroupId::new(9, 0);
        let version = u16::try_from(world.server.version).unwrap();
        world.begin(0, u64::from(version), values(1));
        let group = GroupId::new(group.row(), version);
        world.server.install(group, weft_wire::Members(1), false, Nanos(0));
        world.server.is_silent = true;
        world.server.commit_at_once(group, &values(1));
        world.server.is_silent = false;
        world.workers[0].finish(u64::from(version));
    }
    world.run(|world| matches!(world.events.last(), Some((0, Event::Pulled { .. }))));
    assert_eq!(world.events.last(), Some(&(0, Event::Pulled { version: Version(4) })));
    assert_eq!(world.workers[0].stats().pulls_restarted, 1);
    assert_eq!(world.workers[0].model(), floats(&world.server.model));
}

#[test]
fn a_marked_path_halves_the_window_once_a_round_trip() {
    let mut world = World::connected(14, 1, 2_000, Faults::default());
    world.fake_box.is_marking = true;
    world.begin(0, 0, (0..16_000).collect());
    let group = GroupId::new(0, 0);
    let begun = world.now;
    world.grant(group, &[(0, 0)], true, grant(group, true, 1, true, 0));
    world.run(|world| world.decision(0, 0).is_some());
    let stats = world.workers[0].stats();
    assert_eq!(stats.congestion_marks, 2_000);
    let round_trips = world.now.since(begun).0 / (2 * world::LATENCY_NS) + 1;
    assert!(stats.window_reductions <= round_trips, "{} > {round_trips}", stats.window_reductions);
    assert!(stats.window_reductions >= 5);
}

#[test]
fn commands_that_do_not_fit_are_refused() {
    let mut world = World::connected(15, 1, CHUNKS, Faults::default());
    let new = |number, len: usize| NewUpdate {
        number,
        version: Version(0),
        values: Values::Integers(vec![1; len]),
    };
    let now = world.now;
    let worker = &mut world.workers[0];
    assert_eq!(worker.begin_update(new(0, 321)).map_err(|e| e.0), Err(PushRefusal::Values));
    worker.begin_update(new(0, 320)).unwrap();
    assert_eq!(worker.begin_update(new(0, 1)).map_err(|e| e.0), Err(PushRefusal::Number));
    worker.begin_update(new(1, 1)).unwrap();
    assert_eq!(worker.begin_update(new(2, 1)).map_err(|e| e.0), Err(PushRefusal::Full));
    let group = GroupId::new(1, 1);
    let mut granted = grant(group, true, 1, true, 0);
    granted.via = Some(weft_control::BoxIndex(9));
    assert_eq!(worker.handle_grant(now, 0, &granted), Err(PushRefusal::UnknownBox));
    granted.via = None;
    assert_eq!(worker.handle_grant(now, 7, &granted), Err(PushRefusal::Number));
    worker.handle_grant(now, 0, &granted).unwrap();
    assert_eq!(worker.handle_grant(now, 0, &granted), Err(PushRefusal::State));
    assert_eq!(worker.finish(0), None, "what is granted is the server's to decide");
    assert_eq!(worker.begin_pull(now, 321, None, None), Err(PushRefusal::Values));
    worker.handle_outcome(0, Decision::Dropped).unwrap();
    assert_eq!(worker.handle_outcome(0, Decision::Void), Err(PushRefusal::State));
    assert!(worker.finish(0).is_some());
}

#[test]
fn closing_says_so_to_every_host() {
    let mut world = World::connected(16, 1, CHUNKS, Faults::default());
    world.run_for(100_000_000, |_| false);
    let now = world.now;
    world.workers[0].close(now);
    world.run(|world| world.events.contains(&(0, Event::Closed)));
    assert!(world.now.since(now).0 < 10_000_000);
    let peer = crate::role::channel::Peer::Worker(weft_wire::Rank::new(0).unwrap());
    assert!(!world.server.channels.is_open(peer));
    assert!(!world.fake_box.channels.is_open(peer));
}

#[test]
fn the_same_seed_gives_the_same_frames() {
    let run = |seed| {
        let mut world = World::connected(seed, 2, CHUNKS, Faults::HEAVY);
        world.begin(0, 0, values(1));
        world.workers[0].send_direct(world.now, 0).unwrap();
        world.run(|world| world.decision(0, 0).is_some());
        (world.now, world.frames, world.events)
    };
    assert_eq!(run(21), run(21));
    assert_ne!(run(21).0, run(22).0);
}
