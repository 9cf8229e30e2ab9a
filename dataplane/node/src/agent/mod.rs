//! The node's agent: a thread beside the lanes that speaks with the controller and keeps the log of
//! events (`proto/rpc/weft/v1/node.proto`). Nothing of it is on the data path: it moves commands
//! and events through [`NodeControl`]'s queues.
//!
//! Invariants: every event goes to the log and to the controller once, in the order in which it
//! happened; a node without a controller serves all the same; when the stream breaks, the newest
//! [`EVENTS_KEPT_MAX`] events wait for the next one.

mod log;
mod state;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use weft_engine::push::Command;
use weft_rpc::v1::command::Command as Heard;
use weft_rpc::v1::node_message::Message as Said;
use weft_rpc::v1::nodes_client::NodesClient;
use weft_rpc::{convert, v1};

pub use log::EventLog;
pub use state::{JobState, Role};

use crate::config::{NodeConfig, Settings};
use crate::control::NodeControl;
use crate::environment;
use crate::error::NodeError;

/// What the agent is told at its start.
#[derive(Debug)]
pub struct AgentConfig {
    /// `node.name`.
    pub name: String,
    /// The controller's gRPC endpoint.
    pub endpoint: Option<Endpoint>,
    /// Where events are logged.
    pub log: Option<EventLog>,
    /// Random, new with each start of the process.
    pub life: u64,
    /// The interface whose counters include others' traffic.
    pub interface: Option<String>,
    /// What the node is in each job.
    pub jobs: Vec<JobState>,
}

/// Whether there is anybody to tell of events.
#[must_use]
pub fn is_wanted(config: &NodeConfig) -> bool {
    config.controller.is_some() || config.node.events.is_some()
}

/// Puts together what the agent needs; `None` when there is nobody to tell. `life` is random.
///
/// # Errors
/// When the endpoint is none, or the log cannot be opened.
pub fn prepare(settings: &Settings, life: u64) -> Result<Option<AgentConfig>, NodeError> {
    let config = &settings.config;
    if !is_wanted(config) {
        return Ok(None);
    }
    let endpoint = config.controller.as_ref().map(|section| {
        Endpoint::from_shared(section.endpoint.clone())
            .map(|endpoint| {
                endpoint
                    .connect_timeout(DIAL_TIMEOUT)
                    .tcp_nodelay(true)
                    .http2_keep_alive_interval(KEEP_ALIVE)
                    .keep_alive_timeout(KEEP_ALIVE)
                    .keep_alive_while_idle(true)
            })
            .map_err(|error| NodeError::Endpoint {
                endpoint: section.endpoint.clone(),
                problem: error.to_string(),
            })
    });
    let log = config.node.events.as_ref().map(|path| {
        EventLog::open(path).map_err(|source| NodeError::Events { path: path.clone(), source })
    });
    Ok(Some(AgentConfig {
        name: config.node.name.clone(),
        endpoint: endpoint.transpose()?,
        log: log.transpose()?,
        life,
        interface: environment::interface_with(config.port.ip.ip),
        jobs: state::jobs(settings),
    }))
}

/// Runs the agent until `stop` is set.
pub fn run(config: AgentConfig, control: &NodeControl, stop: &AtomicBool) {
    let endpoint = config.endpoint.clone();
    let mut agent = Agent { config, control, kept: VecDeque::new(), lost: 0 };
    for job in &agent.config.jobs {
        if let Some(log) = &mut agent.config.log {
            log.job(job.job, job.version, job.exponent);
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match (endpoint, runtime) {
        (Some(endpoint), Ok(runtime)) => runtime.block_on(agent.serve(&endpoint, stop)),
        _ => {
            while !stop.load(Ordering::Relaxed) {
                agent.drain();
                agent.kept.clear();
                std::thread::sleep(POLL);
            }
        }
    }
    agent.drain();
}

struct Agent<'a> {
    config: AgentConfig,
    control: &'a NodeControl,
    /// Events that no controller has been told.
    kept: VecDeque<v1::Event>,
    lost: u64,
}

impl Agent<'_> {
    /// Takes what happened from the lane: into the log, the state, and what is to be told.
    fn drain(&mut self) {
        while let Some(happened) = self.control.event() {
            if let Some(log) = &mut self.config.log
                && let Err(error) = log.event(happened.job, &happened.event)
            {
                eprintln!("weft-node: the log of events: {error}");
                self.config.log = None;
            }
            for job in self.config.jobs.iter_mut().filter(|job| job.job == happened.job) {
                job.event(&happened.event);
            }
            if self.kept.len() == EVENTS_KEPT_MAX {
                self.kept.pop_front();
                self.lost += 1;
            }
            self.kept.push_back(convert::event_to_proto(happened.job, &happened.event));
        }
    }

    async fn serve(&mut self, endpoint: &Endpoint, stop: &AtomicBool) {
        let mut wait = REDIAL_MIN;
        while !stop.load(Ordering::Relaxed) {
            let was_up = self.attach(endpoint, stop).await;
            wait = if was_up { REDIAL_MIN } else { (2 * wait).min(REDIAL_MAX) };
            let mut waited = Duration::ZERO;
            while waited < wait && !stop.load(Ordering::Relaxed) {
                self.drain();
                tokio::time::sleep(POLL).await;
                waited += POLL;
            }
        }
    }

    fn hello(&self) -> v1::NodeMessage {
        let hello = v1::NodeHello {
            name: self.config.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            roles: self.config.jobs.iter().map(JobState::to_proto).collect(),
            life: self.config.life,
            events_lost: self.lost + self.control.events_lost(),
        };
        v1::NodeMessage { message: Some(Said::Hello(hello)) }
    }

    /// One stream, to its end. True when the controller welcomed the node.
    async fn attach(&mut self, endpoint: &Endpoint, stop: &AtomicBool) -> bool {
        let Ok(channel) = endpoint.connect().await else { return false };
        let (said, outbound) = mpsc::channel(MESSAGES_MAX);
        self.drain();
        if said.send(self.hello()).await.is_err() {
            return false;
        }
        let stream = NodesClient::new(channel).attach(ReceiverStream::new(outbound)).await;
        let mut heard = match stream {
            Ok(stream) => stream.into_inner(),
            Err(status) => {
                eprintln!("weft-node: the controller: {}", status.message());
                return false;
            }
        };
        let mut welcomed = false;
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut telemetry = tokio::time::interval(TELEMETRY_PERIOD);
        telemetry.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        while !stop.load(Ordering::Relaxed) {
            tokio::select! {
                command = heard.message() => {
                    let Ok(Some(command)) = command else { return welcomed };
                    match &command.command {
                        Some(Heard::Welcome(welcome)) => {
                            welcomed = true;
                            let period = Duration::from_nanos(welcome.telemetry_period_ns);
                            telemetry = tokio::time::interval(period.max(POLL));
                        }
                        Some(Heard::Refused(refused)) => {
                            let (field, problem) = (&refused.field, &refused.problem);
                            eprintln!("weft-node: the controller refused: {field}: {problem}");
                        }
                        _ => self.obey(&command).await,
                    }
                }
                _ = poll.tick() => {
                    self.drain();
                    while let Some(event) = self.kept.pop_front() {
                        let message = v1::NodeMessage { message: Some(Said::Event(event)) };
                        if said.send(message).await.is_err() {
                            return welcomed;
                        }
                    }
                }
                _ = telemetry.tick() => {
                    let message = Said::Telemetry(self.telemetry());
                    if said.send(v1::NodeMessage { message: Some(message) }).await.is_err() {
                        return welcomed;
                    }
                }
            }
        }
        welcomed
    }

    /// Hands a command to the lane, which takes it within a breath.
    async fn obey(&mut self, command: &v1::Command) {
        let mut command: Command = match convert::command(command) {
            Ok(Some(command)) => command,
            Ok(None) => return,
            Err(error) => {
                eprintln!("weft-node: a command of the controller: {error}");
                return;
            }
        };
        if let Some(log) = &mut self.config.log {
            log.command(&command);
        }
        for job in &mut self.config.jobs {
            job.command(&command);
        }
        while let Err(back) = self.control.command(command) {
            command = back;
            tokio::time::sleep(POLL).await;
        }
    }

    fn telemetry(&self) -> v1::Telemetry {
        let counters = self.control.counters();
        let of_interface = |name: &str| {
            let interface = self.config.interface.as_ref()?;
            let path = format!("/sys/class/net/{interface}/statistics/{name}");
            std::fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        v1::Telemetry {
            at_ns: log::monotonic_ns(),
            rx_bytes: counters.rx_bytes,
            tx_bytes: counters.tx_bytes,
            nic_rx_bytes: of_interface("rx_bytes"),
            nic_tx_bytes: of_interface("tx_bytes"),
            rx_dropped: counters.rx_dropped,
            tx_dropped: counters.tx_dropped,
        }
    }
}

/// Events that wait for a controller.
pub const EVENTS_KEPT_MAX: usize = 4096;
/// Messages that wait for the stream.
const MESSAGES_MAX: usize = 256;
/// How often the agent looks for events: it adds at most this to a plan's round trip.
const POLL: Duration = Duration::from_millis(1);
const TELEMETRY_PERIOD: Duration = Duration::from_millis(100);
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// A controller that does not answer for twice this time is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
const REDIAL_MIN: Duration = Duration::from_millis(100);
const REDIAL_MAX: Duration = Duration::from_secs(5);
