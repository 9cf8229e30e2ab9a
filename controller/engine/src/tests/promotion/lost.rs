//! Servers that return with fewer commits than they announced, as from a truncated journal.

use super::*;

/// A job at version three, which its server announced.
fn at_version_three(ack: AckMode) -> Rig {
    let mut rig = Rig::attached(ack);
    for update in 0..3 {
        rig.ask(0, update, update);
        rig.install();
        let (order, group) = {
            let job = &rig.controller.jobs[&JobId(0)];
            let (order, group) = job.open.first_key_value().expect("it is granted");
            (*order, *group)
        };
        let event = decided(&rig, group, order, update + 1);
        rig.event("s0", event).unwrap();
    }
    assert_eq!(rig.status().version, 3);
    rig
}

fn lost(returned: u64, is_over: bool) -> Notice {
    let lost = LostCommits { returned: Version(returned), acknowledged: Version(3) };
    Notice::CommitsLost { server: "s0".into(), lost, is_over }
}

#[test]
fn a_job_whose_server_lost_commits_ends_with_both_versions() {
    let mut rig = at_version_three(AckMode::Commit);
    rig.ask(1, 0, 3);
    rig.attach("s0", 2, role("s0", 1, 1, 0));
    assert_eq!(rig.notices, [lost(1, true)]);
    let text = "server returned with version 1, 3 were acknowledged";
    assert_eq!(rig.status().refusing, text);
    assert_eq!((rig.status().pending, rig.status().in_flight), (0, 0));
    let refused = rig.controller.handle_worker(JobId(0), Rank::new(1).unwrap(), 1, None);
    let refused = refused.unwrap_err();
    assert_eq!((refused.field, refused.problem.as_str()), ("job", text));
    // Its next hello changes nothing, whatever its version is by then.
    rig.attach("s0", 3, role("s0", 9, 9, 0));
    assert_eq!(rig.notices.len(), 1);
    assert!(rig.controller.handle_worker(JobId(0), Rank::new(0).unwrap(), 1, None).is_err());
}

#[test]
fn a_server_that_is_back_with_all_that_it_announced_goes_on() {
    let mut rig = at_version_three(AckMode::Commit);
    rig.attach("s0", 2, role("s0", 3, 3, 0));
    assert_eq!(rig.notices, []);
    rig.attach_workers();
    rig.ask(0, 3, 3);
    assert_eq!(rig.status().version, 3);
}

#[test]
fn a_replica_that_lacks_nothing_takes_over_from_a_server_that_lost_commits() {
    let mut rig = at_version_three(AckMode::Replica);
    rig.event("r0", Event::ReplicaFitness { is_fit: true }).unwrap();
    rig.run_for(SECOND / 5);
    rig.attach("s0", 2, role("s0", 1, 1, 0));
    assert_eq!(rig.notices[0], lost(1, false));
    assert!(matches!(rig.notices[1], Notice::Promoting { .. }), "{:?}", rig.notices);
    rig.promoted(3, 3);
    let stand_down = |(name, command): &(String, Command)| {
        name == "s0" && matches!(command, Command::StandDown { .. })
    };
    assert!(rig.commands.iter().any(stand_down));
    assert_eq!((rig.status().version, rig.status().refusing.as_str()), (3, ""));
    rig.attach_workers();
}
