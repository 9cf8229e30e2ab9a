use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn path(window: u32) -> Path {
    let ms = Nanos::from_millis;
    let rtt = RttEstimator::new(ms(20), ms(1), ms(1_000));
    Path::new(rtt, CongestionWindow::new(window, window)).heeding_delay()
}

fn overdue(sent: &[Sent]) -> Overdue {
    let mut overdue = Overdue::default();
    sent.iter().for_each(|sent| overdue.add(sent));
    overdue
}

fn timeout_ms(path: &Path) -> u64 {
    path.deadline(&path.send(Nanos(0))).0 / MS
}

#[test]
fn the_timeout_stays_doubled_for_new_data_until_a_clean_sample() {
    let mut path = path(16);
    assert_eq!(timeout_ms(&path), 20);
    let mut sent = [path.send(Nanos(0)); 3];
    let early = path.send(Nanos(MS));
    assert!(path.on_timeout(Nanos(20 * MS), &overdue(&sent)));
    assert_eq!(timeout_ms(&path), 40, "three at once double it once");
    assert!(!path.on_timeout(Nanos(21 * MS), &overdue(&[early])));
    assert_eq!(timeout_ms(&path), 40, "so does a fourth that left under the same");
    path.repeat(Nanos(20 * MS), &mut sent[0]);
    assert!(!path.on_timeout(Nanos(60 * MS), &overdue(&sent[..1])), "halved by it before");
    assert_eq!(timeout_ms(&path), 80);
    path.on_answer(Nanos(61 * MS), &sent[0], false, false);
    assert_eq!(timeout_ms(&path), 80, "whose answer it is cannot be known");
    let clean = path.send(Nanos(60 * MS));
    path.on_answer(Nanos(66 * MS), &clean, false, false);
    assert_eq!(timeout_ms(&path), 18, "three times a first round trip of 6 ms");
}

#[test]
fn an_answer_too_early_for_the_repeat_gives_the_window_back() {
    for (answered_ms, window) in [(5, 16), (6, 8)] {
        let mut path = path(16);
        let first = path.send(Nanos(MS));
        path.on_answer(Nanos(6 * MS), &first, false, false);
        let mut sent = path.send(Nanos(10 * MS));
        assert!(path.on_timeout(Nanos(30 * MS), &overdue(&[sent])));
        path.repeat(Nanos(30 * MS), &mut sent);
        path.on_answer(Nanos(30 * MS + answered_ms * MS - 1), &sent, false, false);
        assert_eq!(path.window(), window, "{answered_ms} ms after the repeat");
    }
}

#[test]
fn nothing_is_early_before_a_round_trip_was_measured() {
    let mut path = path(16);
    let mut sent = path.send(Nanos(0));
    path.on_timeout(Nanos(20 * MS), &overdue(&[sent]));
    path.repeat(Nanos(20 * MS), &mut sent);
    path.on_answer(Nanos(20 * MS), &sent, false, false);
    assert_eq!(path.window(), 8);
}

#[test]
fn have_of_a_first_repeat_gives_the_window_back_and_of_a_later_one_does_not() {
    for (repeats, window) in [(1, 16), (2, 8)] {
        let mut path = path(16);
        let mut sent = path.send(Nanos(0));
        path.on_timeout(Nanos(20 * MS), &overdue(&[sent]));
        for repeat in 1..=repeats {
            path.repeat(Nanos(40 * MS * repeat), &mut sent);
        }
        path.on_have(Nanos(500 * MS), &sent);
        assert_eq!(path.window(), window);
        assert_eq!(timeout_ms(&path), 40);
    }
}

#[test]
fn what_is_known_to_be_lost_before_its_time_halves_and_does_not_double() {
    let mut path = path(16);
    let mut lost = Overdue::default();
    lost.add_lost(&path.send(Nanos(0)));
    assert!(path.on_timeout(Nanos(5 * MS), &lost));
    assert_eq!((path.window(), timeout_ms(&path)), (8, 20));
}

#[test]
fn a_repeat_of_what_is_lost_has_the_timeout_of_new_data() {
    let path = path(16);
    let mut sent = path.send(Nanos(0));
    let timeout_ms = |sent: &Sent| path.deadline(sent).since(sent.at).0 / MS;
    path.repeat(Nanos(0), &mut sent);
    assert_eq!(timeout_ms(&sent), 40);
    path.repeat_lost(Nanos(0), &mut sent);
    assert_eq!((timeout_ms(&sent), sent.repeats), (20, 2));
    path.repeat(Nanos(0), &mut sent);
    assert_eq!(timeout_ms(&sent), 40);
}

#[test]
fn a_mark_halves_and_does_not_grow() {
    let mut path = path(16);
    let sent = path.send(Nanos(0));
    assert!(path.on_answer(Nanos(MS), &sent, true, true));
    assert!(!path.on_answer(Nanos(MS), &sent, true, true));
    assert_eq!(path.window(), 8);
}

#[test]
fn of_many_that_were_taken_for_lost_one_that_is_found_gives_nothing_back() {
    let mut path = path(16);
    let first = path.send(Nanos(MS));
    path.on_answer(Nanos(6 * MS), &first, false, false);
    let mut sent = [path.send(Nanos(10 * MS)); 3];
    let mut lost = Overdue::default();
    sent.iter().for_each(|sent| lost.add_lost(sent));
    assert!(path.on_timeout(Nanos(20 * MS), &lost));
    sent.iter_mut().for_each(|sent| path.repeat(Nanos(20 * MS), sent));
    path.on_have(Nanos(25 * MS), &sent[0]);
    path.on_answer(Nanos(23 * MS), &sent[1], false, false);
    assert_eq!(path.window(), 8);
    path.on_found();
    assert_eq!(path.window(), 16);
}

/// Rounds of a window of answers that all take as long.
fn rounds(path: &mut Path, now: &mut Nanos, count: usize, trip: impl Fn(u32) -> u64) {
    for _ in 0..count {
        let sent = path.send(*now);
        *now = Nanos(now.0 + trip(path.window()));
        (0..path.window()).for_each(|_| _ = path.on_answer(*now, &sent, true, false));
    }
}

/// A path of 10 us a frame and 100 us besides that has lost something with 256 in flight.
fn overrun() -> (Path, Nanos) {
    let (mut path, mut now) = (path(256), Nanos(0));
    path.set_window(CongestionWindow::new(1, 256));
    rounds(&mut path, &mut now, 1, |_| 100_000);
    path.set_window(CongestionWindow::new(256, 256));
    rounds(&mut path, &mut now, 2, queue);
    let mut lost = Overdue::default();
    lost.add_lost(&path.send(now));
    assert!(path.on_timeout(now, &lost));
    (path, now)
}

fn queue(window: u32) -> u64 {
    100_000 + 10_000 * u64::from(window)
}

#[test]
fn a_queue_that_has_lost_something_is_kept_at_three_quarters_of_it() {
    let (mut path, mut now) = overrun();
    rounds(&mut path, &mut now, 100, queue);
    let mut seen = [u32::MAX, 0];
    for _ in 0..40 {
        rounds(&mut path, &mut now, 1, queue);
        seen = [seen[0].min(path.window()), seen[1].max(path.window())];
    }
    assert!(seen[0] >= 168 && seen[1] <= 232, "{seen:?}");
}

#[test]
fn a_narrow_window_is_eased_too_for_it_does_not_grow_meanwhile() {
    let (mut path, mut now) = overrun();
    path.set_window(CongestionWindow::new(8, 256));
    rounds(&mut path, &mut now, 3, |window| MS * u64::from(window));
    assert_eq!(path.window(), 5);
}

#[test]
fn a_loss_that_was_none_leaves_no_limit() {
    let undo: [fn(&mut Path); 2] = [Path::on_found, |path| path.restore_window(256)];
    for undo in undo {
        let (mut path, mut now) = overrun();
        undo(&mut path);
        rounds(&mut path, &mut now, 3, |_| 10 * MS);
        assert_eq!(path.window(), 256);
    }
}

#[test]
fn a_path_that_heeds_loss_alone_is_given_back_with_the_first_that_is_found() {
    let (path_of_late, mut now) = overrun();
    let mut path = Path { delay: None, ..path_of_late };
    rounds(&mut path, &mut now, 10, |_| 10 * MS);
    assert!(path.window() > 128);
    let mut lost = Overdue::default();
    (0..3).for_each(|_| lost.add_lost(&path.send(now)));
    let before = path.window();
    assert!(path.on_timeout(now, &lost));
    assert!(!path.on_timeout(now, &lost), "a second within a round trip");
    path.on_found();
    assert_eq!(path.window(), before);
}

#[test]
fn a_mark_says_nothing_of_the_queue_that_loses() {
    let (mut path, mut now) = (path(256), Nanos(0));
    rounds(&mut path, &mut now, 2, |_| 100_000);
    let sent = path.send(now);
    assert!(path.on_answer(Nanos(now.0 + 2 * MS), &sent, true, true));
    rounds(&mut path, &mut now, 10, |_| 5 * MS);
    assert_eq!(path.window(), 138);
}

proptest! {
    #[test]
    fn a_wait_that_is_not_the_windows_shrinks_it_for_no_longer_than_a_loss_would(
        late in 1u64..10_000 * MS,
        queued in any::<bool>(),
    ) {
        let (mut path, mut now) = overrun();
        let late_trip = |window| late + if queued { queue(window) } else { 0 };
        rounds(&mut path, &mut now, 20, late_trip);
        prop_assert!(path.window() >= 128 * 9 / 16, "{}", path.window());
        rounds(&mut path, &mut now, 400, |_| late);
        prop_assert_eq!(path.window(), 256);
    }

    #[test]
    fn a_link_never_idles_for_the_sake_of_its_queue(
        least_us in 10u64..20_000,
        frame_us in 1u64..2_000,
    ) {
        let (mut path, mut now) = (path(512), Nanos(0));
        let product = u32::try_from(least_us / frame_us).unwrap();
        prop_assume!(product < 256);
        // Work conserving: what is in flight beyond the link's product waits.
        let trip = move |window: u32| 1_000 * (frame_us * u64::from(window)).max(least_us);
        path.set_window(CongestionWindow::new(1, 512));
        rounds(&mut path, &mut now, 1, trip);
        path.set_window(CongestionWindow::new(512, 512));
        // Losses at the shortest queues there are.
        for _ in 0..3 {
            let mut lost = Overdue::default();
            lost.add_lost(&path.send(now));
            path.on_timeout(now, &lost);
            path.set_window(CongestionWindow::new((product * 3 / 2).max(1), 512));
            rounds(&mut path, &mut now, 2, trip);
        }
        for _ in 0..100 {
            let before = path.window();
            rounds(&mut path, &mut now, 1, trip);
            prop_assert!(path.window() >= before || path.window() >= product * 5 / 4);
        }
    }

    #[test]
    fn the_window_stays_between_one_and_the_lease(
        max in 1u32..300,
        steps in prop::collection::vec((0u8..6, 0u64..20 * MS, any::<bool>()), 0..300),
    ) {
        let mut path = path(max);
        let (mut now, mut sent) = (Nanos(0), path.send(Nanos(0)));
        for (step, wait, flag) in steps {
            now = Nanos(now.0 + wait);
            let mut overdue = Overdue::default();
            match step {
                0 => sent = path.send(now),
                1 => _ = path.on_answer(now, &sent, true, flag),
                2 => path.on_have(now, &sent),
                3 => path.on_found(),
                4 => _ = path.on_congestion(now),
                _ => {
                    if flag { overdue.add(&sent) } else { overdue.add_lost(&sent) }
                    path.on_timeout(now, &overdue);
                    path.repeat(now, &mut sent);
                }
            }
            prop_assert!((1..=max).contains(&path.window()));
        }
    }
}
