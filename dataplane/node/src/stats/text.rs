//! A report for people, in testpmd's words.

use std::fmt::Write;

use super::{PortReport, Report, figures};

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
    let PortReport { name, driver, figures, .. } = &report.port;
    let count = |name| figures.of(name);
    writeln!(out, "\n  {} {title} for port {name} ({driver}) {0}", "-".repeat(12))?;
    writeln!(
        out,
        "  RX-packets: {:<14} RX-missed: {:<14} RX-bytes: {}",
        count("rx_packets"),
        count("rx_missed"),
        count("rx_bytes")
    )?;
    writeln!(out, "  RX-errors: {:<15} RX-nombuf: {}", count("rx_errors"), count("rx_nombuf"))?;
    writeln!(
        out,
        "  TX-packets: {:<14} TX-errors: {:<14} TX-bytes: {}",
        count("tx_packets"),
        count("tx_errors"),
        count("tx_bytes")
    )?;
    if let Some(rates) = &report.rates {
        writeln!(out, "  Throughput (since last show)")?;
        writeln!(out, "  Rx-pps: {:<18} Rx-bps: {}", rates.rx_pps, rates.rx_bps)?;
        writeln!(out, "  Tx-pps: {:<18} Tx-bps: {}", rates.tx_pps, rates.tx_bps)?;
    }
    for lane in &report.lanes {
        writeln!(out, "  lane {}: frames: {}", lane.lane, lane.frames)?;
        figures::write_text(out, &lane.figures)?;
    }
    super::bands::write_text(out, &report.bands)?;
    super::tables::write_text(out, &report.tables)?;
    let steering = (report.lanes.len() > 1).then_some(&report.steering);
    let host = Some(&report.host);
    let parts = [
        ("steering", steering),
        ("faults", report.faults.as_ref()),
        ("capture", report.trace.as_ref()),
        ("recording", report.recording.as_ref()),
        ("shared memory", report.shm.as_ref()),
        ("bands of the host", report.host_bands.as_ref()),
        ("host side", host),
    ];
    for (title, figures) in parts.into_iter().filter_map(|(title, part)| Some((title, part?))) {
        writeln!(out, "  {title}:")?;
        figures::write_text(out, figures)?;
    }
    Ok(())
}

fn write_jobs(out: &mut String, report: &Report) -> std::fmt::Result {
    for job in &report.jobs {
        writeln!(out, "  job {} ({}):", job.id, job.name)?;
        figures::write_text(out, &job.figures)?;
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
