//! Cross traffic beside a measurement: between which hosts, by whom, and when it flows.

use std::net::SocketAddr;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use super::message::Command;
use super::network::Network;
use super::options::{Cross, CrossTool, Options};
use super::process::Owned;
use super::session::{Measurement, PROBE_PORT, ProbeFailure, READY_NS_MAX, TURN, position};
use crate::lab::{LabName, netns};
use crate::run::monotonic_ns;

/// Source, target and bits per second.
pub(super) type Flow = (usize, usize, f64);

/// Finds the hosts of cross traffic that was asked for.
pub(super) fn resolve(network: &Network, cross: &Cross) -> Result<Flow, ProbeFailure> {
    let from = position(network, &cross.from)?;
    let next = (from + 1) % network.hosts.len();
    let to = cross.to.as_ref().map_or(Ok(next), |to| position(network, to))?;
    Ok((from, to, cross.mbit * 1e6))
}

impl Measurement {
    /// Starts the cross traffic; what it returns ends it when dropped.
    pub(super) fn start_cross(
        &mut self,
        name: &LabName,
        cross: &[Flow],
        options: &Options,
    ) -> Result<Vec<Owned>, ProbeFailure> {
        let mut owned = Vec::new();
        for (index, &(from, to, bits_per_sec)) in cross.iter().enumerate() {
            let target = self.network.hosts[to].address;
            if options.cross_tool == CrossTool::Own {
                let target = SocketAddr::new(target, PROBE_PORT + 1);
                self.agents[from].tell(&Command::Cross { target, bits_per_sec });
                continue;
            }
            let port = (IPERF_PORT + index).to_string();
            let namespace = |host: usize| name.namespace(&self.network.hosts[host].name);
            let start = |host, arguments: &[&str]| {
                let mut command = netns::command(&namespace(host), "iperf3");
                command.args(arguments).stdin(Stdio::null());
                let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
                child.map(Owned).map_err(|source| ProbeFailure::Start { what: "iperf3", source })
            };
            owned.push(start(to, &["-s", "-1", "-p", &port])?);
            thread::sleep(IPERF_START);
            // iperf3 counts payload, and we count frames.
            let payload = bits_per_sec * IPERF_PAYLOAD / (IPERF_PAYLOAD + 42.0);
            let (rate, length) = (format!("{payload:.0}"), format!("{IPERF_PAYLOAD:.0}"));
            let seconds = format!("{:.0}", options.seconds.ceil() + 5.0);
            let target = target.to_string();
            let arguments =
                ["-u", "-c", &target, "-p", &port, "-b", &rate, "-l", &length, "-t", &seconds];
            owned.push(start(from, &arguments)?);
        }
        Ok(owned)
    }

    /// Waits until cross traffic flows, then lets the counters tell of it before the first train.
    pub(super) fn warm_up(
        &mut self,
        cross: &[Flow],
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), ProbeFailure> {
        let begun_ns = monotonic_ns();
        let mut flows_since_ns = None;
        loop {
            let now_ns = monotonic_ns();
            let flows = |(from, _, rate): &Flow| self.sent[*from].bits_per_sec > rate * 0.5;
            if flows_since_ns.is_none() && cross.iter().all(flows) {
                flows_since_ns = Some(now_ns);
            }
            let settle_ns = if cross.is_empty() { WARM_UP_NS } else { CROSS_WARM_UP_NS };
            if flows_since_ns.is_some_and(|since_ns| now_ns - since_ns > settle_ns) {
                return Ok(());
            }
            if interrupted() {
                return Err(ProbeFailure::Interrupted);
            }
            if now_ns - begun_ns > READY_NS_MAX {
                return Err(ProbeFailure::NoCross);
            }
            self.receive(TURN)?;
        }
    }
}

const IPERF_PORT: usize = 22_410;
const IPERF_PAYLOAD: f64 = 1400.0;
/// Until an iperf3 server listens.
const IPERF_START: Duration = Duration::from_millis(300);
/// Until the smoothed background is there.
const CROSS_WARM_UP_NS: u64 = 1_000_000_000;
/// Three readings of the counters.
const WARM_UP_NS: u64 = 350_000_000;
