//! Rounds of allreduce: sums, repeats, kinds of rows.

use proptest::prelude::*;
use weft_wire::header::Kind;
use weft_wire::hello::Integrity;

use super::*;

#[test]
fn three_workers_sum_rounds_over_two_lanes() {
    let mut sim = Sim::new(3, 8, 2);
    sim.connect();
    for chunks in [1, 100, 37] {
        sim.begin_all(chunks);
        sim.finish_round(SECOND);
    }
    assert_eq!(sim.total(|s| s.retransmissions), 0);
    assert_eq!(sim.total(|s| s.chunks_sent), 3 * 138);
    assert_eq!(sim.total(|s| s.answers), 3 * 138);
    sim.close_all();
    let all = sim.run(SECOND, |sim| {
        sim.events.iter().all(|events| events.contains(&Event::Closed { by_all: true }))
    });
    assert!(all, "{:?}", sim.events);
    assert!(sim.workers.iter().all(|worker| worker.poll_timeout() == Nanos::MAX));
}

#[test]
fn a_window_of_one_and_a_group_of_one_work() {
    let mut sim = Sim::new(1, 1, 1);
    sim.connect();
    sim.begin_all(5);
    sim.finish_round(SECOND);
}

#[test]
fn an_empty_round_is_complete_at_once() {
    let mut sim = Sim::new(1, 4, 1);
    sim.connect();
    sim.begin_all(0);
    sim.finish_round(SECOND);
}

#[test]
fn a_round_waits_for_the_last_one_and_for_the_lease() {
    let mut sim = Sim::new(2, 4, 1);
    assert_eq!(sim.workers[0].begin_round(sim.now, 1), Err(RoundError::NotOpen));
    sim.fake.step_count = 10;
    sim.connect();
    sim.begin_all(4);
    assert_eq!(sim.workers[0].begin_round(sim.now, 1), Err(RoundError::InProgress));
    sim.finish_round(SECOND);
    assert_eq!(sim.workers[0].begin_round(sim.now, 7), Err(RoundError::StepsExhausted));
    sim.begin_all(6);
    sim.finish_round(SECOND);
    assert_eq!(sim.workers[0].begin_round(sim.now, 1), Err(RoundError::StepsExhausted));
}

#[test]
fn loss_of_the_whole_first_window_is_repaired() {
    let mut sim = Sim::new(2, 8, 1);
    sim.connect();
    let mut left = 16;
    sim.hook = Box::new(move |p| {
        if p.up && p.header.kind == Kind::Contrib && left > 0 {
            left -= 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    sim.begin_all(40);
    sim.finish_round(SECOND);
    assert_eq!(sim.total(|s| s.retransmissions), 16);
    assert!(sim.total(|s| s.window_reductions) >= 2);
}

#[test]
fn lost_answers_are_fetched_from_the_box() {
    let mut sim = Sim::new(2, 4, 1);
    sim.connect();
    let mut seen = alloc::collections::BTreeSet::new();
    sim.hook = Box::new(move |p| {
        let answer = !p.up && p.header.kind == Kind::Answer;
        let lost = answer && (p.header.chunk.0 as usize + p.rank).is_multiple_of(2);
        if lost && seen.insert(p.header.chunk.0) { Fate::Drop } else { Fate::Pass }
    });
    sim.begin_all(60);
    sim.finish_round(SECOND);
    assert!((60..120).contains(&sim.total(|s| s.retransmissions)));
}

#[test]
fn a_late_worker_costs_the_others_one_repeat_a_lane() {
    let (window, late) = (16u16, Nanos::from_millis(500));
    let mut sim = Sim::new(3, window, 2);
    sim.connect();
    sim.begin_all(256);
    sim.asleep_until[2] = sim.now.saturating_add(late);
    sim.finish_round(SECOND);
    for rank in 0..2 {
        let stats = sim.workers[rank].stats();
        assert_eq!(stats.retransmissions, 2, "{stats:?}");
        assert!(stats.have > 0, "{stats:?}");
        // With back-off from 20 ms to 1 s, some five probes of the lowest step of each lane.
        assert!((1..=7 * 2).contains(&stats.status_probes), "{stats:?}");
    }
    assert_eq!(sim.workers[0].lanes[0].path.window(), u32::from(window), "no loss, no reduction");
}

/// A box that waits for its core is late with all that it has; nothing of that is lost.
#[test]
fn a_box_that_stands_still_costs_a_repeat_a_timeout() {
    let mut sim = Sim::new(2, 64, 1);
    sim.connect();
    sim.begin_all(200);
    sim.finish_round(SECOND);
    assert_eq!(sim.total(|s| s.retransmissions), 0);
    let until = sim.now.saturating_add(Nanos::from_millis(40));
    sim.hook = Box::new(move |p| match p.header.kind {
        Kind::Answer if p.now < until => Fate::Delay(until.since(p.now)),
        _ => Fate::Pass,
    });
    sim.begin_all(1_000);
    sim.finish_round(SECOND);
    // After 1, 2, 4, 8, 16 ms, by each of both.
    let repeats = sim.total(|s| s.retransmissions);
    assert!((2..=2 * 6).contains(&repeats), "{repeats}");
    assert_eq!(sim.total(|s| s.window_reductions), 0);
    assert_eq!(sim.workers[0].lanes[0].path.window(), 64);
}

#[test]
fn what_is_lost_goes_again_within_a_round_trip_and_within_the_window() {
    let mut sim = Sim::new(2, 64, 1);
    sim.connect();
    let mut lost = alloc::collections::BTreeSet::new();
    sim.hook = Box::new(move |p| {
        let is_in = p.up && p.rank == 0 && p.header.kind == Kind::Contrib;
        let chunk = p.header.chunk.0;
        if is_in && (300..340).contains(&chunk) && lost.insert(chunk) {
            return Fate::Drop;
        }
        Fate::Pass
    });
    sim.begin_all(300);
    sim.finish_round(SECOND);
    let begun = sim.now;
    sim.begin_all(300);
    while sim.workers[0].lanes[0].path.window() == 64 {
        sim.run(Nanos(DELAY.0 / 4), |_| false);
    }
    let steps = sim.workers[0].lanes[0].steps.as_ref().unwrap();
    let in_flight = steps.in_flight();
    assert!(in_flight <= 32, "{in_flight} in a window that was halved");
    sim.finish_round(SECOND);
    // Five windows, one round trip for what was lost, and one because half a window is left.
    let took = sim.now.since(begun);
    assert!(took <= Nanos(2 * 10 * DELAY.0), "{took:?}");
}

#[test]
fn have_without_us_brings_the_contribution_again() {
    let mut sim = Sim::new(2, 2, 1);
    sim.connect();
    sim.begin_all(2);
    sim.asleep_until[1] = sim.now.saturating_add(Nanos::from_millis(300));
    // Wait until rank 0 probes, then make the box forget that it had rank 0's contribution.
    let probing = sim.run(SECOND, |sim| sim.workers[0].stats().status_probes > 0);
    assert!(probing);
    let lease = sim.fake.lanes[0].open.as_mut().unwrap();
    lease.banks.clear();
    sim.finish_round(SECOND);
    assert!(sim.workers[0].stats().have_without_us > 0);
}

#[test]
fn have_feeds_the_round_trip_only_for_a_first_transmission() {
    let mut sim = Sim::new(2, 2, 1);
    sim.connect();
    sim.begin_all(2);
    sim.asleep_until[1] = sim.now.saturating_add(Nanos::from_millis(400));
    // Every HAVE is answered to a repeat, every answer too: Karn leaves nothing to learn from.
    sim.finish_round(SECOND);
    assert!(sim.workers[0].stats().have > 0);
    assert_eq!(sim.workers[0].lanes[0].path.rtt().smoothed(), None);
    // A duplicate on the way makes the box say HAVE to a step that was sent once.
    sim.hook = Box::new(|p| match p.header.kind {
        Kind::Contrib if p.rank == 0 => Fate::Duplicate,
        _ => Fate::Pass,
    });
    sim.begin_all(2);
    sim.asleep_until[1] = sim.now.saturating_add(Nanos::from_millis(10));
    sim.finish_round(SECOND);
    assert!(sim.workers[0].stats().smoothed_rtt.0 < Nanos::from_millis(1).0);
    assert!(sim.workers[0].stats().smoothed_rtt.0 > 0);
}

#[test]
fn repeats_end_where_a_round_trip_grows_without_loss() {
    let mut sim = Sim::new(2, 16, 1);
    sim.connect();
    sim.begin_all(256);
    sim.finish_round(SECOND);
    assert_eq!(sim.total(|s| s.retransmissions), 0);
    sim.hook = Box::new(|p| match p.header.kind {
        Kind::Answer => Fate::Delay(Nanos::from_millis(6)),
        _ => Fate::Pass,
    });
    sim.begin_all(400);
    sim.finish_round(Nanos::from_millis(60_000));
    // What was under way when the round trip grew, twice or three times; then nothing.
    let repeats = sim.total(|s| s.retransmissions);
    assert!((1..=2 * 3 * 16).contains(&repeats), "{repeats} of 800");
    for _ in 0..3 {
        sim.begin_all(400);
        sim.finish_round(Nanos::from_millis(60_000));
    }
    assert_eq!(sim.total(|s| s.retransmissions), repeats);
    assert_eq!(sim.workers[0].lanes[0].path.window(), 16, "and the window has recovered");
}

#[test]
fn checksum16_and_none_work_too() {
    for integrity in [Integrity::Checksum16, Integrity::None] {
        let mut sim = Sim::new(2, 4, 1);
        sim.fake.integrity = integrity;
        sim.connect();
        sim.begin_all(20);
        sim.finish_round(SECOND);
        assert_eq!(sim.total(|s| s.refused.iter().sum()), 0);
    }
}

#[test]
fn chunks_carry_their_own_exponent_or_the_jobs() {
    let mut sim = Sim::new(2, 4, 1);
    sim.fake.exponent = None;
    sim.connect();
    assert_eq!(sim.workers[0].lease().unwrap().exponent, None);
    sim.hook = faults(9, 100, 50, 50, 50);
    sim.begin_all(100);
    sim.data.iter_mut().for_each(|data| data.own_exponents = true);
    sim.finish_round(SECOND);

    let mut sim = Sim::new(2, 4, 1);
    sim.fake.exponent = Some(-20);
    sim.connect();
    assert_eq!(sim.workers[0].lease().unwrap().exponent, Some(-20));
    sim.begin_all(10);
    sim.finish_round(SECOND);
}

#[test]
fn a_clamped_contribution_marks_the_sum_for_all() {
    let mut sim = Sim::new(2, 4, 1);
    sim.connect();
    sim.begin_all(3);
    sim.data[1].clamped = true;
    sim.finish_round(SECOND);
    assert!(sim.data.iter().all(|data| data.flags == Flags::CLAMPED));
    sim.begin_all(3);
    sim.finish_round(SECOND);
    assert!(sim.data.iter().all(|data| data.flags == Flags::NONE));
}

#[test]
fn ipv6_works_with_its_udp_checksum() {
    let mut sim = Sim::with_addresses(2, 4, 2, |mut endpoint| {
        let core::net::IpAddr::V4(v4) = endpoint.addr.ip() else { unreachable!() };
        endpoint.addr.set_ip(v4.to_ipv6_mapped().into());
        endpoint
    });
    sim.hook = faults(3, 50, 50, 50, 50);
    sim.connect();
    sim.begin_all(40);
    sim.finish_round(SECOND);
    let mut frame = vec![0; 4096];
    sim.begin_all(1);
    let len = sim.workers[0].poll_transmit(sim.now, &sim.data[0], &mut frame).unwrap();
    assert!(Udp::parse(&frame[..len]).unwrap().checksum_ok(&frame[..len]));
}

#[test]
fn members_with_full_windows_of_different_steps_do_not_wait_for_each_other() {
    let mut sim = Sim::new(2, 4, 1);
    for rank in 0..2 {
        let mut narrow = config(rank);
        narrow.cwnd_initial = 1;
        sim.replace(rank, narrow, 60 + rank as u64);
    }
    sim.connect();
    // Rank 0 lacks the sum of step 0 for long, and so cannot send step 4; rank 1 goes on to it.
    sim.hook = Box::new(|p| {
        let lost = !p.up && p.rank == 0 && p.header.chunk.0 == 0;
        if lost && p.now < Nanos::from_millis(200) { Fate::Drop } else { Fate::Pass }
    });
    sim.begin_all(40);
    sim.finish_round(SECOND);
}

#[test]
fn nobody_runs_more_than_four_windows_ahead() {
    let mut sim = Sim::new(2, 4, 1);
    sim.connect();
    // Step 0 never gets through for a while; the other slots run on.
    sim.hook = Box::new(|p| {
        let stuck = p.header.chunk.0 == 0 && p.header.kind != Kind::Hello;
        if stuck && p.now < Nanos::from_millis(400) { Fate::Drop } else { Fate::Pass }
    });
    sim.begin_all(100);
    let _ = sim.run(Nanos::from_millis(300), |_| false);
    let steps = sim.workers[0].lanes[0].steps.as_ref().unwrap();
    assert_eq!(steps.held_range(), (0, 16));
    sim.finish_round(Nanos::from_millis(2_000));
}

/// The caller's vector is the caller's again, and others may still lack the last window.
#[test]
fn sums_in_their_places_are_copied_when_the_round_ends() {
    let mut sim = Sim::new(2, 8, 2);
    sim.connect();
    sim.begin_all(24);
    sim.finish_round(SECOND);
    for lane in sim.workers.iter().flat_map(|worker| &worker.lanes) {
        let steps = lane.steps.as_ref().expect("it is open");
        let kept: Vec<_> = (4..12).filter_map(|step| steps.held(step)).collect();
        assert_eq!(kept.len(), 8);
        assert!(kept.iter().all(|held| held.sum.is_some()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn sums_are_exact_whatever_the_network_does(
        seed in any::<u64>(),
        members in 1usize..5,
        window_log in 0u32..5,
        shards in 1u16..4,
        drop in 0u64..200,
        duplicate in 0u64..200,
        delay in 0u64..200,
        corrupt in 0u64..100,
    ) {
        let mut sim = Sim::new(members, 1 << window_log, shards);
        sim.hook = faults(seed, drop, duplicate, delay, corrupt);
        sim.connect();
        sim.be_patient();
        for chunks in [30, 7] {
            sim.begin_all(chunks);
            sim.finish_round(Nanos::from_millis(60_000));
        }
        prop_assert_eq!(sim.total(|s| s.answers), 37 * members as u64);
    }
}

/// A case of the property that takes longer than its minute, as in `resync.rs`. It ends.
#[test]
fn one_slot_under_heavy_loss_is_slow_and_ends() {
    let mut sim = Sim::new(4, 1, 1);
    sim.hook = faults(3_692_737_183_106_206_860, 190, 7, 17, 81);
    sim.connect();
    sim.be_patient();
    for chunks in [30, 7] {
        sim.begin_all(chunks);
        sim.finish_round(Nanos::from_millis(600_000));
    }
    assert_eq!(sim.total(|s| s.answers), 37 * 4);
}
