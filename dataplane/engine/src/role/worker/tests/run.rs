//! Contributions in runs against the same one by one.

use proptest::prelude::*;

use super::*;

/// How a group fares.
#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    window: u16,
    chunks: usize,
    /// Frames that go together at a port which merges them; 1: it does not.
    batch: usize,
    losses_per_mille: u64,
    rate_bytes_per_sec: Option<u64>,
}

/// What came of two rounds.
#[derive(Debug, PartialEq)]
struct Outcome {
    sent: Vec<(Nanos, usize, Vec<u8>)>,
    stats: Vec<WorkerStats>,
}

/// Two rounds of two members with so many frames asked for at once; and how many came so.
fn run(case: &Case, run_max: usize, joins: bool) -> (Outcome, usize) {
    let mut sim = Sim::new(2, case.window, 1);
    (sim.run_max, sim.joins) = (run_max, joins);
    for rank in 0..2 {
        let batch_bytes = if case.batch > 1 { case.batch * (42 + HEADER_LEN + 4 * 4) } else { 0 };
        let rate_bytes_per_sec = case.rate_bytes_per_sec;
        let config = WorkerConfig { batch_bytes, rate_bytes_per_sec, ..config(rank) };
        sim.replace(rank, config, case.seed + rank as u64);
    }
    let mut random = SplitMix64::new(case.seed);
    let losses = case.losses_per_mille;
    sim.hook = Box::new(move |_| match random.next_u64() % 1_000 {
        lot if lot < losses => Fate::Drop,
        lot => Fate::Delay(Nanos(lot * 50)),
    });
    sim.connect();
    for _ in 0..2 {
        sim.begin_all(case.chunks);
        sim.finish_round(Nanos::from_millis(60_000));
    }
    let stats = sim.workers.iter().map(|worker| worker.stats().clone()).collect();
    (Outcome { sent: sim.sent, stats }, sim.in_runs)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn runs_are_what_would_have_gone_one_by_one(
        seed in 0u64..1 << 40,
        window in (2u32..8).prop_map(|bits| 1u16 << bits),
        chunks in 1usize..200,
        batch in 1usize..20,
        losses_per_mille in prop::sample::select(vec![0u64, 0, 10, 100]),
        rate_bytes_per_sec in prop::option::weighted(0.2, 1_000_000u64..20_000_000),
        run_max in 1usize..50,
    ) {
        let case = Case { seed, window, chunks, batch, losses_per_mille, rate_bytes_per_sec };
        let (one_by_one, _) = run(&case, 0, false);
        for joins in [false, true] {
            let (in_runs, _) = run(&case, run_max, joins);
            prop_assert_eq!(&one_by_one, &in_runs, "joined: {}", joins);
        }
    }
}

#[test]
fn a_window_is_a_run_and_what_is_paced_is_none() {
    let case = Case {
        seed: 1,
        window: 64,
        chunks: 64,
        batch: 1,
        losses_per_mille: 0,
        rate_bytes_per_sec: None,
    };
    for joins in [false, true] {
        let (Outcome { sent, .. }, in_runs) = run(&case, 63, joins);
        assert!(in_runs >= 4 * 63 && in_runs < sent.len(), "{in_runs} of {}", sent.len());
        let paced = Case { rate_bytes_per_sec: Some(10_000_000), ..case.clone() };
        assert_eq!(run(&paced, 63, joins).1, 0);
    }
}

/// Each lane's are together, so that they leave as one message.
#[test]
fn a_run_is_of_one_lane() {
    let mut sim = Sim::new(2, 16, 4);
    sim.run_max = 15;
    sim.connect();
    sim.sent.clear();
    sim.begin_all(64);
    sim.step();
    let lane = |frame: &[u8]| Udp::parse(frame).unwrap().source.port();
    let lanes: Vec<u16> = sim.sent.iter().map(|(_, _, frame)| lane(frame)).collect();
    assert_eq!(lanes.len(), 128);
    assert!(lanes.chunks(16).all(|run| run.iter().all(|lane| *lane == run[0])), "{lanes:?}");
    sim.finish_round(Nanos::from_millis(1_000));
}

/// What was said of a run holds for the frame before it alone.
#[test]
fn a_run_follows_a_frame_once() {
    let mut sim = Sim::new(2, 16, 1);
    sim.connect();
    sim.begin_all(16);
    let (worker, data) = (&mut sim.workers[0], &sim.data[0]);
    let mut frames = vec![vec![0; 4096]; 3];
    let mut buffers: Vec<&mut [u8]> = frames.iter_mut().map(Vec::as_mut_slice).collect();
    assert_eq!(worker.poll_run(sim.now, data, &mut buffers), (0, 0));
    assert_eq!(worker.run_len_max(), 0);
    let len = worker.poll_transmit(sim.now, data, buffers[0]).unwrap();
    assert_eq!(worker.run_len_max(), 15);
    assert_eq!(worker.poll_run(sim.now, data, &mut buffers), (3, len));
    assert_eq!(worker.run_len_max(), 0);
    assert_eq!(worker.poll_run(sim.now, data, &mut buffers), (0, 0));
    let mut frame = vec![0; 4096];
    assert_eq!(worker.poll_joined_run(sim.now, data, &mut frame, 9), 0);
    assert_eq!(worker.poll_transmit(sim.now, data, &mut frame), Some(len));
    // Room for two more: what has none is not written.
    let room = &mut frame[..3 * (len - 42) + 42];
    assert_eq!(worker.poll_joined_run(sim.now, data, room, 9), 2);
    assert_eq!(worker.poll_joined_run(sim.now, data, &mut frame, 9), 0);
}
