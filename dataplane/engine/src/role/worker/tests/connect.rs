//! The first handshake, and the last.

use weft_wire::header::Kind;
use weft_wire::hello::Reason;
use weft_wire::{JobId, Members};

use super::*;

fn failure(sim: &mut Sim, rank: usize) -> WorkerError {
    let found = |sim: &Sim| {
        sim.events[rank].iter().find_map(|event| match event {
            Event::Failed(error) => Some(*error),
            _ => None,
        })
    };
    assert!(sim.run(Nanos::from_millis(10_000), |sim| found(sim).is_some()), "{:?}", sim.events);
    found(sim).unwrap()
}

#[test]
fn the_mac_is_learnt_from_the_first_reply() {
    let mut sim = Sim::new(1, 4, 1);
    let mut macs = Vec::new();
    let mut frame = vec![0; 4096];
    let len = sim.workers[0].poll_transmit(sim.now, &sim.data[0], &mut frame).unwrap();
    macs.push(frame[..6].to_vec());
    sim.post(true, 0, frame[..len].to_vec());
    sim.connect();
    sim.begin_all(1);
    let len = sim.workers[0].poll_transmit(sim.now, &sim.data[0], &mut frame).unwrap();
    assert_eq!(macs, [vec![0xff; 6]]);
    assert_eq!(frame[..6], boxy().mac.0);
    sim.post(true, 0, frame[..len].to_vec());
    sim.finish_round(Nanos::from_millis(100));
}

#[test]
fn an_absent_box_is_an_error_after_the_connect_timeout() {
    let mut sim = Sim::new(2, 4, 1);
    let start = sim.now;
    sim.hook = Box::new(|_| Fate::Drop);
    assert_eq!(failure(&mut sim, 0), WorkerError::NoAnswer { lane: 0 });
    assert!(sim.now.since(start) <= Nanos::from_millis(2_001));
}

#[test]
fn a_lane_that_the_box_does_not_hear_is_named() {
    let mut sim = Sim::new(1, 4, 3);
    sim.hook = Box::new(|p| {
        let lane_2 = p.header.kind == Kind::Hello && p.header.chunk.0 == 2;
        if lane_2 { Fate::Drop } else { Fate::Pass }
    });
    assert_eq!(failure(&mut sim, 0), WorkerError::NoAnswer { lane: 2 });
}

#[test]
fn a_small_mtu_is_an_error_of_its_own_and_comes_early() {
    let mut sim = Sim::new(1, 4, 1);
    sim.fake.path_mtu = 511;
    let start = sim.now;
    assert_eq!(failure(&mut sim, 0), WorkerError::MtuTooSmall { probe_len: 512 });
    assert!(sim.now.since(start) < Nanos::from_millis(1_000));
}

/// Gives frame `n` of those that the worker sends in its handshake a fate: padded and short HELLOs
/// take turns, and the first is padded.
fn handshake_fate(mut fate: impl FnMut(usize) -> Fate + 'static) -> Hook {
    let mut sent = 0;
    Box::new(move |p| {
        let index = sent;
        sent += usize::from(p.up);
        if p.up { fate(index) } else { Fate::Pass }
    })
}

#[test]
fn losses_of_padded_probes_alone_are_no_small_mtu() {
    let mut sim = Sim::new(1, 4, 1);
    sim.hook = handshake_fate(|n| if n % 2 == 0 && n < 38 { Fate::Drop } else { Fate::Pass });
    sim.connect();
    // One more, and it is.
    let mut sim = Sim::new(1, 4, 1);
    sim.hook = handshake_fate(|n| if n % 2 == 0 && n < 40 { Fate::Drop } else { Fate::Pass });
    assert_eq!(failure(&mut sim, 0), WorkerError::MtuTooSmall { probe_len: 512 });
}

#[test]
fn few_answers_to_short_probes_are_no_small_mtu() {
    let mut sim = Sim::new(1, 4, 1);
    let mut patient = config(0);
    patient.connect_timeout_ns = Nanos::from_millis(10_000).0;
    sim.replace(0, patient, 5);
    // Nine short ones get through, among forty padded ones that do not.
    sim.hook = handshake_fate(|n| match n {
        0..80 if n % 2 == 0 || n % 8 != 1 => Fate::Drop,
        72..80 => Fate::Drop,
        _ => Fate::Pass,
    });
    assert!(sim.run(Nanos::from_millis(10_000), |sim| !sim.events[0].is_empty()));
    assert_eq!(sim.events[0], [Event::Opened]);
}

#[test]
fn a_late_answer_to_a_padded_probe_clears_the_doubt() {
    let mut sim = Sim::new(1, 4, 1);
    let late = Fate::Delay(Nanos::from_millis(700));
    sim.hook = handshake_fate(move |n| if n % 2 == 0 { late } else { Fate::Pass });
    sim.connect();
}

#[test]
fn a_connect_timeout_that_ends_among_the_probes_lets_them_end() {
    let mut hasty = config(0);
    hasty.connect_timeout_ns = Nanos::from_millis(200).0;
    let mut sim = Sim::new(1, 4, 1);
    sim.fake.path_mtu = 511;
    sim.replace(0, hasty, 5);
    assert_eq!(failure(&mut sim, 0), WorkerError::MtuTooSmall { probe_len: 512 });
    // Ten padded ones are lost.
    let mut sim = Sim::new(1, 4, 1);
    sim.replace(0, hasty, 5);
    sim.hook = handshake_fate(|n| if n % 2 == 0 && n < 20 { Fate::Drop } else { Fate::Pass });
    sim.connect();
    // The box dies among them.
    let mut sim = Sim::new(1, 4, 1);
    sim.replace(0, hasty, 5);
    sim.hook = handshake_fate(|n| if n % 2 == 0 || n > 12 { Fate::Drop } else { Fate::Pass });
    let start = sim.now;
    assert_eq!(failure(&mut sim, 0), WorkerError::NoAnswer { lane: 0 });
    assert!(sim.now.since(start) <= Nanos::from_millis(700));
}

/// Found by `sums_are_exact_whatever_the_network_does`: 19 % lost and 10 % damaged.
#[test]
fn a_path_that_loses_a_third_connects() {
    for (window, shards) in [(1, 1), (1, 2), (2, 3)] {
        let mut sim = Sim::new(3, window, shards);
        sim.hook = faults(14_600_285_913_479_408_947, 190, 50, 100, 99);
        sim.connect();
    }
}

#[test]
fn an_mtu_that_just_fits_connects() {
    let mut sim = Sim::new(1, 4, 1);
    sim.fake.path_mtu = 512;
    sim.connect();
}

#[test]
fn a_member_that_never_joins_is_named() {
    let mut sim = Sim::new(3, 4, 1);
    sim.asleep_until[2] = Nanos::MAX;
    let error = failure(&mut sim, 0);
    assert_eq!(error, WorkerError::MembersMissing { missing: Members(0b100) });
    let polls = sim.workers[0].stats().hellos_sent;
    // Three seconds at 80 ms between polls.
    assert!((30..50).contains(&polls), "{polls}");
}

#[test]
fn a_box_that_dies_while_members_join_is_named() {
    let mut sim = Sim::new(3, 4, 1);
    sim.asleep_until[2] = Nanos::MAX;
    sim.hook =
        Box::new(|p| if p.now >= Nanos::from_millis(1_500) { Fate::Drop } else { Fate::Pass });
    assert_eq!(failure(&mut sim, 0), WorkerError::BoxSilent);
}

#[test]
fn a_late_member_is_waited_for() {
    let mut sim = Sim::new(3, 4, 2);
    sim.asleep_until[2] = Nanos::from_millis(1_500);
    sim.connect();
    sim.begin_all(10);
    sim.finish_round(Nanos::from_millis(100));
}

#[test]
fn a_chunk_longer_than_the_probe_is_refused() {
    let mut sim = Sim::new(1, 4, 1);
    sim.fake.elements = 121;
    assert_eq!(failure(&mut sim, 0), WorkerError::ProbeTooShort { datagram_len: 516 });
}

/// After a restart a JOIN and a WELCOME carry a bitmap of four windows.
#[test]
fn a_handshake_longer_than_the_probe_is_refused() {
    let mut sim = Sim::new(1, 1024, 1);
    assert_eq!(failure(&mut sim, 0), WorkerError::ProbeTooShort { datagram_len: 104 + 512 });
    Sim::new(1, 512, 1).connect();
}

#[test]
fn unusable_leases_are_refused() {
    type Break = fn(&mut Sim);
    let cases: [(Break, LeaseFault); 4] = [
        (|sim| sim.fake.window = 3, LeaseFault::Window),
        (|sim| sim.fake.window = 4096, LeaseFault::Window),
        (|sim| sim.fake.shards = 65, LeaseFault::Shards),
        (|sim| sim.fake.elements = 0, LeaseFault::Elements),
    ];
    for (break_it, fault) in cases {
        let mut sim = Sim::new(1, 4, 1);
        break_it(&mut sim);
        assert_eq!(failure(&mut sim, 0), WorkerError::BadLease(fault));
    }
}

/// More than a datagram carries, where no probe says so before.
#[test]
fn a_chunk_longer_than_a_datagram_is_refused() {
    let mut sim = Sim::new(1, 4, 1);
    sim.fake.elements = 16_369;
    sim.replace(0, WorkerConfig { probe_len: 0, ..config(0) }, 5);
    assert_eq!(failure(&mut sim, 0), WorkerError::BadLease(LeaseFault::Elements));
}

/// What was summed before would be read by other rules.
#[test]
fn a_box_that_comes_back_with_another_lease_ends_the_session() {
    let mut sim = Sim::new(1, 4, 1);
    sim.connect();
    sim.begin_all(8);
    sim.finish_round(Nanos::from_millis(100));
    sim.fake.step_count -= 1;
    sim.fake.restart();
    sim.begin_all(8);
    assert_eq!(failure(&mut sim, 0), WorkerError::BadLease(LeaseFault::Changed));
}

#[test]
fn a_row_that_the_box_does_not_serve_is_an_error_at_once() {
    let mut sim = Sim::new(2, 4, 1);
    let start = sim.now;
    sim.fake.knows_row = false;
    assert_eq!(failure(&mut sim, 0), WorkerError::UnknownGroup { job: JOB, row: ROW });
    assert!(sim.now.since(start) < Nanos::from_millis(100));
}

#[test]
fn a_box_that_was_restarted_without_the_row_ends_the_session_in_time() {
    let mut sim = Sim::new(2, 4, 1);
    sim.connect();
    sim.begin_all(8);
    sim.finish_round(Nanos::from_millis(100));
    sim.begin_all(8);
    let start = sim.now;
    sim.fake.knows_row = false;
    sim.fake.restart();
    assert_eq!(failure(&mut sim, 0), WorkerError::UnknownGroup { job: JOB, row: ROW });
    assert!(sim.now.since(start) < Nanos::from_millis(1_000), "{:?}", sim.now.since(start));
}

#[test]
fn a_restarted_member_ends_the_session_of_the_others() {
    let mut sim = Sim::new(2, 4, 1);
    sim.connect();
    sim.begin_all(8);
    sim.finish_round(Nanos::from_millis(100));
    sim.replace(1, config(1), 999);
    let joining = |sim: &Sim| sim.workers[1].stats().hellos_sent >= 3;
    assert!(sim.run(Nanos::from_millis(200), joining));
    sim.begin(0, 4);
    let error = failure(&mut sim, 0);
    let reason = Reason::MemberLost;
    assert_eq!(error, WorkerError::Refused { reason, members: Members(0b10) });
}

#[test]
fn closing_without_the_others_ends_with_the_linger() {
    let mut sim = Sim::new(2, 4, 1);
    sim.connect();
    let start = sim.now;
    sim.workers[0].close(start);
    let closed = Event::Closed { by_all: false };
    assert!(sim.run(Nanos::from_millis(4_000), |sim| sim.events[0].contains(&closed)));
    assert_eq!(sim.now.since(start), Nanos::from_millis(2_000));
    let refused = sim.workers[0].handle_frame(sim.now, &mut [], &mut sim.data[0]);
    assert_eq!(refused, Err(Refusal::NotOpen), "a stopped worker takes nothing");
    assert_eq!(sim.workers[0].poll_transmit(sim.now, &sim.data[0], &mut []), None);
}

#[test]
fn errors_say_what_to_do() {
    use alloc::string::ToString;
    let missing = WorkerError::MembersMissing { missing: Members(0b1010) };
    assert_eq!(missing.to_string(), "waited too long for rank 1, 3");
    assert!(WorkerError::MtuTooSmall { probe_len: 1056 }.to_string().contains("raise the MTU"));
    let unheard = WorkerError::NoAnswer { lane: 1 }.to_string();
    for word in ["lane 1", "`local`", "`rank`", "wrong_source", "bad_members"] {
        assert!(unheard.contains(word), "{unheard}: {word}");
    }
    let unknown = WorkerError::UnknownGroup { job: JobId(3), row: 9 };
    assert!(unknown.to_string().contains("no row 9 of job 3"), "{unknown}");
}
