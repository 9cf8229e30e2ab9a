mod hosts;

use alloc::format;

use proptest::prelude::*;
use weft_config::controller::{Config, HostConfig, JobConfig, NodeConfig, WorkerConfig};
use weft_control::{BandError, Command, Event, NodeHello};

use super::*;
use crate::{Saved, built_in_policies};

const S: u64 = 1_000_000_000;

/// Jobs of these sizes, all with their servers on one host, where the node `agent` applies bands.
struct Rig {
    controller: Controller,
    node: NodeId,
    now_ns: u64,
    /// What the node has been told of each job.
    told: BTreeMap<JobId, (u8, Option<u8>)>,
    notices: Vec<(JobId, Notice)>,
}

fn config(sizes: &[u64], bands: BandsConfig) -> Config {
    let node = |name: String| NodeConfig { name, host: "s0".into(), address: String::new() };
    let servers = (0..sizes.len()).map(|i| node(format!("p{i}")));
    let jobs = sizes.iter().zip(0..).map(|(size, i)| job(i, *size));
    Config {
        bands: Some(bands),
        hosts: ["s0", "w0"].map(HostConfig::named).into(),
        nodes: servers.chain([node("agent".into())]).collect(),
        jobs: jobs.collect(),
        ..Config::default()
    }
}

fn job(index: u16, dimension: u64) -> JobConfig {
    let text = format!(
        "{{\"name\":\"j{index}\",\"index\":{index},\"dimension\":{dimension},\"workers\":[\"w0\"],\
         \"server\":\"p{index}\"}}"
    );
    let job: JobConfig = serde_json::from_str(&text).unwrap();
    assert_eq!(job.workers, [WorkerConfig::Host("w0".into())]);
    job
}

impl Rig {
    fn new(sizes: &[u64], policy: BandPolicy, interval_s: u64) -> Self {
        let config = config(sizes, BandsConfig { policy, interval_s });
        let controller = Controller::new(config, &Saved::fresh(7), built_in_policies()).unwrap();
        let (told, notices) = (BTreeMap::new(), Vec::new());
        let mut rig = Self { controller, node: NodeId(0), now_ns: 0, told, notices };
        rig.attach(1, &[]);
        rig.run_to(0);
        rig
    }

    fn attach(&mut self, life: u64, held: &[(JobId, u8)]) {
        let bands = Some(held.to_vec());
        let hello = NodeHello { name: "agent".into(), life, bands, ..NodeHello::default() };
        self.node = self.controller.handle_node(self.now_ns, &hello).unwrap();
    }

    /// Lets time pass; the node does what it is told. Returns the commands.
    fn run_to(&mut self, now_ns: u64) -> Vec<(JobId, Option<u8>)> {
        self.now_ns = now_ns;
        self.controller.handle_timeout(now_ns);
        let mut commands = Vec::new();
        while let Some(action) = self.controller.poll_action() {
            match action {
                Action::Command { node, command: Command::SetBands { job, label, band } } => {
                    assert_eq!(node, self.node);
                    commands.push((job, band));
                    self.told.insert(job, (label, band));
                }
                Action::Notice { job, notice } => self.notices.push((job, notice)),
                _ => {}
            }
        }
        for (job, band) in &commands {
            self.answer(*job, Event::BandSet { band: *band });
        }
        commands
    }

    fn answer(&mut self, job: JobId, event: Event) {
        self.controller.handle_event(self.now_ns, self.node, job, &event).unwrap();
    }

    fn bands(&self) -> Vec<Option<u8>> {
        self.told.values().map(|(_, band)| *band).collect()
    }

    fn set(&mut self, policy: BandPolicy, interval_s: u64) -> BandsSet {
        let config = BandsConfig { policy, interval_s };
        let set = self.controller.set_band_policy(self.now_ns, config, None).unwrap();
        self.run_to(self.now_ns);
        set
    }
}

#[test]
fn jobs_of_one_host_get_bands_small_models_first_and_labels_of_their_own() {
    let rig = Rig::new(&[9000, 500, 9000], BandPolicy::One, 20);
    // One band of seven per job that is alone in its size, two for the two others.
    assert_eq!(rig.bands(), [Some(2), Some(0), Some(3)]);
    let labels: Vec<u8> = rig.told.values().map(|(label, _)| *label).collect();
    assert_eq!(labels, LABELS[..3]);
    let status = rig.controller.status(0);
    let one = &status.jobs[1].bands;
    assert_eq!((one.band, one.label, one.boxes_done, one.boxes_awaited), (Some(0), 7, 1, 0));
    assert_eq!(status.band_policy, BandPolicy::One);
}

#[test]
fn nobody_is_told_anything_under_fifo() {
    let rig = Rig::new(&[500, 500], BandPolicy::Fifo, 20);
    assert!(rig.told.is_empty() && rig.notices.is_empty(), "{:?}", rig.notices);
    assert_eq!(rig.controller.poll_timeout(), None, "nor looks at a clock");
}

#[test]
fn without_a_section_there_are_no_labels_and_no_bands_to_set() {
    let mut config = config(&[500, 500], BandsConfig::default());
    config.bands = None;
    let saved = Saved::fresh(7);
    let mut controller = Controller::new(config, &saved, built_in_policies()).unwrap();
    let one = BandsConfig { policy: BandPolicy::One, interval_s: 20 };
    assert_eq!(controller.set_band_policy(0, one, None).unwrap_err().field, "bands");
    assert_eq!(controller.status(0).jobs[0].bands, BandStatus::default());
    assert_eq!(controller.poll_timeout(), None);
}

#[test]
fn bands_rotate_by_time_and_no_job_is_told_what_it_has() {
    let mut rig = Rig::new(&[500; 3], BandPolicy::RoundRobin, 10);
    let job = JobId;
    assert_eq!(rig.bands(), [Some(0), Some(1), Some(2)]);
    assert_eq!(rig.controller.poll_timeout(), Some(10 * S));
    assert_eq!(rig.run_to(10 * S - 1), []);
    // The one that comes first of all moves up before the others move down.
    let moved = [(job(2), Some(0)), (job(1), Some(2)), (job(0), Some(1))];
    assert_eq!(rig.run_to(10 * S), moved);
    assert_eq!(rig.controller.status(0).jobs[0].counters.band_changes, 2);
    let notice = Notice::Band { from: Some(0), to: Some(1) };
    assert!(rig.notices.contains(&(job(0), notice)), "{:?}", rig.notices);
    // A controller that slept through two turns makes them both.
    rig.run_to(30 * S + 1);
    assert_eq!(rig.bands(), [Some(0), Some(1), Some(2)]);
    assert_eq!(rig.controller.poll_timeout(), Some(40 * S));
}

#[test]
fn an_operator_changes_the_policy_and_the_other_one_hears_of_it() {
    let mut rig = Rig::new(&[500, 500], BandPolicy::Fifo, 20);
    rig.now_ns = 5 * S;
    assert_eq!(rig.set(BandPolicy::One, 20), BandsSet { changes: 1, jobs_changed: 2 });
    assert_eq!(rig.bands(), [Some(0), Some(1)]);
    assert_eq!(rig.set(BandPolicy::RoundRobin, 3).jobs_changed, 0);
    assert_eq!(rig.controller.poll_timeout(), Some(8 * S), "turns begin with the policy");
    let config = BandsConfig { policy: BandPolicy::One, interval_s: 20 };
    let late = rig.controller.set_band_policy(rig.now_ns, config, Some(1)).unwrap_err();
    assert_eq!(late.field, "seen_change");
    let never = BandsConfig { interval_s: 0, ..config };
    let refused = rig.controller.set_band_policy(rig.now_ns, never, None).unwrap_err();
    assert_eq!(refused.field, "interval_s");
    assert_eq!(rig.controller.status(0).band_policy, BandPolicy::RoundRobin);
    rig.controller.set_band_policy(rig.now_ns, config, Some(2)).unwrap();
    rig.set(BandPolicy::Fifo, 20);
    assert_eq!(rig.bands(), [None, None]);
    assert_eq!(rig.controller.status(0).jobs[0].bands.boxes_done, 0);
}

#[test]
fn a_box_that_comes_again_is_told_what_it_has_not() {
    let mut rig = Rig::new(&[500, 500], BandPolicy::One, 20);
    rig.controller.handle_node_gone(rig.now_ns, rig.node);
    assert_eq!(rig.controller.status(0).jobs[0].bands.boxes_done, 0);
    // What it has of a job that is gone it is to take back.
    rig.attach(1, &[(JobId(0), 0), (JobId(9), 4)]);
    let told = rig.run_to(1);
    let all = [(JobId(0), Some(0)), (JobId(1), Some(1)), (JobId(9), None)];
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(all.iter().all(|one| told.contains(one)), "{told:?}");
}

#[test]
fn a_refusal_is_told_to_people_once_and_is_in_the_figures() {
    let mut rig = Rig::new(&[500, 500], BandPolicy::Fifo, 20);
    let config = BandsConfig { policy: BandPolicy::One, interval_s: 20 };
    rig.controller.set_band_policy(0, config, None).unwrap();
    let error = BandError::Foreign;
    for _ in 0..2 {
        rig.answer(JobId(0), Event::BandRefused { band: Some(0), error });
    }
    // What was not asked last has no effect.
    rig.answer(JobId(1), Event::BandSet { band: Some(5) });
    let status = rig.controller.status(0);
    assert_eq!(status.jobs[0].bands.refused, format!("agent: {error}"));
    assert_eq!((status.jobs[1].bands.boxes_done, status.jobs[1].bands.boxes_awaited), (0, 1));
    let actions = core::iter::from_fn(|| rig.controller.poll_action());
    let refused = actions.filter(|action| {
        matches!(action, Action::Notice { notice: Notice::BandRefused { .. }, .. })
    });
    assert_eq!(refused.count(), 1);
}

#[test]
fn what_a_box_refused_it_is_told_again_until_it_does_it() {
    let mut rig = Rig::new(&[500, 500], BandPolicy::Fifo, 20);
    let config = BandsConfig { policy: BandPolicy::One, interval_s: 20 };
    rig.controller.set_band_policy(0, config, None).unwrap();
    let refuse = |rig: &mut Rig, error| {
        for (job, band) in [(0, 0), (1, 1)] {
            rig.answer(JobId(job), Event::BandRefused { band: Some(band), error });
        }
    };
    let told = |rig: &mut Rig, now_ns| {
        rig.now_ns = now_ns;
        rig.controller.handle_timeout(now_ns);
        let (mut commands, mut notices) = (Vec::new(), 0);
        while let Some(action) = rig.controller.poll_action() {
            match action {
                Action::Command { command: Command::SetBands { job, band, .. }, .. } => {
                    commands.push((job.0, band));
                }
                Action::Notice { notice: Notice::BandRefused { .. }, .. } => notices += 1,
                _ => {}
            }
        }
        (commands, notices)
    };
    let both = vec![(0, Some(0)), (1, Some(1))];
    assert_eq!(told(&mut rig, 0).0, both);
    refuse(&mut rig, BandError::Foreign);
    assert_eq!(rig.controller.poll_timeout(), Some(5 * S));
    assert_eq!(told(&mut rig, 5 * S - 1), (Vec::new(), 2));
    assert_eq!(told(&mut rig, 5 * S), (both.clone(), 0));
    // The same reason is no news, another one is.
    refuse(&mut rig, BandError::Foreign);
    assert_eq!(told(&mut rig, 10 * S), (both.clone(), 0));
    refuse(&mut rig, BandError::NotPermitted);
    assert_eq!(told(&mut rig, 15 * S), (both, 2));
    let refused = |rig: &Rig| rig.controller.status(0).jobs[0].bands.refused.clone();
    assert_eq!(refused(&rig), "", "it is asked");
    for (job, band) in [(0, 0), (1, 1)] {
        rig.answer(JobId(job), Event::BandSet { band: Some(band) });
    }
    assert_eq!(told(&mut rig, 60 * S), (Vec::new(), 0));
    assert_eq!(rig.controller.poll_timeout(), None, "nothing is left to ask for");
}

#[test]
fn the_label_of_a_job_that_is_gone_is_withdrawn() {
    let bands = BandsConfig { policy: BandPolicy::One, interval_s: 20 };
    let mut fewer = config(&[500; 2], bands);
    let last = fewer.jobs.pop().unwrap();
    let mut controller = Controller::new(fewer, &Saved::fresh(7), built_in_policies()).unwrap();
    let hello = NodeHello { name: "p1".into(), life: 1, ..NodeHello::default() };
    let node = controller.handle_node(0, &hello).unwrap();
    let labels = |controller: &mut Controller, now_ns| {
        controller.handle_timeout(now_ns);
        let actions = core::iter::from_fn(|| controller.poll_action());
        let labels = actions.filter_map(|action| match action {
            Action::Command { node: to, command: Command::SetLabel { job, label } } => {
                assert_eq!(to, node);
                Some((job.0, label))
            }
            _ => None,
        });
        labels.collect::<Vec<_>>()
    };
    assert_eq!(labels(&mut controller, 0), []);
    controller.register_job(1, last).unwrap();
    assert_eq!(labels(&mut controller, 1), [(1, LABELS[1])]);
    controller.unregister_job(2, "j1").unwrap();
    assert_eq!(labels(&mut controller, 2), [(1, 0)]);
    assert_eq!(labels(&mut controller, 3), []);
}

#[test]
fn a_job_that_comes_or_goes_moves_the_others() {
    let mut rig = Rig::new(&[500; 8], BandPolicy::One, 20);
    assert_eq!(rig.bands().last(), Some(&Some(3)), "two share a band");
    let bands = BandsConfig { policy: BandPolicy::One, interval_s: 20 };
    let seven = config(&[500; 8], bands);
    let mut fewer = seven.clone();
    let last = fewer.jobs.pop().unwrap();
    let saved = Saved::fresh(7);
    rig.controller = Controller::new(fewer, &saved, built_in_policies()).unwrap();
    rig.told.clear();
    rig.attach(1, &[]);
    rig.run_to(0);
    let each: Vec<_> = (0..7).map(Some).collect();
    assert_eq!(rig.bands(), each);
    rig.controller.register_job(1, last).unwrap();
    rig.run_to(1);
    assert_eq!(rig.bands(), [0, 0, 1, 1, 2, 2, 3, 3].map(Some));
    rig.controller.unregister_job(2, "j7").unwrap();
    rig.run_to(2);
    assert_eq!(rig.bands().pop(), Some(None), "its class is taken back");
    assert_eq!(rig.bands()[..7], each[..]);
}

#[test]
fn there_are_as_many_labels_as_there_are() {
    let sizes = vec![500; LABELS.len() + 1];
    let rig = Rig::new(&sizes, BandPolicy::One, 20);
    assert_eq!(rig.told.len(), LABELS.len());
    let status = rig.controller.status(0);
    let last = &status.jobs.last().unwrap().bands;
    assert_eq!((last.label, last.boxes_done), (0, 0), "its frames are with the rest");
    assert_eq!(last.band, None, "nobody can tell its frames");
    assert!(last.refused.contains("no label is left for it, 30 jobs"), "{last:?}");
    let others = &status.jobs[..LABELS.len()];
    assert!(others.iter().all(|job| job.bands.band.is_some() && job.bands.refused.is_empty()));
    // Its transfers are ordered as its frames are.
    let id = JobId(u16::try_from(LABELS.len()).unwrap());
    assert_eq!(rig.controller.bands.rank(id), REST_BAND);
}

proptest! {
    /// The same inputs give the same bands; bands lie in their range; no pair of jobs is inverted
    /// while a change is told one by one.
    #[test]
    fn bands_never_invert_under_rotation(
        sizes in proptest::collection::vec(1u64..4, 1..12),
        steps in proptest::collection::vec((0u8..3, 1u64..30), 1..12),
    ) {
        let sizes: Vec<u64> = sizes.iter().map(|size| size * 100_000).collect();
        let run = || {
            let mut rig = Rig::new(&sizes, BandPolicy::RoundRobin, 5);
            let mut transcript = Vec::new();
            for (policy, seconds) in &steps {
                let before = rig.told.clone();
                let now_ns = rig.now_ns + seconds * S;
                let policy = BandPolicy::ALL[usize::from(*policy)].0;
                if seconds % 3 == 0 {
                    rig.set(policy, 5);
                    continue;
                }
                let told = rig.run_to(now_ns);
                let mut live = before.clone();
                for (job, band) in &told {
                    live.get_mut(job).unwrap().1 = *band;
                    for (a, b) in before.keys().flat_map(|a| before.keys().map(move |b| (a, b))) {
                        let rank = |told: &BTreeMap<JobId, (u8, Option<u8>)>, job| {
                            told[job].1.unwrap_or(REST_BAND)
                        };
                        let (from, to) = ((rank(&before, a), rank(&before, b)), (rank(&rig.told, a), rank(&rig.told, b)));
                        if from.0 < from.1 && to.0 < to.1 {
                            assert!(rank(&live, a) <= rank(&live, b), "{a:?} {b:?} in {told:?}");
                        }
                    }
                }
                assert!(rig.bands().iter().flatten().all(|band| *band < REST_BAND));
                transcript.push(told);
            }
            transcript
        };
        prop_assert_eq!(run(), run());
    }
}
