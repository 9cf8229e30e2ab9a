//! Single rules of PROTOCOL section 13, each in the few frames that show it.

use alloc::vec;

use weft_wire::header::{CRC_AT, HEADER_LEN, Kind};
use weft_wire::hello::{Hello, Phase};
use weft_wire::{GroupId, Members};

use super::*;
use crate::send::datagram::plain_header;

const KEY: u64 = FIRST_KEY;
const ONE: [f32; 2] = [1.0, 0.0];

fn is(what: What) -> impl Fn(&Passing) -> bool {
    move |passing| passing.what() == Some(what)
}

#[test]
fn operations_run_where_the_row_is() {
    let mut rig = Rig::new();
    rig.call(0, KEY, Op::Add(&ONE), 1);
    assert_eq!(rig.done(0, 1), Some(&None), "at once");
    rig.call(1, KEY, Op::Add(&ONE), 2);
    rig.call(1, KEY, Op::Pull, 3);
    rig.deliver();
    assert_eq!(rig.done(1, 3), Some(&Some([2.0, 0.0].to_vec())));
    rig.call(2, KEY, Op::Set(&[5.0, 6.0]), 4);
    rig.deliver();
    assert_eq!(rig.row(KEY), (0, RowEpoch::born(1), [5.0, 6.0].to_vec()));
}

#[test]
fn one_access_is_in_flight_and_what_is_called_meanwhile_merges() {
    let mut rig = Rig::new();
    for call in 0..4 {
        rig.call(1, KEY, Op::Add(&ONE), call);
    }
    rig.call(1, KEY, Op::Pull, 4);
    assert_eq!(rig.wire.len(), 1, "the first add");
    rig.deliver();
    assert_eq!(rig.processes[1].stats().accesses, 2, "three adds and the pull are one access");
    assert_eq!(rig.done(1, 4), Some(&Some([4.0, 0.0].to_vec())));
}

#[test]
fn a_row_moves_in_three_frames_and_an_ack() {
    let mut rig = Rig::new();
    rig.localize(1, KEY, 1);
    let whats: Vec<_> = core::iter::from_fn(|| {
        let passing = rig.wire.pop_front()?;
        rig.arrive(&passing).unwrap();
        passing.what()
    })
    .collect();
    use What::{Localize, Row, RowAck};
    assert_eq!(whats, [Localize, Localize, Row, RowAck, RowAck]);
    assert_eq!(rig.done(1, 1), Some(&None));
    assert_eq!(rig.row(KEY).1, RowEpoch::born(1).moved());
    assert!(rig.processes[0].is_idle(), "the copy is not kept any more");
}

#[test]
fn a_row_on_its_way_can_be_read_at_its_giver_until_it_has_arrived() {
    let mut rig = Rig::new();
    rig.call(0, KEY, Op::Add(&ONE), 1);
    rig.localize(1, KEY, 2);
    let copy = |rig: &mut Rig| {
        let mut found = None;
        rig.processes[0].with_kept(KEY, |epoch, value, _| found = Some((epoch, value.to_vec())));
        found
    };
    assert_eq!(copy(&mut rig), None);
    for _ in 0..2 {
        let localize = rig.take(is(What::Localize));
        rig.arrive(&localize).unwrap();
    }
    let given = Some((RowEpoch::born(1).moved(), ONE.to_vec()));
    assert_eq!(copy(&mut rig), given, "as it will be at the taker");
    rig.deliver();
    assert_eq!(copy(&mut rig), None);
}

#[test]
fn many_keys_in_one_call_are_one_frame_for_each_process() {
    let mut rig = Rig::new();
    let now = rig.now;
    let (engine, said) = rig.process(2);
    for key in [FIRST_KEY, FIRST_KEY + 1, FIRST_KEY + 20] {
        engine.call(key, Op::Pull, key, said).unwrap();
    }
    engine.flush(now, said);
    rig.collect(2);
    assert_eq!(rig.wire.len(), 1);
    let one = rig.wire.pop_front().unwrap();
    rig.arrive(&one).unwrap();
    let mut targets: Vec<_> = rig.wire.iter().map(|passing| passing.to).collect();
    targets.sort_unstable();
    assert_eq!(targets, [Some(0), Some(1)]);
    rig.deliver();
    assert_eq!(rig.said[2].done.len(), 3);
}

#[test]
fn a_late_copy_of_a_push_does_not_add_again_wherever_the_row_is() {
    let mut rig = Rig::new();
    rig.call(1, KEY, Op::Add(&ONE), 1);
    let late = rig.wire[0].clone();
    rig.deliver();
    rig.localize(2, KEY, 2);
    rig.deliver();
    rig.arrive(&late).unwrap();
    rig.deliver();
    assert_eq!(rig.row(KEY), (2, RowEpoch::born(1).moved(), ONE.to_vec()));
}

#[test]
fn a_late_copy_of_a_localize_moves_nothing() {
    let mut rig = Rig::new();
    rig.localize(1, KEY, 1);
    let late = rig.wire[0].clone();
    rig.deliver();
    rig.localize(2, KEY, 2);
    rig.deliver();
    rig.arrive(&late).unwrap();
    rig.run_for(Nanos::from_millis(50));
    assert_eq!(rig.row(KEY).0, 2);
}

#[test]
fn a_lost_row_comes_again_until_it_is_acknowledged() {
    let mut rig = Rig::new();
    rig.localize(1, KEY, 1);
    for what in [What::Localize, What::Localize] {
        let passing = rig.take(is(what));
        rig.arrive(&passing).unwrap();
    }
    rig.take(is(What::Row));
    assert_eq!(rig.done(1, 1), None);
    rig.run_for(Nanos::from_millis(20));
    assert_eq!(rig.row(KEY).0, 1);
    assert!(rig.processes[0].stats().repeats > 0);
}

#[test]
fn own_operations_meet_a_row_that_comes_before_those_of_others() {
    let mut rig = Rig::new();
    rig.localize(1, KEY, 1);
    rig.call(1, KEY, Op::Add(&ONE), 2);
    rig.call(1, KEY, Op::Pull, 3);
    let asked = rig.take(is(What::Localize));
    rig.arrive(&asked).unwrap();
    // The box sends others to the last localizer, where they wait.
    rig.call(2, KEY, Op::Set(&[9.0, 9.0]), 4);
    let access = rig.take(is(What::Access));
    rig.arrive(&access).unwrap();
    let access = rig.take(is(What::Access));
    assert_eq!(access.to, Some(1));
    rig.arrive(&access).unwrap();
    rig.deliver();
    assert_eq!(rig.done(1, 3), Some(&Some(ONE.to_vec())), "its own add, and nothing else");
    assert_eq!(rig.row(KEY), (1, RowEpoch::born(1).moved(), [9.0, 9.0].to_vec()));
}

#[test]
fn what_waits_for_a_row_is_limited() {
    let mut rig = Rig::new();
    let (engine, said) = rig.process(1);
    for call in 0..8 {
        engine.call(KEY, Op::Pull, call, said).unwrap();
    }
    // One is in flight, with the first pull.
    engine.call(KEY, Op::Pull, 8, said).unwrap();
    assert_eq!(engine.call(KEY, Op::Pull, 9, said), Err(CallError::Full));
    for key in 1..8 {
        engine.localize(KEY + key, 10 + key, said).unwrap();
    }
    assert_eq!(engine.localize(KEY + 8, 20, said), Err(CallError::Full), "eight keys are active");
    rig.run_for(Nanos::from_millis(50));
    assert_eq!(rig.said[1].done.len(), 9 + 7);
}

#[test]
fn a_full_giver_says_wait_and_gives_later() {
    let mut rig = Rig::new();
    let now = rig.now;
    let (engine, said) = rig.process(1);
    for key in 0..6 {
        engine.localize(KEY + key, key, said).unwrap();
    }
    engine.flush(now, said);
    rig.collect(1);
    for _ in 0..2 {
        let asked = rig.take(is(What::Localize));
        rig.arrive(&asked).unwrap();
    }
    assert_eq!(rig.processes[0].stats().full, 2, "four copies can be kept");
    let wait = rig.take(is(What::Wait));
    assert_eq!(wait.to, Some(1));
    rig.run_for(Nanos::from_millis(50));
    assert_eq!(rig.said[1].done.len(), 6);
}

#[test]
fn the_directory_is_learnt_again() {
    let mut rig = Rig::new();
    rig.localize(1, KEY, 1);
    rig.localize(2, KEY + 30, 2);
    rig.deliver();
    rig.call(0, KEY, Op::Add(&ONE), 3);
    rig.restart_home();
    rig.run_for(Nanos::from_millis(700));
    assert_eq!((rig.home.life(), rig.home.is_settled()), (2, true));
    assert_eq!(rig.done(0, 3), Some(&None));
    assert_eq!(rig.row(KEY), (1, RowEpoch::born(1).moved(), ONE.to_vec()), "it is the same row");
}

#[test]
fn a_row_on_its_way_while_the_box_restarts_is_not_restored() {
    let mut rig = Rig::new();
    rig.lost = Some(What::Row);
    rig.localize(1, KEY, 1);
    rig.deliver();
    rig.restart_home();
    rig.run_for(Nanos::from_millis(700));
    assert_eq!((rig.home.life(), rig.home.stats().restored), (2, 0), "all have claimed it");
    assert!(!rig.home.is_settled(), "its copy is on its way");
    rig.lost = None;
    rig.run_for(Nanos::from_millis(100));
    assert_eq!(rig.row(KEY), (1, RowEpoch::born(1).moved(), [0.0; 2].to_vec()), "the same row");
    assert!(rig.home.is_settled() && rig.home.stats().restored == 0);
}

#[test]
fn an_old_claim_counts_for_nothing() {
    let mut rig = Rig::new();
    rig.restart_home();
    rig.run_for(Nanos::from_millis(700));
    let mut claims = rig
        .at_box
        .iter()
        .filter(|passing| passing.from == Some(1) && passing.what() == Some(What::Claim));
    let claim = claims.next_back().expect("it has claimed").clone();
    assert_eq!(rig.arrive(&claim), Err(crate::drops::DropReason::Duplicate));
}

#[test]
fn what_the_dead_wanted_is_gone() {
    let mut rig = Rig::new();
    rig.lost = Some(What::Row);
    rig.localize(1, KEY, 1);
    rig.deliver();
    // Waits at process 1, for which the row is on its way.
    rig.localize(2, KEY, 2);
    rig.deliver();
    rig.gone = 0b100;
    rig.run_for(Nanos::from_millis(900));
    assert_eq!(rig.home.life(), 2);
    rig.lost = None;
    rig.run_for(Nanos::from_millis(100));
    assert_eq!(rig.row(KEY), (1, RowEpoch::born(1).moved(), [0.0; 2].to_vec()), "given to nobody");
}

#[test]
fn the_keys_of_a_dead_process_are_restored_and_named() {
    let mut rig = Rig::new();
    rig.call(0, KEY, Op::Add(&ONE), 1);
    rig.gone = 0b001;
    rig.call(1, KEY, Op::Pull, 2);
    rig.run_for(Nanos::from_millis(900));
    assert_eq!(rig.home.stats().deaths, 1);
    let lost = core::mem::take(&mut rig.said[1].lost);
    assert_eq!(lost, (FIRST_KEY..FIRST_KEY + 14).collect::<Vec<_>>(), "each once");
    let now = rig.now;
    let (engine, said) = rig.process(1);
    for key in lost {
        engine.restore(now, key, &[7.0, 7.0], &[], said).unwrap();
        assert_eq!(engine.restore(now, key, &ONE, &[], said), Err(CallError::NotLost(key)));
    }
    rig.collect(1);
    rig.run_for(Nanos::from_millis(100));
    assert_eq!(rig.done(1, 2), Some(&Some([7.0, 7.0].to_vec())));
    assert_eq!(rig.row(KEY), (1, RowEpoch::born(2), [7.0, 7.0].to_vec()));
    assert!(rig.home.is_settled());
}

#[test]
fn a_copy_that_went_to_the_dead_is_taken_back() {
    let mut rig = Rig::new();
    rig.call(0, KEY, Op::Add(&ONE), 1);
    rig.localize(1, KEY, 2);
    for _ in 0..2 {
        let asked = rig.take(is(What::Localize));
        rig.arrive(&asked).unwrap();
    }
    rig.gone = 0b010;
    rig.run_for(Nanos::from_millis(900));
    assert_eq!(rig.row(KEY), (0, RowEpoch::born(2), ONE.to_vec()));
    assert!(rig.said[0].lost.iter().all(|key| *key != KEY));
}

#[test]
fn a_row_born_in_a_later_life_answers_stale_after_its_last_numbers() {
    let mut rig = Rig::new();
    // An add that is applied, and one that never came; the row is lost with its taker.
    rig.call(2, KEY, Op::Add(&ONE), 1);
    let known = rig.wire[0].clone();
    rig.deliver();
    rig.localize(1, KEY, 2);
    for _ in 0..2 {
        let asked = rig.take(is(What::Localize));
        rig.arrive(&asked).unwrap();
    }
    rig.call(2, KEY, Op::Add(&ONE), 3);
    rig.wire.clear();
    rig.gone = 0b010;
    rig.run_for(Nanos::from_millis(900));
    assert_eq!(rig.done(2, 3), Some(&None));
    assert!(rig.processes[2].stats().stale > 0, "its number was of the first life");
    assert_eq!(rig.row(KEY), (0, RowEpoch::born(2), [2.0, 0.0].to_vec()), "each once");
    assert!(known.number() < Number::new(2, 0));
}

#[test]
fn a_process_that_was_declared_dead_can_do_nothing_any_more() {
    let mut rig = Rig::new();
    rig.gone = 0b100;
    rig.run_for(Nanos::from_millis(900));
    rig.gone = 0;
    rig.run_for(Nanos::from_millis(300));
    assert_eq!(rig.processes[2].presence(), Presence::Lost);
    let (engine, said) = rig.process(2);
    assert_eq!(engine.call(KEY, Op::Pull, 1, said), Err(CallError::Lost));
    assert_eq!(rig.home.living().0, 0b011);
}

#[test]
fn calls_that_cannot_be_are_refused() {
    let mut rig = Rig::new();
    let (engine, said) = rig.process(0);
    assert_eq!(engine.call(99, Op::Pull, 1, said), Err(CallError::UnknownKey(99)));
    assert_eq!(engine.call(140, Op::Pull, 1, said), Err(CallError::UnknownKey(140)));
    let short = engine.call(KEY, Op::Add(&[1.0]), 1, said);
    assert_eq!(short, Err(CallError::RowLen { given: 1, row_len: 2 }));
    assert_eq!(engine.restore(Nanos(0), KEY, &ONE, &[], said), Err(CallError::NotLost(KEY)));
}

#[test]
fn tables_that_cannot_be_are_refused() {
    let good = table();
    assert_eq!(good.check(), Ok(()));
    let refused = [
        (TableConfig { row_len: 0, ..good }, TableError::NoElements),
        (TableConfig { key_count: 0, ..good }, TableError::Keys(0)),
        (TableConfig { first_key: u64::MAX - 3, ..good }, TableError::Keys(40)),
        (TableConfig { processes: 0, ..good }, TableError::Processes(0)),
        (TableConfig { processes: 65, ..good }, TableError::Processes(65)),
        (TableConfig { table: 0x1000, ..good }, TableError::Table(0x1000)),
    ];
    for (table, error) in refused {
        assert_eq!(table.check(), Err(error));
    }
    let long = TableConfig { row_len: 400, ..good };
    assert!(matches!(long.check(), Err(TableError::RowTooLong { payload_max: 1472, .. })));
}

/// A box that stood still, as its whole machine may have, holds its own pause against nobody.
#[test]
fn a_pause_of_the_box_is_nobodys_death() {
    let mut rig = Rig::new();
    rig.now = rig.now.saturating_add(Nanos::from_millis(4_000));
    let now = rig.now;
    rig.home.poll(now);
    rig.run_for(Nanos::from_millis(1_000));
    assert_eq!((rig.home.life(), rig.home.stats().deaths), (1, 0));
    // Who is silent while it is awake is dead as ever.
    rig.gone = 0b100;
    rig.run_for(DEATH.saturating_add(Nanos::from_millis(100)));
    assert_eq!((rig.home.life(), rig.home.stats().deaths), (2, 1));
}

/// Who asks whether its path is wide (SPEC#handshake, `probe_len`) is answered with as many bytes,
/// and the box has no other life of it for that.
#[test]
fn a_padded_hello_is_answered_with_as_many_bytes() {
    let mut rig = Rig::new();
    for len in [200, table().payload_max, table().payload_max + 1] {
        let ask = Hello { life: 77, probe_len: len, ..Hello::new(Phase::Hello) };
        let mut datagram = vec![0; usize::from(len)];
        ask.emit(&[], &mut datagram[HEADER_LEN..]);
        let mut packet = Packet::new_unchecked(&mut datagram[..]);
        let group = GroupId::new(table().row(), 0);
        plain_header(Kind::Hello, table().job, group, Members(2)).emit(&mut packet);
        packet.seal(weft_kernel::crc32c);
        let mut said = Said::default();
        rig.home.handle_datagram(rig.now, addr(Some(1)), &datagram, &mut said).unwrap();
        let [(To::Process(1), answer)] = &said.sent[..] else { panic!("{:?}", said.sent) };
        let (hello, _) = Hello::parse(&answer[HEADER_LEN..]).unwrap();
        assert_eq!((hello.phase, hello.life), (Phase::Challenge, 77));
        // What a datagram of the table's has no room for is answered in short.
        let expected = if len > table().payload_max { (104, 0) } else { (usize::from(len), len) };
        assert_eq!((answer.len(), hello.probe_len), expected);
        let crc = weft_kernel::crc32c_blank::<CRC_AT>(answer);
        assert!(Packet::new_unchecked(&answer[..]).has_crc(crc));
    }
    rig.call(1, KEY, Op::Pull, 1);
    rig.deliver();
    assert_eq!(rig.done(1, 1), Some(&Some([0.0, 0.0].to_vec())), "its life goes on");
}
