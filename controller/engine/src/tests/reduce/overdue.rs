//! A cohort that does not begin: whoever asked is told in time who is missing, and may ask again.

use super::*;

const S: u64 = 1_000_000_000;

/// Resized to `to` workers, of which nobody has come.
fn resized(to: u16) -> Rig {
    let mut rig = Rig::running(4, 2);
    rig.leave(2, to, 1);
    rig.obey();
    rig.settle();
    rig.actions.clear();
    rig
}

impl Rig {
    /// The outcomes of resizes that were told since it was last asked.
    fn outcomes(&mut self) -> Vec<Result<(u16, u16), String>> {
        let all: Vec<Action> = self.actions.drain(..).collect();
        let outcome = |action| match action {
            Action::Resized { outcome, .. } => Some(outcome.map(|it| (it.from, it.to))),
            _ => None,
        };
        all.into_iter().filter_map(outcome).collect()
    }

    fn wait(&mut self, wait_ns: u64) {
        self.now_ns += wait_ns;
        self.settle();
    }
}

#[test]
fn a_cohort_that_never_begins_is_given_up_in_time_and_says_who_is_missing() {
    let mut rig = resized(3);
    rig.attach(1, 1, 1).unwrap();
    let due_ns = rig.controller.poll_timeout().expect("it is waited for");
    rig.wait(4 * S);
    assert_eq!(rig.outcomes(), []);
    assert_eq!(rig.resize(2), Err(SteerError::Resizing), "there is time");
    rig.now_ns = due_ns;
    rig.settle();
    let told = rig.outcomes();
    let problem = told[0].as_ref().unwrap_err();
    assert_eq!(
        problem,
        "name: the 3 workers of `digits` have not begun round 1 within 5 s: rank 0, 2 has no \
         stream; start them, or resize the job again"
    );
    assert_eq!(rig.status().unbegun, *problem);
    assert!(rig.status().wants_workers && rig.status().state == JobState::Resizing);
    rig.wait(60 * S);
    assert_eq!(rig.outcomes(), [], "it is told once");
    assert_eq!(rig.pause(), Err(SteerError::Unbegun));
}

#[test]
fn workers_that_have_come_and_do_not_begin_are_named_and_so_is_an_aggregator() {
    let mut rig = resized(3);
    (0..3).for_each(|rank| rig.attach(rank, 1, 1).unwrap());
    rig.begin(2, 1);
    rig.wait(6 * S);
    let told = rig.outcomes().remove(0).unwrap_err();
    assert!(told.contains("rank 0, 1 has a stream, and does not begin"), "{told}");
    let mut rig = Rig::running(4, 2);
    rig.leave(2, 3, 1);
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    rig.settle();
    rig.wait(6 * S);
    let told = rig.outcomes().remove(0).unwrap_err();
    assert!(told.contains("their aggregator `a0` is not here"), "{told}");
    assert_eq!(rig.status().unbegun, told);
    // It comes back, with the lease that it was told of last; the workers are missing yet.
    rig.attach_box(&[Holding::Job, Holding::Row(2)]);
    rig.obey();
    rig.wait(S);
    let unbegun = rig.status().unbegun;
    assert!(unbegun.contains("rank 0, 1, 2 has no stream"), "{unbegun}");
    assert_eq!(rig.outcomes(), [], "it is told once");
}

#[test]
fn late_workers_begin_and_the_job_runs() {
    let mut rig = resized(3);
    rig.wait(6 * S);
    rig.outcomes();
    rig.start(1, 3, 1);
    assert_eq!(rig.outcomes(), [Ok((2, 3))]);
    let status = rig.status();
    assert_eq!((status.state, status.unbegun.as_str()), (JobState::Running, ""));
    rig.wait(60 * S);
    assert_eq!(rig.outcomes(), []);
}

/// As wide as the one that did not come, or otherwise; from the same round.
#[test]
fn an_overdue_cohort_is_resized_again_and_begins_where_it_was_to() {
    for to in [3, 4, 1] {
        let mut rig = resized(3);
        rig.attach(0, 1, 1).unwrap();
        rig.begin(0, 1);
        rig.wait(6 * S);
        rig.outcomes();
        rig.resize(to).unwrap();
        assert_eq!(rig.orders(1)[0].1, RoundOrder::Bye, "it belongs to nobody now");
        assert_eq!(rig.obey(), ["remove".into(), format!("lease of {to}")]);
        let status = rig.status();
        assert_eq!((status.cohort, status.workers, status.from_round), (2, to, 1));
        assert!(status.wants_workers && status.unbegun.is_empty());
        let late = rig.attach(1, 1, 1).unwrap_err();
        assert_eq!(late.problem, "bye");
        rig.start(2, to, 1);
        assert_eq!(rig.outcomes(), [Ok((2, to))], "from the workers that last ran");
        assert_eq!(rig.status().state, JobState::Running);
    }
}

/// A round that somebody has left all have begun: the one without a stream too.
#[test]
fn a_cohort_of_which_one_is_in_its_second_round_has_begun() {
    let mut rig = resized(2 + 1);
    (0..2).for_each(|rank| rig.attach(rank, 1, 1).unwrap());
    rig.begin(0, 1);
    rig.begin(0, 2);
    assert_eq!(rig.outcomes(), [Ok((2, 3))]);
    rig.wait(60 * S);
    assert_eq!(rig.outcomes(), []);
    assert_eq!(rig.status().unbegun, "");
}

/// Workers of a long round say nothing for long; one that ran is not resized from where it began.
#[test]
fn a_cohort_that_once_began_is_never_overdue_for_the_next_controller() {
    let mut rig = resized(3);
    rig.start(1, 3, 1);
    let saved = rig.controller.poll_saved().expect("it has changed");
    let mut rig = Rig::new(config(4, 2), &saved);
    rig.attach_box(&[Holding::Job, Holding::Row(2)]);
    rig.wait(60 * S);
    assert_eq!(rig.outcomes(), []);
    assert_eq!(rig.resize(4), Err(SteerError::Resizing));
    // One that had not begun is overdue again, with the time that it has.
    let mut rig = resized(3);
    let saved = rig.controller.poll_saved().expect("it has changed");
    let mut rig = Rig::new(config(4, 2), &saved);
    rig.attach_box(&[Holding::Job, Holding::Row(2)]);
    rig.wait(4 * S);
    assert_eq!(rig.outcomes(), []);
    rig.wait(2 * S);
    assert!(rig.outcomes()[0].is_err());
    rig.resize(1).unwrap();
}

/// The lease of the cohort that did not come fits, for it is there.
#[test]
fn a_lease_that_is_then_refused_brings_the_overdue_width_back() {
    let mut rig = resized(3);
    rig.wait(6 * S);
    rig.outcomes();
    rig.resize(4).unwrap();
    rig.answer(Event::HoldingRemoved { holding: Holding::Row(2) });
    rig.answer(Event::HoldingRefused { holding: Holding::Row(2), error: HoldingError::Full });
    let told = rig.outcomes().remove(0).unwrap_err();
    assert!(told.contains("goes on with 3"), "{told}");
    assert_eq!(rig.status().workers, 3);
}

/// Nobody works who could stop: the word would wait as long as the workers do that have not come.
#[test]
fn a_pause_while_new_workers_are_awaited_is_answered_at_once() {
    let mut rig = resized(3);
    assert_eq!(rig.pause(), Err(SteerError::Resizing));
    (0..3).for_each(|rank| rig.attach(rank, 1, 1).unwrap());
    assert_eq!(rig.pause(), Err(SteerError::Resizing), "they have not begun");
    let status = rig.status();
    assert_eq!((status.state, status.boundary), (JobState::Resizing, None));
    // The resize has its time, whatever else was said.
    rig.wait(6 * S);
    assert_eq!(rig.pause(), Err(SteerError::Unbegun));
    (0..3).for_each(|rank| rig.begin(rank, 1));
    rig.pause().unwrap();
    rig.all_say(3, 2, Halt::Held);
    rig.all_say(3, 2, Halt::Stopped);
    assert_eq!(rig.status().state, JobState::Paused);
    // Workers that are known to have begun may be paused by the next controller at once.
    rig.resume().unwrap();
    let saved = rig.controller.poll_saved().expect("it has changed");
    let mut next = Rig::new(config(4, 2), &saved);
    next.attach_box(&[Holding::Job, Holding::Row(2)]);
    next.pause().unwrap();
}
