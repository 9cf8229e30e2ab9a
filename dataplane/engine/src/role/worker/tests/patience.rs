//! How a round ends that others keep waiting: who is named, and when.

use super::*;

#[test]
fn a_member_that_never_contributes_is_named() {
    let mut sim = Sim::new(3, 4, 1);
    sim.connect();
    sim.begin_all(8);
    sim.asleep_until[1] = Nanos::MAX;
    let failed = Event::Failed(WorkerError::MembersMissing { missing: FakeBox::rank(1).bit() });
    let begun = sim.now;
    let both = sim.run(Nanos::from_millis(4_000), |sim| {
        sim.events[0].contains(&failed) && sim.events[2].contains(&failed)
    });
    assert!(both, "{:?}", sim.events);
    assert!(sim.now.since(begun) <= Nanos::from_millis(3_100));
}

/// Whoever was only late is not named by a word of the box that others have overtaken.
#[test]
fn an_old_word_names_nobody_who_has_come_since() {
    let mut sim = Sim::new(3, 1, 1);
    sim.connect();
    sim.begin_all(1);
    let begun = sim.now;
    sim.asleep_until[1] = Nanos::MAX;
    sim.asleep_until[2] = begun.saturating_add(Nanos::from_millis(100));
    sim.hook = Box::new(move |p| match p.header.kind {
        Kind::State if p.rank == 0 && p.header.members == FakeBox::rank(0).bit() => {
            Fate::Delay(Nanos::from_millis(2_500))
        }
        Kind::State if p.rank == 0 && p.now.since(begun) > SECOND => Fate::Drop,
        _ => Fate::Pass,
    });
    let failed = Event::Failed(WorkerError::MembersMissing { missing: FakeBox::rank(1).bit() });
    sim.run(Nanos::from_millis(4_000), |sim| !sim.events[0].is_empty());
    assert!(sim.events[0].contains(&failed), "{:?}", sim.events[0]);
}

#[test]
fn a_dead_box_is_an_error_that_says_so() {
    let mut sim = Sim::new(2, 4, 1);
    sim.connect();
    sim.begin_all(8);
    sim.hook = Box::new(|_| Fate::Drop);
    let failed = Event::Failed(WorkerError::BoxSilent);
    let both = sim.run(Nanos::from_millis(4_000), |sim| {
        sim.events.iter().all(|events| events.contains(&failed))
    });
    assert!(both, "{:?}", sim.events);
    assert!(sim.workers[0].stats().hellos_sent > 3, "a silent box is asked who it is");
}

/// What two workers say when a third never contributes and the box dies so long after the begin.
fn named_when_the_box_dies_at(dies_at: Nanos) -> Vec<Event> {
    let mut sim = Sim::new(3, 4, 1);
    sim.connect();
    sim.begin_all(8);
    sim.asleep_until[1] = Nanos::MAX;
    let begun = sim.now;
    sim.hook =
        Box::new(move |p| if p.now.since(begun) >= dies_at { Fate::Drop } else { Fate::Pass });
    let both = sim.run(Nanos::from_millis(4_000), |sim| {
        !sim.events[0].is_empty() && !sim.events[2].is_empty()
    });
    assert!(both, "{:?}", sim.events);
    assert!(sim.now.since(begun) <= Nanos::from_millis(3_100), "no longer than without");
    [&sim.events[0][..], &sim.events[2][..]].concat()
}

/// Found from outside: whoever had a HAVE within `member_timeout` blamed a rank for a dead box.
#[test]
fn a_box_that_dies_while_it_waits_for_a_member_is_named_and_not_the_member() {
    for dies_at in [50, 500, 1_000, 1_500, 2_000, 2_500] {
        let named = named_when_the_box_dies_at(Nanos::from_millis(dies_at));
        assert_eq!(named, [Event::Failed(WorkerError::BoxSilent); 2], "at {dies_at} ms");
    }
    // It spoke for nearly all of the time, and of nobody but this rank.
    let missing = WorkerError::MembersMissing { missing: FakeBox::rank(1).bit() };
    let named = named_when_the_box_dies_at(Nanos::from_millis(2_900));
    assert_eq!(named, [Event::Failed(missing); 2]);
}

#[test]
fn a_member_is_named_while_a_box_speaks_over_a_path_that_loses_a_third() {
    let missing = WorkerError::MembersMissing { missing: FakeBox::rank(1).bit() };
    for seed in 0..20 {
        let mut sim = Sim::new(3, 4, 1);
        sim.connect();
        sim.begin_all(8);
        sim.asleep_until[1] = Nanos::MAX;
        sim.hook = faults(seed, 330, 0, 100, 0);
        sim.run(Nanos::from_millis(4_000), |sim| {
            !sim.events[0].is_empty() && !sim.events[2].is_empty()
        });
        for rank in [0, 2] {
            assert_eq!(sim.events[rank], [Event::Failed(missing)], "seed {seed}");
        }
    }
}

/// A program that was stopped sent no question, however long it was, so the box was not silent.
#[test]
fn a_worker_that_slept_does_not_blame_a_box_that_it_did_not_ask() {
    for slept_ms in [2_500, 8_000] {
        let mut sim = Sim::new(3, 4, 1);
        sim.connect();
        sim.begin_all(8);
        sim.asleep_until[1] = Nanos::MAX;
        sim.run(Nanos::from_millis(1_100), |_| false);
        sim.asleep_until[0] = sim.now.saturating_add(Nanos::from_millis(slept_ms));
        sim.run(Nanos::from_millis(slept_ms + 4_000), |sim| !sim.events[0].is_empty());
        let missing = WorkerError::MembersMissing { missing: FakeBox::rank(1).bit() };
        assert_eq!(sim.events[0], [Event::Failed(missing)], "{slept_ms} ms");
    }
}
