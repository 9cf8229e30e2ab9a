//! A real server and a real aggregator in threads, on a switch of memory ports, and a controller
//! that groups requests as they come.

pub(crate) mod controller;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use weft_control::{BoxIndex, Command, Event};
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::gather;
use weft_engine::role::model::ModelConfig;
use weft_engine::role::server::{Server, ServerJobConfig};
use weft_engine::table::{BoxConfig, Table};
use weft_io::Port;
use weft_io::fault::{Fault, FaultConfig, FaultRates, member_seed};
use weft_io::memory::{self, MemoryPort};
use weft_kernel::Kernels;
use weft_lane::{LaneEngine, RoleLane};
use weft_wire::frame::Endpoint;
use weft_wire::header::ElementType;
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{JobId, MacAddr, Nanos};

pub(crate) const JOB: JobId = JobId(3);
pub(crate) const PARAMETERS: usize = 1000;
pub(crate) const ELEMENTS: u16 = 64;

pub(crate) fn server_addr() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 100], 22341))
}

pub(crate) fn box_addr() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 101], 22341))
}

pub(crate) fn worker_addr(rank: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, rank + 1], 7000))
}

/// The way to a box's lane.
#[derive(Clone)]
pub(crate) struct Control {
    pub(crate) commands: Sender<Command>,
    pub(crate) events: Receiver<(JobId, Event)>,
}

/// The boxes of a job.
pub(crate) struct Cluster {
    pub(crate) server: Control,
    pub(crate) aggregator: Control,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Cluster {
    /// Starts the boxes; gives the workers' ports.
    pub(crate) fn start(
        workers: u8,
        shape: impl FnOnce(&mut ServerJobConfig),
    ) -> (Self, Vec<MemoryPort>) {
        let names: Vec<String> = (0..workers).map(|rank| format!("w{rank}")).collect();
        let mut all = vec!["server", "box"];
        all.extend(names.iter().map(String::as_str));
        let mut ports = memory::hub(1024, 1500, &all);
        let worker_ports = ports.split_off(2);
        let box_port = ports.pop().unwrap();
        let server_port = ports.pop().unwrap();
        let addrs: Vec<SocketAddr> = (0..workers).map(worker_addr).collect();

        let mut model = ModelConfig::new(JOB, PARAMETERS);
        model.elements = ELEMENTS;
        let mut job = ServerJobConfig::new(model, addrs.clone());
        job.boxes = vec![Some(box_addr())];
        // Many versions a second, each pulled once.
        (job.snapshots_max, job.snapshot_idle_ns) = (16, 1_000_000);
        shape(&mut job);
        let chunks = job.model.chunks();
        let local = Endpoint { mac: server_port.info().mac, addr: server_addr() };
        let server = Server::new(local, 1500, &[job], 7, Kernels::detect()).unwrap();

        let stop = Arc::new(AtomicBool::new(false));
        let (server, server_thread) = run(server_port, server, &stop);
        let (aggregator, box_thread) = run_box(box_port, addrs, chunks, &stop);
        let threads = vec![server_thread, box_thread];
        (Self { server, aggregator, stop, threads }, worker_ports)
    }
}

impl Cluster {
    /// Starts a server alone, on this port.
    pub(crate) fn serve<P: Port + Send + 'static>(
        port: P,
        addr: SocketAddr,
        workers: Vec<SocketAddr>,
    ) -> Self {
        let mut model = ModelConfig::new(JOB, PARAMETERS);
        model.elements = ELEMENTS;
        let job = ServerJobConfig::new(model, workers);
        let local = Endpoint { mac: port.info().mac, addr };
        let server = Server::new(local, 1500, &[job], 7, Kernels::detect()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (server, thread) = run(port, server, &stop);
        Self { aggregator: server.clone(), server, stop, threads: vec![thread] }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "a lane has panicked");
        }
    }
}

fn run_box(
    port: MemoryPort,
    workers: Vec<SocketAddr>,
    chunks: u32,
    stop: &Arc<AtomicBool>,
) -> (Control, JoinHandle<()>) {
    let local = Endpoint { mac: port.info().mac, addr: box_addr() };
    let push = gather::PushConfig {
        job: JOB,
        box_index: BoxIndex(0),
        workers,
        server: Endpoint { mac: MacAddr::BROADCAST, addr: server_addr() },
        replica: None,
        quota_bytes: 8 << 20,
        pull_cache_bytes: 1 << 20,
        chunks,
        elements: ELEMENTS,
        element_type: ElementType::I32,
        overflow: Overflow::Clamp,
        integrity: Integrity::Crc32c,
        exponent: None,
        rate_bytes_per_sec: None,
        burst_bytes: 0,
    };
    let (jobs, rows, pushes) = (Vec::new(), Vec::new(), vec![push]);
    let table = Table::new(BoxConfig { local, shards: 1, mtu: 1500, jobs, rows, pushes });
    run(port, Aggregator::new(&table.unwrap(), 0, 8, Kernels::detect()), stop)
}

fn run<P: Port + Send + 'static, E: LaneEngine + Send + 'static>(
    port: P,
    engine: E,
    stop: &Arc<AtomicBool>,
) -> (Control, JoinHandle<()>) {
    let (commands, inbox) = unbounded();
    let (outbox, events) = unbounded();
    let stop = Arc::clone(stop);
    let thread = thread::spawn(move || {
        let mut lane = RoleLane::new(port, engine);
        let origin = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let now = Nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap());
            for command in inbox.try_iter() {
                lane.engine_mut().handle_command(now, command);
            }
            let frames = lane.breathe(now, &mut ());
            while let Some(event) = lane.engine_mut().poll_event() {
                let _ = outbox.send(event);
            }
            if frames == 0 {
                lane.port_mut().wait(100_000);
            }
        }
    });
    (Control { commands, events }, thread)
}

/// A port that loses, doubles, reorders and corrupts, both ways.
pub(crate) fn faulty(port: MemoryPort, seed: u64, rank: u8) -> Fault<MemoryPort> {
    let rates =
        FaultRates { loss: 0.05, duplicate: 0.05, reorder: 0.05, delay: 0.02, corrupt: 0.02 };
    let seed = member_seed(seed, rank);
    Fault::new(port, &FaultConfig { seed, rx: rates, tx: rates, ..FaultConfig::default() })
}
