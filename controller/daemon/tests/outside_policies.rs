//! Programs as policies: only the configuration file says which may run here, not who registers a
//! job, and not the state file.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::Channel;
use weft_config::controller::{ControllerConfig, HostConfig};
use weft_controller::daemon::Daemon;
use weft_rpc::v1;
use weft_rpc::v1::nodes_client::NodesClient;
use weft_rpc::v1::worker_message::Message as Said;
use weft_rpc::v1::worker_reply::Message as Heard;
use weft_rpc::v1::workers_client::WorkersClient;

/// A network whose controller may start these programs.
fn config(programs: &[&str]) -> ControllerConfig {
    let mut config = ControllerConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    config.hosts = ["w0", "s0"].map(HostConfig::named).into();
    config.policies.exec = programs.iter().map(|command| (*command).to_owned()).collect();
    config
}

const PATIENCE: Duration = Duration::from_secs(20);

async fn start(config: ControllerConfig) -> Channel {
    let daemon = Daemon::bind(config).await.unwrap();
    let addr = daemon.addr;
    tokio::spawn(daemon.run(std::future::pending()));
    Channel::from_shared(format!("http://{addr}")).unwrap().connect().await.unwrap()
}

fn job(policy: &str) -> v1::RegisterJobRequest {
    v1::RegisterJobRequest {
        name: "more".into(),
        job: 2,
        dimension: 10,
        worker_hosts: vec!["w0".into()],
        server: "s0".into(),
        policy: policy.into(),
        ..v1::RegisterJobRequest::default()
    }
}

/// Has the job planned once: its server attaches, its worker asks.
async fn ask(channel: &Channel) -> Heard {
    let role = v1::JobRole {
        job: 2,
        role: v1::Role::Server.into(),
        address: "127.0.0.1:22341".into(),
        ..v1::JobRole::default()
    };
    let hello =
        v1::NodeHello { name: "s0".into(), roles: vec![role], life: 3, ..v1::NodeHello::default() };
    let (node, outbound) = mpsc::channel(8);
    let message = v1::node_message::Message::Hello(hello);
    node.send(v1::NodeMessage { message: Some(message) }).await.unwrap();
    let mut nodes = NodesClient::new(channel.clone());
    let mut commands = nodes.attach(ReceiverStream::new(outbound)).await.unwrap().into_inner();
    tokio::spawn(async move {
        while let Ok(Some(command)) = commands.message().await {
            if let Some(v1::command::Command::Install(group)) = command.command {
                let installed = v1::event::Event::Installed(v1::Installed { group: group.group });
                let event = v1::Event { job: 2, event: Some(installed) };
                let message = v1::node_message::Message::Event(event);
                node.send(v1::NodeMessage { message: Some(message) }).await.unwrap();
            }
        }
    });
    let (worker, outbound) = mpsc::channel(8);
    let hello = v1::WorkerHello { job: 2, name: None, rank: 0, life: 7, position: None };
    worker.send(v1::WorkerMessage { message: Some(Said::Hello(hello)) }).await.unwrap();
    let mut workers = WorkersClient::new(channel.clone());
    let mut heard = workers.attach(ReceiverStream::new(outbound)).await.unwrap().into_inner();
    heard.message().await.unwrap();
    let request = v1::TransferRequest { update_id: 1, ..v1::TransferRequest::default() };
    worker.send(v1::WorkerMessage { message: Some(Said::Request(request)) }).await.unwrap();
    let reply = tokio::time::timeout(PATIENCE, heard.message()).await.expect("an answer in time");
    reply.unwrap().unwrap().message.unwrap()
}

#[tokio::test]
async fn a_client_cannot_name_a_program() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("mark");
    let channel = start(config(&[])).await;
    let policy = format!("exec:touch {}", mark.display());
    let outcome = WorkersClient::new(channel.clone()).register_job(job(&policy)).await;
    if outcome.is_ok() {
        ask(&channel).await;
    }
    assert!(!mark.exists(), "the program ran");
    let refused = outcome.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    for word in ["policy", &policy, "[policies] exec"] {
        assert!(refused.message().contains(word), "{refused}");
    }
}

#[tokio::test]
async fn a_client_can_ask_for_a_program_that_the_configuration_lists() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("mark");
    let listed = format!("touch {}", mark.display());
    let channel = start(config(&[listed.as_str()])).await;
    let mut client = WorkersClient::new(channel.clone());
    // As it is listed, not with more.
    let longer = format!("exec:{listed} /tmp/other");
    assert_eq!(client.register_job(job(&longer)).await.unwrap_err().code(), Code::InvalidArgument);
    client.register_job(job(&format!("exec:{listed}"))).await.unwrap();
    // It answers nothing that is a plan, so the default policy plans.
    assert!(matches!(ask(&channel).await, Heard::Grant(_)));
    let begun = Instant::now();
    while !mark.exists() {
        assert!(begun.elapsed() < PATIENCE, "the program never ran");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_state_file_cannot_name_a_program() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.json");
    let config = |programs: &[&str]| ControllerConfig {
        state_file: Some(state.to_str().unwrap().to_owned()),
        ..config(programs)
    };
    // A controller whose configuration lists the program keeps the job.
    let daemon = Daemon::bind(config(&["./plan.py"])).await.unwrap();
    let addr = daemon.addr;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(daemon.run(async {
        let _ = stopped.await;
    }));
    let endpoint = Channel::from_shared(format!("http://{addr}")).unwrap();
    let mut client = WorkersClient::new(endpoint.connect().await.unwrap());
    client.register_job(job("exec:./plan.py")).await.unwrap();
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    assert!(std::fs::read_to_string(&state).unwrap().contains("exec:./plan.py"));

    let refused = Daemon::bind(config(&[])).await.unwrap_err().to_string();
    for word in ["state.json", "`more`", "`exec:./plan.py`", "[policies] exec"] {
        assert!(refused.contains(word), "{refused}");
    }
    Daemon::bind(config(&["./plan.py"])).await.unwrap();
}
