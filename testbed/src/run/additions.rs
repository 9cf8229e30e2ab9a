//! Decides what is added to the plan of boxes and workers: a capture or a recording of each box,
//! and the delays of links that the kernel cannot make. Pure.

use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_config::node::{Io, RecordSection, TraceSection};
use weft_io::fault::LINK_FRAMES_MAX;

use super::plan::{BoxPlan, Plan};
use crate::lab::Topology;
use crate::report::LinkDelay;
use crate::scenario::{CONTROLLER, Scenario};

/// Who makes the delays of links.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DelayedBy {
    /// The kernel, for every frame.
    Netem,
    /// The fault ports of workers and boxes, for Weft's datagrams.
    FaultPorts,
    /// The simulated links of a run in virtual time.
    Packet,
}

impl DelayedBy {
    /// What reports say of a scenario's delays.
    #[must_use]
    pub fn report(self, scenario: &Scenario) -> LinkDelay {
        let by = match self {
            Self::Netem => "netem",
            Self::FaultPorts => "fault_ports",
            Self::Packet => "packet",
        };
        // What the controller hears and says passes no port of ours.
        let is_delayed = |host: &str| self == Self::Netem || host != CONTROLLER;
        let delays = scenario.delays().into_iter().filter(|(host, _)| is_delayed(host));
        let hosts_ms = delays.map(|(host, delay)| (host, delay.as_secs_f64() * 1e3)).collect();
        LinkDelay { by: by.to_owned(), hosts_ms }
    }
}

impl Plan {
    /// Lets the fault ports of workers and boxes make the delays of links.
    pub fn delay_by_fault_ports(&mut self, scenario: &Scenario) {
        self.topology.iter_mut().for_each(Topology::clear_delays);
        self.boxes.iter_mut().for_each(|planned| planned.delay(scenario));
        for worker in &mut self.workers {
            worker.link_delay_us = micros(scenario.lab.delay(&format!("w{}", worker.rank)));
        }
    }

    /// Lets each box record what its engines meet, at most so much.
    pub fn record(&mut self, directory: &Path, max_bytes: u64) {
        for planned in &mut self.boxes {
            let path = recording_path(directory, &planned.name).to_string_lossy().into_owned();
            planned.config.record = Some(RecordSection { max_bytes, ..RecordSection::new(path) });
        }
    }

    /// Lets each box capture what its port sees, at most so much.
    pub fn capture(&mut self, directory: &Path, size_max_mib: u64) {
        let capture = |planned: &mut BoxPlan| planned.capture(directory, size_max_mib);
        self.boxes.iter_mut().for_each(capture);
    }
}

impl BoxPlan {
    fn capture(&mut self, directory: &Path, size_max_mib: u64) {
        let path = capture_path(directory, &self.name).to_string_lossy().into_owned();
        self.config.trace = Some(TraceSection { size_max_mib, ..TraceSection::new(path) });
    }

    /// Lets its fault port delay every frame, and gives it buffers for all that are under way.
    fn delay(&mut self, scenario: &Scenario) {
        let delay = scenario.lab.delay(&self.name);
        if delay.is_zero() {
            return;
        }
        self.config.faults.get_or_insert_default().link_delay_us = micros(delay);
        match self.config.port.io {
            Io::Dpdk => {
                let frames = u32::try_from(FRAMES_WITH_DELAY).expect("some thousands");
                self.config.dpdk.mbuf_count = frames;
            }
            Io::Udp | Io::AfPacket | Io::Switch => self.config.port.frame_count = FRAMES_WITH_DELAY,
        }
    }
}

fn micros(delay: Duration) -> u64 {
    u64::try_from(delay.as_micros()).unwrap_or(u64::MAX)
}

/// Buffers of a port whose link may hold as many frames as it can, in both directions.
pub(super) const FRAMES_WITH_DELAY: usize = 2 * LINK_FRAMES_MAX + 2048;

/// Where the capture of a box is in the run directory.
#[must_use]
pub(super) fn capture_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.pcap"))
}

/// Where the recording of a box is in the run directory.
#[must_use]
pub(super) fn recording_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.recording"))
}

/// Where the recording of a box is kept that was killed and started again, as [`life_path`].
#[must_use]
pub(super) fn life_recording_path(recording: &Path, life: u32) -> PathBuf {
    recording.with_extension(format!("life{life}.recording"))
}

/// Where the capture of a box is kept that was killed and started again: of its first life, 0, and
/// so on.
#[must_use]
pub(super) fn life_path(capture: &Path, life: u32) -> PathBuf {
    capture.with_extension(format!("life{life}.pcap"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::plan::{Io, Place};

    fn scenario() -> Scenario {
        let text = include_str!("../../scenarios/digits.toml");
        Scenario::parse("digits.toml", text).expect("the shipped scenario")
    }

    fn plan() -> Plan {
        Plan::new(&scenario(), Io::Dpdk, Place::Lab, 1, Path::new("run"), None).expect("it fits")
    }

    #[test]
    fn what_is_added_leaves_the_rest_of_a_file_alone() {
        let (before, mut after) = (plan(), plan());
        after.capture(Path::new("out/x"), 7);
        let trace = after.boxes[0].config.trace.take().expect("a capture");
        assert_eq!((trace.pcap.as_str(), trace.size_max_mib), ("out/x/a0.pcap", 7));
        assert_eq!(before.boxes, after.boxes);
    }

    #[test]
    fn delays_that_the_kernel_cannot_make_go_to_both_ends_of_a_link() {
        let mut scenario = scenario();
        scenario.lab.delay_ms = Some(2.5);
        scenario.lab.delays_ms.insert("w1".to_owned(), 0.0);
        for io in [Io::Dpdk, Io::Udp] {
            let plan = Plan::new(&scenario, io, Place::Lab, 1, Path::new("run"), None);
            let mut plan = plan.expect("it fits");
            let delays = |plan: &Plan| {
                let links = &plan.topology.as_ref().expect("a lab").links;
                links.iter().filter(|link| !link.delay.is_zero()).count()
            };
            assert_eq!(delays(&plan), 4);
            plan.delay_by_fault_ports(&scenario);
            assert_eq!(delays(&plan), 0, "not twice");
            let config = &plan.boxes[0].config;
            assert_eq!(config.faults.unwrap().link_delay_us, 2500);
            let buffers = (config.dpdk.mbuf_count, config.port.frame_count);
            assert_eq!(buffers, if io == Io::Dpdk { (18_432, 2048) } else { (2048, 18_432) });
            let workers: Vec<u64> = plan.workers.iter().map(|w| w.link_delay_us).collect();
            assert_eq!(workers, [2500, 0, 2500, 2500]);
        }
    }

    #[test]
    fn a_report_names_the_hosts_that_are_delayed() {
        let text = include_str!("../../scenarios/async.toml");
        let mut scenario = Scenario::parse("async.toml", text).expect("a shipped scenario");
        scenario.lab.delays_ms = [("w0", 2.5), (CONTROLLER, 1.0)]
            .map(|(host, delay_ms)| (host.to_owned(), delay_ms))
            .into();
        let hosts = |by: DelayedBy| by.report(&scenario).hosts_ms.into_keys().collect::<Vec<_>>();
        assert_eq!(hosts(DelayedBy::Netem), [CONTROLLER, "w0"]);
        assert_eq!(hosts(DelayedBy::FaultPorts), ["w0"]);
    }

    #[test]
    fn lives_have_files_of_their_own() {
        let path = capture_path(Path::new("run"), "a0");
        assert_eq!(life_path(&path, 1), Path::new("run/a0.life1.pcap"));
        let path = recording_path(Path::new("run"), "a0");
        assert_eq!(life_recording_path(&path, 0), Path::new("run/a0.life0.recording"));
    }
}
