//! Where the workers of an allreduce job go: by what was seen of its messages.

use weft_control::Messages;

use super::*;

/// Host `w0` with four places, and `w1` to `w4` with one each.
fn uneven(placement: Placement) -> Config {
    let mut config = config(8, 2);
    let job = &mut config.reduces[0];
    job.placement = placement;
    for (place, host) in job.places.iter_mut().zip(["w0", "w1", "w2", "w0", "w3", "w0", "w4", "w0"])
    {
        place.host = host.into();
    }
    for host in &mut config.hosts {
        host.slots = Some(4);
    }
    config
}

fn messages(sizes: &[u64]) -> Option<Messages> {
    let mut messages = Messages::default();
    sizes.iter().for_each(|bytes| messages.note(*bytes));
    Some(messages)
}

/// Rounds of both workers, in which each counts its tensors.
fn rounds(rig: &mut Rig, count: u64, sizes: &[u64]) {
    let next = rig.status().next_round;
    for round in next..next + count {
        for rank in 0..2 {
            let begun = BegunRound { round, bytes: 4000, messages: messages(sizes) };
            let rank = Rank::new(rank).unwrap();
            rig.controller.handle_round(rig.now_ns, JOB, rank, begun).unwrap();
        }
        rig.settle();
    }
}

fn running(config: Config) -> Rig {
    let mut rig = Rig::new(config, &Saved::fresh(7));
    rig.attach_box(&[]);
    rig.obey();
    rig.start(0, 2, 0);
    rig
}

/// Halves and doubles the job, and tells where its workers are then.
fn placed_anew(rig: &mut Rig, to: u16) -> Vec<u16> {
    let (from, boundary) = (rig.status().workers, rig.status().next_round);
    rig.leave(u8::try_from(from).unwrap(), to, boundary);
    rig.obey();
    rig.status().placed
}

const LARGE: &[u64] = &[400, 392_000, 64_000, 9_000];
const EQUAL: &[u64] = &[2_300, 2_300, 2_300, 2_300, 4_000];

#[test]
fn a_job_with_one_large_tensor_is_known_as_skewed_and_one_of_equal_ones_is_not() {
    let mut rig = running(uneven(Placement::Skew));
    assert_eq!(rig.status().skew, None);
    rounds(&mut rig, 3, LARGE);
    assert_eq!(rig.status().skew, None, "three rounds are too few");
    rounds(&mut rig, 1, LARGE);
    let status = rig.status();
    assert!(status.skew.is_some_and(|skew| skew > 0.84 && skew < 0.85), "{status:?}");
    assert_eq!((status.round_messages, status.largest_bytes), (4, 392_000));
    assert_eq!(status.round_bytes, 465_400);
    let mut rig = running(uneven(Placement::Skew));
    rounds(&mut rig, 4, EQUAL);
    assert!(rig.status().skew.is_some_and(|skew| skew < 0.31), "{:?}", rig.status());
}

#[test]
fn workers_of_a_skewed_job_share_hosts_and_others_fill_what_is_left_over() {
    let mut rig = running(uneven(Placement::Skew));
    assert_eq!(rig.status().placed, [0, 3], "of a model that is not known: on few hosts");
    rounds(&mut rig, 5, LARGE);
    assert_eq!(placed_anew(&mut rig, 4), [0, 3, 5, 7], "all on w0");
    let mut rig = running(uneven(Placement::Skew));
    rounds(&mut rig, 5, EQUAL);
    assert_eq!(placed_anew(&mut rig, 4), [1, 2, 4, 6], "one each on w1 to w4");
}

#[test]
fn the_limit_is_the_jobs() {
    let mut config = uneven(Placement::Skew);
    config.reduces[0].pack_limit = 0.2;
    let mut rig = running(config);
    rounds(&mut rig, 5, EQUAL);
    assert_eq!(placed_anew(&mut rig, 4), [0, 3, 5, 7], "0.3 is above it");
}

#[test]
fn the_other_placements_do_not_look_at_messages() {
    for (placement, expected) in [
        (Placement::Order, [0, 1, 2, 3]),
        (Placement::Consolidate, [0, 3, 5, 7]),
        (Placement::Fragments, [1, 2, 4, 6]),
    ] {
        for sizes in [LARGE, EQUAL] {
            let mut rig = running(uneven(placement));
            rounds(&mut rig, 5, sizes);
            assert_eq!(placed_anew(&mut rig, 4), expected, "{placement:?}");
        }
    }
}

/// The lease has the members of the places, and a worker that calls from another place is refused.
#[test]
fn the_lease_and_the_hellos_are_those_of_the_places() {
    let mut config = uneven(Placement::Fragments);
    for (place, index) in config.reduces[0].places.iter_mut().zip(1..) {
        place.address = SocketAddr::from(([10, 0, 0, index], 22500));
    }
    let mut rig = Rig::new(config, &Saved::fresh(7));
    rig.attach_box(&[]);
    rig.answer(Event::HoldingInstalled { holding: Holding::Job });
    let members = rig.actions.iter().find_map(|action| match action {
        Action::Command {
            command: Command::Holding(HoldingCommand::InstallLease(row)), ..
        } => Some(row.members.iter().map(|member| member.addr.to_string()).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(members.unwrap(), ["10.0.0.2:22500", "10.0.0.3:22500"]);
    rig.answer(Event::HoldingInstalled { holding: Holding::Row(2) });
    let mut from = |place: u8| {
        let at = (CohortId(0), RoundPosition::default());
        let from = Some(core::net::IpAddr::from([10, 0, 0, place + 1]));
        rig.controller.handle_reducer(JOB, Rank::new(1).unwrap(), (7, from), at)
    };
    assert_eq!(from(1).unwrap_err().field, "rank", "rank 1 is at the third place");
    assert_eq!(from(2), Ok(()));
}

/// The controller ends when it has saved that a cohort is over, and before anybody has heard it.
#[test]
fn workers_of_a_cohort_that_is_over_hear_so_whoever_has_their_ranks_now() {
    let mut config = uneven(Placement::Skew);
    for (place, index) in config.reduces[0].places.iter_mut().zip(1..) {
        place.address = SocketAddr::from(([10, 0, 0, index], 22500));
    }
    let mut rig = running(config.clone());
    rounds(&mut rig, 5, EQUAL);
    rig.leave(2, 4, 6);
    assert_eq!(rig.status().placed, [1, 2, 4, 6], "all ranks are elsewhere than at [0, 3]");
    let saved = rig.controller.poll_saved().expect("it has changed");
    let mut rig = Rig::new(config, &saved);
    let mut from = |cohort: u32, place: u8| {
        let at = (CohortId(cohort), RoundPosition { next: 6, ..RoundPosition::default() });
        let from = Some(core::net::IpAddr::from([10, 0, 0, place + 1]));
        rig.controller.handle_reducer(JOB, Rank::new(1).unwrap(), (7, from), at)
    };
    let over = from(0, 3).unwrap_err();
    assert_eq!((over.field, over.problem.as_str()), ("cohort", "bye"));
    assert_eq!(from(2, 3).unwrap_err().field, "cohort", "of one that is not there yet");
    assert_eq!(from(1, 3).unwrap_err().field, "rank", "of this one, from a place before");
    assert_eq!(from(1, 2), Ok(()));
}

#[test]
fn hosts_have_no_more_workers_than_slots_whatever_else_is_on_the_way() {
    let mut config = uneven(Placement::Consolidate);
    let mut other = config.reduces[0].clone();
    (other.name, other.index, other.row) = ("other".into(), 4, 3);
    for place in &mut other.places {
        place.address.set_port(place.address.port() + 100);
    }
    config.reduces.push(other);
    config.hosts[0].slots = Some(6);
    let mut rig = running(config);
    // Both begin on w0; two slots are left there, and four hosts with one place each.
    let others = |rig: &Rig| rig.controller.status(rig.now_ns).reduces.remove(1).placed;
    assert_eq!(others(&rig), [0, 3]);
    rig.resize(4).unwrap();
    // Its word has the two slots, though its workers are not there yet.
    let told = rig.controller.resize_job(rig.now_ns, "other", 7);
    assert_eq!(told, Err(SteerError::Room { wanted: 7, free: 6 }));
    rig.controller.resize_job(rig.now_ns, "other", 6).unwrap();
}

#[test]
fn places_outlive_the_controller() {
    let mut rig = running(uneven(Placement::Skew));
    rounds(&mut rig, 5, EQUAL);
    rig.resize(4).unwrap();
    // What was seen of the messages is lost; what was chosen by it is not.
    let saved = rig.controller.poll_saved().expect("it has changed");
    let mut rig = Rig::new(uneven(Placement::Skew), &saved);
    rig.attach_box(&[Holding::Job, Holding::Row(2)]);
    assert_eq!(rig.status().placed, [0, 3]);
    for rank in 0..2 {
        rig.attach(rank, 0, 6).unwrap();
    }
    rig.all_say(2, 6, Halt::Held);
    rig.all_say(2, 6, Halt::Stopped);
    rig.all_say(2, 6, Halt::Left);
    assert_eq!(rig.status().placed, [1, 2, 4, 6]);
    let saved = rig.controller.poll_saved().expect("it has changed");
    let mut rig = Rig::new(uneven(Placement::Skew), &saved);
    assert_eq!(rig.status().placed, [1, 2, 4, 6]);
    // A lease that is refused brings the former places back, of this life too.
    rig.attach_box(&[Holding::Job]);
    rig.answer(Event::HoldingRefused { holding: Holding::Row(2), error: HoldingError::Full });
    assert_eq!((rig.status().workers, rig.status().placed), (2, vec![0, 3]));
}

#[test]
fn a_state_file_with_no_workers_is_refused_by_name() {
    let mut rig = running(config(4, 2));
    rig.leave(2, 4, 1);
    let saved = rig.controller.poll_saved().expect("it has changed");
    for change in
        [(|job| job.workers = Some(0)) as fn(&mut SavedReduce), |job| job.before = Some(0)]
    {
        let mut saved = saved.clone();
        change(saved.reduces.get_mut("digits").expect("it is saved"));
        let refused = Controller::new(config(4, 2), &saved, built_in_policies()).map(|_| ());
        assert_eq!(refused.unwrap_err().field, "reduce[0].workers");
    }
}

#[test]
fn a_configuration_with_fewer_places_than_workers_is_refused_and_begins_nothing_anew() {
    let mut rig = running(uneven(Placement::Skew));
    rig.resize(4).unwrap();
    rig.all_say(2, 6, Halt::Held);
    rig.all_say(2, 6, Halt::Stopped);
    rig.all_say(2, 6, Halt::Left);
    assert_eq!(rig.status().workers, 4);
    let saved = rig.controller.poll_saved().expect("it has changed");
    let places = |count| {
        let mut fewer = uneven(Placement::Skew);
        fewer.reduces[0].places.truncate(count);
        Controller::new(fewer, &saved, built_in_policies()).map(|_| ()).map_err(|error| error.field)
    };
    assert_eq!(places(3), Err("reduce[0].places".into()));
    assert_eq!(places(4), Ok(()));
}
