//! A controller that a test plays: it passes on what it is given, and what it hears.

use std::net::TcpListener;
use std::pin::Pin;
use std::sync::{Mutex, mpsc as channel};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};
use weft_rpc::v1;
use weft_rpc::v1::command::Command;
use weft_rpc::v1::node_message::Message;
use weft_rpc::v1::nodes_server::{Nodes, NodesServer};

use crate::common::PATIENCE;

/// It has one node, once.
pub(crate) struct Controller {
    commands: mpsc::Sender<v1::Command>,
    events: channel::Receiver<v1::Event>,
    telemetry: channel::Receiver<v1::Telemetry>,
    pub(crate) port: u16,
}

impl Controller {
    pub(crate) fn start() -> Self {
        let (commands, outbound) = mpsc::channel(64);
        let (told, events) = channel::channel();
        let (counted, telemetry) = channel::channel();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        drop(listener);
        let outbound = Mutex::new(Some(outbound));
        let service = Service { outbound, events: told, telemetry: counted };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let server = tonic::transport::Server::builder().add_service(NodesServer::new(service));
            runtime.expect("a runtime").block_on(server.serve(addr)).expect("it serves");
        });
        let this = Self { commands, events, telemetry, port: addr.port() };
        let welcome = v1::NodeWelcome { telemetry_period_ns: 1_000_000_000, probe_nonce: 0 };
        this.send(v1::Command { command: Some(Command::Welcome(welcome)) });
        this
    }

    pub(crate) fn send(&self, command: v1::Command) {
        self.commands.blocking_send(command).expect("the stream is there");
    }

    /// Tells the node, and returns its one answer.
    pub(crate) fn ask(&self, command: v1::Command) -> v1::Event {
        self.send(command);
        let event = self.events.recv_timeout(PATIENCE).expect("an answer");
        let more = self.events.recv_timeout(Duration::from_millis(20));
        assert!(more.is_err(), "one answer, for all lanes: {event:?}, {more:?}");
        event
    }

    /// Bytes received and sent, as the node tells them once no more come.
    pub(crate) fn carried(&self) -> (u64, u64) {
        self.telemetry.try_iter().for_each(drop);
        let mut last = None;
        loop {
            let telemetry = self.telemetry.recv_timeout(PATIENCE).expect("it is told every second");
            let carried = (telemetry.rx_bytes, telemetry.tx_bytes);
            if last.replace(carried) == Some(carried) {
                return carried;
            }
        }
    }
}

struct Service {
    outbound: Mutex<Option<mpsc::Receiver<v1::Command>>>,
    events: channel::Sender<v1::Event>,
    telemetry: channel::Sender<v1::Telemetry>,
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
        let (events, telemetry) = (self.events.clone(), self.telemetry.clone());
        let mut inbound = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(message)) = inbound.message().await {
                let is_heard = match message.message {
                    Some(Message::Event(event)) => events.send(event).is_ok(),
                    Some(Message::Telemetry(counts)) => telemetry.send(counts).is_ok(),
                    _ => true,
                };
                if !is_heard {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound).map(Ok))))
    }
}
