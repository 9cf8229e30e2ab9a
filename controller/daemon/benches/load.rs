//! CPU time of the controller at 1,000 requests per second, over loopback gRPC: `cargo bench -p
//! weft-controller`. One line of JSON; the mark is a share of one core below 0.05.
//!
//! The controller is the program, so that its CPU time is its own; workers and the server's box are
//! this process, which acknowledges, stages and commits every group at once.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use weft_config::controller::{ControllerConfig, HostConfig, JobConfig};
use weft_config::to_toml;
use weft_rpc::v1;
use weft_rpc::v1::nodes_client::NodesClient;
use weft_rpc::v1::worker_message::Message as Said;
use weft_rpc::v1::worker_reply::Message as Heard;
use weft_rpc::v1::workers_client::WorkersClient;

const WORKERS: u32 = 20;
const REQUESTS_PER_SEC: u64 = 1000;
const SECONDS: u64 = 5;

fn main() {
    let directory = std::env::temp_dir().join(format!("weft-load-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a temporary directory");
    let path = directory.join("controller.toml");
    std::fs::write(&path, to_toml(&config())).expect("a configuration");
    let mut child = Command::new(env!("CARGO_BIN_EXE_weft-controller"))
        .arg("--config")
        .arg(&path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the controller");
    let mut lines = BufReader::new(child.stderr.take().expect("its log")).lines();
    let ready = lines.next().expect("a line").expect("UTF-8");
    let ready: serde_json::Value = serde_json::from_str(&ready).expect("the ready line");
    std::thread::spawn(move || lines.count());
    let endpoint = format!("http://{}", ready["listen"].as_str().expect("an address"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let begun = Instant::now();
    let before_s = cpu_s(&child);
    let (asked, done) = runtime.block_on(load(&endpoint));
    let wall_s = begun.elapsed().as_secs_f64();
    let cpu_share = (cpu_s(&child) - before_s) / wall_s;
    let _ = child.kill();
    let _ = child.wait();
    let _ = std::fs::remove_dir_all(&directory);
    let row = serde_json::json!({
        "bench": "controller_load",
        "requests": asked,
        "delivered": done,
        "requests_per_sec": asked as f64 / wall_s,
        "cpu_share_of_core": cpu_share,
    });
    println!("{row}");
    if done < asked * 99 / 100 {
        eprintln!("only {done} of {asked} updates were delivered: the row is invalid");
        std::process::exit(1);
    }
}

/// User and system time of a process.
fn cpu_s(child: &Child) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let ticks = |index: usize| fields.get(index).and_then(|f| f.parse::<f64>().ok());
    // Linux counts in hundredths of a second for user space, on every architecture.
    (ticks(12).unwrap_or(0.0) + ticks(13).unwrap_or(0.0)) / 100.0
}

fn config() -> ControllerConfig {
    let workers: Vec<String> = (0..WORKERS).map(|rank| format!("w{rank}")).collect();
    let host = |name: String| HostConfig {
        // A link on which 1,000 updates of about 1.1 kB are little.
        up_bytes_per_sec: Some(1_250_000_000),
        down_bytes_per_sec: Some(1_250_000_000),
        ..HostConfig::named(name)
    };
    ControllerConfig {
        hosts: workers.iter().cloned().chain(["s0".into()]).map(host).collect(),
        jobs: vec![JobConfig {
            tau_max: Some(1_000_000),
            ..JobConfig::new("load", 0, 256, workers, "s0")
        }],
        ..ControllerConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }
}

async fn load(endpoint: &str) -> (u64, u64) {
    let channel = Channel::from_shared(endpoint.to_owned()).expect("a URL");
    let channel = channel.connect().await.expect("a connection");
    tokio::spawn(server(channel.clone()));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let until = Instant::now() + Duration::from_secs(SECONDS);
    let workers: Vec<_> =
        (0..WORKERS).map(|rank| tokio::spawn(worker(channel.clone(), rank, until))).collect();
    let mut sum = (0, 0);
    for worker in workers {
        let (asked, done) = worker.await.expect("a worker");
        sum = (sum.0 + asked, sum.1 + done);
    }
    sum
}

async fn worker(channel: Channel, rank: u32, until: Instant) -> (u64, u64) {
    let (said, outbound) = mpsc::channel(64);
    let say = |message| said.send(v1::WorkerMessage { message: Some(message) });
    let hello = v1::WorkerHello { rank, life: 1, ..v1::WorkerHello::default() };
    say(Said::Hello(hello)).await.expect("a stream");
    let mut client = WorkersClient::new(channel);
    let heard = client.attach(ReceiverStream::new(outbound)).await.expect("a stream");
    let mut heard = heard.into_inner();
    let period = Duration::from_nanos(1_000_000_000 * u64::from(WORKERS) / REQUESTS_PER_SEC);
    let mut ticks = tokio::time::interval(period);
    let (mut asked, mut done, mut version) = (0, 0, 0);
    let mut is_welcome = false;
    let deadline = until + Duration::from_secs(2);
    loop {
        tokio::select! {
            _ = ticks.tick(), if is_welcome && Instant::now() < until && asked - done < 8 => {
                asked += 1;
                let request = v1::TransferRequest {
                    update_id: asked,
                    version,
                    norm: 1.0,
                    max_abs: 1.0,
                    ..v1::TransferRequest::default()
                };
                say(Said::Request(request)).await.expect("a stream");
            }
            reply = heard.message() => {
                let Ok(Some(reply)) = reply else { break };
                match reply.message {
                    Some(Heard::Welcome(_)) => is_welcome = true,
                    Some(Heard::Delivered(delivered)) => {
                        done += 1;
                        version = delivered.version;
                    }
                    Some(Heard::Refused(refused)) => panic!("{refused:?}"),
                    _ => {}
                }
            }
            () = tokio::time::sleep_until(deadline.into()) => break,
        }
        if Instant::now() >= until && asked == done {
            break;
        }
    }
    (asked, done)
}

async fn server(channel: Channel) {
    use v1::command::Command;
    use v1::event::Event;
    let role = v1::JobRole {
        role: v1::Role::Server.into(),
        address: "127.0.0.1:1".into(),
        ..v1::JobRole::default()
    };
    let hello =
        v1::NodeHello { name: "s0".into(), roles: vec![role], life: 1, ..v1::NodeHello::default() };
    let (said, outbound) = mpsc::channel(4096);
    let hello = v1::node_message::Message::Hello(hello);
    said.send(v1::NodeMessage { message: Some(hello) }).await.expect("a stream");
    let mut client = NodesClient::new(channel);
    let mut heard =
        client.attach(ReceiverStream::new(outbound)).await.expect("a stream").into_inner();
    let mut version = 0;
    while let Ok(Some(command)) = heard.message().await {
        let Some(Command::Install(group)) = command.command else { continue };
        version += group.members.len() as u64;
        let id = group.group;
        let decided = v1::Decided {
            group: id,
            order: group.order,
            decision: v1::Decision::Committed.into(),
            version,
            members: group.members.iter().fold(0, |mask, member| mask | 1 << member.rank),
            norm: 1.0,
            momentum_norm: 1.0,
        };
        for event in [
            Event::Installed(v1::Installed { group: id }),
            Event::Staged(v1::Staged { group: id }),
            Event::Decided(decided),
        ] {
            let event = v1::Event { job: 0, event: Some(event) };
            let message = v1::node_message::Message::Event(event);
            if said.send(v1::NodeMessage { message: Some(message) }).await.is_err() {
                return;
            }
        }
    }
}
