//! A report in Prometheus' text exposition format.

use std::fmt::{self, Write};

use weft_process::metrics::{head, label};

use super::{Report, figures};

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
    let port =
        format!("{{port={},driver={}}}", label(&report.port.name), label(&report.port.driver));
    figures::write_metrics(out, "port", &[(port, &report.port.figures)])?;
    head(out, "weft_drops_total", "counter", "Frames refused, by reason")?;
    for (reason, count) in &report.drops {
        writeln!(out, "weft_drops_total{{reason={}}} {count}", label(reason))?;
    }
    head(out, "weft_slot_transitions_total", "counter", "What slots went through")?;
    for (transition, count) in &report.transitions {
        let transition = label(transition);
        writeln!(out, "weft_slot_transitions_total{{transition={transition}}} {count}")?;
    }
    let plain = [
        ("weft_formations_total", "Leases opened", report.formations),
        ("weft_sessions_broken_total", "Sessions that a new life ended", report.sessions_broken),
    ];
    for (name, help, value) in plain {
        head(out, name, "counter", help)?;
        writeln!(out, "{name} {value}")?;
    }
    let of_node = |figures| vec![(String::new(), figures)];
    figures::write_metrics(out, "steering", &of_node(&report.steering))?;
    figures::write_metrics(out, "host", &of_node(&report.host))?;
    if let Some(faults) = &report.faults {
        figures::write_metrics(out, "fault", &of_node(faults))?;
    }
    if let Some(shm) = &report.shm {
        figures::write_metrics(out, "shm", &of_node(shm))?;
    }
    if let Some(trace) = &report.trace {
        figures::write_metrics(out, "capture", &of_node(trace))?;
    }
    super::bands::write_metrics(out, &report.bands)?;
    if let Some(kept) = &report.host_bands {
        figures::write_metrics(out, "host_bands", &of_node(kept))?;
    }
    super::tables::write_metrics(out, &report.tables)?;
    let lanes = report.lanes.iter();
    head(out, "weft_lane_frames_total", "counter", "Frames that the lane's engine handled")?;
    for lane in lanes.clone() {
        writeln!(out, "weft_lane_frames_total{{lane=\"{}\"}} {}", lane.lane, lane.frames)?;
    }
    let lanes: Vec<_> =
        lanes.map(|lane| (format!("{{lane=\"{}\"}}", lane.lane), &lane.figures)).collect();
    figures::write_metrics(out, "lane", &lanes)?;
    let jobs = report.jobs.iter();
    let jobs: Vec<_> =
        jobs.map(|job| (format!("{{job={}}}", label(&job.name)), &job.figures)).collect();
    figures::write_metrics(out, "job", &jobs)?;
    write_members(out, report)?;
    super::push::write_metrics(out, &report.pushes)?;
    super::server::write_metrics(out, &report.servers, &report.replicas)
}

fn write_members(out: &mut String, report: &Report) -> fmt::Result {
    type Value = fn(&super::MemberReport) -> f64;
    let gauges: [(&str, &str, Value); 3] = [
        ("weft_member_present", "1 if joined and not closed", |m| f64::from(u8::from(m.present))),
        ("weft_member_lag_mean_seconds", "Mean lag behind a chunk's first", |m| {
            m.lag_mean_us / 1e6
        }),
        ("weft_member_lag_max_seconds", "Largest lag", |m| m.lag_max_us / 1e6),
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
