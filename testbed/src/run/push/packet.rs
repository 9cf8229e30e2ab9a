//! A push run in virtual time: the engines with the configurations that the programs would have,
//! the workers' training, and what happens to boxes and links on the way, on a simulated network.
//!
//! It leaves what the programs leave, so that the same proof and report are made of it. No time
//! passes but on links, in the emulated computing, between processes and in an outside policy's
//! answer, which costs [`ANSWER_DELAY`] whatever it took.

mod training;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_controller_engine::built_in_policies;
use weft_engine::role::push::PusherConfig;
use weft_lane::Settings;
use weft_plan::policy::AnyPolicy;
use weft_sim::push::scenario::{Control, Kind};
use weft_sim::push::site::{Given, Policies, Site};
use weft_sim::push::{self as sim, topology};
use weft_wire::Nanos;

use super::recorded::{Answers, Recorded};
use crate::run::packet::{PacketError, VirtualClock, bytes_per_sec, fault_rates, host_link, mac};
use crate::run::plan::{Plan, WorkerPlan};
use crate::run::{BoxCounters, Observed, WorkerMessage};
use crate::scenario::{CONTROLLER, REPLICA, SERVER, Scenario};
use training::Training;

/// Runs a plan in virtual time. `progress` sees every outcome; `interrupted` is asked now and then.
///
/// # Errors
/// [`PacketError`].
pub(in crate::run) fn run(
    scenario: &Scenario,
    plan: &Plan,
    seed: u64,
    directory: &Path,
    progress: &mut dyn FnMut(u8, &WorkerMessage),
    interrupted: &dyn Fn() -> bool,
) -> Result<(Observed, VirtualClock), PacketError> {
    let answers = Arc::new(Mutex::new(Answers::default()));
    let kept = Arc::clone(&answers);
    let mut training = Training::new(scenario, plan, directory, kept, progress, interrupted)?;
    let site = site(scenario, plan, training.initial(), &answers)?;
    let elements = plan.elements;
    let push = plan.workers[0].push();
    let simulated = sim::scenario::Scenario {
        seed,
        kind: Kind::Faults,
        control: if push.controller { Control::Engine } else { Control::Nobody },
        hostile: 0.0,
        jobs: 1,
        workers: plan.workers.len(),
        aggregators: site.aggregators.len(),
        has_replica: site.replica.is_some(),
        chunks: u32::try_from(site.server.config.model.dimension.div_ceil(usize::from(elements)))
            .unwrap_or(u32::MAX),
        elements,
        is_fixed: true,
        momentum: scenario.job.momentum,
        tau_max: push.tau_max(&scenario.job).into(),
        div_max: push.div_max,
        updates: 0,
        in_flight: 1,
        quota_updates: 0,
        tells_outcomes: false,
        relays: false,
        rates: fault_rates(scenario),
        cues: Vec::new(),
        site: Some(Arc::new(site)),
    };
    let report = sim::run_for(&simulated, &mut training, false);
    let mut observed = training.observed()?;
    if !report.violations.is_empty() {
        observed.ended.get_or_insert_with(|| report.violations.join("; "));
    }
    if plan.controller.is_some() {
        // Its engine judges answers, as in a live run.
        let policy_failures = report.coverage.of("controller", "policy_failures");
        let counters = BoxCounters { policy_failures, ..BoxCounters::default() };
        observed.boxes.push((CONTROLLER.to_owned(), counters));
    }
    let answers = answers.lock().expect("nobody panics with it");
    answers.write(directory).map_err(|(path, source)| PacketError::Io { path, source })?;
    Ok((observed, VirtualClock::new(report.ended_at, report.events, report.fingerprint)))
}

/// The nodes as their programs would be configured.
fn site(
    scenario: &Scenario,
    plan: &Plan,
    initial: Vec<f32>,
    answers: &Arc<Mutex<Answers>>,
) -> Result<Site, PacketError> {
    let (mut aggregators, mut server, mut replica) = (Vec::new(), None, None);
    let mut hosts = Vec::new();
    for (index, planned) in plan.boxes.iter().enumerate() {
        let mut config = planned.config.clone();
        let job = topology::job_id(0).0;
        config.push.iter_mut().for_each(|section| section.job = job);
        config.replica.iter_mut().for_each(|section| section.job = job);
        for section in &mut config.server {
            // What a real one keeps on its disk, a simulated one keeps.
            (section.job, section.state_dir) = (job, None);
        }
        let settings = Settings::new(config).map_err(PacketError::Config)?;
        let (name, local) = (planned.name.clone(), settings.table_at(mac(0, index)).config().local);
        if let Some(mut config) = settings.servers.into_iter().next() {
            config.initial.clone_from(&initial);
            server = Some(Given { name, local, config });
        } else if let Some(mut config) = settings.replicas.into_iter().next() {
            config.initial.clone_from(&initial);
            replica = Some(Given { name, local, config });
        } else if let Some(config) = settings.table.pushes.into_iter().next() {
            aggregators.push(Given { name, local, config });
        }
    }
    hosts.extend(box_names(plan));
    hosts.extend(plan.workers.iter().map(|worker| format!("w{}", worker.rank)));
    let client = plan.workers[0].push_client();
    let controller = plan.controller.as_ref().map(|planned| {
        let mut config = planned.config.engine();
        config.jobs[0].index = topology::job_id(0).0;
        config
    });
    let nanos = |span: Duration| Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    let patience = client.controller.as_ref();
    Ok(Site {
        mtu: plan.workers[0].mtu,
        aggregators,
        server: server.expect("every plan has a server"),
        replica,
        workers: plan.workers.iter().map(pusher).collect(),
        controller: controller.unwrap_or_default(),
        policies: policies(answers),
        answer_delay: ANSWER_DELAY,
        has_trains: true,
        judges_models: false,
        silence: patience.map_or(Nanos::MAX, |controller| nanos(controller.silence)),
        patience: patience.map_or(Nanos::MAX, |controller| nanos(controller.grant_timeout)),
        links: hosts.iter().map(|name| host_link(scenario, name)).collect(),
        racks: scenario.lab.racks.iter().map(|rack| bytes_per_sec(rack.rates())).collect(),
    })
}

/// Names of the boxes by their places in the simulation: aggregators, server, replica.
fn box_names(plan: &Plan) -> Vec<String> {
    let (models, mut names): (Vec<&str>, Vec<&str>) = plan
        .boxes
        .iter()
        .map(|planned| planned.name.as_str())
        .partition(|name| [SERVER, REPLICA].contains(name));
    names.sort_by_key(|name| name[1..].parse::<u8>().unwrap_or(u8::MAX));
    let ends = [SERVER, REPLICA].into_iter().filter(|name| models.contains(name));
    names.into_iter().chain(ends).map(str::to_owned).collect()
}

fn pusher(worker: &WorkerPlan) -> PusherConfig {
    let config = worker.push_client().pusher(mac(1, worker.rank.into()));
    PusherConfig { job: topology::job_id(0), ..config.expect("a plan's MTU fits its headers") }
}

fn policies(answers: &Arc<Mutex<Answers>>) -> Policies {
    let answers = Arc::clone(answers);
    Policies(Arc::new(move |name| match Recorded::from_name(name, &answers) {
        Some(program) => Ok(AnyPolicy::Own(Arc::new(program))),
        None => built_in_policies()(name),
    }))
}

/// What the answer of a policy costs that is another program.
const ANSWER_DELAY: Nanos = Nanos::from_millis(5);
