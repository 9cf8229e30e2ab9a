//! `weft cluster --compare`: policies beside each other over traces, loads and seeds.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;
use weft_jobs::cluster::Cluster;
use weft_jobs::job::{Job, NS_PER_S};
use weft_jobs::model::throughputs::narrow;
use weft_jobs::optimum::{SMALL_CASE_GPUS, best_order_ns, small_case};
use weft_jobs::policy::tiresias_compat::in_whole_seconds;
use weft_jobs::sim::setup::Setup;
use weft_jobs::sim::summary::Figures;
use weft_jobs::sim::{Observer, Row, Usage};
use weft_jobs::trace::generate::{Recipe, Sizes, arrive};
use weft_process::say;
use weft_testbed::interrupt;
use weft_testbed::report::{ClusterRow, ClusterSample, cluster_rows, table};

use super::cluster::ClusterArgs;
use super::cluster_choice::{Choice, Mode, usage};
use super::cluster_curves::{Curves, draw};
use super::cluster_files::Staged;
use super::{
    Exit, Failure, Format, Outcome, compare, csv_text, emit_csv, emit_json, emit_text, progress_bar,
};

#[derive(Debug, Args)]
#[command(next_help_heading = "Comparison")]
pub(crate) struct CompareArgs {
    /// Compare policies over all traces, loads and seeds, case by case with the first one. A
    /// placement may follow a policy: dlas-gpu@skew.
    #[arg(long, value_name = "P1,P2,…", value_delimiter = ',', conflicts_with = "policy")]
    pub(crate) compare: Vec<String>,
    /// GPU time that jobs ask for over what the cluster has while they come; their arrivals are
    /// drawn anew for each load and seed.
    #[arg(
        long,
        value_name = "L1,L2,…",
        value_delimiter = ',',
        default_value = "0.7,1,1.3",
        requires = "compare",
        allow_hyphen_values = true
    )]
    loads: Vec<f64>,
    /// Seeds of arrivals, and of made-up jobs: `3`, `1,2,5`, or `1..5`, which is 1 to 5.
    #[arg(long, default_value = "1..10", requires = "compare", allow_hyphen_values = true)]
    seeds: String,
    /// Small made-up cases, of which the best of all fixed orders is known.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 200,
        requires = "compare",
        allow_negative_numbers = true
    )]
    small_cases: u64,
}

/// What was found. Outside scripts read these names.
#[derive(Debug, Serialize)]
struct Answer {
    /// Each trace, load and policy, then each policy over all.
    rows: Vec<ClusterRow>,
    /// Small cases, held against the best fixed order.
    small_cases: Vec<Distance>,
}

/// A policy's mean completion time over that of the best fixed order.
#[derive(Debug, Serialize)]
struct Distance {
    policy: String,
    cases: u64,
    /// Cases in which it was as good.
    as_good: u64,
    ratio_mean: f64,
    ratio_max: f64,
}

pub(super) fn run(arguments: &ClusterArgs, format: Format) -> Outcome {
    let options = &arguments.comparison;
    let cluster = arguments.cluster()?;
    let seeds = compare::seeds(&options.seeds)?;
    if let Some(load) = options.loads.iter().find(|load| !(**load > 0.0 && load.is_finite())) {
        return Err(usage("--loads", format!("{load} is not above 0")));
    }
    let setup = |name: &str, cluster| setup(&arguments.choice, name, cluster);
    let setups: Result<Vec<(String, Setup)>, Failure> =
        options.compare.iter().map(|name| Ok((name.clone(), setup(name, cluster)?))).collect();
    let setups = setups?;
    for (_, setup) in &setups {
        arguments.choice.tell(setup);
    }
    let traces: Result<Vec<Trace>, Failure> = arguments
        .trace
        .iter()
        .map(|path| Trace::new(&arguments.choice, path, &setups[0].1))
        .collect();
    let traces = traces?;
    let cases = Cases { arguments, cluster, traces: &traces, setups: &setups, seeds: &seeds };
    let (samples, curves) = cases.simulate()?;
    let small = Cluster::of_nodes(1, SMALL_CASE_GPUS);
    let distance = |name: &String| {
        distance(&arguments.choice, name, &setup(name, small)?, options.small_cases)
    };
    let small_cases: Result<Vec<Distance>, Failure> = match options.small_cases {
        0 => Ok(Vec::new()),
        _ => options.compare.iter().map(distance).collect(),
    };
    let answer = Answer { rows: cluster_rows(&samples), small_cases: small_cases? };
    if let Some(out) = &arguments.out {
        let names: Vec<_> = traces.iter().map(|trace| trace.name.as_str()).collect();
        let loads: Vec<_> = options.loads.iter().map(f64::to_string).collect();
        let (names, loads, seeds) = (names.join(", "), loads.join(", "), &options.seeds);
        let whose = format!("{names}; loads {loads}; seeds {seeds}; {} GPUs", cluster.gpus());
        let first = samples.first().map_or_else(String::new, |case| {
            format!("{}, load {}, seed {}", case.trace, case.load, case.seed)
        });
        write_all(out, [&whose, &first], &answer, &curves)?;
    }
    match format {
        Format::Text => emit_text(&text(&answer))?,
        Format::Json => emit_json(&answer)?,
        Format::Csv => emit_csv(&answer.rows)?,
    }
    Ok(0)
}

/// A policy and the curves of all its cases.
type PolicyCurves = (String, Curves);

/// What is compared: every policy on every trace, at every load, with every seed.
struct Cases<'a> {
    arguments: &'a ClusterArgs,
    cluster: Cluster,
    traces: &'a [Trace],
    setups: &'a [(String, Setup)],
    seeds: &'a [u64],
}

impl Cases<'_> {
    /// The figures of each case, and the curves of each policy.
    fn simulate(&self) -> Result<(Vec<ClusterSample>, Vec<PolicyCurves>), Failure> {
        let (choice, loads) = (&self.arguments.choice, &self.arguments.comparison.loads);
        let cases = self.traces.len() * loads.len() * self.seeds.len();
        let bar = progress_bar((cases * self.setups.len()) as u64, "simulation");
        let mut samples = Vec::new();
        let curves = |(name, _): &(String, Setup)| (name.clone(), Curves::new(&self.cluster));
        let mut curves: Vec<PolicyCurves> = self.setups.iter().map(curves).collect();
        for trace in self.traces {
            for (load, seed) in
                loads.iter().flat_map(|load| self.seeds.iter().map(move |seed| (*load, *seed)))
            {
                let jobs = trace.jobs(choice, &self.setups[0].1, load, seed)?;
                for ((name, setup), (_, all)) in self.setups.iter().zip(&mut curves) {
                    if interrupt::is_raised() {
                        return Err(Exit::Interrupted.because(anyhow!("between two simulations")));
                    }
                    let mut seen = Seen::new(&self.cluster);
                    let done = choice.simulate(setup, jobs.clone(), &mut seen);
                    let of = &trace.name;
                    done.map_err(in_case(format!(
                        "{of}, load {load}, seed {seed}, policy {name}"
                    )))?;
                    all.jct_s.append(&mut seen.curves.jct_s);
                    if all.used.is_empty() {
                        all.used = std::mem::take(&mut seen.curves.used);
                    }
                    samples.push(seen.sample(&self.cluster, (of, load, seed, name)));
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        Ok((samples, curves))
    }
}

/// `dlas-gpu`, or `dlas-gpu@skew`.
fn setup(choice: &Choice, name: &str, cluster: Cluster) -> Result<Setup, Failure> {
    let option = "--compare";
    match name.split_once('@') {
        Some((policy, placement)) => {
            choice.setup_at((option, policy), (option, Some(placement)), cluster)
        }
        None => {
            let placement = ("--placement", choice.placement.as_deref());
            choice.setup_at((option, name), placement, cluster)
        }
    }
}

/// A failure that says in which case.
fn in_case(case: String) -> impl FnOnce(Failure) -> Failure {
    |Failure { exit, error }| Failure { exit, error: error.context(case) }
}

/// Where a trace's jobs come from.
#[derive(Debug)]
struct Trace {
    name: String,
    source: Source,
}

#[derive(Debug)]
enum Source {
    File(Vec<Job>),
    MadeUp { sizes: Sizes, jobs: u32 },
}

impl Trace {
    /// A file, or `mixed:480` and `heavy-tailed:480`, which are made up.
    fn new(choice: &Choice, path: &Path, setup: &Setup) -> Result<Self, Failure> {
        let text = path.to_string_lossy();
        for (kind, sizes) in [("mixed:", Sizes::Mixed), ("heavy-tailed:", Sizes::HeavyTailed)] {
            let Some(count) = text.strip_prefix(kind) else { continue };
            let jobs = count.parse().ok().filter(|jobs: &u32| *jobs > 0);
            let wrong = || usage("--trace", format!("{text}: {count:?} is no number of jobs"));
            let source = Source::MadeUp { sizes, jobs: jobs.ok_or_else(wrong)? };
            let trace = Self { name: text.into_owned(), source };
            choice.tell_unmatched(&trace.name, &trace.jobs(choice, setup, 1.0, 0)?, setup)?;
            return Ok(trace);
        }
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Self { name, source: Source::File(choice.jobs(path, setup)?) })
    }

    fn jobs(
        &self,
        choice: &Choice,
        setup: &Setup,
        load: f64,
        seed: u64,
    ) -> Result<Vec<Job>, Failure> {
        let gpus = setup.setting.cluster.gpus();
        let mut jobs = match &self.source {
            Source::File(jobs) => {
                let mut jobs = jobs.clone();
                arrive(&mut jobs, gpus, load, seed);
                jobs
            }
            Source::MadeUp { sizes, jobs } => {
                let recipe = Recipe { jobs: *jobs, gpus, load, sizes: *sizes };
                let mut jobs = recipe.generate(seed);
                for job in &mut jobs {
                    narrow(job, gpus, &*setup.setting.widths)
                        .map_err(|why| usage("--trace", format!("{}: {why}", self.name)))?;
                }
                jobs
            }
        };
        if choice.mode == Mode::CompatTiresias {
            in_whole_seconds(&mut jobs);
        }
        Ok(jobs)
    }
}

struct Seen {
    figures: Figures,
    curves: Curves,
}

impl Seen {
    fn new(cluster: &Cluster) -> Self {
        Self { figures: Figures::default(), curves: Curves::new(cluster) }
    }

    fn sample(
        self,
        cluster: &Cluster,
        (trace, load, seed, policy): (&str, f64, u64, &str),
    ) -> ClusterSample {
        let summary = self.figures.summary(cluster);
        ClusterSample {
            trace: trace.to_owned(),
            load,
            seed,
            policy: policy.to_owned(),
            avg_jct_s: summary.avg_jct_s,
            p95_jct_s: summary.p95_jct_s,
            makespan_s: summary.makespan_s,
            utilisation: summary.utilisation,
            preemptions: summary.preemptions,
        }
    }
}

impl Observer for Seen {
    fn ended(&mut self, row: Row<'_>) {
        self.figures.add(&row);
        self.curves.ended(&row);
    }

    fn usage(&mut self, now_ns: u64, usage: Usage) {
        self.curves.usage(now_ns, usage);
    }
}

fn distance(choice: &Choice, name: &str, setup: &Setup, cases: u64) -> Result<Distance, Failure> {
    let cluster = setup.setting.cluster;
    let mut ratios = Vec::new();
    for seed in 0..cases {
        let jobs = small_case(seed);
        let Some(best_ns) = best_order_ns(&jobs, cluster.gpus()) else { continue };
        let mut seen = Seen::new(&cluster);
        let done = choice.simulate(setup, jobs, &mut seen);
        done.map_err(in_case(format!("small case {seed}, policy {name}")))?;
        let avg_jct_s = seen.figures.summary(&cluster).avg_jct_s;
        ratios.push(avg_jct_s / (best_ns / NS_PER_S as f64));
    }
    Ok(Distance {
        policy: name.to_owned(),
        cases: ratios.len() as u64,
        as_good: ratios.iter().filter(|ratio| **ratio <= 1.0 + 1e-9).count() as u64,
        ratio_mean: ratios.iter().sum::<f64>() / ratios.len().max(1) as f64,
        ratio_max: ratios.iter().copied().fold(0.0, f64::max),
    })
}

fn write_all(
    out: &Path,
    whose: [&str; 2],
    answer: &Answer,
    curves: &[PolicyCurves],
) -> Result<(), Failure> {
    let mut files = Staged::create(out)?;
    let json = serde_json::to_string_pretty(answer).map_err(|error| Exit::Failed.because(error))?;
    files.write("compare.csv", &csv_text(&answer.rows)?)?;
    draw(&mut files, whose, curves)?;
    files.write("compare.json", &(json + "\n"))?;
    files.publish()?;
    say!("weft: rows and pictures in {}", out.display());
    Ok(())
}

fn text(answer: &Answer) -> String {
    let head =
        ["policy", "median", "mean", "95 %", "p95", "in use", "stops", "differs", "95 %", "faster"];
    let head = head.map(str::to_owned).to_vec();
    let mut out = String::new();
    let of_setting = |a: &ClusterRow, b: &ClusterRow| a.trace == b.trace && a.load == b.load;
    for rows in answer.rows.chunk_by(of_setting) {
        let Some(first) = rows.first() else { continue };
        let of = match first.load {
            Some(load) => format!("{}, load {load}", first.trace),
            None => "all traces and loads".to_owned(),
        };
        let _ = writeln!(out, "{of}: {} cases, times in seconds", first.cases);
        let mut lines = vec![head.clone()];
        lines.extend(rows.iter().map(cells));
        out += &table(&lines);
        out.push('\n');
    }
    out += "median, mean, 95 %: of the cases' mean completion times, and half of that\n\
            mean's interval; differs: each case's over the first policy's, less 1, its\n\
            mean and half of its interval\n";
    if !answer.small_cases.is_empty() {
        out += "\nsmall cases, mean completion over that of the best of all fixed orders\n";
        let head = ["policy", "cases", "as good", "mean", "largest"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(answer.small_cases.iter().map(|row| {
            vec![
                row.policy.clone(),
                row.cases.to_string(),
                row.as_good.to_string(),
                format!("{:.3}", row.ratio_mean),
                format!("{:.3}", row.ratio_max),
            ]
        }));
        out += &table(&lines);
    }
    out
}

fn cells(row: &ClusterRow) -> Vec<String> {
    let percent = |share: f64| format!("{:+.1}%", 100.0 * share);
    let half =
        |half: Option<f64>, text: &dyn Fn(f64) -> String| half.map_or_else(|| "-".to_owned(), text);
    vec![
        row.policy.clone(),
        format!("{:.0}", row.avg_jct_median_s),
        format!("{:.0}", row.avg_jct_mean_s),
        half(row.avg_jct_half_interval_95_s, &|half| format!("{half:.0}")),
        format!("{:.0}", row.p95_jct_median_s),
        format!("{:.3}", row.utilisation_median),
        format!("{:.0}", row.preemptions_median),
        percent(row.difference_mean),
        half(row.difference_half_interval_95, &|half| format!("{:.1}%", 100.0 * half)),
        format!("{}/{}", row.faster, row.cases),
    ]
}
