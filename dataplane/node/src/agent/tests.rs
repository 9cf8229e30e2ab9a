use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::mpsc as channel;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};
use weft_config::TlsSection;
use weft_config::node::{ControllerSection, Io, PortSection};
use weft_control::Event;
use weft_rpc::certs::{Authority, Issued, Validity};
use weft_rpc::v1::nodes_server::{Nodes, NodesServer};
use weft_wire::{GroupId, JobId};

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

/// A node's agent, its certificates, and a place for its controller.
struct Fixture {
    folder: tempfile::TempDir,
    ca: Issued,
    of_controller: Issued,
    control: Arc<NodeControl>,
    stop: Arc<AtomicBool>,
    is_over: channel::Receiver<()>,
}

impl Fixture {
    /// Starts the agent of a node with room for so many events before it takes them.
    #[expect(clippy::disallowed_methods, reason = "certificates are valid by the time of day")]
    fn start(controller: SocketAddr, events_max: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let validity = Validity::days(now_s.try_into().unwrap(), 1);
        let (authority, ca) = Authority::create("test", validity).unwrap();
        let issue = |role: &str, hosts: &[String]| {
            authority.issue(&role.parse().unwrap(), hosts, validity, None).unwrap()
        };
        let of_controller = issue("weft:role/controller", &["127.0.0.1".into()]);
        let of_node = issue("weft:role/node", &[]);
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let tls = TlsSection {
            ca: write("ca.pem", &ca.cert),
            cert: write("node.pem", &of_node.cert),
            key: write("node.key", &of_node.key),
        };
        let endpoint = format!("https://{controller}");
        let port = PortSection::new(Io::Udp, controller.ip());
        let mut config = NodeConfig {
            controller: Some(ControllerSection { endpoint, name: None, tls: Some(tls) }),
            ..NodeConfig::new(port)
        };
        config.node.events = Some(folder.path().join("events").to_str().unwrap().into());
        let control = Arc::new(NodeControl::new(1, 16, events_max));
        let stop = Arc::new(AtomicBool::new(false));
        let agent = start(&config, Arc::clone(&control), 9, &[], Arc::clone(&stop)).unwrap();
        let (over, is_over) = channel::channel();
        std::thread::spawn(move || {
            agent.unwrap().join().unwrap();
            over.send(())
        });
        Self { folder, ca, of_controller, control, stop, is_over }
    }

    /// Something happens, and the log is waited for to have it.
    fn tell(&self, group: u32) {
        self.control.tell(JobId(1), Event::Staged { group: GroupId(group) });
        let path = self.folder.path().join("events");
        let until = Instant::now() + PATIENCE;
        while lines(&path) <= group as usize {
            assert!(Instant::now() < until, "event {group} is not taken");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A controller there that reads events on streams from `first` on; each stream ends with its
    /// entry in `Ends`.
    fn controller(&self, at: SocketAddr, first: usize) -> (channel::Receiver<u32>, Ends) {
        let (heard, events) = channel::channel();
        let ends = Ends::default();
        let heard = Heard { events: heard, ends: ends.clone(), first };
        let Issued { cert, key } = &self.of_controller;
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(cert, key))
            .client_ca_root(Certificate::from_pem(&self.ca.cert));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let server = Server::builder().initial_stream_window_size(1024).tls_config(tls);
            let server = server.unwrap().add_service(NodesServer::new(heard)).serve(at);
            runtime.unwrap().block_on(server).unwrap();
        });
        (events, ends)
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.is_over.recv_timeout(PATIENCE).expect("it ends");
    }
}

fn lines(path: &Path) -> usize {
    std::fs::read(path).unwrap().iter().filter(|byte| **byte == b'\n').count()
}

/// Streams that are to end.
type Ends = Arc<Mutex<Vec<mpsc::Sender<Result<v1::Command, Status>>>>>;

struct Heard {
    events: channel::Sender<u32>,
    ends: Ends,
    first: usize,
}

#[tonic::async_trait]
impl Nodes for Heard {
    type AttachStream = ReceiverStream<Result<v1::Command, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::NodeMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let (commands, outbound) = mpsc::channel(1);
        let welcome = v1::command::Command::Welcome(v1::NodeWelcome {
            telemetry_period_ns: 60_000_000_000,
            probe_nonce: 0,
        });
        commands.try_send(Ok(v1::Command { command: Some(welcome) })).unwrap();
        let mut ends = self.ends.lock().unwrap();
        ends.push(commands);
        let is_heard = ends.len() > self.first;
        drop(ends);
        let (mut inbound, events) = (request.into_inner(), self.events.clone());
        tokio::spawn(async move {
            if !is_heard {
                // The stream is there, and is not read.
                std::future::pending::<()>().await;
            }
            while let Ok(Some(message)) = inbound.message().await {
                if let Some(Message::Event(v1::Event { event: Some(event), .. })) = message.message
                    && let v1::event::Event::Staged(staged) = event
                {
                    let _ = events.send(staged.group);
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(outbound)))
    }
}

/// The kernel accepts for it: it may be stopped, or something else.
#[test]
fn events_are_taken_and_kept_while_a_controller_says_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let fixture = Fixture::start(at, 4);
    let _held = silent.accept().unwrap();
    (0..40).for_each(|group| fixture.tell(group));
    // Another listens there; the first dial is given up by itself.
    drop(silent);
    let (events, _ends) = fixture.controller(at, 0);
    let heard: Vec<u32> = (0..40).map(|_| events.recv_timeout(PATIENCE).unwrap()).collect();
    assert_eq!(heard, (0..40).collect::<Vec<_>>());
    assert_eq!(fixture.control.events_lost(), 0);
    fixture.end();
}

#[test]
fn a_node_ends_while_its_controller_says_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let fixture = Fixture::start(silent.local_addr().unwrap(), 4);
    let _held = silent.accept().unwrap();
    fixture.end();
}

#[test]
fn what_a_stream_had_not_taken_when_it_ended_is_told_on_the_next() {
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let fixture = Fixture::start(at, 4);
    let (events, ends) = fixture.controller(at, 1);
    let until = Instant::now() + PATIENCE;
    while ends.lock().unwrap().is_empty() {
        assert!(Instant::now() < until, "it does not attach");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Some of these are in the windows of HTTP/2.
    (0..500).for_each(|group| fixture.tell(group));
    ends.lock().unwrap()[0] = mpsc::channel(1).0;
    let first = events.recv_timeout(PATIENCE).expect("the rest is told");
    assert!(first < 200, "{first} are gone");
    let rest: Vec<u32> = (first + 1..500).map(|_| events.recv_timeout(PATIENCE).unwrap()).collect();
    assert_eq!(rest, (first + 1..500).collect::<Vec<_>>());
    fixture.end();
}
