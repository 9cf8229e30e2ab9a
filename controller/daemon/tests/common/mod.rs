//! A controller on loopback, and boxes and workers that are only their streams.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;
use weft_config::controller::{ControllerConfig, HostConfig, JobConfig};
use weft_controller::daemon::Daemon;
use weft_rpc::v1;
use weft_rpc::v1::command::Command;
use weft_rpc::v1::nodes_client::NodesClient;
use weft_rpc::v1::worker_message::Message as Said;
use weft_rpc::v1::worker_reply::Message as Heard;
use weft_rpc::v1::workers_client::WorkersClient;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn config() -> ControllerConfig {
    ControllerConfig {
        hosts: ["w0", "w1", "s0"].map(HostConfig::named).into(),
        jobs: vec![JobConfig::new("digits", 1, 1000, ["w0", "w1"], "s0")],
        ..ControllerConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }
}

/// A controller on a free port, for as long as the test's runtime lives.
pub(crate) async fn controller(mut config: ControllerConfig) -> Channel {
    config.telemetry_period_ms = 50;
    let daemon = Daemon::bind(config).await.unwrap();
    let addr = daemon.addr;
    tokio::spawn(daemon.run(std::future::pending()));
    let endpoint = Channel::from_shared(format!("http://{addr}")).unwrap();
    endpoint.connect().await.unwrap()
}

pub(crate) struct Worker {
    pub(crate) said: mpsc::Sender<v1::WorkerMessage>,
    pub(crate) heard: Streaming<v1::WorkerReply>,
}

impl Worker {
    pub(crate) async fn attach(channel: &Channel, hello: v1::WorkerHello) -> Self {
        let (said, outbound) = mpsc::channel(64);
        said.send(v1::WorkerMessage { message: Some(Said::Hello(hello)) }).await.unwrap();
        let mut client = WorkersClient::new(channel.clone());
        let heard = client.attach(ReceiverStream::new(outbound)).await.unwrap().into_inner();
        Self { said, heard }
    }

    pub(crate) async fn welcome(channel: &Channel, rank: u32) -> Self {
        let mut worker = Self::attach(channel, hello(rank)).await;
        match worker.hear().await {
            Some(Heard::Welcome(job)) => {
                assert_eq!((job.chunk_count, job.telemetry_period_ns), (4, 50_000_000));
            }
            other => panic!("{other:?}"),
        }
        worker
    }

    pub(crate) async fn hear(&mut self) -> Option<Heard> {
        let reply = tokio::time::timeout(PATIENCE, self.heard.message()).await.unwrap();
        reply.ok().flatten()?.message
    }

    pub(crate) async fn ask(&self, request: v1::TransferRequest) {
        self.said.send(v1::WorkerMessage { message: Some(Said::Request(request)) }).await.unwrap();
    }
}

/// A folder, a folder in it for the state, and [`config`] with its file there.
pub(crate) fn with_state() -> (tempfile::TempDir, PathBuf, ControllerConfig) {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("state");
    std::fs::create_dir(&folder).unwrap();
    let state_file = folder.join("controller.json").to_str().unwrap().into();
    let config = ControllerConfig { state_file: Some(state_file), ..config() };
    (directory, folder, config)
}

/// A job beside those of the file.
pub(crate) fn more_job() -> v1::RegisterJobRequest {
    v1::RegisterJobRequest {
        name: "more".into(),
        job: 2,
        dimension: 10,
        worker_hosts: vec!["w0".into()],
        server: "s0".into(),
        ..v1::RegisterJobRequest::default()
    }
}

pub(crate) fn hello(rank: u32) -> v1::WorkerHello {
    v1::WorkerHello { job: 1, name: None, rank, life: 7, position: None }
}

pub(crate) fn request(update_id: u64) -> v1::TransferRequest {
    v1::TransferRequest { update_id, norm: 1.0, max_abs: 1.0, ..v1::TransferRequest::default() }
}

/// The server's box: it acknowledges, stages and commits everything at once.
pub(crate) struct Box {
    pub(crate) said: mpsc::Sender<v1::NodeMessage>,
    pub(crate) heard: Streaming<v1::Command>,
    version: u64,
}

impl Box {
    pub(crate) async fn attach(channel: &Channel, next_order: u64, version: u64) -> Self {
        Self::attach_again(channel, next_order, version, 3).await
    }

    /// The same in another life.
    pub(crate) async fn attach_again(
        channel: &Channel,
        next_order: u64,
        version: u64,
        life: u64,
    ) -> Self {
        let role = v1::JobRole {
            job: 1,
            role: v1::Role::Server.into(),
            address: "127.0.0.1:22341".into(),
            next_order,
            version,
            ..v1::JobRole::default()
        };
        let hello = v1::NodeHello {
            name: "s0".into(),
            roles: vec![role],
            life,
            ..v1::NodeHello::default()
        };
        let (said, outbound) = mpsc::channel(64);
        let message = v1::node_message::Message::Hello(hello);
        said.send(v1::NodeMessage { message: Some(message) }).await.unwrap();
        let mut client = NodesClient::new(channel.clone());
        let heard = client.attach(ReceiverStream::new(outbound)).await.unwrap().into_inner();
        let mut node = Self { said, heard, version };
        assert!(matches!(node.hear().await, Some(Command::Welcome(_))));
        node
    }

    pub(crate) async fn hear(&mut self) -> Option<Command> {
        let command = tokio::time::timeout(PATIENCE, self.heard.message()).await.unwrap();
        command.ok().flatten()?.command
    }

    pub(crate) async fn tell(&self, event: v1::event::Event) {
        let event = v1::Event { job: 1, event: Some(event) };
        let message = v1::node_message::Message::Event(event);
        self.said.send(v1::NodeMessage { message: Some(message) }).await.unwrap();
    }

    /// The next group, acknowledged.
    pub(crate) async fn install(&mut self) -> v1::GroupDescriptor {
        loop {
            match self.hear().await.expect("a command") {
                Command::Install(group) => {
                    let event = v1::Installed { group: group.group };
                    self.tell(v1::event::Event::Installed(event)).await;
                    return group;
                }
                Command::Settled(_) | Command::SetRate(_) | Command::Skip(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) async fn commit(&mut self, group: &v1::GroupDescriptor) {
        self.version += group.members.len() as u64;
        let staged = v1::Staged { group: group.group };
        self.tell(v1::event::Event::Staged(staged)).await;
        let decided = v1::Decided {
            group: group.group,
            order: group.order,
            decision: v1::Decision::Committed.into(),
            version: self.version,
            members: group.members.iter().fold(0, |mask, member| mask | 1 << member.rank),
            norm: 1.0,
            momentum_norm: 1.0,
        };
        self.tell(v1::event::Event::Decided(decided)).await;
    }
}

/// A server's box and a worker, one update of which is granted and not committed.
pub(crate) async fn one_granted(channel: &Channel) -> (Box, Worker, v1::GroupDescriptor) {
    let mut server = Box::attach(channel, 0, 0).await;
    let mut worker = Worker::welcome(channel, 0).await;
    worker.ask(request(1)).await;
    let group = server.install().await;
    let Some(Heard::Grant(_)) = worker.hear().await else { panic!("not granted") };
    (server, worker, group)
}
