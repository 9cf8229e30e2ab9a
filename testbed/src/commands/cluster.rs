//! `weft cluster`: a trace of jobs on a cluster, under a policy, event by event.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use serde::Serialize;
use weft_jobs::cluster::Cluster;
use weft_jobs::sim::summary::{Figures, Summary};
use weft_jobs::sim::{Observer, Row, Usage, rows};
use weft_process::say;

use super::cluster_bands::{self, BandsArgs};
use super::cluster_choice::{Choice, Mode, policies, read_cluster, usage};
use super::cluster_compare::{self, CompareArgs};
use super::cluster_curves::{self, Curves};
use super::cluster_elastic::{self, DistanceArgs, FitArgs, Table3Args};
use super::cluster_files::Staged;
use super::cluster_lights::{self, LightsArgs};
use super::cluster_trace::{self, TraceArgs};
use super::cluster_widths::{self, WidthsArgs};
use super::{Exit, Failure, Format, Outcome, emit_csv, emit_json, emit_text, progress_bar};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    command: Option<ClusterCommand>,
    /// The jobs: a CSV of Tiresias', ElasticFlow's or Alibaba's columns, or Philly's JSON. Times in
    /// seconds. A comparison takes several, also made-up ones: mixed:N, heavy-tailed:N for N jobs.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) trace: Vec<PathBuf>,
    /// The cluster: num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node (GB), one
    /// row.
    #[arg(long, value_name = "FILE", required = true)]
    cluster: Option<PathBuf>,
    #[arg(long, default_value = "dlas-gpu", value_name = "NAME", help = policies())]
    pub(crate) policy: String,
    #[command(flatten)]
    pub(crate) choice: Choice,
    #[command(flatten)]
    pub(crate) comparison: CompareArgs,
    /// Writes DIR/jobs.csv, a row a job in order of their ends, DIR/summary.json, and as pictures
    /// DIR/completions.svg and DIR/utilisation.svg; of a comparison, compare.json and compare.csv.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// List the priority band of each job's model updates
    ///
    /// Bands are 0 (first) to 6. Jobs are grouped by model, smaller models first; those of one
    /// model rotate.
    Bands(BandsArgs),
    /// Simulate bands on the published placements of 21 jobs, beside the published times
    ///
    /// One parameter, the work of a step, is fitted so that placement 8 takes as long as
    /// published under FIFO; the seven others, and all of One and RoundRobin, are predicted.
    Lights(LightsArgs),
    /// Make a trace up: Poisson arrivals, and sizes with a heavy tail
    ///
    /// CSV on standard output, as `weft cluster --trace` reads it. The same arguments give the same
    /// jobs.
    Trace(TraceArgs),
    /// Fit speeds or a loss by non-negative least squares, with the residuals
    Fit(FitArgs),
    /// Measure how far the rules for widths are from the optimum, on small cases
    Optimum(DistanceArgs),
    /// Put Table 3 of the doubling paper beside what its settings give here
    ///
    /// Jobs alike on 64 GPUs, as fast at 1, 2, 4 and 8 GPUs as the paper says, 10 s for a restart.
    Table3(Table3Args),
    /// Compare the widths of elastic jobs by the way in which their workers sum
    ///
    /// Jobs of 1,000, 500 and 250 iterations with 6.4 s of computing each, on 64 GPUs; then 100
    /// jobs of 1,000 that come 250 s apart. Ring, halving-doubling and binary blocks cost 30 us a
    /// message and an eighth of a nanosecond to add a byte; Weft costs what its bench measured.
    Widths(WidthsArgs),
}

impl ClusterArgs {
    /// The cluster, which is there unless a subcommand is.
    pub(super) fn cluster(&self) -> Result<Cluster, Failure> {
        read_cluster(self.cluster.as_deref().unwrap_or_else(|| Path::new("")))
    }
}

/// What scripts read in `summary.json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SummaryFile {
    pub(crate) policy: String,
    pub(crate) jobs: usize,
    pub(crate) avg_jct_s: f64,
    pub(crate) median_jct_s: f64,
    pub(crate) p95_jct_s: f64,
    pub(crate) makespan_s: f64,
    /// GPUs x duration of all jobs over GPUs x makespan.
    pub(crate) utilisation: f64,
    pub(crate) preemptions: u64,
    pub(crate) resizes: u64,
    /// What all starts took.
    pub(crate) restart_s: f64,
    /// Jobs that --throughputs has no curve of; none without it.
    pub(crate) jobs_without_curve: Option<usize>,
}

impl SummaryFile {
    fn new(policy: &str, summary: &Summary, jobs_without_curve: Option<usize>) -> Self {
        let Summary { jobs, avg_jct_s, median_jct_s, p95_jct_s, makespan_s, .. } = *summary;
        let Summary { utilisation, preemptions, resizes, restart_s, .. } = *summary;
        Self {
            policy: policy.to_owned(),
            jobs,
            avg_jct_s,
            median_jct_s,
            p95_jct_s,
            makespan_s,
            utilisation,
            preemptions,
            resizes,
            restart_s,
            jobs_without_curve,
        }
    }

    fn text(&self) -> String {
        let figures = [
            ("policy", self.policy.clone()),
            ("jobs", self.jobs.to_string()),
            ("mean completion", format!("{:.3} s", self.avg_jct_s)),
            ("median completion", format!("{:.3} s", self.median_jct_s)),
            ("95 % of completions", format!("{:.3} s", self.p95_jct_s)),
            ("makespan", format!("{:.3} s", self.makespan_s)),
            ("utilisation", format!("{:.4}", self.utilisation)),
            ("preemptions", self.preemptions.to_string()),
            ("resizes", self.resizes.to_string()),
            ("in restarts", format!("{:.3} s", self.restart_s)),
        ];
        figures.map(|(name, value)| format!("{name:<20} {value}\n")).concat()
    }
}

pub(crate) fn run(arguments: &ClusterArgs, format: Format) -> Outcome {
    match &arguments.command {
        Some(ClusterCommand::Bands(arguments)) => cluster_bands::run(arguments, format),
        Some(ClusterCommand::Lights(arguments)) => cluster_lights::run(arguments, format),
        Some(ClusterCommand::Trace(arguments)) => cluster_trace::run(arguments),
        Some(ClusterCommand::Fit(arguments)) => cluster_elastic::run_fit(arguments, format),
        Some(ClusterCommand::Optimum(arguments)) => cluster_elastic::run_optimum(arguments, format),
        Some(ClusterCommand::Table3(arguments)) => cluster_elastic::run_table3(arguments, format),
        Some(ClusterCommand::Widths(arguments)) => cluster_widths::run(arguments, format),
        None => simulate(arguments, format),
    }
}

fn simulate(arguments: &ClusterArgs, format: Format) -> Outcome {
    if !arguments.comparison.compare.is_empty() {
        return cluster_compare::run(arguments, format);
    }
    let [trace] = arguments.trace.as_slice() else {
        return Err(usage("--trace", "only a comparison takes several; see --compare"));
    };
    let cluster = arguments.cluster()?;
    let setup = arguments.choice.setup(&arguments.policy, cluster)?;
    arguments.choice.tell(&setup);
    let jobs = arguments.choice.jobs(trace, &setup)?;
    let jobs_without_curve = arguments.choice.without_curve(&jobs, &setup);
    let is_compat = arguments.choice.mode == Mode::CompatTiresias;
    let mut files = arguments.out.as_deref().map(Staged::create).transpose()?;
    let table = files.as_mut().map(JobsFile::create).transpose()?;
    let bar = progress_bar(jobs.len() as u64, "job");
    let curves = arguments.out.is_some().then(|| Curves::new(&cluster));
    let mut seen = Seen { table, is_compat, figures: Figures::default(), curves, bar };
    arguments.choice.simulate(&setup, jobs, &mut seen)?;
    seen.bar.finish_and_clear();
    let figures = seen.figures.summary(&cluster);
    let summary = SummaryFile::new(setup.policy.name(), &figures, jobs_without_curve);
    if let (Some(table), Some(mut files), Some(out)) = (seen.table, files, &arguments.out) {
        table.finish()?;
        let text =
            serde_json::to_string_pretty(&summary).map_err(|error| Exit::Failed.because(error))?;
        let curves = seen.curves.map(|curves| (summary.policy.clone(), curves));
        let name = trace.file_name().unwrap_or(trace.as_os_str()).to_string_lossy();
        let title = format!("{name}, as it came");
        cluster_curves::draw(&mut files, [&title, &title], curves.as_slice())?;
        files.write("summary.json", &(text + "\n"))?;
        files.publish()?;
        say!("weft: rows of {} jobs in {}", summary.jobs, out.join("jobs.csv").display());
    }
    match format {
        Format::Text => emit_text(&summary.text())?,
        Format::Json => emit_json(&summary)?,
        Format::Csv => emit_csv(&[summary])?,
    }
    Ok(0)
}

/// `jobs.csv` while it is written. An error is kept until the end.
struct JobsFile {
    path: PathBuf,
    file: BufWriter<File>,
    error: Option<std::io::Error>,
}

impl JobsFile {
    fn create(files: &mut Staged) -> Result<Self, Failure> {
        let path = files.path("jobs.csv");
        let file = File::create(&path)
            .with_context(|| format!("creating {}", path.display()))
            .map_err(|error| Exit::Failed.because(error))?;
        let mut file = Self { path, file: BufWriter::new(file), error: None };
        file.line(rows::HEADER);
        Ok(file)
    }

    fn line(&mut self, line: &str) {
        if self.error.is_none() {
            self.error = writeln!(self.file, "{line}").err();
        }
    }

    fn finish(mut self) -> Result<(), Failure> {
        let done = self.error.take().map_or_else(|| self.file.flush(), Err);
        done.with_context(|| format!("writing {}", self.path.display()))
            .map_err(|error| Exit::Failed.because(error))
    }
}

struct Seen {
    table: Option<JobsFile>,
    is_compat: bool,
    figures: Figures,
    curves: Option<Curves>,
    bar: ProgressBar,
}

impl Observer for Seen {
    fn ended(&mut self, row: Row<'_>) {
        if let Some(table) = &mut self.table {
            table.line(&row.line(self.is_compat));
        }
        self.figures.add(&row);
        if let Some(curves) = &mut self.curves {
            curves.ended(&row);
        }
        self.bar.inc(1);
    }

    fn usage(&mut self, now_ns: u64, usage: Usage) {
        if let Some(curves) = &mut self.curves {
            curves.usage(now_ns, usage);
        }
    }
}
