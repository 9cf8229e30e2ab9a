//! Windowed leases: formation, loss, restarts, hand-over.

use alloc::vec::Vec;

use weft_wire::Nanos;
use weft_wire::header::Kind;

use super::super::{Counter, Entry, Lost};
use super::world::{Hop, KEY, World};
use crate::role::worker::Event;

#[test]
fn rounds_over_a_switch_sum_exactly() {
    let mut world = World::new(3);
    world.connect();
    for chunks in [1, 9, 40] {
        world.begin(chunks);
        world.finish(chunks);
    }
    assert_eq!(world.switch.added, 3 * (1 + 9 + 40), "the switch has summed all of it");
    assert_eq!(world.agent.lost(), None);
}

#[test]
fn rounds_sum_exactly_when_any_frame_may_be_lost() {
    let mut world = World::new(3);
    world.loses = |random, _, _| random.next_u32() % 10 == 0;
    world.connect();
    world.begin(60);
    world.finish(60);
    assert_eq!(world.switch.added, 3 * 60);
}

#[test]
fn nobody_is_welcome_before_the_row_is_in_the_switch() {
    let mut world = World::new(2);
    let mut has_formed = false;
    world.run("connecting", |world| {
        let opened = world.events.iter().any(|events| events.contains(&Event::Opened));
        assert!(!opened || world.rows() == 1, "WELCOME before the row");
        has_formed |= world
            .agent
            .aggregator()
            .leases()
            .any(|lease| lease.phase() == crate::role::aggregator::Phase::AwaitingSwitch);
        world.events.iter().all(|events| events.contains(&Event::Opened))
    });
    assert!(has_formed, "the lease waited for the switch");
}

#[test]
fn a_row_that_the_switch_refuses_ends_its_members() {
    let mut world = World::new(2);
    world.switch.refuses = "rows";
    world.run("a refusal", |world| {
        world.events.iter().all(|events| matches!(events.last(), Some(Event::Failed(_))))
    });
    assert_eq!(world.agent.stats().rows_refused, 1);
    assert!(world.agent.take_refusals()[0].contains("RESOURCE_EXHAUSTED"));
}

#[test]
fn a_switch_that_restarts_in_a_round_is_noticed_and_the_round_goes_on() {
    let mut world = World::new(3);
    world.loses = |random, _, _| random.next_u32() % 20 == 0;
    world.connect();
    world.begin(60);
    let third = |world: &World| world.switch.added > 60;
    world.run("a third", third);
    // It comes up again with other registers: the next question shows it.
    world.switch.life = 99;
    world.run("noticing", |world| world.agent.lost() == Some(Lost::OtherLife));
    world.restart_switch(12);
    world.finish(60);
    world.begin(7);
    world.finish(7);
}

#[test]
fn sums_that_some_lack_are_handed_over_through_the_switch() {
    let mut world = World::new(3);
    world.connect();
    world.begin(20);
    // Rank 2 hears no answer; the others go on until the window holds them.
    world.loses = |_, header, hop| {
        hop == Hop::Down(2) && header.is_some_and(|header| header.kind == Kind::Answer)
    };
    world.run("a few answers", |world| world.switch.added >= 6);
    let end = Nanos(world.now.0 + Nanos::from_millis(30).0);
    world.run("stalling", |world| world.now >= end);
    world.restart_switch(13);
    world.loses = |_, _, _| false;
    world.finish(20);
    let stats = world.agent.aggregator().jobs().next().unwrap().1;
    assert!(stats.hand_overs > 0, "somebody lacked a sum that others hold");
    assert_eq!(stats.contributions_added, 0, "the box itself adds nothing");
}

#[test]
fn a_switch_that_answers_no_op_frame_is_lost() {
    let mut world = World::new(1);
    world.loses = |_, header, hop| header.is_none() && matches!(hop, Hop::Down(_));
    world.run("noticing", |world| world.agent.lost() == Some(Lost::NeverAnswered));
    assert_eq!(world.rows(), 0, "nothing is served by a switch that may be another's");
    let mut world = World::new(1);
    world.connect();
    world.loses = |_, header, hop| header.is_none() && matches!(hop, Hop::Down(_));
    world.run("noticing", |world| world.agent.lost() == Some(Lost::Silent));
}

#[test]
fn a_new_session_is_another_installation_in_the_same_banks() {
    let mut world = World::new(2);
    world.connect();
    world.begin(6);
    world.finish(6);
    let (before, _) = world.switch.row(KEY).unwrap();
    // Both begin anew, with other lives.
    for rank in 0..2 {
        world.events[rank].clear();
        world.workers[rank] = world.worker(rank, 500 + rank as u64);
    }
    world.connect();
    let (after, _) = world.switch.row(KEY).unwrap();
    assert_ne!(before.lease_epoch, after.lease_epoch);
    assert_ne!(before.generation, after.generation);
    assert_eq!(before.base, after.base);
    world.begin(9);
    world.finish(9);
}

#[test]
fn counters_are_read_at_once_when_the_box_is_about_to_end() {
    let mut world = World::new(2);
    world.connect();
    while world.agent.poll_read(world.now).is_some() {}
    assert!(world.agent.poll_read(world.now).is_none());
    world.agent.read_last();
    let cells = core::iter::from_fn(|| world.agent.poll_read(world.now)).map(|read| read.counter);
    let counters: Vec<Counter> = cells.collect();
    assert_eq!(counters, [Counter::Drops, Counter::Transitions]);
}

#[test]
fn a_lease_that_is_removed_leaves_nothing_in_the_switch() {
    use weft_control::{Command, HoldingCommand};
    let mut world = World::new(2);
    world.connect();
    let of_box = |world: &World| {
        let is_of_lease = |entry: &&Entry| {
            !matches!(
                entry,
                Entry::Local { .. }
                    | Entry::Bridge { .. }
                    | Entry::ReducedJob { .. }
                    | Entry::Group { id: 1, .. }
            )
        };
        world.switch.entries.values().filter(is_of_lease).count()
    };
    assert!(of_box(&world) > 4);
    let (job, row) = (KEY.job, KEY.row);
    world.agent.handle_command(Command::Holding(HoldingCommand::RemoveLease { job, row }));
    world.run("removal", |world| of_box(world) == 0);
}
