//! `weft cluster lights`: the eight published placements, simulated.

use std::fmt::Write as _;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use serde::Serialize;
use weft_jobs::bands::BandPolicy;
use weft_jobs::job::NS_PER_S;
use weft_jobs::lights::{Outcome as Simulated, PLACEMENTS, Placement, Setting, Shares};
use weft_testbed::interrupt;
use weft_testbed::report::table;

use super::{Exit, Failure, Format, Outcome, emit_csv, emit_json, emit_text, progress_bar};

#[derive(Debug, Args)]
pub(crate) struct LightsArgs {
    /// Rounds of each job; with fewer than 1,500, times are scaled up to them.
    #[arg(
        long,
        default_value_t = 1_500,
        value_parser = clap::value_parser!(u32).range(1..=1_500),
        allow_negative_numbers = true
    )]
    rounds: u32,
    /// How often RoundRobin rotates, in seconds.
    #[arg(
        long,
        value_name = "S",
        default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..),
        allow_negative_numbers = true
    )]
    rotate_s: u64,
    /// Seed of the shares that transfers get of a link.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// How the transfers of one band share a link (derived).
    #[arg(long, value_enum, default_value_t = SharesName::Drawn)]
    shares: SharesName,
    /// The most cores that one step uses, of the 6 of a host (derived).
    #[arg(long, value_name = "N", default_value_t = 1.0, allow_negative_numbers = true)]
    cores_per_step: f64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SharesName {
    /// Each transfer by a weight drawn for it, exponential with mean 1.
    Drawn,
    /// All alike.
    Equal,
}

/// What was found. Outside scripts read these names.
#[derive(Debug, Serialize)]
struct Answer {
    /// The parameter: the work of one step of one worker, in seconds of one core.
    step_s: f64,
    rows: Vec<Row>,
}

/// One placement under one policy; what the slides do not have is null.
#[derive(Debug, Serialize)]
struct Row {
    placement: u8,
    servers_per_host: String,
    policy: &'static str,
    jct_s: f64,
    slides_jct_s: Option<f64>,
    /// Over the slides' time, less 1.
    error: Option<f64>,
    /// Over FIFO's time.
    ratio: f64,
    slides_ratio: Option<f64>,
    /// How long a gradient waits for the last one of its round.
    wait_mean_s: f64,
    wait_variance_s2: f64,
    fitted: bool,
}

pub(super) fn run(arguments: &LightsArgs, format: Format) -> Outcome {
    if !(arguments.cores_per_step > 0.0 && arguments.cores_per_step <= 6.0) {
        return Err(Exit::Usage.because(anyhow!(
            "--cores-per-step: {} is not above 0 and at most 6",
            arguments.cores_per_step
        )));
    }
    let answer = simulate(arguments)?;
    match format {
        Format::Text => emit_text(&text(&answer))?,
        Format::Json => emit_json(&answer)?,
        Format::Csv => emit_csv(&answer.rows)?,
    }
    Ok(0)
}

fn simulate(arguments: &LightsArgs) -> Result<Answer, Failure> {
    let setting = |placement: &Placement| Setting {
        rounds: arguments.rounds,
        rotate_ns: arguments.rotate_s.saturating_mul(NS_PER_S),
        cores_per_step: arguments.cores_per_step,
        shares: match arguments.shares {
            SharesName::Drawn => Shares::Drawn,
            SharesName::Equal => Shares::Equal,
        },
        ..Setting::published(placement, arguments.seed)
    };
    let scale = 1_500.0 / f64::from(arguments.rounds);
    let [.., last] = &PLACEMENTS;
    let bar = progress_bar(1 + 3 * PLACEMENTS.len() as u64, "simulation");
    let step_ns = setting(last).fit(last.fifo_jct_s * NS_PER_S as f64 / scale);
    bar.inc(1);
    let mut rows = Vec::new();
    for placement in &PLACEMENTS {
        let mut fifo_s = None;
        for &(policy, name) in BandPolicy::ALL {
            if interrupt::is_raised() {
                return Err(Exit::Interrupted.because(anyhow!("between two simulations")));
            }
            let outcome = setting(placement).run(policy, step_ns);
            bar.inc(1);
            let jct_s = outcome.mean_jct_s() * scale;
            let ratio = jct_s / *fifo_s.get_or_insert(jct_s);
            let fitted = policy == BandPolicy::Fifo && placement.number == last.number;
            rows.push(row(placement, (policy, name), jct_s, ratio, &outcome, fitted));
        }
    }
    bar.finish_and_clear();
    Ok(Answer { step_s: step_ns as f64 / NS_PER_S as f64, rows })
}

fn row(
    placement: &Placement,
    (policy, name): (BandPolicy, &'static str),
    jct_s: f64,
    ratio: f64,
    outcome: &Simulated,
    fitted: bool,
) -> Row {
    let slides_ratio = match policy {
        BandPolicy::Fifo => Some(1.0),
        BandPolicy::One => placement.one,
        BandPolicy::RoundRobin => placement.round_robin,
    };
    let slides_jct_s = slides_ratio.map(|ratio| ratio * placement.fifo_jct_s);
    let ns_per_s = NS_PER_S as f64;
    Row {
        placement: placement.number,
        servers_per_host: hosts(placement),
        policy: name,
        jct_s,
        slides_jct_s,
        error: slides_jct_s.map(|slides_s| jct_s / slides_s - 1.0),
        ratio,
        slides_ratio,
        wait_mean_s: outcome.wait_mean_ns / ns_per_s,
        wait_variance_s2: outcome.wait_variance_ns2 / (ns_per_s * ns_per_s),
        fitted,
    }
}

/// `5+16`, or `7x3`.
fn hosts(placement: &Placement) -> String {
    let counts = placement.servers_per_host;
    match counts {
        [first, rest @ ..] if !rest.is_empty() && rest.iter().all(|count| count == first) => {
            format!("{}x{first}", counts.len())
        }
        _ => counts.iter().map(u32::to_string).collect::<Vec<_>>().join("+"),
    }
}

fn text(answer: &Answer) -> String {
    let head = ["#", "servers", "policy", "JCT", "slides", "error", "ratio", "slides", "wait"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows[0].push("variance".to_owned());
    let percent = |share: f64| format!("{:+.1}%", 100.0 * share);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for row in &answer.rows {
        rows.push(vec![
            row.placement.to_string(),
            row.servers_per_host.clone(),
            row.policy.to_owned(),
            format!("{:.0}", row.jct_s),
            or_dash(row.slides_jct_s.map(|slides_s| format!("{slides_s:.0}"))),
            if row.fitted { "fitted".to_owned() } else { or_dash(row.error.map(percent)) },
            format!("{:.2}", row.ratio),
            or_dash(row.slides_ratio.map(|ratio| format!("{ratio:.2}"))),
            format!("{:.3}", row.wait_mean_s),
            format!("{:.4}", row.wait_variance_s2),
        ]);
    }
    let mut out = format!(
        "one parameter, fitted on placement 8 under FIFO: a step takes {:.4} s of a core\n\
         mean JCT and wait in seconds; ratio: over FIFO's JCT\n\n",
        answer.step_s
    );
    out += &table(&rows);
    let predicted = |policy: &str| {
        let of = answer.rows.iter().filter(move |row| row.policy == policy && !row.fitted);
        of.filter_map(|row| row.error).map(f64::abs).fold(0.0, f64::max)
    };
    let _ = writeln!(
        out,
        "\nlargest error of what was predicted: fifo {:.1}%, one {:.1}%, round-robin {:.1}%\n\
         wait: how long a gradient waits for the last of its round; its mean, and its variance in \
         s^2\nslides' variance on placement 1, against FIFO: One -26%, RoundRobin -15%; here {}, {}",
        100.0 * predicted("fifo"),
        100.0 * predicted("one"),
        100.0 * predicted("round-robin"),
        percent(variance_change(answer, "one")),
        percent(variance_change(answer, "round-robin")),
    );
    out
}

/// Of placement 1, against FIFO.
fn variance_change(answer: &Answer, policy: &str) -> f64 {
    let of = |policy| {
        let row = answer.rows.iter().find(|row| row.placement == 1 && row.policy == policy);
        row.map_or(f64::NAN, |row| row.wait_variance_s2)
    };
    of(policy) / of("fifo") - 1.0
}
