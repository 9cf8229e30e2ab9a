//! Decides whether a configuration makes sense, field by field; afterwards names are indices.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use thiserror::Error;
use weft_config::controller::{Config, JobConfig, NodeConfig, RackConfig, ReduceConfig, Tuning};
use weft_control::{Mode, UPDATE_CHUNKS_MAX, is_pushed};
use weft_wire::quant::is_exponent;

/// A configuration, or a job, that makes no sense.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{field}: {problem}")]
pub struct ConfigError {
    /// Path of the field, such as `job[0].tau_max`.
    pub field: String,
    /// What is wrong with it and what would be right.
    pub problem: String,
    /// Nothing else is wrong with it but that another job has it.
    pub is_taken: bool,
}

impl ConfigError {
    pub(super) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into(), is_taken: false }
    }

    pub(super) fn taken(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { is_taken: true, ..Self::new(field, problem) }
    }
}

type Checked<T> = Result<T, ConfigError>;

/// Checks racks, hosts, boxes and tuning, and adds a box for every host that has none.
pub(super) fn network(config: &mut Config) -> Checked<()> {
    tuning(&config.tuning)?;
    if let Some(problem) = config.bands.and_then(|bands| bands.interval_problem()) {
        return Err(ConfigError::new("bands.interval_s", problem));
    }
    let mut racks = BTreeSet::new();
    for (i, rack) in config.racks.iter().enumerate() {
        let RackConfig { name, up_bytes_per_sec, down_bytes_per_sec } = rack;
        let at = |leaf: &str| format!("rack[{i}].{leaf}");
        unique(&at("name"), name, &mut racks)?;
        rate(&at("up_bytes_per_sec"), *up_bytes_per_sec)?;
        rate(&at("down_bytes_per_sec"), *down_bytes_per_sec)?;
    }
    let mut hosts = BTreeSet::new();
    for (i, host) in config.hosts.iter().enumerate() {
        let at = |leaf: &str| format!("host[{i}].{leaf}");
        unique(&at("name"), &host.name, &mut hosts)?;
        rate(&at("up_bytes_per_sec"), host.up_bytes_per_sec)?;
        rate(&at("down_bytes_per_sec"), host.down_bytes_per_sec)?;
        if let Some(rack) = &host.rack
            && !racks.contains(rack)
        {
            let problem = format!("there is no rack `{rack}`; add a [[rack]]");
            return Err(ConfigError::new(at("rack"), problem));
        }
    }
    if hosts.is_empty() {
        return Err(ConfigError::new("host", "there is none; add a [[host]] for every machine"));
    }
    let mut nodes = BTreeSet::new();
    for (i, node) in config.nodes.iter_mut().enumerate() {
        let at = |leaf: &str| format!("node[{i}].{leaf}");
        unique(&at("name"), &node.name, &mut nodes)?;
        if node.host.is_empty() {
            node.host.clone_from(&node.name);
        }
        if !hosts.contains(&node.host) {
            let problem = format!("there is no host `{}`; add a [[host]]", node.host);
            return Err(ConfigError::new(at("host"), problem));
        }
    }
    let implied = hosts.into_iter().filter(|host| !nodes.contains(host));
    config.nodes.extend(implied.map(|name| NodeConfig {
        host: name.clone(),
        name,
        address: String::new(),
    }));
    Ok(())
}

/// Checks an allreduce job against the boxes and hosts. `at` is its path.
pub(super) fn reduce(at: &str, job: &ReduceConfig, config: &Config) -> Checked<()> {
    let err = |leaf: &str, problem: String| Err(ConfigError::new(format!("{at}{leaf}"), problem));
    if let Some(problem) = name_problem(&job.name) {
        return err("name", problem);
    }
    if !config.nodes.iter().any(|node| node.name == job.aggregator) {
        let problem = format!("there is no node `{}`; add a [[node]]", shown(&job.aggregator));
        return err("aggregator", problem);
    }
    if job.places.is_empty() || job.places.len() > PLACES_MAX {
        return err("places", format!("are {}; give 1 to {PLACES_MAX}", job.places.len()));
    }
    if job.workers == 0 || usize::from(job.workers) > job.places.len() {
        let problem = format!("is {}; there are {} places", job.workers, job.places.len());
        return err("workers", problem);
    }
    let mut addresses = BTreeSet::new();
    for (i, place) in job.places.iter().enumerate() {
        if !config.hosts.iter().any(|host| host.name == place.host) {
            let problem = format!("there is no host `{}`; add a [[host]]", shown(&place.host));
            return err(&format!("places[{i}].host"), problem);
        }
        if !addresses.insert(place.address) {
            let problem = format!("{} is another place's; each has its own", place.address);
            return err(&format!("places[{i}].address"), problem);
        }
    }
    if !is_exponent(job.exponent) {
        return err("exponent", format!("is {}; give -126 to 126", job.exponent));
    }
    if job.elements == 0 {
        return err("elements", "must be at least 1".into());
    }
    if !(0.0..=1.0).contains(&job.pack_limit) {
        return err("pack_limit", format!("is {}; give 0 to 1", job.pack_limit));
    }
    for (leaf, timeout_s) in
        [("begin_timeout_s", job.begin_timeout_s), ("stop_timeout_s", job.stop_timeout_s)]
    {
        if !(timeout_s > 0.0 && timeout_s <= TIMEOUT_MAX_S) {
            return err(leaf, format!("is {timeout_s}; give more than 0, up to {TIMEOUT_MAX_S}"));
        }
    }
    Ok(())
}

/// Checks a job against the boxes and hosts. `at` is its path.
pub(super) fn job(at: &str, job: &JobConfig, config: &Config) -> Checked<()> {
    let err = |leaf: &str, problem: String| Err(ConfigError::new(format!("{at}{leaf}"), problem));
    if let Some(problem) = name_problem(&job.name) {
        return err("name", problem);
    }
    if job.policy.as_ref().is_some_and(|policy| policy.len() > POLICY_LEN_MAX) {
        return err("policy", format!("has more than {POLICY_LEN_MAX} bytes"));
    }
    if job.dimension == 0 {
        return err("dimension", "must be at least 1".into());
    }
    if !is_pushed(job.element) {
        let problem = format!("is `{}`; updates are `i32` or `f32`", job.element);
        return err("element", problem);
    }
    if job.elements() == 0 {
        return err("elements_per_chunk", "must be at least 1".into());
    }
    let chunks = job.chunk_count();
    if chunks > u64::from(UPDATE_CHUNKS_MAX) {
        let problem = format!("makes {chunks} chunks; at most {UPDATE_CHUNKS_MAX} fit an update");
        return err("dimension", problem);
    }
    places(at, job, config)?;
    let workers = job.workers.len() as u64;
    if job.delay_max() + 1 < workers && job.mode != Mode::Partial {
        let problem = format!(
            "is {}; a round of {workers} workers needs at least {}",
            job.delay_max(),
            workers - 1
        );
        return err("tau_max", problem);
    }
    if !(0.0..1.0).contains(&job.momentum) {
        return err("momentum", format!("is {}; it lies from 0 to below 1", job.momentum));
    }
    if let Some(div_max) = job.div_max {
        if !(div_max.is_finite() && div_max > 0.0) {
            return err("div_max", format!("is {div_max}; it is finite and above 0"));
        }
        if job.replica.is_none() {
            return err("div_max", "bounds the distance of a replica; name a `replica`".into());
        }
    }
    match (job.mode, job.partial_count) {
        (Mode::Partial, Some(count)) if (1..=workers).contains(&u64::from(count)) => {}
        (Mode::Partial, _) => {
            return err("partial_count", format!("mode `partial` needs 1 to {workers}"));
        }
        (_, Some(_)) => return err("partial_count", "is for mode `partial` only".into()),
        (_, None) => {}
    }
    if !(job.weight.is_finite() && (WEIGHT_MIN..=WEIGHT_MAX).contains(&job.weight)) {
        let problem = format!("is {}; it lies from {WEIGHT_MIN} to {WEIGHT_MAX}", job.weight);
        return err("weight", problem);
    }
    Ok(())
}

/// Checks where a job's workers and boxes are.
fn places(at: &str, job: &JobConfig, config: &Config) -> Checked<()> {
    let err = |leaf: &str, problem: String| Err(ConfigError::new(format!("{at}{leaf}"), problem));
    if job.workers.is_empty() || job.workers.len() > WORKERS_MAX {
        return err("workers", format!("are {}; a job has 1 to {WORKERS_MAX}", job.workers.len()));
    }
    for (i, worker) in job.workers.iter().enumerate() {
        if !config.hosts.iter().any(|host| host.name == worker.host()) {
            let name = shown(worker.host());
            let problem = format!("there is no host `{name}`; add a [[host]]");
            return err(&format!("workers[{i}]"), problem);
        }
    }
    let hosts: BTreeMap<&str, &str> =
        config.nodes.iter().map(|node| (node.name.as_str(), node.host.as_str())).collect();
    let known = |leaf: &str, name: &str| match hosts.get(name) {
        Some(host) => Ok(*host),
        None => Err(ConfigError::new(
            format!("{at}{leaf}"),
            format!("there is no node `{}`; add a [[node]] or a [[host]]", shown(name)),
        )),
    };
    let server = known("server", &job.server)?;
    let mut seen = BTreeSet::from([job.server.as_str()]);
    if job.aggregators.len() > AGGREGATORS_MAX {
        return err("aggregators", format!("are more than {AGGREGATORS_MAX}"));
    }
    for (i, name) in job.aggregators.iter().enumerate() {
        let leaf = format!("aggregators[{i}]");
        known(&leaf, name)?;
        if !seen.insert(name) {
            return err(&leaf, format!("node `{name}` has a role in this job already"));
        }
    }
    if let Some(name) = &job.replica {
        if known("replica", name)? == server {
            return err("replica", "needs another host than the server's".into());
        }
        if !seen.insert(name) {
            return err("replica", format!("node `{name}` has a role in this job already"));
        }
    }
    Ok(())
}

fn tuning(tuning: &Tuning) -> Checked<()> {
    let err = |leaf: &str, problem: &str| {
        Err(ConfigError::new(format!("tuning.{leaf}"), problem.to_owned()))
    };
    if !(1000..=5000).contains(&tuning.gather_window_us) {
        return err("gather_window_us", "must be 1000 to 5000");
    }
    if !(1..=BATCH_MAX).contains(&tuning.batch_max) {
        return err("batch_max", "must be 1 to 1024");
    }
    if !(0.1..=1.0).contains(&tuning.planned_share) {
        return err("planned_share", "must be 0.1 to 1");
    }
    for (leaf, share) in [
        ("lateness_share", tuning.lateness_share),
        ("bandwidth_change_share", tuning.bandwidth_change_share),
    ] {
        if !(share.is_finite() && (0.01..=10.0).contains(&share)) {
            return err(leaf, "must be 0.01 to 10");
        }
    }
    for (leaf, count) in [
        ("turn_updates", tuning.turn_updates),
        ("updates_per_worker_max", tuning.updates_per_worker_max),
    ] {
        if !(1..=BATCH_MAX).contains(&count) {
            return err(leaf, "must be 1 to 1024");
        }
    }
    for (leaf, at_least_one) in [
        ("policy_timeout_ms", tuning.policy_timeout_ms),
        ("node_timeout_ms", tuning.node_timeout_ms),
        ("install_timeout_ms", tuning.install_timeout_ms),
        ("age_limit_ms", tuning.age_limit_ms),
        ("void_factor", tuning.void_factor),
        ("void_ms_min", tuning.void_ms_min),
    ] {
        if at_least_one == 0 {
            return err(leaf, "must be at least 1");
        }
    }
    rate("tuning.initial_bytes_per_sec", Some(tuning.initial_bytes_per_sec))
}

fn unique(field: &str, name: &str, seen: &mut BTreeSet<String>) -> Checked<()> {
    if let Some(problem) = name_problem(name) {
        return Err(ConfigError::new(field, problem));
    }
    if !seen.insert(name.to_owned()) {
        return Err(ConfigError::new(field, format!("`{name}` is given twice; names are unique")));
    }
    Ok(())
}

/// What is wrong with a name, if anything.
fn name_problem(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("must not be empty".to_owned());
    }
    if name.len() > NAME_LEN_MAX {
        return Some(format!("has {} bytes; at most {NAME_LEN_MAX}", name.len()));
    }
    let is_odd = name.chars().any(char::is_control);
    is_odd.then(|| "must have no control characters".to_owned())
}

/// The beginning of a name that somebody gave, for a message.
#[must_use]
pub fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(NAME_LEN_MAX / 2).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown.retain(|c| !c.is_control());
    shown
}

fn rate(field: &str, rate: Option<u64>) -> Checked<()> {
    match rate {
        Some(rate) if !(1..=RATE_BYTES_PER_SEC_MAX).contains(&rate) => {
            let problem = format!("is {rate}; a rate lies from 1 to {RATE_BYTES_PER_SEC_MAX}");
            Err(ConfigError::new(field, problem))
        }
        _ => Ok(()),
    }
}

/// 80 Tb/s, as the planner has it.
pub(super) const RATE_BYTES_PER_SEC_MAX: u64 = 10_000_000_000_000;
/// Bytes of a name.
const NAME_LEN_MAX: usize = 128;
/// Bytes of a policy's name, which may be a command.
const POLICY_LEN_MAX: usize = 4096;
const WORKERS_MAX: usize = 64;
const AGGREGATORS_MAX: usize = 64;
const BATCH_MAX: usize = 1024;
/// How long a cohort may be given to stop or to begin.
const TIMEOUT_MAX_S: f64 = 86_400.0;
/// Places of an allreduce job: a group's members.
const PLACES_MAX: usize = 64;
const WEIGHT_MIN: f64 = 0.001;
const WEIGHT_MAX: f64 = 1000.0;

#[cfg(test)]
mod tests {
    use weft_config::controller::Tuning;
    use weft_plan::policy;

    #[test]
    fn the_configurations_default_policy_is_the_planners() {
        assert_eq!(Tuning::default().policy, policy::default().name());
    }
}
