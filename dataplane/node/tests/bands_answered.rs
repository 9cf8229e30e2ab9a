//! Every word about a band is answered once, also one that makes no sense: a real node on loopback,
//! and a controller that is played here.

#[allow(dead_code, reason = "each of these test programs uses a part of it")]
mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Mutex, mpsc as channel};
use std::time::Duration;

use common::{ConfigFile, PATIENCE, Running, weft_node};
use nix::sys::signal::Signal;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};
use weft_config::node::{
    BandsBy, BandsSection, ControllerSection, Io, NodeConfig, PortSection, ServerSection,
};
use weft_rpc::v1;
use weft_rpc::v1::command::Command;
use weft_rpc::v1::event::Event;
use weft_rpc::v1::node_message::Message;
use weft_rpc::v1::nodes_server::{Nodes, NodesServer};

/// A controller that passes on what it is given, and what it hears as it hears it.
struct Service {
    outbound: Mutex<Option<mpsc::Receiver<v1::Command>>>,
    events: channel::Sender<v1::Event>,
}

#[tonic::async_trait]
impl Nodes for Service {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<v1::Command, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::NodeMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let taken = self.outbound.lock().expect("not poisoned").take();
        let outbound = taken.ok_or_else(|| Status::unavailable("it comes once"))?;
        let (events, mut inbound) = (self.events.clone(), request.into_inner());
        tokio::spawn(async move {
            while let Ok(Some(message)) = inbound.message().await {
                if let Some(Message::Event(event)) = message.message
                    && events.send(event).is_err()
                {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound).map(Ok))))
    }
}

struct Controller {
    commands: mpsc::Sender<v1::Command>,
    events: channel::Receiver<v1::Event>,
    port: u16,
}

impl Controller {
    fn start() -> Self {
        let (commands, outbound) = mpsc::channel(64);
        let (told, events) = channel::channel();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        drop(listener);
        let service = Service { outbound: Mutex::new(Some(outbound)), events: told };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let server = tonic::transport::Server::builder().add_service(NodesServer::new(service));
            runtime.expect("a runtime").block_on(server.serve(addr)).expect("it serves");
        });
        let this = Self { commands, events, port: addr.port() };
        let welcome = v1::NodeWelcome { telemetry_period_ns: 1_000_000_000, probe_nonce: 0 };
        this.send(Command::Welcome(welcome));
        this
    }

    fn send(&self, command: Command) {
        let command = v1::Command { command: Some(command) };
        self.commands.blocking_send(command).expect("the stream is there");
    }

    /// Its one answer: of which job and band, and why not.
    fn set(&self, job: u32, label: u32, band: Option<u32>) -> (u32, Option<u32>, String) {
        self.send(Command::SetBands(v1::SetBands { job, label, band }));
        let event = self.events.recv_timeout(PATIENCE).expect("an answer");
        let more = self.events.recv_timeout(Duration::from_millis(20));
        assert!(more.is_err(), "one answer: {event:?}, {more:?}");
        match event.event {
            Some(Event::BandSet(set)) => (event.job, set.band, String::new()),
            Some(Event::BandRefused(refused)) => {
                (event.job, refused.band, refused.error().as_str_name().to_owned())
            }
            other => panic!("{other:?}"),
        }
    }
}

fn node(name: &str, at: u8, controller: &Controller, bands: Option<BandsSection>) -> Running {
    let ip = Ipv4Addr::new(127, 78, 0, at);
    let mut config = NodeConfig::new(PortSection::new(Io::Udp, IpAddr::from(ip)));
    let endpoint = format!("http://127.0.0.1:{}", controller.port);
    config.controller = Some(ControllerSection { endpoint, name: None, tls: None });
    config.server = vec![ServerSection::new(0, vec![SocketAddr::from((ip, 4000))], 1000)];
    config.bands = bands;
    Running::start(&mut weft_node(&ConfigFile::new(name, &config), &[]))
}

#[test]
fn every_word_about_a_band_is_answered() {
    let port = BandsSection {
        by: BandsBy::Port,
        device: None,
        ..BandsSection::host(String::new(), Some(1_000_000))
    };
    for (name, at, bands, of_a_job) in
        [("answered-none", 1, None, "BAND_ERROR_NO_BANDS"), ("answered-port", 2, Some(port), "")]
    {
        let controller = Controller::start();
        let node = node(name, at, &controller, bands);
        let none = "BAND_ERROR_OUT_OF_RANGE";
        for (job, band, answer) in [
            (0, Some(0), of_a_job),
            (u32::MAX, Some(0), none),
            (65_536, None, none),
            (0, Some(256), none),
            (0, Some(u32::MAX), none),
            (0, None, of_a_job),
        ] {
            let said = controller.set(job, 3, band);
            assert_eq!(said, (job, band, answer.to_owned()), "{name}");
        }
        // A band that is none, labels that are none, and one that another job has.
        let taken = "BAND_ERROR_LABEL_TAKEN";
        for (job, label, band, answer) in [
            (0, 3, 7, none),
            (0, 0, 1, none),
            (0, 64, 1, none),
            (0, u32::MAX, 1, none),
            (0, 3, 1, ""),
            (1, 3, 1, taken),
            (1, 7, 1, ""),
        ] {
            let answer = if of_a_job.is_empty() { answer } else { of_a_job };
            let said = controller.set(job, label, Some(band));
            assert_eq!(said, (job, Some(band), answer.to_owned()), "{name} {label}");
        }
        node.end(Signal::SIGINT);
    }
}
