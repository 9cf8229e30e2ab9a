use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use weft_config::controller::{Config, HostConfig, JobConfig};
use weft_plan::case::Case;
use weft_plan::plan::Plan;
use weft_plan::policy::mlfabric::Mlfabric;
use weft_plan::policy::{AnyPolicy, Policy, PolicyError};

use super::*;
use crate::auth::{Caller, Peer};

const PATIENCE: Duration = Duration::from_secs(20);

/// Answers once it is told to.
struct Thinker {
    is_asked: AtomicBool,
    go: Mutex<Receiver<()>>,
    is_told: AtomicBool,
}

/// What the engine holds of it.
struct Shared(Arc<Thinker>);

impl Policy for Shared {
    fn name(&self) -> &str {
        "thinker"
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        self.0.is_asked.store(true, Ordering::SeqCst);
        let told = self.0.go.lock().unwrap().recv_timeout(PATIENCE);
        self.0.is_told.store(told.is_ok(), Ordering::SeqCst);
        Mlfabric.plan(case)
    }
}

/// What the server and the worker hear, and the worker's stream.
type Attached = (
    mpsc::Receiver<Result<v1::Command, tonic::Status>>,
    mpsc::Receiver<Result<v1::WorkerReply, tonic::Status>>,
    WorkerKey,
);

async fn attach(core: &CoreSender, job: u16, server: &str) -> Attached {
    let role = v1::JobRole {
        job: job.into(),
        role: v1::Role::Server.into(),
        address: format!("127.0.0.{job}:22341"),
        ..v1::JobRole::default()
    };
    let hello = v1::NodeHello {
        name: server.into(),
        roles: vec![role],
        life: 3,
        ..v1::NodeHello::default()
    };
    let (outbox, commands) = mpsc::channel(64);
    let (answer, answered) = oneshot::channel();
    core.send(Input::NodeHello { hello, outbox, answer }).await.unwrap();
    answered.await.unwrap().unwrap();
    let hello = v1::WorkerHello { job: job.into(), name: None, rank: 0, life: 7, position: None };
    let (outbox, replies) = mpsc::channel(64);
    let (answer, answered) = oneshot::channel();
    let peer = Peer::new(None, Caller::Anyone);
    core.send(Input::WorkerHello { hello, peer, outbox, answer }).await.unwrap();
    (commands, replies, answered.await.unwrap().unwrap().0)
}

/// Asks for a transfer.
async fn ask(core: &CoreSender, worker: WorkerKey) {
    let request = v1::TransferRequest {
        update_id: 1,
        norm: 1.0,
        max_abs: 1.0,
        ..v1::TransferRequest::default()
    };
    let request = v1::worker_message::Message::Request(request);
    core.send(Input::Worker(worker, request)).await.unwrap();
}

/// Waits until a box is told to install a group.
async fn installed(commands: &mut mpsc::Receiver<Result<v1::Command, tonic::Status>>) {
    loop {
        let command = tokio::time::timeout(PATIENCE, commands.recv()).await.unwrap();
        let command = command.unwrap().unwrap().command;
        if let Some(v1::command::Command::Install(_)) = command {
            return;
        }
    }
}

/// The test and the core share one thread, as the streams and the core of the daemon do.
#[tokio::test]
async fn others_go_on_while_a_policy_waits() {
    let (told, go) = channel();
    let thinker = Arc::new(Thinker {
        is_asked: AtomicBool::new(false),
        go: Mutex::new(go),
        is_told: AtomicBool::new(false),
    });
    let shared = thinker.clone();
    let policies = Box::new(move |name: &str| -> Result<AnyPolicy, String> {
        Ok(match name {
            "thinker" => AnyPolicy::Own(Arc::new(Shared(shared.clone()))),
            _ => AnyPolicy::BuiltIn(&Mlfabric),
        })
    });
    let mut config = Config {
        hosts: ["w0", "s0", "w1", "s1"].map(HostConfig::named).into(),
        jobs: vec![
            JobConfig::new("digits", 1, 1000, ["w0"], "s0"),
            JobConfig::new("other", 2, 1000, ["w1"], "s1"),
        ],
        ..Config::default()
    };
    config.jobs[0].policy = Some("thinker".into());
    // Nothing stands in for it meanwhile.
    config.tuning.policy_timeout_ms = 600_000;
    let controller = Controller::new(config, &Saved::fresh(1), policies).unwrap();
    let (core, inputs) = mpsc::channel(INPUTS_MAX);
    tokio::spawn(Core::new(controller, None, 1_000_000_000, 1).run(inputs));
    let (mut commands, _replies, worker) = attach(&core, 1, "s0").await;
    let (mut of_other, _of_other, other) = attach(&core, 2, "s1").await;
    ask(&core, worker).await;
    while !thinker.is_asked.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ask(&core, other).await;
    installed(&mut of_other).await;
    told.send(()).expect("it waits all the while");
    installed(&mut commands).await;
    assert!(thinker.is_told.load(Ordering::SeqCst), "nobody else ran");
}
