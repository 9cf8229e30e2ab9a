//! What can be chosen at `weft cluster` beside trace, cluster and policy.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum};
use weft_controller::exec::ExecJobPolicy;
use weft_jobs::cluster::Cluster;
use weft_jobs::job::Job;
use weft_jobs::model::throughputs::Throughputs;
use weft_jobs::place::{self, Options, PLACEMENTS};
use weft_jobs::policy::{
    self, AnyPolicy, Jobs, Knobs, Setting, UnknownPolicy, elasticflow_compat, gittins,
    tiresias_compat,
};
use weft_jobs::sim::setup::Setup;
use weft_jobs::sim::speed::Costs;
use weft_jobs::sim::{self, Observer};
use weft_jobs::text::{self, TextError, ns_of};
use weft_jobs::trace;
use weft_process::say;
use weft_testbed::interrupt;

use super::cluster_network::NetworkArgs;
use super::cluster_stop::Stoppable;
use super::plan::LimitArgs;
use super::{Exit, Failure};

/// What can be chosen beside trace, cluster and policy.
#[derive(Debug, Args)]
pub(crate) struct Choice {
    /// By the definitions, or by another simulator's rules, oddities included.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) mode: Mode,
    #[arg(long, value_name = "NAME", help = placements())]
    pub(crate) placement: Option<String>,
    /// PACKLIMIT: a model whose largest tensor is more than this part of it is skewed, and is kept
    /// on few nodes by placement `skew`.
    #[arg(
        long,
        value_name = "PART",
        default_value_t = place::skew::PACK_LIMIT_DEFAULT,
        allow_negative_numbers = true
    )]
    pub(crate) pack_limit: f64,
    /// How many times as long a skewed model takes that is on more nodes than it needs.
    #[arg(long, value_name = "TIMES", default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) spread_slowdown: f64,
    /// Seed that an outside policy is told; those that are built in draw no lots.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// Limits of the upper queues, in GPU-seconds (seconds for dlas) [default: 3250,7200].
    #[arg(
        long,
        value_name = "S,…",
        value_delimiter = ',',
        value_parser = above_zero,
        allow_hyphen_values = true
    )]
    pub(crate) queues: Vec<f64>,
    /// PROMOTEKNOB: a job that waited this many times as long as it ran goes back to the first
    /// queue, and both its clocks to 0 [default: never].
    #[arg(long, value_name = "TIMES", value_parser = above_zero, allow_negative_numbers = true)]
    pub(crate) promote_knob: Option<f64>,
    /// A job of a later queue that waited so many seconds goes back to the first [default: never].
    #[arg(long, value_name = "S", value_parser = above_zero, allow_negative_numbers = true)]
    pub(crate) starvation_limit: Option<f64>,
    /// How long a choice of 2d-las, 2d-gittins and gandiva holds, and how often dlas-gpu-gittins
    /// works indices out again, in seconds [default: 60].
    #[arg(long, value_name = "S", value_parser = above_zero, allow_negative_numbers = true)]
    pub(crate) quantum: Option<f64>,
    /// The sample of GPU times for Gittins indices, a CSV with the column duration in GPU-seconds
    /// [default: the 1,001 that come with Tiresias' simulator].
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    /// Gittins indices instead of those by the formula, a CSV with the columns attained in
    /// GPU-seconds and index; each holds from there on.
    #[arg(long, value_name = "FILE")]
    pub(crate) gittins_table: Option<PathBuf>,
    /// Speed by width for elastic policies, a CSV with the columns
    /// model,global_batch_size,gpus,iterations_per_s. A job wider than the cluster then runs on all
    /// of it.
    #[arg(long, value_name = "FILE")]
    pub(crate) throughputs: Option<PathBuf>,
    /// Refuse a trace with jobs that --throughputs has no curve of: they run as wide as they ask.
    #[arg(long, requires = "throughputs")]
    pub(crate) strict: bool,
    /// What going on after a stop takes, in seconds on the job's GPUs.
    #[arg(
        long,
        value_name = "S",
        default_value_t = 0.0,
        value_parser = not_negative,
        allow_negative_numbers = true
    )]
    pub(crate) preemption_cost: f64,
    /// What going on with another width takes, in seconds on the job's GPUs.
    #[arg(
        long,
        value_name = "S",
        default_value_t = 10.0,
        value_parser = not_negative,
        allow_negative_numbers = true
    )]
    pub(crate) restart_cost: f64,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// Whose rules.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum Mode {
    /// The definitions of the papers.
    #[default]
    Exact,
    /// Tiresias' public simulator, row by row: whole seconds, late demotions, its own index.
    CompatTiresias,
    /// ElasticFlow's simulator: slots of 240 s and the time that a start takes.
    CompatElasticflow,
}

pub(crate) fn policies() -> String {
    let known = policy::BUILT_IN;
    let patterns = known.families.iter().map(|family| family.pattern);
    let names: Vec<_> = known.names().chain(patterns).collect();
    format!(
        "Who runs: {}; exec:CMD, a program that is told what happened and answers what changes, \
         one JSON line each (docs/job-policies.md)",
        names.join(", ")
    )
}

fn placements() -> String {
    let lines: Vec<_> = PLACEMENTS.iter().map(|p| format!("{} ({})", p.name, p.about)).collect();
    format!("Where jobs go: {} [default: the policy's own, mostly count]", lines.join("; "))
}

fn above_zero(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a number of at least 0".to_owned())
}

impl Choice {
    /// What a run under a policy is made of.
    pub(crate) fn setup(&self, policy: &str, cluster: Cluster) -> Result<Setup, Failure> {
        self.setup_at(("--policy", policy), ("--placement", self.placement.as_deref()), cluster)
    }

    /// The same with a placement of its own; each with the option that errors are about.
    pub(crate) fn setup_at(
        &self,
        (policy_option, policy): (&str, &str),
        (placement_option, placement): (&str, Option<&str>),
        cluster: Cluster,
    ) -> Result<Setup, Failure> {
        let policy = self.policy(policy).map_err(|error| usage(policy_option, error))?;
        let mut setting = Setting { seed: self.seed, ..Setting::new(cluster) };
        setting.knobs = self.knobs()?;
        if let Some(path) = &self.throughputs {
            setting.widths = Arc::new(parse(path, Throughputs::read)?);
        }
        let mut setup = Setup::new(policy, setting);
        if let Some(name) = placement {
            setup.placement =
                place::by_name(name).map_err(|error| usage(placement_option, error))?;
        }
        let counts = setup.placement.name == PLACEMENTS[0].name;
        if self.mode != Mode::Exact && !counts && !["fifo", "fjf"].contains(&setup.policy.name()) {
            let why = "only fifo and fjf have a placement in that simulator; leave it at count";
            return Err(usage(placement_option, why));
        }
        let Self { pack_limit, spread_slowdown, .. } = *self;
        if !(0.0..=1.0).contains(&pack_limit) {
            let why = format!("expected a part between 0 and 1, not {pack_limit}");
            return Err(usage("--pack-limit", why));
        }
        if !(spread_slowdown >= 1.0 && spread_slowdown.is_finite()) {
            let why = format!("expected a number of at least 1, not {spread_slowdown}");
            return Err(usage("--spread-slowdown", why));
        }
        let network = self.network.network()?;
        if network.is_some() && counts {
            let name = setup.policy.name();
            let why = format!(
                "{name} has placement count, which does not know on which nodes jobs are; give \
                 another --placement (of a comparison, {name}@consolidate)"
            );
            return Err(usage("--network", why));
        }
        setup.options = Options { pack_limit, network };
        setup.spread_slowdown = spread_slowdown;
        setup.costs = Costs {
            preemption_ns: ns_of(self.preemption_cost),
            restart_ns: ns_of(self.restart_cost),
        };
        Ok(setup)
    }

    /// The jobs of a trace, none wider than the cluster.
    pub(crate) fn jobs(&self, path: &Path, setup: &Setup) -> Result<Vec<Job>, Failure> {
        let Setting { cluster, widths, .. } = &setup.setting;
        let limit = self.throughputs.is_none().then_some(cluster);
        let read = parse(path, |file, text| {
            let read = trace::read(file, text, limit)?;
            if self.mode == Mode::CompatTiresias {
                read.in_seconds(file)?;
            }
            Ok(read)
        })?;
        if read.left_out > 0 {
            let (file, count) = (path.display(), read.left_out);
            say!("weft: {file}: jobs left out, since none of their attempts is over: {count}");
        }
        let mut jobs = read.jobs;
        for job in &mut jobs {
            weft_jobs::model::throughputs::narrow(job, cluster.gpus(), &**widths).map_err(
                |why| usage("--trace", format!("{}: job {}: {why}", path.display(), job.name)),
            )?;
        }
        if self.mode == Mode::CompatTiresias {
            tiresias_compat::in_whole_seconds(&mut jobs);
        }
        self.tell_unmatched(&path.display().to_string(), &jobs, setup)?;
        Ok(jobs)
    }

    /// Jobs without a curve, where there are curves.
    pub(crate) fn without_curve(&self, jobs: &[Job], setup: &Setup) -> Option<usize> {
        let widths = &setup.setting.widths;
        self.throughputs.as_ref().map(|_| jobs.iter().filter(|job| !widths.knows(job)).count())
    }

    /// Counts the jobs of a trace that other tables do not have.
    pub(crate) fn tell_unmatched(
        &self,
        trace: &str,
        jobs: &[Job],
        setup: &Setup,
    ) -> Result<(), Failure> {
        let all = jobs.len();
        let is_by_skew = setup.placement.name == "skew" || setup.spread_slowdown > 1.0;
        let is_unknown = |job: &&Job| is_by_skew && place::skew::skew(&job.model).is_none();
        let unknown = jobs.iter().filter(is_unknown).count();
        if unknown > 0 {
            say!(
                "weft: {trace}: {unknown} of {all} jobs have a model of unknown tensor sizes, and \
                 count as skewed"
            );
        }
        let count = self.without_curve(jobs, setup).filter(|count| *count > 0);
        let Some(count) = count else { return Ok(()) };
        let text = format!("{trace}: {count} of {all} jobs have no curve in --throughputs");
        if self.strict {
            return Err(Exit::CannotRun.because(anyhow!("{text} (--strict)")));
        }
        say!("weft: {text}, and run as wide as they ask");
        Ok(())
    }

    /// Says what was given and changes nothing under this policy.
    pub(crate) fn tell(&self, setup: &Setup) {
        let name = setup.policy.name();
        let is_bare = ["dlas", "dlas-gpu", "dlas-gpu-gittins"].contains(&name);
        if self.promote_knob.is_some() && !(is_bare && self.mode != Mode::CompatElasticflow) {
            say!("weft: --promote-knob has no effect: {name} has no such knob, or one in its name");
        }
        let is_elastic = ["doubling", "doubling-explore", "optimus"].contains(&name);
        if self.throughputs.is_none() && (is_elastic || name.starts_with("fixed-")) {
            say!("weft: {name}: without --throughputs jobs run as wide as they ask");
        }
    }

    /// Runs all jobs. From now on a signal ends the simulation, and an outside policy with it.
    pub(crate) fn simulate(
        &self,
        setup: &Setup,
        jobs: Vec<Job>,
        observer: &mut dyn Observer,
    ) -> Result<(), Failure> {
        let mut parts = setup.parts().map_err(|error| Exit::Failed.because(error))?;
        if self.mode == Mode::CompatElasticflow {
            parts.overheads = Box::new(elasticflow_compat::StartOverhead);
        }
        interrupt::listen().map_err(|error| Exit::Failed.because(error))?;
        let policy = parts.policy.clone();
        let scheduler = Stoppable { policy, scheduler: parts.scheduler };
        parts.scheduler = Box::new(scheduler);
        sim::run(parts, jobs, observer).map_err(|error| Exit::Failed.because(error))
    }

    fn policy(&self, name: &str) -> Result<AnyPolicy<Jobs>, UnknownPolicy> {
        if let Some(policy) = ExecJobPolicy::from_name(name, self.limits.limits()) {
            return Ok(AnyPolicy::Own(Arc::new(policy)));
        }
        match self.mode {
            Mode::Exact => policy::BUILT_IN.find(name),
            Mode::CompatTiresias => tiresias_compat::REGISTRY.find(name),
            Mode::CompatElasticflow => elasticflow_compat::REGISTRY.find(name),
        }
    }

    fn knobs(&self) -> Result<Knobs, Failure> {
        if let Some([before, limit]) =
            self.queues.array_windows().find(|[before, limit]| limit <= before)
        {
            let why = "each limit has to be above the one before";
            return Err(usage("--queues", format!("{why}, and {limit} is not above {before}")));
        }
        if self.quantum.is_some_and(|quantum_s| ns_of(quantum_s) == 0) {
            return Err(usage("--quantum", "must be at least 0.001"));
        }
        let history = self.history.as_deref().map(|path| parse(path, gittins::read_history));
        let table = self.gittins_table.as_deref().map(|path| parse(path, gittins::read_table));
        Ok(Knobs {
            queue_limits_ns: self.queues.iter().map(|limit_s| ns_of(*limit_s)).collect(),
            promote_knob: self.promote_knob,
            starvation_limit_ns: self.starvation_limit.map(ns_of),
            quantum_ns: self.quantum.map_or(0, ns_of),
            history_gpu_ns: history.transpose()?.unwrap_or_default().into(),
            gittins_table: table.transpose()?.unwrap_or_default().into(),
            restart_ns: ns_of(self.restart_cost),
        })
    }
}

/// The cluster of a file.
pub(crate) fn read_cluster(path: &Path) -> Result<Cluster, Failure> {
    parse(path, trace::cluster)
}

/// Reads a file. Errors name it as the command line does.
fn parse<T>(
    path: &Path,
    read: impl FnOnce(&str, &str) -> Result<T, TextError>,
) -> Result<T, Failure> {
    let bytes = fs::read(path)
        .with_context(|| format!("reading {}", path.display()))
        .map_err(|error| Exit::Usage.because(error))?;
    let file = path.display().to_string();
    let read = text::utf8(&file, &bytes).and_then(|text| read(&file, text));
    read.map_err(|error| Exit::Usage.because(error))
}

pub(crate) fn usage(option: &str, why: impl std::fmt::Display) -> Failure {
    Exit::Usage.because(anyhow!("{option}: {why}"))
}
