//! Several accesses to a key in flight: each counts once, in whatever order they come.

use weft_wire::header::HEADER_LEN;
use weft_wire::hello::{Hello, Phase};

use super::*;

const KEY: u64 = FIRST_KEY;
const ONE: [f32; 2] = [1.0, 0.0];

fn two() -> TableConfig {
    TableConfig { in_flight: 2, ..table() }
}

#[test]
fn second_access_leaves_before_the_first_is_answered_and_may_overtake_it() {
    let mut rig = Rig::of(two(), Mode::Relocation, true);
    rig.call(1, KEY, Op::Add(&ONE), 1);
    rig.call(1, KEY, Op::Pull, 2);
    rig.call(1, KEY, Op::Add(&ONE), 3);
    let add = rig.take(|passing| passing.what() == Some(What::Access));
    let pull = rig.take(|passing| passing.what() == Some(What::Access));
    assert!(rig.wire.is_empty(), "two leave, each once; the third waits");
    rig.arrive(&pull).unwrap();
    rig.deliver();
    assert_eq!(rig.done(1, 2), Some(&Some([0.0, 0.0].to_vec())), "before the add");
    assert_eq!(rig.row(KEY).2, [1.0, 0.0], "the third had the lane that was free");
    rig.arrive(&add).unwrap();
    rig.deliver();
    assert_eq!(rig.row(KEY).2, [2.0, 0.0]);
    for late in [&add, &pull] {
        rig.arrive(late).unwrap();
    }
    assert_eq!(rig.row(KEY).2, [2.0, 0.0], "late copies add nothing");
    assert_eq!((rig.done(1, 1), rig.done(1, 3)), (Some(&None), Some(&None)));
}

#[test]
fn last_numbers_of_all_lanes_move_with_the_row() {
    let mut rig = Rig::of(two(), Mode::Relocation, true);
    rig.call(1, KEY, Op::Add(&ONE), 1);
    rig.call(1, KEY, Op::Add(&ONE), 2);
    let copies: Vec<_> = rig.wire.iter().cloned().collect();
    assert_eq!(copies.len(), 2);
    let before = rig.lost.replace(What::Answer);
    rig.deliver();
    assert_eq!((before, rig.row(KEY).2), (None, [2.0, 0.0].to_vec()), "both are in");
    rig.localize(2, KEY, 3);
    rig.deliver();
    assert_eq!(rig.row(KEY).0, 2);
    for late in &copies {
        let mut late = late.clone();
        late.to = Some(2);
        rig.arrive(&late).unwrap();
    }
    assert_eq!(rig.row(KEY).2, [2.0, 0.0], "none adds again at the next owner");
    rig.lost = None;
    rig.run_for(Nanos::from_millis(20));
    assert_eq!((rig.done(1, 1), rig.done(1, 2)), (Some(&None), Some(&None)));
    assert_eq!(rig.row(KEY).2, [2.0, 0.0]);
}

#[test]
fn accesses_of_all_lanes_wait_for_a_row_that_comes() {
    let mut rig = Rig::of(two(), Mode::Relocation, false);
    rig.lost = Some(What::Row);
    rig.localize(2, KEY, 1);
    rig.deliver();
    rig.call(1, KEY, Op::Add(&ONE), 2);
    rig.call(1, KEY, Op::Add(&ONE), 3);
    rig.call(2, KEY, Op::Add(&ONE), 4);
    rig.deliver();
    assert_eq!(rig.done(1, 2), None);
    rig.lost = None;
    rig.run_for(Nanos::from_millis(3));
    assert_eq!(rig.row(KEY).0, 2);
    assert_eq!(rig.row(KEY).2, [3.0, 0.0]);
    assert_eq!((rig.done(1, 2), rig.done(1, 3)), (Some(&None), Some(&None)));
}

#[test]
fn each_access_leaves_again_when_it_is_due_itself() {
    let mut rig = Rig::of(two(), Mode::Relocation, true);
    rig.call(1, KEY, Op::Add(&ONE), 1);
    let first = rig.take(|passing| passing.what() == Some(What::Access));
    rig.run_for(Nanos(900_000));
    rig.call(1, KEY, Op::Add(&ONE), 2);
    let second = rig.take(|passing| passing.what() == Some(What::Access));
    assert!(rig.wire.is_empty(), "the first does not leave with the second");
    rig.run_for(Nanos(200_000));
    assert_eq!(rig.row(KEY).2, [1.0, 0.0], "the first left again after 1 ms, the second not yet");
    rig.run_for(Nanos::from_millis(2));
    assert_eq!(rig.row(KEY).2, [2.0, 0.0]);
    for late in [&first, &second] {
        rig.arrive(late).unwrap();
    }
    assert_eq!(rig.row(KEY).2, [2.0, 0.0]);
}

#[test]
fn processes_with_another_number_in_flight_do_not_join() {
    let table = |me| TableConfig { in_flight: if me == 2 { 1 } else { 2 }, ..table() };
    let rig = Rig::begun(table, Mode::Relocation, true);
    let presence = rig.processes.iter().map(Process::presence).collect::<Vec<_>>();
    assert_eq!(presence, [Presence::Present, Presence::Present, Presence::Joining]);
}

#[test]
fn intents_do_nothing_and_modes_with_copies_are_refused() {
    let mut rig = Rig::of(two(), Mode::Relocation, true);
    rig.intend(1, KEY, 1, 4);
    assert!(rig.wire.is_empty());
    assert_eq!(rig.row(KEY).0, 0);
    for (in_flight, mode) in [
        (0, Mode::Relocation),
        (5, Mode::Relocation),
        (2, Mode::StaleClient),
        (2, Mode::StaleServer),
    ] {
        let table = TableConfig { in_flight, ..table() };
        let addrs: Vec<_> = (0..PROCESSES).map(|process| addr(Some(process))).collect();
        let config = ProcessConfig {
            table,
            me: 0,
            home: addr(None),
            processes: &addrs,
            mode,
            has_cache: true,
            staleness: 1,
            limits: ProcessLimits::default(),
            resend_min: Nanos::from_millis(1),
            resend_max: Nanos::from_millis(8),
            beat: Nanos::from_millis(50),
        };
        let made = Process::new(&config, OwnStore::new(&table), 1, Nanos(0));
        assert_eq!(made.err(), Some(TableError::InFlight(in_flight)));
    }
}

/// For one lane, another client or box may send 1 where ours sends 0.
#[test]
fn one_lane_that_is_said_and_one_that_is_not_are_the_same() {
    for phase in [Phase::Join, Phase::Welcome] {
        let mut rig = Rig::new();
        rig.restart_home();
        for _ in 0..400 {
            rig.now = rig.now.saturating_add(Nanos::from_millis(2));
            let now = rig.now;
            for process in 0..PROCESSES {
                let (engine, said) = rig.process(process);
                engine.poll(now, said);
                rig.collect(process);
            }
            while let Some(mut passing) = rig.wire.pop_front() {
                say_one_lane(&mut passing.octets, phase);
                let _ = rig.arrive(&passing);
            }
            rig.home.poll(now);
        }
        assert_eq!(rig.home.life(), 2, "all have joined it again");
        rig.call(1, KEY, Op::Add(&ONE), 1);
        rig.deliver();
        assert_eq!(rig.done(1, 1), Some(&None));
        assert_eq!(rig.row(KEY).2, [1.0, 0.0]);
    }
}

/// Puts 1 lane for 0 into a handshake of this phase.
fn say_one_lane(datagram: &mut [u8], phase: Phase) {
    let Ok((mut hello, _)) = Hello::parse(&datagram[HEADER_LEN..]) else { return };
    if hello.phase == phase && hello.window == 0 {
        hello.window = 1;
        hello.emit(&[], &mut datagram[HEADER_LEN..]);
        Packet::new_unchecked(datagram).seal(weft_kernel::crc32c);
    }
}
