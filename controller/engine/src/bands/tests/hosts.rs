//! Several hosts and boxes: who is told, and of whose bands.

use alloc::string::String;
use alloc::vec;

use super::*;

/// Jobs 0 and 1 with their servers on `s0`, jobs 2 and 3 on `s1`; `agent` applies bands on `s0`,
/// and `plain` is a box there that does not.
fn two_hosts() -> Controller {
    let bands = BandsConfig { policy: BandPolicy::One, interval_s: 20 };
    let mut config = config(&[500; 4], bands);
    config.hosts.push(HostConfig::named("s1"));
    for name in ["p2", "p3"] {
        config.nodes.iter_mut().find(|node| node.name == name).unwrap().host = "s1".into();
    }
    let node = |name: &str, host: &str| NodeConfig {
        name: name.into(),
        host: host.into(),
        address: String::new(),
    };
    config.nodes.push(node("plain", "s0"));
    config.nodes.push(node("other", "s1"));
    Controller::new(config, &Saved::fresh(7), built_in_policies()).unwrap()
}

fn attach(controller: &mut Controller, name: &str, applies: bool) -> NodeId {
    let bands = applies.then(Vec::new);
    let hello = NodeHello { name: name.into(), life: 1, bands, ..NodeHello::default() };
    controller.handle_node(0, &hello).unwrap()
}

/// Which boxes are told of which jobs' bands.
fn told(controller: &mut Controller, now_ns: u64) -> Vec<(NodeId, u16, Option<u8>)> {
    controller.handle_timeout(now_ns);
    let actions = core::iter::from_fn(|| controller.poll_action());
    let bands = actions.filter_map(|action| match action {
        Action::Command { node, command: Command::SetBands { job, band, .. } } => {
            Some((node, job.0, band))
        }
        _ => None,
    });
    bands.collect()
}

#[test]
fn each_host_has_its_own_bands_and_only_its_boxes_that_apply_them_are_told() {
    let mut controller = two_hosts();
    let agent = attach(&mut controller, "agent", true);
    attach(&mut controller, "plain", false);
    let other = attach(&mut controller, "other", true);
    let mut told = told(&mut controller, 0);
    told.sort_unstable();
    let (first, second) = (Some(0), Some(1));
    let mut expected =
        [(agent, 0, first), (agent, 1, second), (other, 2, first), (other, 3, second)];
    expected.sort_unstable();
    assert_eq!(told, expected);
}

#[test]
fn a_box_that_is_gone_is_told_nothing_before_it_is_back() {
    let mut controller = two_hosts();
    let agent = attach(&mut controller, "agent", true);
    told(&mut controller, 0);
    controller.handle_node_gone(1, agent);
    controller.bands.note_change();
    assert_eq!(told(&mut controller, 1), []);
    let fifo = BandsConfig { policy: BandPolicy::Fifo, interval_s: 20 };
    controller.set_band_policy(2, fifo, None).unwrap();
    assert_eq!(told(&mut controller, 2), []);
    let bands = Some(vec![(JobId(0), 0), (JobId(1), 1)]);
    let hello = NodeHello { name: "agent".into(), life: 1, bands, ..NodeHello::default() };
    controller.handle_node(3, &hello).unwrap();
    let mut told = told(&mut controller, 3);
    told.sort_unstable();
    assert_eq!(told, [(agent, 0, None), (agent, 1, None)], "it still had the former ones");
}

/// One after the other, more jobs come and go than there are labels.
#[test]
fn the_label_of_a_job_that_is_gone_is_anothers() {
    let bands = BandsConfig { policy: BandPolicy::One, interval_s: 20 };
    let mut fewer = config(&[500; 2], bands);
    let last = fewer.jobs.pop().unwrap();
    let mut controller = Controller::new(fewer, &Saved::fresh(7), built_in_policies()).unwrap();
    for turn in 0..2 * LABELS.len() as u64 {
        let job = controller.register_job(turn, last.clone()).unwrap();
        assert_eq!(controller.label(job), LABELS[1], "turn {turn}");
        controller.unregister_job(turn, "j1").unwrap();
    }
}

#[test]
fn plans_are_made_anew_when_bands_change_and_only_then() {
    let mut rig = Rig::new(&[500, 500], BandPolicy::Fifo, 20);
    let one = BandsConfig { policy: BandPolicy::One, interval_s: 20 };
    assert_eq!(rig.controller.replan, None);
    rig.controller.set_band_policy(0, one, None).unwrap();
    assert_eq!(rig.controller.replan, Some(Why::Bands));
    rig.run_to(1);
    assert_eq!(rig.controller.replan, None);
    rig.controller.set_band_policy(1, one, None).unwrap();
    assert_eq!(rig.controller.replan, None, "all have what they had");
}

/// One answer to each word; another one later, of the same, changes nothing.
#[test]
fn a_second_answer_counts_for_nothing() {
    let mut rig = Rig::new(&[500, 500], BandPolicy::One, 20);
    let refused = Event::BandRefused { band: Some(0), error: BandError::Foreign };
    rig.answer(JobId(0), refused);
    let status = rig.controller.status(0);
    assert_eq!((status.jobs[0].bands.boxes_done, status.jobs[0].bands.refused.as_str()), (1, ""));
}

/// A box that refused is told again after a time from its first refusal, whatever else it refuses
/// meanwhile, and whatever else is looked at.
#[test]
fn a_refusal_is_told_again_after_a_time_that_nothing_puts_off_or_forward() {
    let mut controller = two_hosts();
    let agent = attach(&mut controller, "agent", true);
    assert_eq!(told(&mut controller, 0).len(), 2);
    let refuse = |controller: &mut Controller, now_ns, job: u8| {
        let event = Event::BandRefused { band: Some(job), error: BandError::Foreign };
        controller.handle_event(now_ns, agent, JobId(job.into()), &event).unwrap();
    };
    refuse(&mut controller, 0, 0);
    refuse(&mut controller, 4 * S, 1);
    // Something else is looked at.
    controller.bands.note_change();
    assert_eq!(told(&mut controller, 4 * S), []);
    let due_ns = controller.poll_timeout().expect("it will be told again");
    assert_eq!(due_ns, 5 * S);
    assert_eq!(told(&mut controller, due_ns).len(), 2, "all that was refused");
}

/// A box of a job is told its label once, and again when it comes anew.
#[test]
fn a_label_is_told_once_to_each_life_of_a_box() {
    let mut controller = two_hosts();
    let server = attach(&mut controller, "p1", false);
    let labels = |controller: &mut Controller, now_ns| {
        controller.handle_timeout(now_ns);
        let actions = core::iter::from_fn(|| controller.poll_action());
        let labels = actions.filter_map(|action| match action {
            Action::Command { node, command: Command::SetLabel { job, label } } => {
                Some((node, job.0, label))
            }
            _ => None,
        });
        labels.collect::<Vec<_>>()
    };
    assert_eq!(labels(&mut controller, 0), [(server, 1, LABELS[1])]);
    controller.bands.note_change();
    assert_eq!(labels(&mut controller, 1), []);
    controller.handle_node_gone(2, server);
    assert_eq!(labels(&mut controller, 2), [], "it is not here");
    attach(&mut controller, "p1", false);
    assert_eq!(labels(&mut controller, 3), [(server, 1, LABELS[1])]);
}

/// What nobody orders is not said to be ordered, and why is said.
#[test]
fn a_host_without_a_box_that_applies_bands_has_none() {
    let mut controller = two_hosts();
    attach(&mut controller, "plain", false);
    attach(&mut controller, "other", true);
    told(&mut controller, 0);
    let bands = |controller: &Controller| {
        let jobs = controller.status(0).jobs;
        jobs.into_iter().map(|job| (job.bands.band, job.bands.refused)).collect::<Vec<_>>()
    };
    let now = bands(&controller);
    assert!(now[..2].iter().all(|(band, why)| band.is_none() && why.contains("add [bands]")));
    assert_eq!(now[2..], [(Some(0), String::new()), (Some(1), String::new())]);
    // Plans follow bands, whoever applies them.
    assert_eq!(controller.bands.rank(JobId(0)), 0);
    let agent = attach(&mut controller, "agent", true);
    told(&mut controller, 1);
    assert_eq!(bands(&controller)[..2], now[2..]);
    // A host that is gone has what it had.
    controller.handle_node_gone(2, agent);
    let (band, why) = bands(&controller).swap_remove(1);
    assert_eq!(band, Some(1));
    assert!(why.starts_with("agent: it has no stream"), "{why}");
    let fifo = BandsConfig { policy: BandPolicy::Fifo, interval_s: 20 };
    controller.set_band_policy(3, fifo, None).unwrap();
    // Nor has it heard that its jobs are to have none.
    let now = bands(&controller);
    assert!(
        now[..2].iter().all(|(band, why)| band.is_none() && why.starts_with("agent: it has no"))
    );
    assert!(now[2..].iter().all(|job| *job == (None, String::new())), "{now:?}");
    attach(&mut controller, "agent", true);
    told(&mut controller, 4);
    assert!(bands(&controller).iter().all(|job| *job == (None, String::new())));
}

/// A box says that a band is lost, and later that it is there again; what is lost is asked for.
#[test]
fn a_band_that_is_lost_is_shown_until_it_is_there_again() {
    let mut controller = two_hosts();
    let agent = attach(&mut controller, "agent", true);
    told(&mut controller, 0);
    let (done, lost) = (
        Event::BandSet { band: Some(0) },
        Event::BandLost { band: Some(0), error: BandError::Foreign },
    );
    let say = |controller: &mut Controller, now_ns, event: &Event| {
        controller.handle_event(now_ns, agent, JobId(0), event).unwrap();
        let notices = core::iter::from_fn(|| controller.poll_action()).filter(|action| {
            matches!(action, Action::Notice { notice: Notice::BandRefused { .. }, .. })
        });
        notices.count()
    };
    let facts = |controller: &Controller| {
        let bands = controller.status(0).jobs.swap_remove(0).bands;
        (bands.boxes_done, bands.boxes_awaited, bands.refused.contains("somebody else"))
    };
    // Before the word was answered it is about what was before.
    assert_eq!(say(&mut controller, 0, &lost), 0);
    assert_eq!(facts(&controller), (0, 1, false));
    say(&mut controller, 0, &done);
    assert_eq!(facts(&controller), (1, 0, false));
    let of_another = Event::BandLost { band: Some(3), error: BandError::Foreign };
    assert_eq!(say(&mut controller, 1, &of_another), 0);
    assert_eq!(facts(&controller), (1, 0, false));
    assert_eq!(say(&mut controller, 1, &lost), 1);
    assert_eq!(facts(&controller), (0, 0, true));
    assert_eq!(say(&mut controller, 2, &lost), 0, "once");
    say(&mut controller, 3, &done);
    assert_eq!(facts(&controller), (1, 0, false), "the box mended it");
    // Lost again it is news again, and asked for.
    assert_eq!(say(&mut controller, 10 * S, &lost), 1);
    assert_eq!(told(&mut controller, 10 * S), []);
    assert_eq!(told(&mut controller, 15 * S), [(agent, 0, Some(0))]);
}

/// A controller that has no bands takes them from boxes that have some, whoever gave them.
#[test]
fn a_controller_without_bands_takes_those_away_that_it_finds() {
    let bands = BandsConfig { policy: BandPolicy::One, interval_s: 20 };
    let mut config = config(&[500; 2], bands);
    config.bands = None;
    let mut controller = Controller::new(config, &Saved::fresh(7), built_in_policies()).unwrap();
    let held = vec![(JobId(0), 0), (JobId(1), 1), (JobId(9), 4)];
    let hello =
        NodeHello { name: "agent".into(), life: 1, bands: Some(held), ..NodeHello::default() };
    let agent = controller.handle_node(0, &hello).unwrap();
    let done = |controller: &Controller| {
        let jobs = controller.status(0).jobs;
        jobs.iter().map(|job| job.bands.boxes_done).sum::<u32>()
    };
    assert_eq!(done(&controller), 0, "that is not as it is to be");
    let mut first = told(&mut controller, 0);
    first.sort_unstable();
    assert_eq!(first, [(agent, 0, None), (agent, 1, None), (agent, 9, None)]);
    let refused = Event::BandRefused { band: None, error: BandError::NotPermitted };
    controller.handle_event(0, agent, JobId(0), &refused).unwrap();
    for job in [1, 9] {
        controller.handle_event(0, agent, JobId(job), &Event::BandSet { band: None }).unwrap();
    }
    assert!(controller.status(0).jobs[0].bands.refused.contains("CAP_NET_ADMIN"));
    assert_eq!(told(&mut controller, 5 * S), [(agent, 0, None)]);
    controller.handle_event(5 * S, agent, JobId(0), &Event::BandSet { band: None }).unwrap();
    assert_eq!(controller.status(0).jobs[0].bands, BandStatus::default());
    assert_eq!((told(&mut controller, 60 * S), controller.poll_timeout()), (vec![], None));
    // One that has none is told nothing.
    let plain = NodeHello { name: "p0".into(), life: 1, ..NodeHello::default() };
    controller.handle_node(61 * S, &plain).unwrap();
    assert_eq!(told(&mut controller, 61 * S), []);
}
