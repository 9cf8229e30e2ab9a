//! What is counted of decisions (I11): each kind of end by itself, delays and latency exactly.

use weft_control::{Command, GroupMember, Version};

use super::super::ServerJobConfig;
use super::super::stats::DELAYS_MAX;
use super::rig::*;

#[test]
fn every_end_of_an_update_is_counted_once_under_its_name() {
    let mut rig = Rig::new(ServerJobConfig { tau_max: 2, ..job() });
    // Two of one version in one group: the second is one later.
    rig.install(descriptor(0, &[0, 1], true)).unwrap();
    rig.pulls();
    rig.wait(30);
    for chunk in 0..CHUNKS {
        rig.sum(group(0), chunk, 0b11).unwrap();
    }
    rig.poll();
    // One that is two versions behind.
    rig.install(descriptor(1, &[0], false)).unwrap();
    rig.pulls();
    rig.wait(10);
    for chunk in 0..CHUNKS {
        rig.direct(1, group(1), chunk).unwrap();
    }
    rig.poll();
    // One of two is closed, the other does not come.
    let mut closed = descriptor(2, &[0, 1], true);
    closed.members.iter_mut().for_each(|member| member.version = Version(3));
    rig.install(closed).unwrap();
    rig.poll();
    let close = Command::CloseMember { job: JOB, group: Some(group(2)), rank: rank(1) };
    rig.server.handle_command(rig.now, close.clone());
    rig.server.handle_command(rig.now, close);
    rig.poll();
    rig.wait(1_001);
    rig.poll();
    // One of two is too old, which the other has to bear.
    let mut mixed = descriptor(3, &[0, 1], true);
    mixed.members[1] = GroupMember { version: Version(3), ..mixed.members[1] };
    rig.install(mixed).unwrap();
    rig.poll();
    let stats = *rig.server.jobs().next().unwrap().1;
    assert_eq!((stats.groups_installed, stats.groups_committed, stats.commits), (4, 2, 3));
    assert_eq!((stats.voids, stats.members_closed, stats.dropped), (3, 1, 1));
    assert_eq!((&stats.delays[..4], stats.delay_max), (&[1, 1, 1, 0][..], 2));
    assert_eq!(stats.delays.iter().sum::<u64>(), 3);
    assert_eq!(stats.commit_latency_total_ns, 40 * MS);
    assert_eq!((stats.replica_lag, stats.replica_lag_max), (4, 4), "it has said nothing yet");
    assert_eq!((stats.acks_lost, stats.journal_records), (0, 0));
}

/// The last place is for all that are as late, or later.
#[test]
fn delays_beyond_the_last_place_are_counted_there() {
    let config = || ServerJobConfig { tau_max: 10_000, ..job() };
    let mut rig = Rig::new(config());
    let mut state = rig.server.state(JOB).unwrap();
    state.version = Version(1_000);
    rig.server.restore(JOB, &state).unwrap();
    for (order, version) in [(0, 0), (1, 1_001 - DELAYS_MAX as u64 + 1), (2, 1_002 - 3)] {
        let mut late = descriptor(order, &[0], false);
        late.members[0].version = Version(version);
        rig.install(late).unwrap();
        rig.pulls();
        for chunk in 0..CHUNKS {
            rig.direct(1, group(order), chunk).unwrap();
        }
        rig.poll();
    }
    let stats = rig.stats();
    assert_eq!((stats.delays[DELAYS_MAX - 1], stats.delays[3], stats.delay_max), (2, 1, 1_000));
}
