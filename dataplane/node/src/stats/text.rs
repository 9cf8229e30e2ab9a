//! A report for people, in testpmd's words.

use std::fmt::Write;

use super::{PortReport, Report};

/// Writes the final block (`forward statistics`), or, if the report has rates, the periodic one
/// (`NIC statistics`).
#[must_use]
pub fn write_text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_port(&mut out, report);
    let _ = write_jobs(&mut out, report);
    let _ = write_rows(&mut out, report);
    let _ = super::push::write_text(&mut out, &report.pushes);
    let _ = super::server::write_text(&mut out, &report.servers, &report.replicas);
    let _ = write_events(&mut out, report);
    let _ = writeln!(out, "  {}", "-".repeat(76));
    out
}

fn write_port(out: &mut String, report: &Report) -> std::fmt::Result {
    let title = if report.rates.is_some() { "NIC statistics" } else { "Forward statistics" };
    let PortReport { name, driver, .. } = &report.port;
    let port = &report.port;
    writeln!(out, "\n  {} {title} for port {name} ({driver}) {0}", "-".repeat(12))?;
    writeln!(
        out,
        "  RX-packets: {:<14} RX-missed: {:<14} RX-bytes: {}",
        port.rx_packets, port.rx_missed, port.rx_bytes
    )?;
    writeln!(out, "  RX-errors: {:<15} RX-nombuf: {}", port.rx_errors, port.rx_nombuf)?;
    writeln!(
        out,
        "  TX-packets: {:<14} TX-errors: {:<14} TX-bytes: {}",
        port.tx_packets, port.tx_errors, port.tx_bytes
    )?;
    if let Some(rates) = &report.rates {
        writeln!(out, "  Throughput (since last show)")?;
        writeln!(out, "  Rx-pps: {:<18} Rx-bps: {}", rates.rx_pps, rates.rx_bps)?;
        writeln!(out, "  Tx-pps: {:<18} Tx-bps: {}", rates.tx_pps, rates.tx_bps)?;
    }
    for lane in &report.lanes {
        writeln!(
            out,
            "  lane {}: frames: {}  TX-dropped: {}  TX-nombuf: {}  busy breaths: {}  idle: {}",
            lane.lane,
            lane.frames,
            lane.tx_dropped,
            lane.tx_nombuf,
            lane.busy_breaths,
            lane.idle_breaths
        )?;
    }
    let steering = &report.steering;
    if report.lanes.len() > 1 {
        let (handed_over, full) = (steering.handed_over, steering.ring_full);
        writeln!(out, "  steering: handed over: {handed_over}  ring full: {full}")?;
    }
    if let Some(faults) = &report.faults {
        writeln!(
            out,
            "  faults: judged: {}  lost: {}  duplicated: {}  reordered: {}  delayed: {}  \
             corrupted: {}  link full: {}",
            faults.judged,
            faults.lost,
            faults.duplicated,
            faults.reordered,
            faults.delayed,
            faults.corrupted,
            faults.link_full
        )?;
    }
    if let Some(trace) = &report.trace {
        let super::TraceReport { frames, bytes, cut, errors } = trace;
        writeln!(out, "  capture: frames: {frames}  bytes: {bytes}  cut: {cut}  errors: {errors}")?;
    }
    let host = &report.host;
    writeln!(
        out,
        "  host side: frames: {}  answered: {}  over rate: {}",
        host.frames, host.answered, host.over_rate
    )
}

fn write_jobs(out: &mut String, report: &Report) -> std::fmt::Result {
    for job in &report.jobs {
        writeln!(
            out,
            "  job {} ({}): contributions added: {}  chunks completed: {}  answers sent: {}  \
             repeated: {}",
            job.id,
            job.name,
            job.contributions_added,
            job.chunks_completed,
            job.answers_sent,
            job.answers_repeated
        )?;
        writeln!(
            out,
            "    duplicates: {}  clamped: {}  marked: {}  hand-overs: {}  over quota: {}  bytes: {}",
            job.duplicates,
            job.contributions_clamped,
            job.contributions_marked,
            job.hand_overs,
            job.over_quota,
            job.bytes_accepted
        )?;
    }
    Ok(())
}

fn write_rows(out: &mut String, report: &Report) -> std::fmt::Result {
    for row in &report.rows {
        writeln!(out, "  row {} (job {}): {}", row.row, row.job, row.phases.join(", "))?;
        for member in &row.members {
            writeln!(
                out,
                "    rank {:<2} {:<21} {:<7} contributions: {:<10} lag mean: {:.1} us  max: {:.1} us",
                member.rank,
                member.addr,
                if member.present { "present" } else { "absent" },
                member.contributions,
                member.lag_mean_us,
                member.lag_max_us
            )?;
        }
    }
    Ok(())
}

fn write_events(out: &mut String, report: &Report) -> std::fmt::Result {
    let list = |counters: &std::collections::BTreeMap<&str, u64>| {
        let seen = counters.iter().filter(|(_, count)| **count > 0);
        let seen: Vec<_> = seen.map(|(name, count)| format!("{name}: {count}")).collect();
        if seen.is_empty() { "none".to_owned() } else { seen.join("  ") }
    };
    writeln!(out, "  drops: {}", list(&report.drops))?;
    writeln!(out, "  transitions: {}", list(&report.transitions))?;
    let (formations, broken) = (report.formations, report.sessions_broken);
    writeln!(out, "  formations: {formations}  sessions broken: {broken}")
}
