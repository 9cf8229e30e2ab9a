//! The controller's agent: a thread that speaks gRPC for the lanes.
//!
//! It dials the controller, tells it what the node is ([`NodeState`]), hands commands to lane 0 and
//! takes its events ([`NodeControl`]), and reports of the link ([`LinkAgent`]). Lanes never wait
//! for it: both queues are bounded, and without a controller the lanes go on with what is
//! installed. Events that found no controller, or that its stream had not taken when it ended, are
//! kept, the newest `EVENTS_KEPT_MAX`, and sent after the next hello. With `node.events` every
//! event is logged too, with a controller or without. Each wait of the agent takes events
//! meanwhile, and ends with the node.

mod begin;
mod log;
mod words;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Streaming;
use weft_agent::{LinkAgent, NodeState, Report};
use weft_config::node::{BandsBy, NodeConfig};
use weft_control::Command;
use weft_io::marks::JobMarks;
use weft_rpc::convert;
use weft_rpc::tls::{self, CallRuntime, Dialler, TlsFiles};
use weft_rpc::v1;
use weft_rpc::v1::node_message::Message;
use weft_rpc::v1::nodes_client::NodesClient;

use crate::bands::{self, Asked, Bands, PortBands};
use crate::cli::VERSION;
use crate::control::NodeControl;
use crate::durable::Resumed;
use crate::error::NodeError;
use begin::{holdings, link, roles};
pub use log::EventLines;
use log::EventLog;
use words::say;

/// Whether there is anybody to tell of events, or a link to look after.
#[must_use]
pub fn is_wanted(config: &NodeConfig) -> bool {
    config.controller.is_some() || config.node.events.is_some() || config.bands.is_some()
}

/// Tells again what servers decided last before they began anew, for nobody may have heard of it.
/// Starts the agent's thread, when the configuration names a controller or a log of events; it ends
/// soon after `stop`, with everything told to the log that has happened before.
///
/// # Errors
/// The endpoint is no URL, the log cannot be opened, or no thread can be had.
pub fn start(
    config: &NodeConfig,
    control: Arc<NodeControl>,
    life: u64,
    resumed: &[Resumed],
    stop: Arc<AtomicBool>,
) -> Result<Option<JoinHandle<()>>, NodeError> {
    let log = match &config.node.events {
        Some(path) => {
            let failed = |source| NodeError::Events { path: path.into(), source };
            Some(EventLog::open(path.as_ref(), config, resumed).map_err(failed)?)
        }
        None => None,
    };
    for of_job in resumed {
        of_job.last.iter().for_each(|event| control.tell(of_job.job, *event));
    }
    let failed = |error: &dyn std::fmt::Display| NodeError::Controller(error.to_string());
    let Some(section) = &config.controller else {
        let bands = Bands::start(config, &bands::name(config), Arc::clone(&control))?;
        if log.is_none() && bands.is_none() {
            return Ok(None);
        }
        return std::thread::Builder::new()
            .name("weft-agent".to_owned())
            .spawn(move || {
                // Whoever has no log has nobody to tell.
                EventLog::keep(log, &control, &stop);
                drop(bands);
            })
            .map(Some)
            .map_err(|error| failed(&error));
    };
    // It may come within moments: till then nothing is decided without it.
    control.note_controller(false);
    let tls = section.tls.as_ref().map(TlsFiles::from);
    let dialler = Dialler::new(&section.endpoint, tls.as_ref()).map_err(|error| failed(&error))?;
    let dialler = dialler.keep_alive(KEEPALIVE);
    let name = bands::name(config);
    let link = LinkAgent::new(link(config), control.account());
    let bands = Bands::start(config, &name, Arc::clone(&control))?;
    let state = NodeState::new(name, life, roles(config, resumed), holdings(config));
    let runtime = CallRuntime::new().map_err(|error| failed(&error))?;
    let agent = Agent {
        dialler,
        refused: None,
        state: if config.bands.is_some() { state.with_bands() } else { state },
        bands,
        of_port: (config.bands.as_ref())
            .filter(|section| section.by == BandsBy::Port)
            .map(|section| PortBands::new(&section.fixed)),
        marks: control.marks(),
        control,
        link,
        log,
        kept: VecDeque::new(),
        lost: 0,
        stop,
    };
    std::thread::Builder::new()
        .name("weft-agent".to_owned())
        .spawn(move || runtime.block_on(agent.run()))
        .map(Some)
        .map_err(|error| failed(&error))
}

struct Agent {
    dialler: Dialler,
    /// Why the controller and this node did not accept each other, as it was told last.
    refused: Option<String>,
    state: NodeState,
    marks: Arc<JobMarks>,
    /// Its thread ends, and removes what it installed, with this.
    bands: Option<Bands>,
    /// The port itself has queues for bands.
    of_port: Option<PortBands>,
    control: Arc<NodeControl>,
    link: LinkAgent,
    log: Option<EventLog>,
    /// Events that the controller has not been told.
    kept: VecDeque<v1::Event>,
    /// Of these, how many had to make room.
    lost: u64,
    stop: Arc<AtomicBool>,
}

type Outbox = mpsc::Sender<v1::NodeMessage>;

impl Agent {
    async fn run(mut self) {
        let mut wait = REDIAL_MIN;
        let (mut since, mut is_told) = (Instant::now(), false);
        while !self.is_stopped() {
            let was_up = self.attach().await;
            if was_up {
                (since, is_told) = (Instant::now(), false);
            } else if !is_told && since.elapsed() > SILENCE_TOLD {
                is_told = true;
                weft_process::say!(
                    "weft-node: no controller at {} for {} s, trying on; updates go unplanned until \
                     it answers: is it running, and is there a way to it besides the port?",
                    self.dialler.uri(),
                    SILENCE_TOLD.as_secs()
                );
            }
            wait = if was_up { REDIAL_MIN } else { (wait * 2).min(REDIAL_MAX) };
            self.meanwhile(tokio::time::sleep(wait)).await;
        }
        self.keep_events();
    }

    /// Waits for something, and takes what happens meanwhile; `None` when the node ends first.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        while !self.is_stopped() {
            self.keep_events();
            if let Ok(done) = tokio::time::timeout(STREAM_TICK, &mut work).await {
                return Some(done);
            }
        }
        None
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// One stream, from dialling to its end. True when the controller took the hello.
    async fn attach(&mut self) -> bool {
        let (outbox, told) = mpsc::channel(OUTBOX_MAX);
        let outbound = Outbound(Arc::new(Mutex::new(told)));
        self.keep_events();
        let lost = self.lost + self.control.events_lost();
        let hello = convert::hello_to_proto(&self.state.hello(), VERSION, lost);
        let hello = Message::Hello(hello);
        if outbox.send(v1::NodeMessage { message: Some(hello) }).await.is_err() {
            return false;
        }
        let (dialler, unsaid) = (self.dialler.clone(), outbound.clone());
        let dial = dialler.dial(|channel| async move {
            let stream = NodesClient::new(channel).attach(outbound).await?;
            let mut commands = stream.into_inner();
            let first = commands.message().await?.and_then(|command| command.command);
            Ok((commands, first))
        });
        let commands = match self.meanwhile(dial).await {
            Some(Ok((commands, Some(v1::command::Command::Welcome(welcome))))) => {
                self.welcome(&welcome, &outbox);
                commands
            }
            Some(Ok((_, Some(v1::command::Command::Refused(refused))))) => {
                say_refused(&refused);
                return false;
            }
            Some(Ok(_)) | None => return false,
            Some(Err(error)) => return self.not_accepted(&error),
        };
        self.serve(commands, &outbox).await;
        self.control.note_controller(false);
        self.link.end();
        self.refused = None;
        self.take_back(&unsaid);
        true
    }

    fn welcome(&mut self, welcome: &v1::NodeWelcome, outbox: &Outbox) {
        self.control.note_controller(true);
        // A server's box without telemetry is dead to the controller.
        let period_ns = welcome.telemetry_period_ns.max(1);
        if let Some(port) = self.link.begin(period_ns, welcome.probe_nonce) {
            tell(outbox, Message::ProbePort(port));
        }
    }

    /// Keeps the events that a stream had not taken when it ended, before those of later.
    fn take_back(&mut self, unsaid: &Outbound) {
        let later = std::mem::take(&mut self.kept);
        while let Ok(message) = unsaid.lock().try_recv() {
            if let Some(Message::Event(event)) = message.message {
                self.keep(event);
            }
        }
        later.into_iter().for_each(|event| self.keep(event));
    }

    /// Tells people, once, why the controller and this node do not accept each other. The
    /// controller is called on: certificates are renewed.
    fn not_accepted(&mut self, error: &(dyn std::error::Error + 'static)) -> bool {
        let refused = tls::refusal(error);
        if let Some(reason) = refused.as_ref().filter(|_| refused != self.refused) {
            let uri = self.dialler.uri();
            weft_process::say!("weft-node: no stream to the controller at {uri}: {reason}");
            self.refused = refused;
        }
        false
    }

    async fn serve(&mut self, mut commands: Streaming<v1::Command>, outbox: &Outbox) {
        let control = Arc::clone(&self.control);
        let mut ticks = tokio::time::interval(STREAM_TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = commands.message() => {
                    let Ok(Some(command)) = command else { return };
                    match &command.command {
                        Some(v1::command::Command::Welcome(welcome)) => {
                            self.welcome(welcome, outbox);
                        }
                        Some(v1::command::Command::Refused(refused)) => say_refused(refused),
                        Some(v1::command::Command::Settled(_)) => self.control.note_settled(),
                        Some(v1::command::Command::Probe(probe)) => self.link.obey(probe),
                        _ => self.obey(&command).await,
                    }
                }
                // A grant waits for what the boxes say: their events do not wait for a tick.
                () = control.told() => {}
                report = self.link.report() => tell(outbox, match report {
                    Report::Telemetry(mut telemetry) => {
                        convert::figures_to_proto(&control.figures(), &mut telemetry);
                        Message::Telemetry(telemetry)
                    }
                    Report::Train(train) => Message::ProbeTrain(train),
                }),
                _ = ticks.tick() => {}
            }
            if self.is_stopped() || !self.tell_events(outbox).await {
                return;
            }
        }
    }

    /// Hands a command to the lane. A full queue is waited for: commands keep their order, and the
    /// controller's side of the stream is bounded too.
    async fn obey(&mut self, command: &v1::Command) {
        let mut command = match convert::command(command) {
            Ok(Some(command)) => command,
            Ok(None) => return,
            Err(invalid) => {
                weft_process::say!(
                    "weft-node: the controller's command was not understood: {invalid}"
                );
                if let Some(answer) = convert::answer_to_bad_bands(command) {
                    self.keep(answer);
                }
                return;
            }
        };
        if let Command::SetBands { job, label, band } = command {
            return self.set_band(Asked { job, label, band }).await;
        }
        if let Command::SetLabel { job, label } = command {
            self.marks.set_label(job, label);
            return;
        }
        self.state.note_command(&command);
        if let Some(log) = &mut self.log {
            log.command(&command);
        }
        while let Err(again) = self.control.command(command) {
            if self.is_stopped() {
                return;
            }
            self.keep_events();
            tokio::time::sleep(TICK).await;
            command = again;
        }
    }

    /// Hands what concerns the host's link to whoever applies it, who answers.
    async fn set_band(&mut self, mut asked: Asked) {
        while let Some(bands) = &self.bands {
            let Err(again) = bands.ask(asked) else { return };
            asked = again;
            if self.is_stopped() {
                return;
            }
            self.keep_events();
            tokio::time::sleep(TICK).await;
        }
        let event = match &mut self.of_port {
            Some(of_port) => of_port.set(asked, &self.marks),
            None => bands::none(&asked),
        };
        self.control.tell(asked.job, event);
    }

    /// Takes the lane's events; the oldest make room when nobody listens.
    fn keep_events(&mut self) {
        while let Some(event) = self.control.event() {
            self.state.note_event(event.job, &event.event);
            say(event.job, &event.event);
            if let Some(log) = &mut self.log {
                log.event(event.job, &event.event, self.control.carried().0);
            }
            self.keep(convert::event_to_proto(event.job, &event.event));
        }
    }

    fn keep(&mut self, event: v1::Event) {
        if self.kept.len() >= EVENTS_KEPT_MAX {
            self.kept.pop_front();
            self.lost += 1;
        }
        self.kept.push_back(event);
    }

    /// False when the stream has ended.
    async fn tell_events(&mut self, outbox: &Outbox) -> bool {
        self.keep_events();
        // Before what may end their groups. One that finds no room is a sample less.
        while let Some(train) = self.control.train() {
            let message = Message::Train(convert::train_to_proto(&train));
            let _ = outbox.try_send(v1::NodeMessage { message: Some(message) });
        }
        while let Some(event) = self.kept.front() {
            let message = v1::NodeMessage { message: Some(Message::Event(*event)) };
            match outbox.try_send(message) {
                Ok(()) => {
                    self.kept.pop_front();
                }
                // The stream is behind; the next tick tries again.
                Err(mpsc::error::TrySendError::Full(_)) => break,
                Err(mpsc::error::TrySendError::Closed(_)) => return false,
            }
        }
        true
    }
}

/// The messages for a stream; the agent takes back those that are left at its end.
#[derive(Clone)]
struct Outbound(Arc<Mutex<mpsc::Receiver<v1::NodeMessage>>>);

impl Outbound {
    fn lock(&self) -> std::sync::MutexGuard<'_, mpsc::Receiver<v1::NodeMessage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream for Outbound {
    type Item = v1::NodeMessage;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.lock().poll_recv(context)
    }
}

fn say_refused(refused: &v1::Refused) {
    let v1::Refused { field, problem, .. } = refused;
    weft_process::say!("weft-node: the controller refused `{field}`: {problem}");
}

/// Says something of which nothing is lost when the stream is behind.
fn tell(outbox: &Outbox, message: Message) {
    let _ = outbox.try_send(v1::NodeMessage { message: Some(message) });
}

/// How often the lane's queue of events is looked at while there is no stream to wake for.
const TICK: Duration = Duration::from_millis(1);
/// How often the agent looks whether it is to stop, or has room for more events; events and trains
/// wake the agent of a stream themselves.
const STREAM_TICK: Duration = Duration::from_millis(10);
/// Least and greatest wait before the controller is dialled again.
const REDIAL_MIN: Duration = Duration::from_millis(100);
const REDIAL_MAX: Duration = Duration::from_secs(5);
/// Silence of the controller after which standard error hears of it, once.
const SILENCE_TOLD: Duration = Duration::from_secs(5);
/// A controller that answers nothing for so long is gone.
const KEEPALIVE: Duration = Duration::from_secs(1);
/// Messages that wait for the stream.
const OUTBOX_MAX: usize = 1024;
/// Events kept while there is no controller.
const EVENTS_KEPT_MAX: usize = 4096;
