//! The daemon over loopback gRPC, with boxes and workers that are only their streams.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use weft_config::controller::ControllerConfig;
use weft_rpc::v1;
use weft_rpc::v1::command::Command;
use weft_rpc::v1::nodes_client::NodesClient;
use weft_rpc::v1::status_client::StatusClient;
use weft_rpc::v1::worker_message::Message as Said;
use weft_rpc::v1::worker_reply::Message as Heard;
use weft_rpc::v1::workers_client::WorkersClient;

use crate::common::{
    Box, PATIENCE, Worker, config, controller, hello, more_job, one_granted, request,
};

#[tokio::test]
async fn an_update_is_asked_for_granted_and_delivered() {
    let channel = controller(config()).await;
    let mut server = Box::attach(&channel, 0, 0).await;
    let mut worker = Worker::welcome(&channel, 1).await;
    worker.ask(request(5)).await;
    let group = server.install().await;
    assert_eq!((group.order, group.chunk_count, group.members[0].rank), (0, 4, 1));
    let Some(Heard::Grant(grant)) = worker.hear().await else { panic!("no grant") };
    assert_eq!((grant.update_id, grant.group, grant.via), (5, group.group, None));
    assert_eq!(grant.segments.len(), 1);
    server.commit(&group).await;
    let Some(Heard::Delivered(delivered)) = worker.hear().await else { panic!("not delivered") };
    assert_eq!((delivered.update_id, delivered.version), (5, 1));
}

#[tokio::test]
async fn a_controller_goes_on_where_the_server_is() {
    let channel = controller(config()).await;
    let mut server = Box::attach(&channel, 41, 40).await;
    let worker = Worker::welcome(&channel, 0).await;
    worker.ask(v1::TransferRequest { version: 40, ..request(1) }).await;
    assert_eq!(server.install().await.order, 41);
    // Another controller would be told 42; so is this one, by a box whose stream broke.
    drop(server);
    let mut server = Box::attach(&channel, 50, 60).await;
    worker.ask(v1::TransferRequest { version: 60, ..request(2) }).await;
    assert_eq!(server.install().await.order, 50);
}

#[tokio::test]
async fn a_bad_request_is_its_senders_error_alone() {
    let channel = controller(config()).await;
    let mut server = Box::attach(&channel, 0, 0).await;
    let mut bad = Worker::welcome(&channel, 0).await;
    let mut good = Worker::welcome(&channel, 1).await;
    let requests = [
        ("norm", v1::TransferRequest { norm: f64::NAN, ..request(1) }),
        ("norm", v1::TransferRequest { norm: -1.0, ..request(1) }),
        ("max_abs", v1::TransferRequest { max_abs: f64::INFINITY, ..request(1) }),
        ("size_bytes", v1::TransferRequest { size_bytes: u64::MAX, ..request(1) }),
        ("destination", v1::TransferRequest { destination: "s9".into(), ..request(1) }),
        ("version", v1::TransferRequest { version: u64::MAX, ..request(1) }),
    ];
    for (field, request) in requests {
        bad.ask(request).await;
        let Some(Heard::Refused(refused)) = bad.hear().await else { panic!("not refused") };
        assert_eq!((refused.field.as_str(), refused.update_id), (field, Some(1)));
    }
    good.ask(request(1)).await;
    let group = server.install().await;
    assert!(matches!(good.hear().await, Some(Heard::Grant(_))));
    server.commit(&group).await;
    assert!(matches!(good.hear().await, Some(Heard::Delivered(_))));
    // The one that was refused may ask properly.
    bad.ask(request(1)).await;
    server.install().await;
    assert!(matches!(bad.hear().await, Some(Heard::Grant(_))));
}

#[tokio::test]
async fn strangers_are_turned_away() {
    let channel = controller(config()).await;
    for (field, hello) in [
        ("job", v1::WorkerHello { job: 9, ..hello(0) }),
        ("job", v1::WorkerHello { job: 1 << 20, ..hello(0) }),
        ("rank", hello(2)),
        ("rank", hello(64)),
        ("name", v1::WorkerHello { name: Some("nothing".into()), ..hello(0) }),
    ] {
        let mut worker = Worker::attach(&channel, hello).await;
        let Some(Heard::Refused(refused)) = worker.hear().await else { panic!("not refused") };
        assert_eq!(refused.field, field);
        assert_eq!(worker.hear().await, None);
    }
    let (said, outbound) = mpsc::channel(1);
    let first = v1::WorkerMessage { message: Some(Said::Request(request(1))) };
    said.send(first).await.unwrap();
    let mut client = WorkersClient::new(channel.clone());
    let mut heard = client.attach(ReceiverStream::new(outbound)).await.unwrap().into_inner();
    let reply = heard.message().await.unwrap().unwrap().message;
    assert!(matches!(reply, Some(Heard::Refused(refused)) if refused.field == "hello"));
}

#[tokio::test]
async fn a_worker_that_dies_leaves_the_others_alone() {
    let channel = controller(config()).await;
    let mut server = Box::attach(&channel, 0, 0).await;
    let dying = Worker::welcome(&channel, 0).await;
    let mut living = Worker::welcome(&channel, 1).await;
    dying.ask(request(1)).await;
    let orphan = server.install().await;
    drop(dying);
    living.ask(request(1)).await;
    let group = server.install().await;
    // There may be room before it.
    assert!(group.order > orphan.order);
    assert!(matches!(living.hear().await, Some(Heard::Grant(_))));
    server.commit(&orphan).await;
    server.commit(&group).await;
    assert!(matches!(living.hear().await, Some(Heard::Delivered(_))));
}

/// A host without a box: its worker is the only one who can tell of others' traffic.
#[tokio::test]
async fn a_workers_counters_lower_what_its_uplink_has_to_give() {
    let mut config = config();
    config.hosts[0].up_bytes_per_sec = Some(1_000_000);
    let channel = controller(config).await;
    let mut worker = Worker::welcome(&channel, 0).await;
    let tell = |telemetry| v1::WorkerMessage { message: Some(Said::Telemetry(telemetry)) };
    let counters = |step: u64| v1::Telemetry {
        at_ns: step * 100_000_000,
        nic_tx_bytes: Some(step * 60_000),
        ..v1::Telemetry::default()
    };
    for step in 0..20 {
        worker.said.send(tell(counters(step))).await.unwrap();
    }
    // An answer to the last says that all were taken.
    worker.said.send(tell(counters(0))).await.unwrap();
    let Some(Heard::Refused(refused)) = worker.hear().await else { panic!("not refused") };
    assert_eq!((refused.field.as_str(), refused.update_id), ("telemetry", None));
    let mut client = StatusClient::new(channel);
    let status = client.read(v1::StatusRequest {}).await.unwrap().into_inner();
    let host = status.hosts.iter().find(|host| host.name == "w0").unwrap();
    assert!(host.up_bytes_per_sec.abs_diff(400_000) < 10_000, "{host:?}");
    assert_eq!(status.refused["telemetry"], 1);
}

#[tokio::test]
async fn figures_can_be_read() {
    let channel = controller(config()).await;
    let (mut server, mut worker, group) = one_granted(&channel).await;
    server.commit(&group).await;
    assert!(matches!(worker.hear().await, Some(Heard::Delivered(_))));
    let mut client = StatusClient::new(channel);
    let status = client.read(v1::StatusRequest {}).await.unwrap().into_inner();
    let job = &status.jobs[0];
    assert_eq!((job.requested, job.granted, job.committed, job.version), (1, 1, 1, 1));
    assert!(status.plans >= 1 && job.commit_mean_ns > 0 && job.is_server_attached);
    assert_eq!(status.hosts.len(), 3);
}

#[tokio::test]
async fn a_job_registered_at_run_time_is_served() {
    let channel = controller(config()).await;
    let mut client = WorkersClient::new(channel.clone());
    let job = more_job();
    let described = client.register_job(job.clone()).await.unwrap().into_inner().job.unwrap();
    assert_eq!((described.worker_count, described.chunk_count), (1, 1));
    let again = client.register_job(job.clone()).await.unwrap_err();
    assert_eq!(again.code(), tonic::Code::AlreadyExists);
    // The server stages i32 and f32 only, so nothing else is planned for.
    let element_type = v1::ElementType::Bf16.into();
    let halves =
        v1::RegisterJobRequest { name: "halves".into(), job: 3, element_type, ..job.clone() };
    let refused = client.register_job(halves).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(refused.message().starts_with("element_type"), "{refused}");
    let bad = v1::RegisterJobRequest { name: "bad".into(), job: 3, momentum: f64::NAN, ..job };
    let refused = client.register_job(bad).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(refused.message().starts_with("momentum"), "{refused}");
}

/// They were taken for the defaults.
#[tokio::test]
async fn a_code_that_is_not_listed_is_an_error() {
    let channel = controller(config()).await;
    let mut client = WorkersClient::new(channel.clone());
    for (field, job) in [
        ("mode", v1::RegisterJobRequest { mode: 77, ..more_job() }),
        ("element_type", v1::RegisterJobRequest { element_type: 77, ..more_job() }),
        ("name", v1::RegisterJobRequest { name: "n".repeat(3 << 20), ..more_job() }),
    ] {
        let refused = client.register_job(job).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{field}: {refused}");
        assert!(refused.message().starts_with(field) && refused.message().len() < 400);
    }
    let (said, outbound) = mpsc::channel(1);
    let role = v1::JobRole { job: 1, role: 77, ..v1::JobRole::default() };
    let hello = v1::NodeHello { name: "s0".into(), roles: vec![role], ..Default::default() };
    let message = v1::node_message::Message::Hello(hello);
    said.send(v1::NodeMessage { message: Some(message) }).await.unwrap();
    let mut client = NodesClient::new(channel);
    let mut heard = client.attach(ReceiverStream::new(outbound)).await.unwrap().into_inner();
    let command = heard.message().await.unwrap().unwrap().command;
    assert!(matches!(command, Some(Command::Refused(refused)) if refused.field == "role"));
}

#[tokio::test]
async fn a_job_that_is_unregistered_is_over_for_its_workers() {
    let channel = controller(config()).await;
    let mut server = Box::attach(&channel, 0, 0).await;
    let mut client = WorkersClient::new(channel.clone());
    client.register_job(more_job()).await.unwrap();
    let mut worker = Worker::attach(&channel, v1::WorkerHello { job: 2, ..hello(0) }).await;
    assert!(matches!(worker.hear().await, Some(Heard::Welcome(_))));
    // Its server has not told of it, so nothing is granted.
    worker.ask(request(1)).await;
    let mut status = StatusClient::new(channel.clone());
    for _ in 0..200 {
        let read = status.read(v1::StatusRequest {}).await.unwrap().into_inner();
        if read.jobs[1].pending == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let name = |name: &str| v1::UnregisterJobRequest { name: name.into() };
    let ended = client.unregister_job(name("more")).await.unwrap().into_inner();
    assert_eq!((ended.dropped, ended.groups), (1, 0));
    let Some(Heard::Drop(dropped)) = worker.hear().await else { panic!("not dropped") };
    assert_eq!((dropped.update_id, dropped.reason()), (1, v1::DropReason::JobEnded));
    let Some(Heard::Refused(refused)) = worker.hear().await else { panic!("not told") };
    assert_eq!((refused.field.as_str(), worker.hear().await), ("job", None));
    let unknown = client.unregister_job(name("more")).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
    let configured = client.unregister_job(name("digits")).await.unwrap_err();
    assert_eq!(configured.code(), tonic::Code::FailedPrecondition);
    // The other job goes on, and the name is free.
    let mut other = Worker::welcome(&channel, 0).await;
    other.ask(request(1)).await;
    server.install().await;
    assert!(matches!(other.hear().await, Some(Heard::Grant(_))));
    client.register_job(more_job()).await.unwrap();
}

/// A journal lost its end: the server begins below the version that it announced.
#[tokio::test]
async fn a_server_that_is_back_without_announced_commits_ends_the_job() {
    let directory = tempfile::tempdir().unwrap();
    let events = directory.path().join("events.jsonl");
    let channel =
        controller(ControllerConfig { events: Some(events.to_str().unwrap().into()), ..config() })
            .await;
    let mut server = Box::attach(&channel, 0, 82).await;
    let mut worker = Worker::welcome(&channel, 0).await;
    worker.ask(v1::TransferRequest { version: 82, ..request(1) }).await;
    let group = server.install().await;
    assert!(matches!(worker.hear().await, Some(Heard::Grant(_))));
    server.commit(&group).await;
    let Some(Heard::Delivered(delivered)) = worker.hear().await else { panic!("not delivered") };
    assert_eq!(delivered.version, 83);
    drop(server);
    let _server = Box::attach_again(&channel, 1, 35, 4).await;
    let text = "server returned with version 35, 83 were acknowledged";
    let Some(Heard::Refused(refused)) = worker.hear().await else { panic!("not told") };
    assert_eq!((refused.field.as_str(), refused.problem.as_str()), ("job", text));
    assert_eq!(worker.hear().await, None, "its stream has ended");
    // A later worker, the status and the log of events have the same reason.
    let mut later = Worker::attach(&channel, hello(1)).await;
    let Some(Heard::Refused(refused)) = later.hear().await else { panic!("not refused") };
    assert_eq!(refused.problem, text);
    let mut status = StatusClient::new(channel.clone());
    let read = status.read(v1::StatusRequest {}).await.unwrap().into_inner();
    assert_eq!(read.jobs[0].refusing, text);
    let lines = std::fs::read_to_string(&events).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let event = lines.into_iter().find(|line| line["event"] == "commits_lost").expect("an event");
    let got = ["job", "returned", "acknowledged", "is_over"].map(|key| event[key].clone());
    assert_eq!(serde_json::json!(got), serde_json::json!(["digits", 35, 83, true]));
}

/// 4,000 of them took 70 MB, for ever.
#[tokio::test]
async fn streams_that_say_nothing_are_few_and_end() {
    let channel = controller(config()).await;
    let mut client = WorkersClient::new(channel.clone());
    let mut silent = Vec::new();
    for _ in 0..260 {
        let (said, outbound) = mpsc::channel::<v1::WorkerMessage>(1);
        let stream = client.attach(ReceiverStream::new(outbound)).await.unwrap();
        silent.push((said, stream.into_inner()));
    }
    // The oldest have given way.
    // Boxes have places of their own.
    let mut server = Box::attach(&channel, 0, 0).await;
    let (_said, mut first) = silent.swap_remove(0);
    let begun = std::time::Instant::now();
    let reply = tokio::time::timeout(PATIENCE, first.message()).await.unwrap().unwrap();
    let Some(Heard::Refused(refused)) = reply.and_then(|reply| reply.message) else {
        panic!("not told")
    };
    assert_eq!(refused.field, "hello");
    assert!(begun.elapsed() < Duration::from_secs(15));
    drop(silent);
    let mut worker = Worker::welcome(&channel, 1).await;
    worker.ask(request(5)).await;
    server.install().await;
    assert!(matches!(worker.hear().await, Some(Heard::Grant(_))));
}

/// Whoever takes a rank's place ends the stream before it, which is not read any more.
#[tokio::test]
async fn a_stream_whose_place_is_taken_ends() {
    let channel = controller(config()).await;
    let mut old = Worker::welcome(&channel, 1).await;
    let _new = Worker::welcome(&channel, 1).await;
    assert_eq!(old.hear().await, None);
    tokio::time::timeout(PATIENCE, old.said.closed()).await.expect("nobody reads it any more");
}

/// A controller's user has a box hold something, and hears its one answer.
#[tokio::test]
async fn what_a_box_holds_is_installed_and_removed_over_grpc() {
    let channel = controller(config()).await;
    let mut node = Box::attach(&channel, 0, 0).await;
    let mut client = WorkersClient::new(channel.clone());
    let request = |node: &str, command| {
        let command = Some(v1::Command { command });
        v1::HoldRequest { node: node.into(), command }
    };
    let share = v1::JobShare { job: 1, slots_max: 64, ..v1::JobShare::default() };
    let install = request("s0", Some(Command::InstallJob(share)));
    let remove = request("s0", Some(Command::RemovePush(v1::RemovePush { job: 1 })));
    let of = |kind: v1::HoldingKind| Some(v1::Holding { kind: kind.into(), row: 0 });

    let mut asker = client.clone();
    let asked = tokio::spawn({
        let install = install.clone();
        async move { asker.hold(install).await }
    });
    loop {
        match node.hear().await.expect("a command") {
            Command::InstallJob(said) => break assert_eq!(said, share),
            Command::Settled(_) | Command::SetRate(_) | Command::Skip(_) => {}
            other => panic!("{other:?}"),
        }
    }
    // One thing at a time.
    let twice = client.hold(install).await.unwrap_err();
    assert_eq!(twice.code(), tonic::Code::FailedPrecondition);
    assert!(twice.message().contains("has not answered"), "{twice}");
    let installed = v1::HoldingInstalled { holding: of(v1::HoldingKind::Job) };
    node.tell(v1::event::Event::HoldingInstalled(installed)).await;
    asked.await.unwrap().expect("it is done");
    let mut status = StatusClient::new(channel.clone());
    let read = status.read(v1::StatusRequest {}).await.unwrap().into_inner();
    let held = v1::Held { job: 1, holding: of(v1::HoldingKind::Job) };
    let box_of = |name: &str| read.nodes.iter().find(|node| node.name == name).unwrap();
    assert_eq!(box_of("s0").holdings, [held]);

    let mut asker = client.clone();
    let asked = tokio::spawn({
        let remove = remove.clone();
        async move { asker.hold(remove).await }
    });
    while !matches!(node.hear().await, Some(Command::RemovePush(_))) {}
    let refused = v1::HoldingRefused {
        holding: of(v1::HoldingKind::Push),
        error: v1::HoldingError::Missing.into(),
    };
    node.tell(v1::event::Event::HoldingRefused(refused)).await;
    let missing = asked.await.unwrap().unwrap_err();
    assert_eq!(missing.code(), tonic::Code::FailedPrecondition);
    assert_eq!(missing.message(), "it is not there");

    let unknown = client.hold(request("nobody", Some(Command::InstallJob(share)))).await;
    let unknown = unknown.unwrap_err();
    assert!(unknown.message().contains("there is no node `nobody`"), "{unknown}");
    for command in [None, Some(Command::StandDown(v1::StandDown { job: 1, epoch: 1 }))] {
        let other = client.hold(request("s0", command)).await.unwrap_err();
        assert_eq!(other.code(), tonic::Code::InvalidArgument, "{other}");
    }
    let wrong = v1::JobShare { job: 1 << 16, ..share };
    let wrong = client.hold(request("s0", Some(Command::InstallJob(wrong)))).await.unwrap_err();
    assert!(wrong.message().starts_with("job:"), "{wrong}");

    let mut asker = client.clone();
    let asked = tokio::spawn(async move { asker.hold(remove).await });
    while !matches!(node.hear().await, Some(Command::RemovePush(_))) {}
    drop(node);
    let gone = asked.await.unwrap().unwrap_err();
    assert_eq!(gone.code(), tonic::Code::Unavailable, "{gone}");
}
