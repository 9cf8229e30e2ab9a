//! Sums that come by multicast, and networks that do not carry them.

use core::net::IpAddr;

use super::*;

fn group() -> IpAddr {
    IpAddr::from([239, 87, 69, 3])
}

/// Workers that hear the box's multicast address, but for those that `deaf` names.
fn listening(member_count: usize, shards: u16, deaf: &[usize]) -> Sim {
    let mut sim = Sim::new(member_count, 8, shards);
    sim.fake.multicast = Some(group());
    for rank in (0..member_count).filter(|rank| !deaf.contains(rank)) {
        sim.replace(rank, WorkerConfig { multicast: Some(group()), ..config(rank) }, rank as u64);
    }
    sim.connect();
    sim
}

fn cast(sim: &Sim) -> u64 {
    sim.total(|stats| stats.answers_by_multicast)
}

fn round(sim: &mut Sim, chunks: usize) {
    sim.begin_all(chunks);
    sim.finish_round(Nanos::from_millis(3_000));
}

#[test]
fn sums_come_by_multicast_once_all_have_said_that_they_hear() {
    for shards in [1, 2] {
        let mut sim = listening(3, shards, &[]);
        round(&mut sim, 40);
        let heard = cast(&sim);
        assert!(heard > 0);
        round(&mut sim, 40);
        assert_eq!(cast(&sim), heard + 3 * 40, "each of them");
        let said = sim.total(|stats| stats.hellos_sent);
        sim.run(Nanos::from_millis(200), |_| false);
        assert_eq!(sim.total(|stats| stats.hellos_sent), said, "no word is needed any more");
        assert_eq!(sim.total(|stats| stats.retransmissions), 0);
    }
}

#[test]
fn one_that_does_not_listen_keeps_all_on_their_own_addresses() {
    let mut sim = listening(3, 1, &[1]);
    for _ in 0..3 {
        round(&mut sim, 40);
    }
    assert_eq!(cast(&sim), 0);
    assert_eq!(sim.total(|stats| stats.retransmissions), 0);
}

/// A network that carries no multicast costs some repeats and then nothing.
#[test]
fn a_network_without_multicast_is_found_out() {
    let mut sim = listening(3, 2, &[]);
    sim.hook = Box::new(|passing| if passing.is_cast { Fate::Drop } else { Fate::Pass });
    round(&mut sim, 200);
    round(&mut sim, 200);
    let repeats = sim.total(|stats| stats.retransmissions);
    let at = sim.now;
    round(&mut sim, 200);
    assert_eq!(sim.total(|stats| stats.retransmissions), repeats);
    assert!(sim.now.since(at) < Nanos::from_millis(20), "as fast as without");
    assert_eq!(cast(&sim), 0);
}

/// A snooping switch forgets who listens when nobody asks any more: in the middle of a run, and for
/// one member alone.
#[test]
fn a_member_that_is_cut_off_says_so() {
    let mut sim = listening(3, 1, &[]);
    round(&mut sim, 100);
    let heard = cast(&sim);
    sim.hook = Box::new(|passing| match passing.is_cast && passing.rank == 1 {
        true => Fate::Drop,
        false => Fate::Pass,
    });
    round(&mut sim, 200);
    round(&mut sim, 200);
    let both = cast(&sim) - heard;
    assert!(both < 2 * 100, "{both} of 800 were still sent to all");
    assert_eq!(sim.fake.lanes[0].open.as_ref().unwrap().hearing, 0b101);
}

#[test]
fn a_box_that_begins_anew_is_told_again() {
    let mut sim = listening(2, 1, &[]);
    sim.be_patient();
    round(&mut sim, 50);
    sim.fake.restart();
    round(&mut sim, 50);
    let heard = cast(&sim);
    round(&mut sim, 50);
    assert_eq!(cast(&sim), heard + 2 * 50);
}

#[test]
fn faults_cost_time_and_no_sum() {
    for seed in 0..60 {
        let mut sim = listening(3, 1 + u16::try_from(seed % 2).unwrap(), &[]);
        sim.be_patient();
        sim.hook = faults(seed, 60, 30, 30, 20);
        for _ in 0..3 {
            sim.begin_all(60);
            sim.finish_round(Nanos::from_millis(30_000));
        }
        assert!(cast(&sim) > 0, "seed {seed}");
    }
}

#[test]
fn an_address_that_was_not_asked_for_is_not_taken_from() {
    let mut sim = Sim::new(2, 8, 1);
    sim.connect();
    sim.fake.multicast = Some(group());
    sim.fake.lanes[0].open.as_mut().unwrap().hearing = 0b11;
    sim.begin_all(4);
    sim.run(Nanos::from_millis(1), |_| false);
    assert_eq!(cast(&sim), 0);
    assert!(sim.total(|stats| stats.refused(Refusal::Addressee)) > 0);
}

/// A link that was down for a moment, or a busy host, is no reason to do without for ever.
#[test]
fn a_member_that_was_cut_off_listens_again() {
    let mut sim = listening(3, 1, &[]);
    sim.hook = Box::new(|passing| if passing.is_cast { Fate::Drop } else { Fate::Pass });
    round(&mut sim, 100);
    assert_eq!(sim.total(|stats| stats.times_deaf), 3);
    sim.hook = Box::new(|_| Fate::Pass);
    round(&mut sim, 100);
    assert_eq!(cast(&sim), 0, "not yet");
    sim.run(Nanos::from_millis(2_100), |_| false);
    round(&mut sim, 100);
    let heard = cast(&sim);
    round(&mut sim, 100);
    assert_eq!(cast(&sim), heard + 3 * 100);
    assert_eq!(sim.total(|stats| stats.times_deaf), 3);
}

/// Seen in a run: a host that was late had its repeats answered before it looked at what had come
/// to the multicast address, and took itself for deaf.
#[test]
fn sums_that_come_after_their_repeats_were_answered_are_heard() {
    let mut sim = listening(2, 1, &[]);
    round(&mut sim, 20);
    sim.hook = Box::new(|passing| match passing.is_cast {
        true => Fate::Delay(Nanos::from_millis(30)),
        false => Fate::Pass,
    });
    for _ in 0..20 {
        round(&mut sim, 1);
        sim.run(Nanos::from_millis(100), |_| false);
    }
    assert_eq!(sim.total(|stats| stats.times_deaf), 0);
    let late = sim.total(|stats| stats.duplicate_answers);
    assert!(late > 8, "{late} came late");
}

/// A question that the box's data has answered holds nothing up, though it would have gone first.
#[test]
fn a_word_goes_at_the_time_of_a_question_that_is_not_asked() {
    let mut sim = listening(2, 1, &[]);
    sim.begin_all(8);
    sim.asleep_until[1] = Nanos::MAX;
    let all_sent = |sim: &Sim| sim.workers[0].stats().chunks_sent == 8;
    assert!(sim.run(Nanos::from_millis(1), all_sent));
    let worker = &mut sim.workers[0];
    let session = &mut worker.lanes[0].session;
    session.ask(sim.now);
    assert!(session.poll(sim.now).is_some());
    let at = session.timeout();
    worker.lanes[0].hearing.begin(at);
    let hellos = worker.stats().hellos_sent;
    assert!(worker.poll_transmit(at, &sim.data[0], &mut [0; 4096]).is_some());
    assert_eq!(worker.stats().hellos_sent, hellos + 1);
}
