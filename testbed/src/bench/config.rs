//! The node's configuration for a bench: a row for each job, no hugepages.

use std::fmt::Write as _;
use std::path::Path;

use super::case::{Case, Frames, Lease};

/// What is special about one node of a bench.
#[derive(Clone, Debug)]
pub(super) struct NodeSpec<'a> {
    /// EAL's virtual device.
    pub(super) vdev: String,
    /// The lanes' CPUs.
    pub(super) cpus: Vec<u32>,
    /// `[bench]`, or nothing for a node that serves.
    pub(super) bench: Option<BenchSpec<'a>>,
}

/// `[bench]`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BenchSpec<'a> {
    pub(super) mode: &'static str,
    pub(super) pcap: Option<&'a Path>,
    pub(super) seconds: Option<f64>,
    pub(super) packets: Option<u64>,
}

/// Writes the file's text.
pub(super) fn toml(case: &Case, spec: &NodeSpec<'_>) -> String {
    let is_v6 = case.frames == Frames::Ipv6;
    let ip = if is_v6 { "fd77::100/64" } else { "10.77.0.100/16" };
    let mut text = format!(
        "[node]\nstats_format = \"json\"\n\n\
         [port]\nio = \"dpdk\"\nip = {ip:?}\nmac = \"02:57:45:00:00:64\"\n\n\
         [dpdk]\nvdev = [{:?}]\nmemory_mib = 128\nlog_level = \"error\"\n\n\
         [lcores]\nshards = {}\ncpus = {:?}\n\n\
         [idle]\nbreaths = 0\n\n",
        spec.vdev, case.lcores, spec.cpus
    );
    if let Some(bench) = &spec.bench {
        let _ = write!(text, "[bench]\nmode = \"{}\"\n", bench.mode);
        if case.lease == Lease::Whole {
            text.push_str("lease = \"whole\"\n");
        }
        if case.order.steps() > 1 {
            let _ = writeln!(text, "order = {}", case.order.steps());
        }
        if case.frames == Frames::Vlan {
            text.push_str("vlan = true\n");
        }
        if let Some(seconds) = bench.seconds {
            let _ = writeln!(text, "seconds = {seconds:?}");
        }
        if let Some(packets) = bench.packets {
            let _ = writeln!(text, "packets = {packets}");
        }
        if let Some(pcap) = bench.pcap {
            let _ = writeln!(text, "pcap = {:?}", pcap.display().to_string());
        }
        text.push('\n');
    }
    for job in 0..case.jobs {
        let member = |rank| match is_v6 {
            true => format!("\"[fd77::{}:{rank}]:7000\"", job + 1),
            false => format!("\"10.77.{}.{rank}:7000\"", job + 1),
        };
        let members: Vec<String> = (1..=case.workers).map(member).collect();
        let _ = writeln!(text, "[[job]]\nid = {job}");
        if case.quota {
            let _ = writeln!(text, "rate_bytes_per_sec = {QUOTA}\nburst_bytes = {QUOTA}");
        }
        let _ = write!(
            text,
            "\n[[row]]\nrow = {job}\njob = {job}\nexponent = 0\nintegrity = \"{}\"\nelements = \
             {}\nwindow = {}\nmembers = [{}]\n\n",
            if case.crc { "crc32c" } else { "none" },
            case.elements,
            case.window,
            members.join(", ")
        );
    }
    text
}

/// Bytes per second that no row reaches: what the account costs is measured, not what it refuses.
const QUOTA: u64 = 1 << 40;
