//! Where accesses go: with a cache of owners, and where rows stay.

use super::*;

const KEY: u64 = FIRST_KEY;
const ONE: [f32; 2] = [1.0, 0.0];

/// The hops of what a call leads to, in order.
fn hops(rig: &mut Rig) -> Vec<(Option<u8>, Option<u8>)> {
    core::iter::from_fn(|| {
        let passing = rig.wire.pop_front()?;
        rig.arrive(&passing).unwrap();
        Some((passing.from, passing.to))
    })
    .collect()
}

#[test]
fn an_access_goes_straight_to_the_owner_that_is_known() {
    let mut rig = Rig::with(Mode::Relocation, true);
    rig.call(1, KEY, Op::Add(&ONE), 1);
    assert_eq!(hops(&mut rig), [(Some(1), Some(0)), (Some(0), Some(1))], "two frames");
    rig.localize(2, KEY, 2);
    rig.deliver();
    // The old owner keeps nothing any more: on through the box, and back from the new one.
    rig.call(1, KEY, Op::Pull, 3);
    let stale = [(Some(1), Some(0)), (Some(0), None), (None, Some(2)), (Some(2), Some(1))];
    assert_eq!(hops(&mut rig), stale, "four frames");
    rig.call(1, KEY, Op::Pull, 4);
    assert_eq!(hops(&mut rig), [(Some(1), Some(2)), (Some(2), Some(1))], "learnt from the answer");
    assert_eq!(rig.done(1, 4), Some(&Some([1.0, 0.0].to_vec())));
    rig.call(0, KEY, Op::Pull, 5);
    assert_eq!(hops(&mut rig), [(Some(0), Some(2)), (Some(2), Some(0))], "it gave the row there");
}

#[test]
fn what_the_known_owner_does_not_answer_goes_to_the_box() {
    let mut rig = Rig::with(Mode::Relocation, true);
    rig.call(1, KEY, Op::Add(&ONE), 1);
    let lost = rig.take(|passing| passing.to == Some(0));
    rig.run_for(Nanos::from_millis(3));
    assert_eq!(rig.done(1, 1), Some(&None));
    let at_box = rig.at_box.iter().filter(|passing| passing.what() == Some(What::Access));
    assert_eq!(at_box.count(), 1, "the repeat went to the box");
    let late = rig.arrive(&lost);
    assert!(late.is_ok(), "{late:?}");
    rig.deliver();
    assert_eq!(rig.row(KEY).2, [1.0, 0.0], "its copy adds nothing");
}

#[test]
fn nothing_goes_to_a_known_owner_that_is_dead() {
    let mut rig = Rig::with(Mode::Relocation, true);
    // Process 0's row, at process 2 when that dies.
    rig.localize(2, KEY, 1);
    rig.deliver();
    rig.call(1, KEY, Op::Pull, 2);
    rig.deliver();
    rig.gone = 0b100;
    rig.run_for(Nanos::from_millis(700));
    assert_eq!(rig.processes[1].life(), 2);
    rig.call(1, KEY, Op::Pull, 3);
    assert_eq!(rig.wire[0].to, None);
}

#[test]
fn rows_of_a_classic_table_stay_and_a_localize_is_done_at_once() {
    for mode in [Mode::Classic, Mode::ClassicFastLocal] {
        let mut rig = Rig::with(mode, true);
        rig.localize(1, KEY, 1);
        assert_eq!(rig.done(1, 1), Some(&None));
        assert!(rig.wire.is_empty(), "{mode:?}: nothing leaves");
        rig.call(1, KEY, Op::Add(&ONE), 2);
        assert_eq!(hops(&mut rig), [(Some(1), Some(0)), (Some(0), Some(1))]);
        assert_eq!(rig.row(KEY), (0, RowEpoch::born(1), [1.0, 0.0].to_vec()));
    }
}

#[test]
fn an_operation_on_a_row_that_is_here_is_a_frame_in_a_classic_table() {
    let mut rig = Rig::with(Mode::ClassicFastLocal, true);
    rig.call(0, KEY, Op::Add(&ONE), 1);
    assert_eq!((rig.done(0, 1), rig.processes[0].stats().local), (Some(&None), 1), "at once");
    let mut rig = Rig::with(Mode::Classic, true);
    rig.call(0, KEY, Op::Add(&ONE), 1);
    rig.call(0, KEY, Op::Pull, 2);
    assert_eq!(rig.done(0, 1), None, "not before its frame is back");
    let own = rig.wire[0].clone();
    let there_and_back = [(Some(0), Some(0)); 4];
    assert_eq!(hops(&mut rig), there_and_back, "two accesses");
    assert_eq!(rig.done(0, 2), Some(&Some([1.0, 0.0].to_vec())));
    assert_eq!(rig.processes[0].stats().local, 0);
    rig.arrive(&own).unwrap();
    assert_eq!(rig.row(KEY).2, [1.0, 0.0], "a late copy of the own frame adds nothing");
}
