//! Decides what is added to the plan of boxes and workers: a capture of each box, and the delays of
//! links that the kernel cannot make. Pure.

use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_io::fault::LINK_FRAMES_MAX;

use super::plan::{BoxPlan, Io, Plan};
use super::push::PushPlan;
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

/// What both kinds of plan let be added.
macro_rules! additions {
    ($($plan:ident)+) => {$(
        impl $plan {
            /// Lets the fault ports of workers and boxes make the delays of links.
            pub fn delay_by_fault_ports(&mut self, scenario: &Scenario) {
                self.topology.iter_mut().for_each(Topology::clear_delays);
                self.boxes.iter_mut().for_each(|planned| planned.delay(self.io, scenario));
                for worker in &mut self.workers {
                    worker.link_delay_us = worker_delay_us(scenario, worker.rank);
                }
            }

            /// Lets each box capture what its port sees, at most so much.
            pub fn capture(&mut self, directory: &Path, size_max_mib: u64) {
                let capture = |planned: &mut BoxPlan| planned.capture(directory, size_max_mib);
                self.boxes.iter_mut().for_each(capture);
            }
        }
    )+};
}

additions!(Plan PushPlan);

impl BoxPlan {
    fn capture(&mut self, directory: &Path, size_max_mib: u64) {
        let path = capture_path(directory, &self.name).to_string_lossy().into_owned();
        let size = i64::try_from(size_max_mib).unwrap_or(i64::MAX);
        let fields = [("pcap", path.into()), ("size_max_mib", size.into())];
        self.change("trace", &fields);
    }

    /// Lets its fault port delay every frame, and gives it buffers for all that are under way.
    fn delay(&mut self, io: Io, scenario: &Scenario) {
        let delay = scenario.lab.delay(&self.name);
        if delay.is_zero() {
            return;
        }
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX).into();
        self.change("faults", &[("link_delay_us", number(micros(delay)))]);
        let frames = number(FRAMES_WITH_DELAY as u64);
        match io {
            Io::Dpdk => self.change("dpdk", &[("mbuf_count", frames)]),
            Io::Udp | Io::AfPacket | Io::Memory => self.change("port", &[("frame_count", frames)]),
        }
    }

    /// Sets fields of a section of its file.
    fn change(&mut self, section: &str, fields: &[(&str, toml::Value)]) {
        let mut table: toml::Table = self.config.parse().expect("it was written here");
        let there = table.entry(section).or_insert_with(|| toml::Table::new().into());
        for (key, value) in fields {
            let there = there.as_table_mut().expect("a section is a table");
            there.insert((*key).to_owned(), value.clone());
        }
        self.config = toml::to_string(&table).expect("a table of plain values");
    }
}

fn worker_delay_us(scenario: &Scenario, rank: u8) -> u64 {
    micros(scenario.lab.delay(&format!("w{rank}")))
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

/// Where the capture of a box is kept that was killed and started again: of its first life, 0, and
/// so on.
#[must_use]
pub(super) fn life_path(capture: &Path, life: u32) -> PathBuf {
    capture.with_extension(format!("life{life}.pcap"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::plan::Place;

    fn scenario() -> Scenario {
        let text = include_str!("../../scenarios/digits.toml");
        Scenario::parse("digits.toml", text).expect("the shipped scenario")
    }

    fn plan() -> Plan {
        Plan::new(&scenario(), Io::Dpdk, Place::Lab, 1).expect("it fits")
    }

    #[test]
    fn what_is_added_leaves_the_rest_of_a_file_alone() {
        let (before, mut after) = (plan(), plan());
        after.capture(Path::new("out/x"), 7);
        let read = |plan: &Plan| plan.boxes[0].config.parse::<toml::Table>().expect("TOML");
        let (before, mut after) = (read(&before), read(&after));
        let trace = after.remove("trace").expect("a capture");
        assert_eq!(trace["pcap"].as_str(), Some("out/x/a0.pcap"));
        assert_eq!(trace["size_max_mib"].as_integer(), Some(7));
        assert_eq!(before, after);
    }

    #[test]
    fn delays_that_the_kernel_cannot_make_go_to_both_ends_of_a_link() {
        let mut scenario = scenario();
        scenario.lab.delay_ms = Some(2.5);
        scenario.lab.delays_ms.insert("w1".to_owned(), 0.0);
        for io in [Io::Dpdk, Io::Udp] {
            let mut plan = Plan::new(&scenario, io, Place::Lab, 1).expect("it fits");
            let delays = |plan: &Plan| {
                let links = &plan.topology.as_ref().expect("a lab").links;
                links.iter().filter(|link| !link.delay.is_zero()).count()
            };
            assert_eq!(delays(&plan), 4);
            plan.delay_by_fault_ports(&scenario);
            assert_eq!(delays(&plan), 0, "not twice");
            let config = plan.boxes[0].config.parse::<toml::Table>().expect("TOML");
            assert_eq!(config["faults"]["link_delay_us"].as_integer(), Some(2500));
            let (section, key) =
                if io == Io::Dpdk { ("dpdk", "mbuf_count") } else { ("port", "frame_count") };
            assert_eq!(config[section][key].as_integer(), Some(18_432));
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
    }
}
