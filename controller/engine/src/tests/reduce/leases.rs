//! What the box holds: through restarts of it and of the controller, and refusals.

use super::*;

/// Before that it does not say of a lease that it has none, and workers ask on.
#[test]
fn a_box_is_told_that_it_has_all_once_it_has_every_jobs_lease() {
    let settled = |rig: &Rig| {
        let told = |action: &&Action| matches!(action, Action::Settled { .. });
        rig.actions.iter().filter(told).count()
    };
    let mut rig = Rig::new(config(4, 2), &Saved::fresh(7));
    rig.attach_box(&[]);
    assert_eq!(settled(&rig), 0);
    rig.answer(Event::HoldingInstalled { holding: Holding::Job });
    assert_eq!(settled(&rig), 0, "it has the share, and not the lease");
    rig.actions.clear();
    rig.answer(Event::HoldingInstalled { holding: Holding::Row(2) });
    assert_eq!(settled(&rig), 1);
    rig.start(0, 2, 0);
    // It is killed when the lease is just taken away, and has none of the next one's either.
    rig.leave(2, 4, 1);
    rig.actions.clear();
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    rig.life += 1;
    rig.attach_box(&[]);
    assert_eq!(settled(&rig), 0);
    assert_eq!(rig.obey(), ["share", "lease of 4"]);
    assert_eq!(settled(&rig), 1);
    // One that only lost its stream is told on the new one; one that refuses is told too.
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    rig.attach_box(&[Holding::Job, Holding::Row(2)]);
    assert_eq!(settled(&rig), 2);
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    rig.life += 1;
    rig.attach_box(&[]);
    let error = HoldingError::Full;
    rig.answer(Event::HoldingRefused { holding: Holding::Job, error });
    assert_eq!(settled(&rig), 3);
}

/// The workers use it: to take it away would end their sessions.
#[test]
fn a_lease_whose_answer_the_controller_did_not_live_to_hear_stays() {
    let mut rig = Rig::running(4, 2);
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    rig.life += 1;
    rig.attach_box(&[Holding::Job]);
    rig.actions.clear();
    rig.settle();
    let saved = rig.controller.poll_saved().expect("there is news");
    let mut next = Rig::new(config(4, 2), &saved);
    next.attach_box(&[Holding::Job, Holding::Row(2)]);
    assert_eq!(next.obey(), Vec::<String>::new());
    assert!(next.status().is_leased);
    // Of a lease that was there before, nothing is known.
    let mut other = Rig::new(config(4, 2), &Saved::fresh(7));
    other.attach_box(&[Holding::Job, Holding::Row(2)]);
    assert_eq!(other.obey(), ["remove", "lease of 2"]);
}

/// A worker that has just come may be calling the box yet, and keeps nothing before it answers.
#[test]
fn a_box_that_comes_back_while_workers_leave_gets_their_lease() {
    let mut rig = Rig::running(4, 2);
    rig.resize(4).unwrap();
    rig.all_say(2, 1, Halt::Held);
    rig.all_say(2, 1, Halt::Stopped);
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    rig.life += 1;
    rig.attach_box(&[]);
    assert_eq!(rig.obey(), ["share", "lease of 2"]);
    rig.all_say(2, 1, Halt::Left);
    assert_eq!(rig.obey(), ["remove", "lease of 4"]);
}

#[test]
fn a_lease_that_is_refused_brings_the_former_width_back() {
    let mut rig = Rig::running(4, 2);
    rig.leave(2, 4, 1);
    let removed = Event::HoldingRemoved { holding: Holding::Row(2) };
    rig.actions.clear();
    rig.answer(removed);
    let (holding, error) = (Holding::Row(2), HoldingError::Full);
    rig.answer(Event::HoldingRefused { holding, error });
    let told = rig.actions.iter().find_map(|action| match action {
        Action::Resized { outcome: Err(problem), .. } => Some(problem.clone()),
        _ => None,
    });
    assert!(told.expect("it is told").contains("goes on with 2"));
    // The first command is that of the lease that was refused.
    let wanted = rig.actions.iter().rev().find_map(|action| match action {
        Action::Command {
            command: Command::Holding(HoldingCommand::InstallLease(row)), ..
        } => Some(row.members.len()),
        _ => None,
    });
    assert_eq!(wanted, Some(2));
    rig.answer(Event::HoldingInstalled { holding });
    assert_eq!((rig.status().cohort, rig.status().workers), (2, 2));
    rig.start(2, 2, 1);
    assert_eq!(rig.status().state, JobState::Running);
}

#[test]
fn a_box_that_comes_back_with_nothing_gets_its_lease_again() {
    let mut rig = Rig::running(4, 2);
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    rig.life = 2;
    rig.attach_box(&[]);
    assert_eq!(rig.obey(), ["share", "lease of 2"]);
    assert_eq!(rig.status().state, JobState::Running);
}

/// One that was installed and not acknowledged may be of the cohort before.
#[test]
fn a_lease_of_which_nothing_is_known_is_replaced() {
    let mut rig = Rig::new(config(4, 2), &Saved::fresh(7));
    rig.attach_box(&[Holding::Job, Holding::Row(2)]);
    assert_eq!(rig.obey(), ["remove", "lease of 2"]);
}
