//! The steps of a lane by themselves: what goes next, and when.

use super::slot::{Answer, Have, Sum};
use super::steps::Steps;
use super::*;
use crate::send::path::Path;
use crate::send::retransmit::RttEstimator;
use crate::send::window::CongestionWindow;

/// A path of which nothing has been measured: what is sent is overdue after 20 ms.
fn path() -> Path {
    let ms = Nanos::from_millis;
    Path::new(RttEstimator::new(ms(20), ms(1), ms(1_000)), CongestionWindow::new(16, 16))
}

/// Sends all that may go with a window of `size`.
fn send_all(steps: &mut Steps, size: u32, now: Nanos, path: &Path) {
    while let Some(action) = steps.peek(size) {
        steps.sent(action, now, path, 0);
    }
}

/// The sum of a step that waits for it comes.
fn answer(steps: &mut Steps, step: u32, now: Nanos) {
    let sum = Sum { bytes: &[0; 4], exponent: 0, flags: Flags::NONE, in_place: false };
    assert!(matches!(steps.take_answer(step, now, None, sum), Answer::New { .. }));
}

/// A step whose answer came while it waited to go again is listed below the lowest missing one,
/// which must not wait for room behind it.
#[test]
fn the_lowest_missing_step_never_waits_for_room_behind_one_that_was_answered() {
    let (ms, path) = (Nanos::from_millis, path());
    let mut steps = Steps::new(8, 4, 1);
    steps.extend(16);
    for (now, step) in [(0, 0), (0, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6)] {
        let action = steps.peek(8).expect("there is room");
        assert_eq!(action.step, step);
        steps.sent(action, ms(now), &path, 0);
    }
    answer(&mut steps, 2, ms(2));
    assert_eq!(steps.expire(ms(9), &path).map(|overdue| overdue.count), Some(2));
    answer(&mut steps, 0, ms(9));
    assert_eq!((steps.low(), steps.in_flight()), (1, 4));
    assert_eq!(steps.peek(4).map(|action| action.step), Some(1));
}

/// The answer to a repeat shows what is lost when nothing has followed it for a timeout. While the
/// lowest missing step is with the box there is nothing to follow, and no deadline; that time is no
/// part of the timeout, which begins when the step goes again.
#[test]
fn a_doubt_that_waited_for_the_lowest_missing_step_has_its_whole_time_from_there() {
    let (ms, path) = (Nanos::from_millis, path());
    let mut steps = Steps::new(4, 4, 1);
    steps.extend(4);
    send_all(&mut steps, 4, ms(0), &path);
    assert_eq!(steps.expire(ms(20), &path).map(|overdue| overdue.count), Some(1));
    send_all(&mut steps, 4, ms(20), &path);
    answer(&mut steps, 0, ms(25));
    assert_eq!(steps.next_deadline(&path), ms(45));
    assert!(matches!(steps.take_have(1, ms(26), true), Have::Known(_)));
    assert_eq!(steps.take_have(1, ms(60), false), Have::Lost);
    send_all(&mut steps, 4, ms(60), &path);
    let _ = steps.expire(ms(60), &path);
    assert_eq!((steps.next_deadline(&path), steps.in_flight()), (ms(80), 3), "not at once");
    assert_eq!(steps.expire(ms(80), &path).map(|overdue| overdue.count), Some(2));
}

/// Steps of a window of 8, in batches of 4, all of them sent.
fn window_of_batches(path: &Path) -> Steps {
    let mut steps = Steps::new(8, 4, 4);
    steps.extend(100);
    send_all(&mut steps, 16, Nanos(0), path);
    steps
}

#[test]
fn what_waits_for_a_batch_follows_nothing() {
    let mut steps = window_of_batches(&path());
    answer(&mut steps, 0, Nanos(1));
    assert_eq!((steps.peek(16), steps.next_of_run(16)), (None, None));
    (1..4).for_each(|step| answer(&mut steps, step, Nanos(1)));
    assert_eq!(steps.peek(16).map(|action| action.step), Some(8));
    assert_eq!(steps.next_of_run(16), Some(8), "a batch has begun");
}

/// A port that was full has left a batch open.
#[test]
fn what_is_asked_for_goes_before_the_rest_of_a_batch() {
    let path = path();
    let mut steps = window_of_batches(&path);
    assert!(matches!(steps.take_have(7, Nanos(1), true), Have::Known(_)));
    (0..4).for_each(|step| answer(&mut steps, step, Nanos(1)));
    let first = steps.peek(16).unwrap();
    steps.sent(first, Nanos(1), &path, 0);
    assert_eq!(steps.next_of_run(16), Some(9));
    let _ = steps.expire(Nanos::from_millis(20), &path);
    assert_eq!(steps.peek(16).map(|action| action.step), Some(7));
    assert_eq!(steps.next_of_run(16), None);
}
