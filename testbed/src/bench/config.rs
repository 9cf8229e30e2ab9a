//! The node's configuration for a bench: one job, one row, one lane, no hugepages.

use std::fmt::Write as _;
use std::path::Path;

use super::aggregator::{Case, Lease};

/// What is special about one node of a bench.
#[derive(Clone, Debug)]
pub(super) struct NodeSpec<'a> {
    /// EAL's virtual device.
    pub(super) vdev: String,
    /// The lane's CPU.
    pub(super) cpu: u32,
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
    let members: Vec<String> =
        (1..=case.workers).map(|rank| format!("\"10.77.1.{rank}:7000\"")).collect();
    let mut text = format!(
        "[node]\nstats_format = \"json\"\n\n\
         [port]\nio = \"dpdk\"\nip = \"10.77.0.100/16\"\nmac = \"02:57:45:00:00:64\"\n\n\
         [dpdk]\nvdev = [{:?}]\nmemory_mib = 128\nlog_level = \"error\"\n\n\
         [lcores]\ncpus = [{}]\n\n\
         [idle]\nbreaths = 0\n\n",
        spec.vdev, spec.cpu
    );
    if let Some(bench) = &spec.bench {
        let _ = write!(text, "[bench]\nmode = \"{}\"\n", bench.mode);
        if case.lease == Lease::Whole {
            text.push_str("lease = \"whole\"\n");
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
    let _ = write!(
        text,
        "[[job]]\nid = 0\n\n\
         [[row]]\nrow = 0\njob = 0\nexponent = 0\nintegrity = \"{}\"\nelements = {}\n\
         window = {}\nmembers = [{}]\n",
        if case.crc { "crc32c" } else { "none" },
        case.elements,
        case.window,
        members.join(", ")
    );
    text
}
