//! How much goes at once: windows, batches, marks, pace.

use weft_wire::header::{HEADER_LEN, Kind};

use super::*;

/// Answers come in bursts where ports merge frames: what they find in flight is no measure.
#[test]
fn a_window_grows_by_one_for_a_window_of_answers_that_come_at_once() {
    let mut sim = Sim::new(2, 256, 1);
    sim.connect();
    assert_eq!(sim.workers[0].lanes[0].path.window(), 64);
    sim.begin_all(64 + 65 + 66 + 67 + 68);
    sim.finish_round(SECOND);
    let window = sim.workers[0].lanes[0].path.window();
    assert!((68..=69).contains(&window), "{window}");
    // Of a window that is not used nothing is known.
    for _ in 0..20 {
        sim.begin_all(32);
        sim.finish_round(SECOND);
    }
    assert_eq!(sim.workers[0].lanes[0].path.window(), window);
}

/// Answers that come one by one let a port that merges frames send as many at once.
#[test]
fn steps_go_in_batches_where_a_port_merges_frames() {
    // The vector ends with a batch that is not full, and in a window that is.
    for (batch, chunks, bursts) in [(1, 300, 200..301), (8, 300, 20..50), (8, 3, 1..2)] {
        let mut sim = Sim::new(2, 64, 1);
        for rank in 0..2 {
            // The chunks of the box have four elements.
            let batch_bytes = batch * (42 + HEADER_LEN + 4 * 4);
            sim.replace(rank, WorkerConfig { batch_bytes, ..config(rank) }, 70 + rank as u64);
        }
        sim.connect();
        let times = alloc::rc::Rc::new(core::cell::RefCell::new(Vec::new()));
        let seen = alloc::rc::Rc::clone(&times);
        let mut down_at = [Nanos(0); 2];
        sim.hook = Box::new(move |p| {
            if p.up && p.rank == 0 && p.header.kind == Kind::Contrib {
                seen.borrow_mut().push(p.now);
            }
            if p.up {
                return Fate::Pass;
            }
            let free_at = &mut down_at[p.rank];
            *free_at = (*free_at).max(p.now).saturating_add(Nanos(2_000));
            Fate::Delay(free_at.since(p.now))
        });
        sim.begin_all(chunks);
        sim.finish_round(SECOND);
        let mut times = times.borrow_mut();
        assert_eq!(times.len(), chunks, "each once");
        times.dedup();
        assert!(bursts.contains(&times.len()), "{} with batches of {batch}", times.len());
    }
}

#[test]
fn a_mark_counts_on_a_new_answer_only() {
    let mut sim = Sim::new(2, 16, 1);
    sim.connect();
    sim.fake.mark = Flags::CONGESTION;
    sim.hook = Box::new(|p| match p.header.kind {
        Kind::Answer => Fate::Duplicate,
        _ => Fate::Pass,
    });
    sim.begin_all(64);
    sim.finish_round(SECOND);
    let _ = sim.run(Nanos::from_millis(5), |_| false);
    let stats = sim.workers[0].stats();
    assert_eq!((stats.answers, stats.duplicate_answers), (64, 64));
    assert_eq!(stats.congestion_marks, 64);
}

#[test]
fn congestion_marks_halve_the_window_once_a_round_trip() {
    let mut sim = Sim::new(2, 64, 1);
    sim.connect();
    sim.begin_all(64);
    sim.finish_round(SECOND);
    assert_eq!(sim.workers[0].lanes[0].path.window(), 64);
    sim.fake.mark = Flags::CONGESTION;
    sim.begin_all(64);
    sim.finish_round(SECOND);
    let stats = sim.workers[0].stats();
    assert_eq!(stats.congestion_marks, 64);
    assert_eq!(stats.window_reductions, 1);
    assert_eq!(sim.workers[0].lanes[0].path.window(), 32);
}

#[test]
fn an_ecn_mark_on_the_answer_counts_as_congestion() {
    let mut sim = Sim::new(1, 8, 1);
    sim.connect();
    sim.begin_all(1);
    let mut frame = vec![0; 4096];
    let len = sim.workers[0].poll_transmit(sim.now, &sim.data[0], &mut frame).unwrap();
    let (_, mut answer) = sim.fake.handle(&mut frame[..len]).remove(0);
    // ECT(0) to CE: the first word of the IPv4 header grows by one, its checksum shrinks by one.
    answer[15] |= 0b11;
    let checksum = u16::from_be_bytes([answer[24], answer[25]]) - 1;
    answer[24..26].copy_from_slice(&checksum.to_be_bytes());
    sim.workers[0].handle_frame(sim.now, &mut answer, &mut sim.data[0]).unwrap();
    assert_eq!(sim.workers[0].stats().congestion_marks, 1);
    assert_eq!(sim.workers[0].lanes[0].path.window(), 4);
}

#[test]
fn the_pacer_bounds_the_rate() {
    let mut sim = Sim::new(1, 64, 1);
    let mut paced = config(0);
    let frame_len = 42 + 32 + 16;
    paced.rate_bytes_per_sec = Some(100 * frame_len);
    paced.burst_bytes = 10 * frame_len;
    sim.replace(0, paced, 5);
    sim.connect();
    let start = sim.now;
    sim.begin_all(60);
    sim.finish_round(SECOND);
    // 60 frames, 10 of them as a burst, at 100 a second.
    assert!(sim.now.since(start) >= Nanos::from_millis(500), "{:?}", sim.now.since(start));
    assert!(sim.now.since(start) <= Nanos::from_millis(502), "{:?}", sim.now.since(start));
}
