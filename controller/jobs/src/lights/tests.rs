use std::vec::Vec;

use super::*;

/// Two hosts; jobs on the first have one worker each, on the second.
fn two_hosts(jobs: u32, rounds: u32) -> Setting {
    Setting {
        servers_per_host: vec![jobs],
        hosts: 2,
        cores: 1,
        link_bytes_per_sec: 1e9,
        model_bytes: 1e6,
        rounds,
        shares: Shares::Equal,
        ..Setting::published(&PLACEMENTS[0], 1)
    }
}

const MS_NS: u64 = 1_000_000;

#[test]
fn a_round_is_sent_computed_and_answered() {
    // Alone: 1 ms + 5 ms + 1 ms, ten times.
    let alone = two_hosts(1, 10).run(BandPolicy::Fifo, 5 * MS_NS);
    assert_eq!(alone.jct_ns, [70 * MS_NS]);
    assert_eq!((alone.wait_mean_ns, alone.wait_variance_ns2), (0.0, 0.0));
    // Two share the link, the core, and the link: 2 + 10 + 2 ms.
    let both = two_hosts(2, 10).run(BandPolicy::Fifo, 5 * MS_NS);
    assert_eq!(both.jct_ns, [140 * MS_NS; 2]);
    // The first goes ahead: 1 + 5 + 1 ms, while the second computes from 6 ms to 11 ms; then one
    // of them always computes.
    let one = two_hosts(2, 10).run(BandPolicy::One, 5 * MS_NS);
    assert!(one.jct_ns[0] < both.jct_ns[0] && one.jct_ns[1] < both.jct_ns[1], "{one:?}");
}

#[test]
fn the_first_band_runs_as_if_it_were_alone() {
    let cores = Setting { cores: 64, ..two_hosts(5, 20) };
    let alone = Setting { servers_per_host: vec![1], ..cores.clone() };
    // Links only: nothing is computed, so what comes back never contends with the first.
    let [first, alone] = [&cores, &alone].map(|s| s.run(BandPolicy::One, 0).jct_ns[0]);
    assert!(first <= alone + 20 * MS_NS, "{first} ns, and alone {alone}");
    let fifo = cores.run(BandPolicy::Fifo, 0).jct_ns[0];
    assert!(fifo > 2 * first, "{fifo} ns without bands, {first} with");
}

#[test]
fn a_link_conserves_work_whatever_the_bands() {
    let mut numbers = Numbers::new(7);
    let mut link = Station::new(2.0, f64::INFINITY);
    let mut left = 0;
    for job in 0..40 {
        let band = u8::try_from(numbers.within(0, 7)).expect("a band");
        link.enter(100, Task { job, host: 0 }, band, 50.0, -ln(numbers.unit()));
        left += 1;
    }
    let mut now_ns = 100;
    let mut first = Vec::new();
    while let Some(next_ns) = link.next_ns() {
        now_ns = next_ns;
        first.push(link.leave(now_ns).expect("a task").job);
        left -= 1;
        link.reband(now_ns, |job| u8::try_from(job % 7).expect("a band"));
    }
    assert_eq!(left, 0);
    // 40 tasks of 50 at 2 a nanosecond; each end is rounded up.
    assert!((1_100..=1_140).contains(&now_ns), "{now_ns}");
    assert!(first[1..6].iter().all(|job| job % 7 == 0), "{first:?}: not the first band first");
}

#[test]
fn rotation_makes_jobs_alike() {
    let setting = Setting { rotate_ns: 3 * MS_NS, ..two_hosts(7, 60) };
    let spread = |policy| {
        let jct_ns = setting.run(policy, 0).jct_ns;
        let [least, most] = [jct_ns.iter().min(), jct_ns.iter().max()].map(|ns| *ns.expect("jobs"));
        most as f64 / least as f64
    };
    let [one, rotated] = [BandPolicy::One, BandPolicy::RoundRobin].map(spread);
    assert!(one > 2.0, "fixed bands: the last takes {one} times as long");
    assert!(rotated < 1.2, "rotating bands: {rotated}");
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let at = |seed| {
        let setting = Setting { rounds: 5, ..Setting::published(&PLACEMENTS[1], seed) };
        setting.run(BandPolicy::RoundRobin, 200 * MS_NS)
    };
    assert_eq!(at(1), at(1));
    assert_ne!(at(1), at(2));
}

#[test]
fn seven_placements_are_predicted_from_the_eighth() {
    let rounds = 100;
    let scale = 1_500.0 / f64::from(rounds);
    let setting = |placement| Setting { rounds, ..Setting::published(placement, 1) };
    let step_ns = setting(&PLACEMENTS[7]).fit(PLACEMENTS[7].fifo_jct_s * 1e9 / scale);
    for placement in &PLACEMENTS {
        let jct_s = |policy| setting(placement).run(policy, step_ns).mean_jct_s() * scale;
        let fifo_s = jct_s(BandPolicy::Fifo);
        let error = fifo_s / placement.fifo_jct_s - 1.0;
        let number = placement.number;
        assert!(error.abs() < 0.10, "{number}: FIFO {fifo_s} s, {error} from the slides");
        let published =
            [(BandPolicy::One, placement.one), (BandPolicy::RoundRobin, placement.round_robin)];
        for (policy, ratio) in published {
            let Some(ratio) = ratio else { continue };
            let ours = jct_s(policy) / fifo_s;
            // Placement 1 is where the mechanism misses: see docs/cluster.md.
            let most = if number == 1 { 0.30 } else { 0.10 };
            assert!((ours - ratio).abs() < most, "{number} {policy:?}: {ours}, not {ratio}");
            assert!(number > 1 || ours < 0.8, "{number} {policy:?}: {ours} is no gain");
        }
    }
}
