//! The digits' scenario with its workers on DPDK devices: four processes over memif to a box train
//! to the model of workers on UDP, bit for bit, also through faults. Needs no root, hugepages or
//! NIC.
//!
//! `weft run` has no such workers, for EAL starts once in a process and the `weft` of a plain build
//! knows none. The workers here are its own, with the scenario and the faults that it gives them,
//! on ports of the client's feature `dpdk`: this test starts its own binary again for the box and
//! each worker.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_client::Config;
use weft_client::dpdk::{self, DpdkPort, DpdkQueue, Eal, EalArgs, PortConfig};
use weft_client::hosted::{HostConfig, HostedPort};
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Burst, Port, PortInfo, PortStats};
use weft_kernel::Kernels;
use weft_lane::{AggregatorLane, Settings};
use weft_testbed::run::{Io, Place, Plan, WorkerMessage, WorkerSummary, worker};
use weft_testbed::scenario::{FaultSection, Scenario};
use weft_wire::Nanos;

const SEED: u64 = 7;
const ROUNDS: u32 = 20;
const ROLE: &str = "WEFT_DIGITS_DPDK_TEST_ROLE";
const FOLDER: &str = "WEFT_DIGITS_DPDK_TEST_FOLDER";
const PATIENCE: Duration = Duration::from_secs(60);
/// UDP ports of loopback that no other test has.
const PORT_BASE: u16 = 29_000;

/// The scenario of `weft run`, with the losses of its own tests or without.
fn scenario(is_lossy: bool) -> Scenario {
    let text = include_str!("../scenarios/digits.toml");
    let mut scenario = Scenario::parse("digits.toml", text).expect("a good scenario");
    scenario.job.rounds = ROUNDS;
    scenario.aggregation.leaves = 0;
    scenario.faults = FaultSection::default();
    if is_lossy {
        let faults = &mut scenario.faults;
        (faults.loss, faults.duplicate) = (0.02, 0.02);
        (faults.reorder, faults.corrupt) = (0.05, 0.01);
    }
    scenario
}

/// Where all are; the addresses of a lab that nobody makes do for a memif.
fn plan(place: Place, is_lossy: bool, folder: &Path) -> Plan {
    let scenario = scenario(is_lossy);
    Plan::new(&scenario, Io::Udp, place, SEED, folder, None).expect("a good plan")
}

/// Runs a worker on a port to its end.
fn summary(run: impl FnOnce(&mut dyn FnMut(WorkerMessage))) -> WorkerSummary {
    let mut done = None;
    run(&mut |message| match message {
        WorkerMessage::Done(summary) => done = Some(*summary),
        WorkerMessage::Failed { error, .. } => panic!("{error}"),
        _ => {}
    });
    done.expect("a worker that ends says so")
}

/// The model of workers and a box on UDP sockets, in this process; trained once.
fn model_over_udp() -> &'static str {
    static MODEL: OnceLock<String> = OnceLock::new();
    MODEL.get_or_init(train_over_udp)
}

fn train_over_udp() -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = plan(Place::Loopback { port_base: PORT_BASE }, false, folder.path());
    let port = UdpPort::open(&UdpConfig::new(plan.workers[0].target)).expect("a free port");
    let (stop, end) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| serve(&plan, port, &stop));
        let (folder, end) = (folder.path(), &end);
        let train = |planned| summary(|say| worker::run_over_its_port(planned, folder, end, say));
        let workers: Vec<_> =
            plan.workers.iter().map(|planned| scope.spawn(move || train(planned))).collect();
        let ended: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        let models = ended.into_iter().map(|summary| summary.expect("it trains").model_sha256);
        let models: Vec<_> = models.collect();
        assert!(models.iter().all(|model| *model == models[0]), "{models:?}");
        models[0].clone()
    })
}

/// Serves the plan's box on a port.
fn serve<P: Port>(plan: &Plan, port: P, stop: &AtomicBool) {
    let settings = Settings::new(plan.boxes[0].config.clone()).expect("a good configuration");
    let table = settings.table_at(port.info().mac);
    let engine = settings.aggregator(&table, 0, SEED, Kernels::detect());
    let mut lane = AggregatorLane::new(port, engine);
    let origin = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = Nanos(u64::try_from(origin.elapsed().as_nanos()).expect("a short test"));
        if lane.breathe(now, &mut ()) == 0 {
            thread::sleep(Duration::from_micros(50));
        }
    }
}

fn memif(role: &str, name: u8, id: u8, folder: &Path) -> String {
    let socket = folder.join("memif.sock");
    format!(
        "net_memif{name},role={role},id={id},socket={},socket-abstract=no,bsize=2048,rsize=10",
        socket.display()
    )
}

fn eal(role: &str, devices: impl IntoIterator<Item = String>) -> Eal {
    let prefix = format!("weft_digits_{role}_{}", std::process::id());
    let args = EalArgs::new().memory_mib(160).file_prefix(prefix);
    let args = devices.into_iter().fold(args, |args, device| args.vdev(device));
    dpdk::start(&args).expect("EAL starts without rights")
}

/// The box's life, until it is killed.
fn serve_over_memif(plan: &Plan, folder: &Path) {
    let ids = || (0_u8..).take(plan.workers.len());
    let eal = eal("box", ids().map(|id| memif("server", id, id, folder)));
    let queues = ids().zip(&plan.workers).map(|(id, worker)| {
        let config = PortConfig::named(format!("net_memif{id}"));
        let queue = DpdkPort::open(&eal, &config).expect("the device is there").remove(0);
        // The way to this worker.
        let (ip, next_hop) = (worker.target.ip(), worker.local.ip());
        let host = HostConfig { ip, next_hop, mtu: worker.mtu, answers: true };
        (worker.local, HostedPort::new(queue, &host).expect("of one family"))
    });
    let port = Several { queues: queues.collect() };
    serve(plan, port, &AtomicBool::new(false));
}

/// A worker's life: what the model came to, and how often it sent again.
fn train_over_memif(plan: &Plan, rank: u8, folder: &Path) {
    let worker = &plan.workers[usize::from(rank)];
    let eal = eal("worker", [memif("client", 0, rank, folder)]);
    let config = Config { connect_timeout: PATIENCE, ..worker.client() };
    let port = dpdk::open(&config, &eal, "net_memif0").expect("the box comes");
    assert_eq!(port.info().driver, "net_memif");
    let end = AtomicU64::new(0);
    let WorkerSummary { model_sha256, retransmissions, faults_fired, .. } =
        summary(|say| worker::run(worker, folder, &end, port, say));
    println!("\nmodel {model_sha256} {retransmissions} {faults_fired}");
}

/// One port of several devices, each with one worker behind it.
struct Several {
    queues: Vec<(SocketAddr, HostedPort<DpdkQueue>)>,
}

/// The last octet of the IPv4 address that a frame goes to.
fn last_octet(frame: &[u8]) -> Option<u8> {
    frame.get(33).copied()
}

impl Port for Several {
    type Frame = <DpdkQueue as Port>::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<Self::Frame>) -> usize {
        self.queues.iter_mut().map(|(_, queue)| queue.rx_burst(now, rx)).sum()
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<Self::Frame>) -> usize {
        let count = tx.len();
        for frame in tx.drain(..) {
            let to = last_octet(frame.as_ref());
            let is_behind = |addr: &SocketAddr| match addr {
                SocketAddr::V4(addr) => Some(addr.ip().octets()[3]) == to,
                SocketAddr::V6(_) => false,
            };
            let queue = self.queues.iter_mut().find(|(addr, _)| is_behind(addr));
            let Some((_, queue)) = queue else { continue };
            let mut one = Burst::new();
            one.push(frame);
            // What a full ring does not take is lost, as at a switch.
            queue.tx_burst(now, &mut one);
        }
        count
    }

    fn alloc(&mut self) -> Option<Self::Frame> {
        self.queues[0].1.alloc()
    }

    fn copy(&mut self, frame: &Self::Frame, header_len: usize) -> Option<Self::Frame> {
        self.queues[0].1.copy(frame, header_len)
    }

    fn info(&self) -> PortInfo {
        self.queues[0].1.info()
    }

    fn stats(&self) -> PortStats {
        self.queues[0].1.stats()
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This binary again, at one test, in a role. EAL's own files go into the test's folder.
fn again(test: &str, role: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
    command.args(["--exact", test, "--nocapture"]).env(ROLE, role).env(FOLDER, folder);
    command.env("RUNTIME_DIRECTORY", folder).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The model, and how often workers sent again and faults fired, of workers on DPDK.
fn train(test: &str, is_lossy: bool) -> Option<(String, u64, u64)> {
    if let (Some(role), Some(folder)) = (std::env::var_os(ROLE), std::env::var_os(FOLDER)) {
        let (role, folder) = (role.to_str().expect("ASCII"), Path::new(&folder));
        let plan = plan(Place::Lab, is_lossy, folder);
        match role {
            "box" => serve_over_memif(&plan, folder),
            rank => train_over_memif(&plan, rank.parse().expect("a rank"), folder),
        }
        return None;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut served = again(test, "box", folder.path());
    served.stdout(Stdio::null()).stderr(Stdio::null());
    let _served = Running(served.spawn().expect("the box starts"));
    let workers = 0..scenario(is_lossy).job.workers;
    let start =
        |rank: u8| again(test, &rank.to_string(), folder.path()).spawn().expect("a worker starts");
    let workers: Vec<Child> = workers.map(start).collect();
    let mut all: Option<(String, u64, u64)> = None;
    for (rank, worker) in workers.into_iter().enumerate() {
        let Output { status, stdout, stderr } = worker.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
        assert!(status.success(), "worker {rank}: {said}");
        let line = said.lines().find_map(|line| line.strip_prefix("model "));
        let words: Vec<&str> = line.unwrap_or_else(|| panic!("{said}")).split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a count");
        let (model, again, fired) = all.get_or_insert_with(|| (words[0].to_owned(), 0, 0));
        assert_eq!(words[0], model, "worker {rank}");
        (*again, *fired) = (*again + number(1), *fired + number(2));
    }
    all
}

#[test]
fn workers_on_dpdk_train_to_the_model_of_workers_on_udp() {
    let test = "workers_on_dpdk_train_to_the_model_of_workers_on_udp";
    let Some((model, _, fired)) = train(test, false) else { return };
    assert_eq!((model.as_str(), fired), (model_over_udp(), 0));
}

#[test]
fn faults_change_nothing_of_the_model_of_workers_on_dpdk() {
    let test = "faults_change_nothing_of_the_model_of_workers_on_dpdk";
    let Some((model, again, fired)) = train(test, true) else { return };
    // As over the other ports: of 31,920 contributions and as many answers 2 % are lost.
    assert!(again > 1_000 && fired > 1_000, "{again} sent again, {fired} faults");
    assert_eq!(model, model_over_udp());
}
