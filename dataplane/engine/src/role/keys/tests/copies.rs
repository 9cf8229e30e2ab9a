//! Intents and clocks: when a row comes, when a copy, and how old that may be.

use super::*;

const KEY: u64 = FIRST_KEY;
const ONE: [f32; 2] = [1.0, 0.0];

/// A call whose end has come already, without a frame; its value.
fn at_once(rig: &mut Rig, process: u8, op: Op<'_>, call: u64) -> Option<Vec<f32>> {
    assert!(rig.wire.is_empty(), "nothing else is on its way");
    rig.call(process, KEY, op, call);
    assert!(rig.wire.is_empty(), "nothing leaves");
    rig.done(process, call).expect("it is done").clone()
}

/// Process 0 holds the row and means to use it as long as clocks are counted, process 1 until clock
/// `to`.
fn both_intend(to: u32) -> Rig {
    let mut rig = Rig::new();
    rig.intend(0, KEY, 1, u32::MAX);
    rig.intend(1, KEY, 1, to);
    rig.deliver();
    rig
}

#[test]
fn a_row_comes_to_the_only_one_who_means_to_use_it() {
    let mut rig = Rig::with(Mode::Relocation, true);
    rig.intend(1, KEY, 1, 2);
    let hops: Vec<_> = core::iter::from_fn(|| {
        let passing = rig.wire.pop_front()?;
        rig.arrive(&passing).unwrap();
        Some((passing.from, passing.to))
    })
    .collect();
    let taken = [(Some(1), Some(0)), (Some(0), Some(1)), (Some(1), None), (None, Some(0))];
    assert_eq!(hops, taken, "there, back, and the ACK through the box");
    assert_eq!(rig.row(KEY).0, 1);
    // Its intent is over, and another one begins.
    rig.advance_clock(1);
    rig.intend(2, KEY, 1, 2);
    rig.deliver();
    assert_eq!(rig.row(KEY).0, 2);
}

#[test]
fn where_two_mean_to_use_a_row_one_has_a_copy() {
    let mut rig = both_intend(9);
    assert_eq!(rig.row(KEY).0, 0);
    assert_eq!(at_once(&mut rig, 1, Op::Pull, 1), Some([0.0, 0.0].to_vec()));
    assert_eq!(at_once(&mut rig, 1, Op::Add(&ONE), 2), None);
    assert_eq!(at_once(&mut rig, 1, Op::Add(&ONE), 3), None);
    assert_eq!(at_once(&mut rig, 1, Op::Pull, 4), Some([2.0, 0.0].to_vec()), "its own adds");
    assert_eq!(rig.row(KEY).2, [0.0, 0.0], "not there yet");
    assert_eq!(rig.processes[1].open_adds(), [0, 1], "summed");
    rig.advance_clock(1);
    assert_eq!(rig.processes[1].open_adds(), [1, 0]);
    rig.deliver();
    assert_eq!((rig.row(KEY).2, rig.processes[1].open_adds()), ([2.0, 0.0].to_vec(), [0, 0]));
    assert_eq!(rig.processes[0].stats().served, 2, "the take, and both adds at once");
}

#[test]
fn a_copy_is_read_in_the_clock_of_its_request_and_one_more() {
    let mut rig = both_intend(9);
    rig.call(0, KEY, Op::Add(&ONE), 1);
    // Answers come no more.
    rig.lost = Some(What::Answer);
    rig.advance_clock(1);
    rig.deliver();
    assert_eq!(at_once(&mut rig, 1, Op::Pull, 2), Some([0.0, 0.0].to_vec()));
    rig.advance_clock(1);
    rig.deliver();
    rig.call(1, KEY, Op::Pull, 3);
    assert_eq!(rig.done(1, 3), None, "too old");
    rig.lost = None;
    rig.run_for(Nanos::from_millis(20));
    assert_eq!(rig.done(1, 3), Some(&Some([1.0, 0.0].to_vec())));
}

#[test]
fn a_copy_is_as_old_as_its_request_and_not_as_its_answer() {
    let mut rig = Rig::new();
    rig.intend(0, KEY, 1, 9);
    rig.intend(1, KEY, 1, 9);
    let request = rig.take(|passing| passing.what() == Some(What::Access));
    rig.arrive(&request).unwrap();
    let onward = rig.take(|passing| passing.to == Some(0));
    rig.arrive(&onward).unwrap();
    let answer = rig.take(|passing| passing.what() == Some(What::Answer));
    rig.call(0, KEY, Op::Add(&ONE), 1);
    rig.lost = Some(What::Access);
    for _ in 0..2 {
        rig.advance_clock(1);
    }
    rig.deliver();
    rig.arrive(&answer).unwrap();
    rig.deliver();
    rig.call(1, KEY, Op::Pull, 2);
    assert_eq!(rig.done(1, 2), None, "asked for in clock 1, and this is clock 3");
}

#[test]
fn a_copy_is_not_read_when_the_intent_is_over() {
    let mut rig = both_intend(2);
    assert_eq!(at_once(&mut rig, 1, Op::Pull, 1), Some([0.0, 0.0].to_vec()));
    rig.advance_clock(1);
    let is_readable = |slot: Slot<'_>| slot.is_readable(2);
    assert_eq!(rig.processes[1].with_row(KEY, is_readable), Ok(false), "nor by another thread");
    rig.call(1, KEY, Op::Pull, 2);
    assert_eq!(rig.done(1, 2), None);
    rig.deliver();
    assert_eq!(rig.done(1, 2), Some(&Some([0.0, 0.0].to_vec())));
    assert_eq!(rig.row(KEY).0, 0);
}

#[test]
fn a_late_copy_of_a_take_that_was_refused_moves_nothing() {
    let mut rig = Rig::new();
    rig.intend(0, KEY, 1, 2);
    rig.intend(1, KEY, 1, 2);
    let late = rig.wire[0].clone();
    rig.deliver();
    rig.advance_clock(0);
    rig.arrive(&late).unwrap();
    rig.deliver();
    assert_eq!(rig.row(KEY).0, 0);
}

#[test]
fn an_intent_is_acted_on_one_clock_ahead() {
    let mut rig = Rig::new();
    rig.intend(1, KEY, 3, 4);
    assert!(rig.wire.is_empty());
    rig.advance_clock(1);
    rig.deliver();
    assert_eq!(rig.row(KEY).0, 1);
}

#[test]
fn a_pull_waits_no_longer_than_until_a_copy_comes() {
    let mut rig = Rig::new();
    rig.intend(0, KEY, 1, 9);
    rig.intend(1, KEY, 1, 9);
    // While the copy is asked for, so that it is not in that access.
    rig.call(1, KEY, Op::Add(&ONE), 1);
    rig.call(1, KEY, Op::Pull, 2);
    rig.deliver();
    assert_eq!(rig.done(1, 2), Some(&Some([1.0, 0.0].to_vec())));
    assert_eq!((rig.row(KEY).2, rig.processes[1].stats().copies), (ONE.to_vec(), 1));
}

#[test]
fn stale_tables_keep_copies_of_what_was_pulled() {
    for (mode, comes_by_itself) in [(Mode::StaleClient, false), (Mode::StaleServer, true)] {
        let mut rig = Rig::with(mode, true);
        rig.localize(1, KEY, 1);
        assert!(rig.wire.is_empty(), "nothing moves");
        rig.call(1, KEY, Op::Pull, 2);
        rig.deliver();
        assert_eq!(at_once(&mut rig, 1, Op::Add(&ONE), 3), None);
        assert_eq!(at_once(&mut rig, 1, Op::Pull, 4), Some(ONE.to_vec()));
        for _ in 0..2 {
            rig.advance_clock(1);
            rig.deliver();
        }
        assert_eq!((rig.row(KEY).0, rig.row(KEY).2), (0, ONE.to_vec()));
        rig.call(1, KEY, Op::Pull, 5);
        assert_eq!(rig.done(1, 5).is_some(), comes_by_itself, "{mode:?}");
    }
}

#[test]
fn intents_are_limited() {
    let mut rig = Rig::new();
    let (engine, _) = rig.process(1);
    let plan = |key| (0..64).map(move |_| key);
    for key in plan(KEY) {
        engine.intend(key, 9, 10).unwrap();
    }
    assert_eq!(engine.intend(KEY, 9, 10), Err(CallError::Full));
    assert_eq!(engine.intend(KEY - 1, 9, 10), Err(CallError::UnknownKey(KEY - 1)));
    assert_eq!(engine.intend(KEY, 9, 9), Ok(()), "no time at all");
}
