//! Runs a measurement: an agent process in every host's namespace, the planner's estimator and
//! probe plan in this one, lines of JSON between them.
//!
//! Invariant: whatever happens, no agent and no iperf3 outlives the measurement.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use weft_plan::case::HostId;
use weft_plan::net::estimate::probe::{ProbePlan, TrainOrder};
use weft_plan::net::estimate::train::Departure;
use weft_plan::net::estimate::{Context, Estimator, Refusal, TrainSample};
use weft_plan::net::topology::LinkId;

use super::cross::resolve;
use super::message::{AgentPlan, Command, Message};
use super::network::{Network, NetworkError};
use super::options::Options;
use super::process::Agent;
use super::report::{Change, Report};
use crate::lab::tc::Rate;
use crate::lab::{LabError, LabName, live};
use crate::run::monotonic_ns;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeFailure {
    /// The lab is not as it should be.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// There is nothing to measure.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// No such host.
    #[error("the lab has no host `{name}` with an address; it has {known}")]
    Host {
        /// The name given.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A process cannot be started.
    #[error("cannot start {what}: {source}")]
    Start {
        /// What.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// An agent gave up.
    #[error("the agent of host {host} failed: {error}")]
    Agent {
        /// Its host.
        host: String,
        /// What it said.
        error: String,
    },
    /// Cross traffic does not flow.
    #[error("cross traffic does not come to half its rate; is the link, or the CPU, too slow?")]
    NoCross,
    /// The user did not want to wait.
    #[error("the measurement was broken off")]
    Interrupted,
}

/// Measures the lab `name`, which is up.
///
/// # Errors
/// When the lab cannot be read or an agent fails.
pub fn run(
    name: &LabName,
    options: &Options,
    interrupted: &dyn Fn() -> bool,
) -> Result<Report, ProbeFailure> {
    let ends = live::directions(name)?;
    let mut network = Network::new(&ends)?;
    let cross = options.cross.iter().map(|cross| resolve(&network, cross));
    let cross = cross.collect::<Result<Vec<_>, _>>()?;
    for &(from, to, bits_per_sec) in &cross {
        network.add_cross(from, to, bits_per_sec);
    }
    let steps = options.steps.iter().map(|step| Ok((position(&network, &step.host)?, step)));
    let mut steps = steps.collect::<Result<Vec<_>, ProbeFailure>>()?;
    steps.sort_by(|a, b| b.1.at_s.total_cmp(&a.1.at_s));

    let (sender, messages) = mpsc::channel();
    let nonce = monotonic_ns() ^ u64::from(std::process::id()) << 32;
    let agents = network.hosts.iter().enumerate().map(|(index, host)| {
        let local = SocketAddr::new(host.address, PROBE_PORT);
        let plan =
            AgentPlan { local, interface: host.interface.clone(), mtu: host.mtu as usize, nonce };
        Agent::start(&name.namespace(&host.name), index, &plan, sender.clone())
    });
    let agents = agents.collect::<Result<Vec<_>, _>>()?;
    let mut measurement = Measurement::new(network, agents, messages, options.together);
    measurement.wait_until_ready()?;
    let _iperf = measurement.start_cross(name, &cross, options)?;
    measurement.warm_up(&cross, interrupted)?;
    let begun_ns = monotonic_ns();
    let elapsed_s = || (monotonic_ns() - begun_ns) as f64 / 1e9;
    let mut changing = Vec::new();
    while elapsed_s() < options.seconds {
        if interrupted() {
            return Err(ProbeFailure::Interrupted);
        }
        if let Some((host, step)) = steps.pop_if(|(_, step)| step.at_s <= elapsed_s()) {
            changing.push(measurement.step(name, host, step.rate));
        }
        measurement.turn(TURN)?;
        measurement.note_changes(begun_ns);
    }
    for change in changing {
        match change.join() {
            Ok(result) => result?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    Ok(measurement.report(begun_ns))
}

pub(super) fn position(network: &Network, name: &str) -> Result<usize, ProbeFailure> {
    network.position(name).ok_or_else(|| {
        let known: Vec<_> = network.hosts.iter().map(|host| host.name.as_str()).collect();
        ProbeFailure::Host { name: name.to_owned(), known: known.join(", ") }
    })
}

/// What a host's counters said last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    at_ns: u64,
    tx_total: u64,
    pub(super) bits_per_sec: f64,
}

/// A train of which not both ends have told.
#[derive(Clone, Copy, Debug)]
struct Underway {
    order: TrainOrder,
    /// How it left, if its sender can tell.
    departed: Option<Option<Departure>>,
    /// How long it took at the receiver, and what it shows.
    arrived: Option<(u64, Result<TrainSample, Refusal>)>,
}

/// A measurement under way.
pub(super) struct Measurement {
    pub(super) sent: Vec<Sent>,
    pub(super) network: Network,
    pub(super) agents: Vec<Agent>,
    messages: Receiver<(usize, Option<Message>)>,
    estimator: Estimator,
    plan: ProbePlan,
    underway: Vec<Underway>,
    changes: Vec<Change>,
    trains: u64,
    probe_bytes: Vec<f64>,
}

impl Measurement {
    fn new(
        network: Network,
        agents: Vec<Agent>,
        messages: Receiver<(usize, Option<Message>)>,
        together: bool,
    ) -> Self {
        let topology = network.topology();
        let concurrent = if together { network.hosts.len() } else { 1 };
        let mtu = network.hosts.iter().map(|host| host.mtu).min().unwrap_or(1500);
        Self {
            sent: vec![Sent::default(); network.hosts.len()],
            plan: ProbePlan::new(&topology, concurrent, mtu + ETHERNET_HEADER_LEN),
            probe_bytes: vec![0.0; topology.link_count()],
            estimator: Estimator::new(topology),
            network,
            agents,
            messages,
            underway: Vec::new(),
            changes: Vec::new(),
            trains: 0,
        }
    }

    fn wait_until_ready(&mut self) -> Result<(), ProbeFailure> {
        let mut missing = self.agents.len();
        let deadline_ns = monotonic_ns() + READY_NS_MAX;
        while missing > 0 {
            match self.messages.recv_timeout(TURN) {
                Ok((_, Some(Message::Ready))) => missing -= 1,
                Ok((host, message)) => self.handle(host, message)?,
                Err(_) if monotonic_ns() < deadline_ns => {}
                Err(_) => {
                    let error = "does not say that it is ready".to_owned();
                    return Err(ProbeFailure::Agent { host: "any".to_owned(), error });
                }
            }
        }
        Ok(())
    }

    /// Hands out trains that are due and takes in what has come.
    fn turn(&mut self, timeout: Duration) -> Result<(), ProbeFailure> {
        while let Some(order) = self.plan.poll_train(monotonic_ns(), &self.estimator, |_| true) {
            self.send(order);
        }
        self.receive(timeout)
    }

    fn send(&mut self, order: TrainOrder) {
        let TrainOrder { id, from, to, packets } = order;
        let target = SocketAddr::new(self.network.hosts[to.index()].address, PROBE_PORT);
        let packets = u16::try_from(packets).unwrap_or(u16::MAX);
        self.agents[from.index()].tell(&Command::Train { id, target, packets });
        let bytes = f64::from(packets)
            * f64::from(self.network.hosts[from.index()].mtu + ETHERNET_HEADER_LEN);
        for link in self.estimator.topology().path(from, to).links() {
            self.probe_bytes[link.index()] += bytes;
        }
        self.trains += 1;
        self.underway.push(Underway { order, departed: None, arrived: None });
        if self.underway.len() > UNDERWAY_MAX {
            self.underway.remove(0);
        }
    }

    pub(super) fn receive(&mut self, timeout: Duration) -> Result<(), ProbeFailure> {
        // An agent that has ended says so before its end of the channel goes.
        let received = self.messages.recv_timeout(timeout);
        received.map_or(Ok(()), |(host, message)| self.handle(host, message))
    }

    fn handle(&mut self, host: usize, message: Option<Message>) -> Result<(), ProbeFailure> {
        let failed =
            |error| ProbeFailure::Agent { host: self.network.hosts[host].name.clone(), error };
        match message {
            Some(Message::Ready) => {}
            Some(Message::Failed { error }) => return Err(failed(error)),
            None => return Err(failed("ended without a word".to_owned())),
            Some(Message::Counters { at_ns, rx_total, rx_own, tx_total, tx_own }) => {
                self.note_sent(host, at_ns, tx_total);
                let host = HostId(u32::try_from(host).unwrap_or(u32::MAX));
                let topology = self.estimator.topology();
                let (up, down) = (topology.up(host), topology.down(host));
                // What makes no sense is counted by the estimator and shown at the end.
                let _ = self.estimator.handle_counters(at_ns, up, tx_total, tx_own);
                let _ = self.estimator.handle_counters(at_ns, down, rx_total, rx_own);
            }
            Some(Message::Departed { id, departure }) => {
                self.note(id, |train| train.departed = Some(departure));
            }
            Some(Message::Train { id, span_ns, sample, uneven, .. }) => {
                let nothing = if uneven { Refusal::Uneven } else { Refusal::Short };
                let arrived = (span_ns, sample.ok_or(nothing));
                self.note(id, |train| train.arrived = Some(arrived));
            }
        }
        Ok(())
    }

    /// Notes what one end tells of a train, and judges it once both have.
    fn note(&mut self, id: u32, noted: impl FnOnce(&mut Underway)) {
        let Some(position) = self.underway.iter().position(|train| train.order.id == id) else {
            return;
        };
        noted(&mut self.underway[position]);
        let Underway { order, departed: Some(departure), arrived: Some(arrived) } =
            self.underway[position]
        else {
            return;
        };
        self.underway.swap_remove(position);
        let (span_ns, sample) = arrived;
        let judged = sample.and_then(|sample| {
            let sample = TrainSample { departure, ..sample };
            let path = (order.from, order.to);
            self.estimator.handle_train(monotonic_ns(), path, &sample, Context::Probe)
        });
        let rate = sample.ok().map(|sample| sample.rate_bytes_per_sec);
        // A train that was given up as lost may still come.
        let _ = self.plan.handle_outcome(&self.estimator, id, span_ns, rate, judged);
    }

    /// How fast a host sends, from its counters.
    fn note_sent(&mut self, host: usize, at_ns: u64, tx_total: u64) {
        let sent = &mut self.sent[host];
        let elapsed = at_ns.saturating_sub(sent.at_ns);
        if elapsed > 0 && sent.at_ns > 0 {
            let bytes = tx_total.saturating_sub(sent.tx_total);
            sent.bits_per_sec = bytes as f64 * 8e9 / elapsed as f64;
        }
        (sent.at_ns, sent.tx_total) = (at_ns, tx_total);
    }

    /// Changes a host's link, beside the measurement: `tc` takes a while.
    fn step(
        &mut self,
        name: &LabName,
        host: usize,
        rate: Rate,
    ) -> thread::JoinHandle<Result<(), LabError>> {
        let link = &mut self.network.hosts[host].link;
        let ends = [link.up.clone(), link.down.clone()];
        for end in [&mut link.up, &mut link.down] {
            end.shaped = end.shaped.map(|(shaper, _)| (shaper, rate));
        }
        let name = name.clone();
        thread::spawn(move || ends.iter().try_for_each(|end| live::set_rate(&name, end, rate)))
    }

    fn note_changes(&mut self, begun_ns: u64) {
        while let Some(changed) = self.estimator.poll_event() {
            let (name, _, up) = self.network.link(changed.link);
            let mbit = |bytes_per_sec: f64| bytes_per_sec / 125e3;
            self.changes.push(Change {
                at_ms: (monotonic_ns() - begun_ns) / 1_000_000,
                link: name.to_owned(),
                direction: if up { "up" } else { "down" },
                before_mbit: mbit(changed.before_bytes_per_sec),
                after_mbit: mbit(changed.after_bytes_per_sec),
            });
        }
    }

    fn report(self, begun_ns: u64) -> Report {
        let now_ns = monotonic_ns();
        let elapsed_s = (now_ns - begun_ns) as f64 / 1e9;
        let share = |(index, bytes): (usize, &f64)| {
            let link = LinkId(u32::try_from(index).unwrap_or(u32::MAX));
            let rate = self.estimator.estimate(now_ns, link)?.capacity_bytes_per_sec;
            Some(bytes / rate / elapsed_s.max(WINDOW_S))
        };
        let shares = self.probe_bytes.iter().enumerate().filter_map(share);
        let probe_share_max = shares.fold(0.0, f64::max);
        Report::new(&self.network, &self.estimator, now_ns, elapsed_s).with(
            self.changes,
            self.trains,
            probe_share_max,
        )
    }
}

/// UDP port of the agents; cross traffic goes to the next one.
pub(super) const PROBE_PORT: u16 = 22_400;
const ETHERNET_HEADER_LEN: u32 = 14;
pub(super) const TURN: Duration = Duration::from_millis(2);
pub(super) const READY_NS_MAX: u64 = 20_000_000_000;
const UNDERWAY_MAX: usize = 256;
/// The time over which probes are bounded.
const WINDOW_S: f64 = 10.0;
