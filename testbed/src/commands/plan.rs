//! `weft plan CASE.json`.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use weft_controller::exec::{ExecPolicy, Limits};
use weft_plan::case::{Case, CaseError, Objective, UpdateId};
use weft_plan::plan::Plan;
use weft_plan::policy::{self, Policy};
use weft_plan::spec::CaseSpec;
use weft_testbed::report::{duration, gantt_svg, plan_picture};

use super::{Exit, Failure, Format, Outcome, emit_csv, emit_json, emit_text, input, plan_optimum};
use weft_process::say;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct PlanArgs {
    #[command(subcommand)]
    command: Option<PlanCommand>,
    /// The case: who wants to send what, over which links. `-` reads standard input.
    #[arg(value_name = "CASE.json", required = true, value_parser = input())]
    case: Option<PathBuf>,
    #[arg(long, default_value = "mlfabric", value_name = "NAME", help = policies())]
    policy: String,
    #[command(flatten)]
    limits: LimitArgs,
    /// Never drop an update that could still commit in time (the drop rule is derived: the sources
    /// do not give it).
    #[arg(long)]
    no_drop: bool,
    /// Send every update straight to its server.
    #[arg(long)]
    no_aggregate: bool,
    /// Policy mlfabric: its rules alone, without the candidates beside them (the choice among these
    /// is derived).
    #[arg(long)]
    rules_only: bool,
    /// What the grouping makes small: the mean commit (asynchronous training) or the last one
    /// (synchronous) [default: the case's, else mean].
    #[arg(long, value_enum)]
    objective: Option<ObjectiveName>,
    /// Draw the transfers.
    #[arg(long, value_name = "FILE.svg", help_heading = "Output")]
    plot: Option<PathBuf>,
}

// How long an outside policy may take: no documentation, which would be that of the command.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LimitArgs {
    /// How long an outside policy (exec:CMD) may take over one answer. Its process, with what that
    /// started, is killed at the end and when SIGINT, SIGTERM or SIGHUP ends weft, at the latest
    /// after this time; when weft is killed itself (SIGKILL), it finds its standard input at the
    /// end.
    #[arg(long, value_name = "MS", default_value_t = 1000, allow_negative_numbers = true)]
    policy_timeout_ms: u64,
    /// How much longer its first answer may take, with which its start ends.
    #[arg(long, value_name = "MS", default_value_t = 30_000, allow_negative_numbers = true)]
    policy_start_timeout_ms: u64,
}

impl LimitArgs {
    pub(crate) fn limits(self) -> Limits {
        Limits {
            start: Duration::from_millis(self.policy_start_timeout_ms),
            answer: Duration::from_millis(self.policy_timeout_ms),
        }
    }
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// Say how far mlfabric's plans are from the best there is, on small made-up cases
    ///
    /// Every order, grouping and choice of aggregators of up to 7 updates is tried. A ratio is the
    /// plan's cost (the mean commit, or the last one) over the least that is known.
    Optimum(plan_optimum::OptimumArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ObjectiveName {
    Mean,
    Last,
}

fn policies() -> String {
    let names: Vec<_> = policy::names().collect();
    format!(
        "Which policy plans: {}; exec:CMD, a program that reads the case and writes the plan, one \
         JSON line each (docs/policies.md); all, a table of the built-in ones",
        names.join(", ")
    )
}

pub(crate) fn run(arguments: &PlanArgs, format: Format) -> Outcome {
    if let Some(PlanCommand::Optimum(optimum)) = &arguments.command {
        return plan_optimum::run(optimum, format);
    }
    // Scripts tell a bad case from a good one by status 1 and the field in the message.
    let case = read(arguments).map_err(|error| Exit::Failed.because(error))?;
    if arguments.policy == "all" {
        return compare(&case, format);
    }
    check_policy("--policy", &arguments.policy)?;
    let outside = ExecPolicy::from_name(&arguments.policy, arguments.limits.limits());
    let outside = outside.as_ref().map(|outside| outside as &dyn Policy);
    let policy = outside.or_else(|| policy::by_name(&arguments.policy).map(|p| p as &dyn Policy));
    let plan = policy.expect("its name was checked").plan(&case);
    let plan = plan.map_err(|error| Exit::Failed.because(error))?;
    match format {
        Format::Text => emit_text(&text(&case, &plan))?,
        Format::Json => emit_json(&plan.document(&case))?,
        Format::Csv => emit_csv(&rows(&case, &plan))?,
    }
    if let Some(path) = &arguments.plot {
        draw(&case, &plan, path)?;
    }
    Ok(0)
}

/// Refuses a name that no policy has; `option` is where it was given.
pub(super) fn check_policy(option: &str, name: &str) -> Result<(), Failure> {
    let is_known = match name.strip_prefix("exec:") {
        Some(command) => !command.trim().is_empty(),
        None => policy::by_name(name).is_some(),
    };
    if is_known {
        return Ok(());
    }
    let known: Vec<_> = policy::names().collect();
    let known = known.join(", ");
    Err(Exit::Usage.because(anyhow!("{option}: no policy `{name}`; known: {known}, exec:CMD")))
}

fn read(arguments: &PlanArgs) -> anyhow::Result<Case> {
    let path = arguments.case.as_deref().context("no case was given")?;
    let text = if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).context("reading the case from standard input")?;
        text
    } else {
        fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?
    };
    // The errors' sources repeat what their messages say.
    let explain = |error: CaseError| anyhow!("{}: {error}", path.display());
    let mut spec = CaseSpec::from_json(&text).map_err(explain)?;
    let options = &mut spec.options;
    options.no_drop |= arguments.no_drop;
    options.no_aggregate |= arguments.no_aggregate;
    if arguments.rules_only {
        options.candidates_max = 0;
    }
    match arguments.objective {
        Some(ObjectiveName::Mean) => options.objective = Objective::Mean,
        Some(ObjectiveName::Last) => options.objective = Objective::Last,
        None => {}
    }
    let case = Case::new(&spec).map_err(explain)?;
    case.check_reservations().map_err(explain)?;
    Ok(case)
}

fn draw(case: &Case, plan: &Plan, path: &Path) -> Result<(), Failure> {
    let (bars, marks) = plan_picture(case, plan);
    let title =
        format!("Who sends when by the plan of {}: {} updates", plan.policy, plan.order.len());
    let picture = gantt_svg(&title, &bars, &marks)
        .map_err(|error| Exit::Failed.because(error))?
        .ok_or_else(|| Exit::Failed.because(anyhow!("nothing is sent, so nothing is drawn")))?;
    fs::write(path, picture)
        .with_context(|| format!("writing {}", path.display()))
        .map_err(|error| Exit::Failed.because(error))?;
    say!("weft: transfers in {}", path.display());
    Ok(())
}

/// One update, as CSV.
#[derive(Debug, Serialize)]
struct Row {
    update: String,
    server: String,
    position: Option<usize>,
    group: Option<usize>,
    via: Option<String>,
    start_ns: Option<u64>,
    arrival_ns: Option<u64>,
    commit_ns: Option<u64>,
    delay: Option<u64>,
    dropped: Option<String>,
}

fn rows(case: &Case, plan: &Plan) -> Vec<Row> {
    let name = |id: UpdateId| {
        let update = case.update(id);
        (update.name.clone(), case.server(update.server).name.clone())
    };
    let sent = plan.order.iter().map(|id| {
        let (update, server) = name(*id);
        let position = plan.sequence(case, case.update(*id).server).position(|other| other == *id);
        let group = plan.groups.iter().position(|group| group.members.contains(id));
        let transfer = plan.transfers[id.index()].as_ref();
        let before = case.server(case.update(*id).server).version + position.unwrap_or(0) as u64;
        Row {
            update,
            server,
            position,
            group,
            via: transfer.and_then(|t| t.via).map(|host| case.host(host).name.clone()),
            start_ns: transfer.and_then(|t| Some(t.segments.first()?.from_ns)),
            arrival_ns: transfer.map(|t| t.arrival_ns),
            commit_ns: transfer.map(|t| t.commit_ns),
            delay: Some(before.saturating_sub(case.update(*id).version)),
            dropped: None,
        }
    });
    let dropped = plan.dropped.iter().map(|(id, reason)| {
        let (update, server) = name(*id);
        Row {
            update,
            server,
            position: None,
            group: None,
            via: None,
            start_ns: None,
            arrival_ns: None,
            commit_ns: None,
            delay: None,
            dropped: Some(reason.as_str().to_owned()),
        }
    });
    sent.chain(dropped).collect()
}

fn text(case: &Case, plan: &Plan) -> String {
    let at = |ns: Option<u64>| {
        ns.map_or_else(|| "-".to_owned(), |ns| duration(ns.saturating_sub(case.now_ns)))
    };
    let mut out = format!(
        "policy {}, {} updates, times from the start of the plan\n\n\
         {:<10} {:<8} {:>5} {:>5} {:<8} {:>10} {:>10} {:>10} {:>5}\n",
        plan.policy,
        case.updates.len(),
        "update",
        "server",
        "order",
        "group",
        "via",
        "start",
        "arrival",
        "commit",
        "delay"
    );
    for row in rows(case, plan) {
        if let Some(reason) = row.dropped {
            let _ = writeln!(out, "{:<10} {:<8} dropped: {reason}", row.update, row.server);
            continue;
        }
        let number = |n: Option<usize>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let _ = writeln!(
            out,
            "{:<10} {:<8} {:>5} {:>5} {:<8} {:>10} {:>10} {:>10} {:>5}",
            row.update,
            row.server,
            number(row.position),
            number(row.group),
            row.via.as_deref().unwrap_or("direct"),
            at(row.start_ns),
            at(row.arrival_ns),
            at(row.commit_ns),
            row.delay.unwrap_or(0),
        );
    }
    for replica in &plan.replicas {
        let largest = replica.copies.iter().map(|copy| copy.divergence).fold(0.0, f64::max);
        let forced = replica.copies.iter().filter(|copy| copy.forced_before.is_some()).count();
        let joint = replica.copies.iter().filter(|copy| copy.joint).count();
        let _ = writeln!(
            out,
            "\nreplica of {} on {}: {} copies, {forced} forced ahead, {joint} joint; divergence \
             at most {largest:.4}, bound {}",
            case.server(replica.server).name,
            case.host(replica.host).name,
            replica.copies.iter().filter(|copy| copy.hop.is_some()).count(),
            if replica.held { "held" } else { "NOT held" },
        );
    }
    let mean_ns = plan.mean_commit_ns();
    let _ = writeln!(
        out,
        "\nmean commit {}, makespan {}, {} groups, {} dropped{}",
        at(mean_ns),
        duration(plan.makespan_ns(case)),
        plan.groups.len(),
        plan.dropped.len(),
        candidate(case, plan),
    );
    out
}

/// Which candidate a plan is, where its policy chose among some.
fn candidate(case: &Case, plan: &Plan) -> String {
    match plan.candidate {
        Some(name) if plan.candidates_skipped => {
            let max = case.options.candidates_max;
            format!("; candidate {name}, the others skipped: too much for candidates_max {max}")
        }
        Some(name) => format!("; candidate {name}"),
        None => String::new(),
    }
}

/// One policy's plan of the case, in short.
#[derive(Debug, Serialize)]
struct Comparison {
    policy: &'static str,
    mean_commit_ns: Option<u64>,
    makespan_ns: Option<u64>,
    delay_max: Option<u64>,
    groups: usize,
    dropped: usize,
    /// Which candidate won, of a policy that compares some.
    candidate: Option<&'static str>,
    error: Option<String>,
}

fn compare(case: &Case, format: Format) -> Outcome {
    let comparison = |name: &'static str| match policy::by_name(name).map(|p| p.plan(case)) {
        Some(Ok(plan)) => Comparison {
            policy: name,
            mean_commit_ns: plan.mean_commit_ns().map(|ns| ns.saturating_sub(case.now_ns)),
            makespan_ns: Some(plan.makespan_ns(case)),
            delay_max: rows(case, &plan).iter().filter_map(|row| row.delay).max(),
            groups: plan.groups.len(),
            dropped: plan.dropped.len(),
            candidate: plan.candidate,
            error: None,
        },
        failed => Comparison {
            policy: name,
            mean_commit_ns: None,
            makespan_ns: None,
            delay_max: None,
            groups: 0,
            dropped: 0,
            candidate: None,
            error: failed.and_then(Result::err).map(|error| error.to_string()),
        },
    };
    let rows: Vec<_> = policy::names().map(comparison).collect();
    match format {
        Format::Text => emit_text(&comparison_text(&rows))?,
        Format::Json => emit_json(&rows)?,
        Format::Csv => emit_csv(&rows)?,
    }
    Ok(0)
}

fn comparison_text(rows: &[Comparison]) -> String {
    let mut out = format!(
        "{:<18} {:>12} {:>12} {:>9} {:>7} {:>8}\n",
        "policy", "mean commit", "makespan", "delay max", "groups", "dropped"
    );
    for row in rows {
        if let Some(error) = &row.error {
            let _ = writeln!(out, "{:<18} {error}", row.policy);
            continue;
        }
        let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), duration);
        let delay = row.delay_max.map_or_else(|| "-".to_owned(), |delay| delay.to_string());
        let _ = writeln!(
            out,
            "{:<18} {:>12} {:>12} {delay:>9} {:>7} {:>8}",
            row.policy,
            time(row.mean_commit_ns),
            time(row.makespan_ns),
            row.groups,
            row.dropped
        );
    }
    out
}
