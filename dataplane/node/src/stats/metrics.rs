//! A report in Prometheus' text exposition format.

use std::fmt::{self, Write};

use super::{JobReport, PortReport, Report};

/// What the body of a scrape is.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes every counter of a report.
#[must_use]
pub fn write_metrics(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut out, report);
    out
}

fn write_all(out: &mut String, report: &Report) -> fmt::Result {
    head(out, "weft_node_info", "gauge", "Always 1; the labels say what runs")?;
    writeln!(
        out,
        "weft_node_info{{node={},version={},commit={}}} 1",
        label(&report.node),
        label(report.version),
        label(report.commit)
    )?;
    write_port(out, &report.port)?;
    head(out, "weft_drops_total", "counter", "Frames refused, by reason")?;
    for (reason, count) in &report.drops {
        writeln!(out, "weft_drops_total{{reason={}}} {count}", label(reason))?;
    }
    head(out, "weft_slot_transitions_total", "counter", "What slots went through")?;
    for (transition, count) in &report.transitions {
        let transition = label(transition);
        writeln!(out, "weft_slot_transitions_total{{transition={transition}}} {count}")?;
    }
    let plain: [(&str, &str, u64); 7] = [
        ("weft_formations_total", "Leases opened", report.formations),
        ("weft_sessions_broken_total", "Sessions that a new life ended", report.sessions_broken),
        ("weft_handed_over_total", "Frames handed between lanes", report.steering.handed_over),
        ("weft_ring_full_total", "Frames lost at a full ring", report.steering.ring_full),
        ("weft_host_frames_total", "Frames for the host side", report.host.frames),
        ("weft_host_answered_total", "Frames the host side answered", report.host.answered),
        ("weft_host_over_rate_total", "Frames the host side left", report.host.over_rate),
    ];
    for (name, help, value) in plain {
        head(out, name, "counter", help)?;
        writeln!(out, "{name} {value}")?;
    }
    write_lanes(out, report)?;
    write_jobs(out, &report.jobs)?;
    write_members(out, report)?;
    super::push::write_metrics(out, &report.pushes)?;
    super::server::write_metrics(out, &report.servers, &report.replicas)
}

fn write_port(out: &mut String, port: &PortReport) -> fmt::Result {
    let labels = format!("{{port={},driver={}}}", label(&port.name), label(&port.driver));
    let counters: [(&str, u64); 8] = [
        ("rx_packets", port.rx_packets),
        ("rx_bytes", port.rx_bytes),
        ("rx_missed", port.rx_missed),
        ("rx_errors", port.rx_errors),
        ("rx_nombuf", port.rx_nombuf),
        ("tx_packets", port.tx_packets),
        ("tx_bytes", port.tx_bytes),
        ("tx_errors", port.tx_errors),
    ];
    for (counter, value) in counters {
        let name = format!("weft_port_{counter}_total");
        head(out, &name, "counter", "As in rte_eth_stats")?;
        writeln!(out, "{name}{labels} {value}")?;
    }
    Ok(())
}

fn write_lanes(out: &mut String, report: &Report) -> fmt::Result {
    type Value = fn(&super::LaneReport) -> u64;
    let counters: [(&str, Value); 5] = [
        ("frames", |lane| lane.frames),
        ("busy_breaths", |lane| lane.busy_breaths),
        ("idle_breaths", |lane| lane.idle_breaths),
        ("tx_dropped", |lane| lane.tx_dropped),
        ("tx_nombuf", |lane| lane.tx_nombuf),
    ];
    for (counter, value) in counters {
        let name = format!("weft_lane_{counter}_total");
        head(out, &name, "counter", "Counters of a lane")?;
        for lane in &report.lanes {
            writeln!(out, "{name}{{lane=\"{}\"}} {}", lane.lane, value(lane))?;
        }
    }
    Ok(())
}

fn write_jobs(out: &mut String, jobs: &[JobReport]) -> fmt::Result {
    type Value = fn(&JobReport) -> u64;
    let counters: [(&str, Value); 10] = [
        ("contributions_added", |job| job.contributions_added),
        ("chunks_completed", |job| job.chunks_completed),
        ("answers_sent", |job| job.answers_sent),
        ("answers_repeated", |job| job.answers_repeated),
        ("duplicates", |job| job.duplicates),
        ("contributions_clamped", |job| job.contributions_clamped),
        ("contributions_marked", |job| job.contributions_marked),
        ("hand_overs", |job| job.hand_overs),
        ("bytes_accepted", |job| job.bytes_accepted),
        ("over_quota", |job| job.over_quota),
    ];
    for (counter, value) in counters {
        let name = format!("weft_job_{counter}_total");
        head(out, &name, "counter", "Counters of a job")?;
        for job in jobs {
            writeln!(out, "{name}{{job={}}} {}", label(&job.name), value(job))?;
        }
    }
    Ok(())
}

fn write_members(out: &mut String, report: &Report) -> fmt::Result {
    type Value = fn(&super::MemberReport) -> f64;
    let gauges: [(&str, &str, Value); 3] = [
        ("weft_member_present", "1 if joined and not closed", |m| f64::from(u8::from(m.present))),
        ("weft_member_lag_mean_us", "Mean lag behind a chunk's first", |m| m.lag_mean_us),
        ("weft_member_lag_max_us", "Largest lag", |m| m.lag_max_us),
    ];
    for (name, help, value) in gauges {
        head(out, name, "gauge", help)?;
        for row in &report.rows {
            for member in &row.members {
                let (index, rank) = (row.row, member.rank);
                writeln!(out, "{name}{{row=\"{index}\",rank=\"{rank}\"}} {}", value(member))?;
            }
        }
    }
    Ok(())
}

pub(super) fn head(out: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

/// A quoted label value.
pub(super) fn label(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}
