//! How long a process waits before it sends again: as long as answers take, of what left once.

use super::*;

const KEY: u64 = FIRST_KEY;
const SLOW: Nanos = Nanos(900_000);

/// How often process 1 has repeated something, `span` from now on.
fn repeats_after(rig: &mut Rig, span: Nanos) -> u64 {
    rig.now = rig.now.saturating_add(span);
    let now = rig.now;
    let (engine, said) = rig.process(1);
    engine.poll(now, said);
    rig.collect(1);
    rig.processes[1].stats().repeats
}

/// A pull that is answered after `SLOW`: RFC 6298 has three times that as the next timeout.
fn learnt() -> Rig {
    let mut rig = Rig::new();
    rig.call(1, KEY, Op::Pull, 1);
    rig.now = rig.now.saturating_add(SLOW);
    rig.deliver();
    assert!(rig.done(1, 1).is_some());
    rig
}

#[test]
fn an_access_is_repeated_when_answers_are_late_for_what_they_take() {
    let mut rig = learnt();
    rig.call(1, KEY, Op::Pull, 2);
    assert_eq!(repeats_after(&mut rig, Nanos(2_690_000)), 0, "not yet");
    assert_eq!(repeats_after(&mut rig, Nanos(20_000)), 1);
}

#[test]
fn a_localize_and_a_row_tell_how_long_answers_take() {
    let mut rig = Rig::new();
    rig.localize(1, KEY, 1);
    rig.now = rig.now.saturating_add(SLOW);
    rig.deliver();
    rig.localize(1, KEY + 1, 2);
    assert_eq!(repeats_after(&mut rig, Nanos(2_690_000)), 0, "not yet");
    assert_eq!(repeats_after(&mut rig, Nanos(20_000)), 1);
    rig.deliver();
    // Its giver hears of a row's arrival.
    let mut rig = Rig::new();
    rig.localize(2, KEY + 20, 1);
    let wish = rig.take(|passing| passing.what() == Some(What::Localize));
    rig.arrive(&wish).unwrap();
    let wish = rig.take(|passing| passing.what() == Some(What::Localize));
    rig.arrive(&wish).unwrap();
    rig.now = rig.now.saturating_add(SLOW);
    rig.deliver();
    assert!(rig.done(2, 1).is_some(), "process 1 has given it");
    rig.call(1, KEY, Op::Pull, 2);
    assert_eq!(repeats_after(&mut rig, Nanos(2_690_000)), 0, "not yet");
    assert_eq!(repeats_after(&mut rig, Nanos(20_000)), 1);
}

/// Karn's rule: nobody knows to which of two copies an answer is. Until one is known the timeout is
/// twice as long, or whatever takes longer would leave twice for ever.
#[test]
fn answers_to_what_left_twice_tell_nothing_and_what_leaves_next_waits_twice_as_long() {
    let mut rig = learnt();
    rig.call(1, KEY, Op::Pull, 2);
    assert_eq!(repeats_after(&mut rig, Nanos(2_710_000)), 1);
    rig.deliver();
    assert!(rig.done(1, 2).is_some());
    rig.call(1, KEY, Op::Pull, 3);
    assert_eq!(repeats_after(&mut rig, Nanos(5_390_000)), 1, "not yet");
    assert_eq!(repeats_after(&mut rig, Nanos(20_000)), 2);
    rig.deliver();
    assert!(rig.done(1, 3).is_some());
}
