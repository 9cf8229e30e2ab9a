//! Workers on DPDK devices: four processes over memif to a box, without root, hugepages or a NIC,
//! and what a worker says that cannot.
//!
//! EAL starts once per process, so a test starts its own binary again for the box and each worker.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use weft_client::dpdk::{self, DpdkQueue, EalArgs};
use weft_client::{Config, Error, Io, Session};
use weft_config::node::{self, JobSection, NodeConfig, PortSection, RowSection};
use weft_dpdk::{DpdkPort, EalError, PortConfig, PortError};
use weft_io::fault::{Fault, FaultConfig, FaultRates, member_seed};
use weft_io::host::HostStack;
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Burst, Frame, Port, PortInfo, PortStats};
use weft_kernel::Kernels;
use weft_lane::{AggregatorLane, HostSide, Settings};
use weft_wire::Nanos;

const WORKERS: u8 = 4;
const ROLE: &str = "WEFT_CLIENT_DPDK_TEST_ROLE";
const FOLDER: &str = "WEFT_CLIENT_DPDK_TEST_FOLDER";
const PATIENCE: Duration = Duration::from_secs(30);
const MTU: u16 = 1500;

fn box_addr() -> SocketAddr {
    SocketAddr::from(([10, 98, 0, 100], 22341))
}

fn worker_addr(rank: u8) -> SocketAddr {
    SocketAddr::from(([10, 98, 0, 1 + rank], 7000))
}

/// This binary again, at one test, in a role. EAL's own files go into the test's folder.
fn again(test: &str, role: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
    command.args(["--exact", test, "--nocapture"]).env(ROLE, role).env(FOLDER, folder);
    command.env("RUNTIME_DIRECTORY", folder).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn memif(role: &str, name: u8, id: u8, folder: &Path) -> String {
    let socket = folder.join("memif.sock");
    let socket = socket.display();
    format!(
        "net_memif{name},role={role},id={id},socket={socket},socket-abstract=no,bsize=2048,rsize=10"
    )
}

fn eal_args(role: &str) -> EalArgs {
    EalArgs::new().memory_mib(160).file_prefix(format!("weft_client_{role}_{}", std::process::id()))
}

#[test]
fn four_processes_sum_over_memif() {
    sum_over_memif("four_processes_sum_over_memif", false);
}

#[test]
fn sums_are_exact_over_devices_that_lose_and_spoil() {
    sum_over_memif("sums_are_exact_over_devices_that_lose_and_spoil", true);
}

fn sum_over_memif(test: &str, is_lossy: bool) {
    if let (Some(role), Some(folder)) = (std::env::var_os(ROLE), std::env::var_os(FOLDER)) {
        let (role, folder) = (role.to_str().expect("ASCII"), Path::new(&folder));
        return match role {
            "box" => serve(folder),
            rank => work(folder, rank.parse().expect("a rank"), is_lossy),
        };
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut served = again(test, "box", folder.path());
    served.stdout(Stdio::null()).stderr(Stdio::null());
    let _served = Running(served.spawn().expect("the box starts"));
    let start =
        |rank: u8| again(test, &rank.to_string(), folder.path()).spawn().expect("a worker starts");
    let workers: Vec<Child> = (0..WORKERS).map(start).collect();
    for (rank, worker) in workers.into_iter().enumerate() {
        let Output { status, stdout, stderr } = worker.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
        assert!(status.success(), "worker {rank}: {said}");
        assert!(said.contains("all sums are right"), "worker {rank}: {said}");
    }
}

/// A worker's life.
fn work(folder: &Path, rank: u8, is_lossy: bool) {
    let args = eal_args("worker").vdev(memif("client", 0, rank, folder));
    let eal = dpdk::start(&args).expect("EAL starts without rights");
    let config = Config {
        connect_timeout: PATIENCE,
        member_timeout: PATIENCE,
        close_linger: Duration::from_secs(10),
        ..Config::new(worker_addr(rank), box_addr()).rank(rank)
    };
    if is_lossy {
        let rates =
            FaultRates { loss: 0.03, duplicate: 0.03, reorder: 0.03, delay: 0.01, corrupt: 0.02 };
        let seed = member_seed(7, rank);
        let faults = FaultConfig { seed, rx: rates, tx: rates, ..FaultConfig::default() };
        let port = dpdk::open(&config, &eal, "net_memif0").expect("the device is there");
        let session = Session::over(Fault::new(port, &faults), &config).expect("all join");
        assert!(sum(session, rank, WORKERS) > 0, "faults fired");
    } else {
        let session = Session::connect_dpdk(&config, &eal, "net_memif0").expect("all join");
        assert_eq!(session.port().info().driver, "net_memif");
        sum(session, rank, WORKERS);
    }
    println!("all sums are right");
}

/// Sums, compares every element, and closes; how many contributions were sent again.
fn sum<P: Port>(mut session: Session<P>, rank: u8, workers: u8) -> u64 {
    for round in 0..5_i32 {
        let give = |rank: i32, at: i32| at.wrapping_mul(rank + 1) ^ round << 20;
        let mut values: Vec<i32> = (0..20_000).map(|at| give(rank.into(), at)).collect();
        session.allreduce_i32(&mut values).expect("all are here");
        for (value, at) in values.iter().zip(0..) {
            let ranks = 0..i32::from(workers);
            let expected = ranks.fold(0_i32, |sum, rank| sum.wrapping_add(give(rank, at)));
            assert_eq!(*value, expected, "element {at} of round {round}");
        }
    }
    let again = session.statistics().data.retransmissions;
    assert!(session.close().expect("the device is open"), "all have closed");
    again
}

/// The box's life, until it is killed.
fn serve(folder: &Path) {
    let devices =
        (0..WORKERS).fold(eal_args("box"), |args, id| args.vdev(memif("server", id, id, folder)));
    let eal = dpdk::start(&devices).expect("EAL starts");
    let open = |id: u8| {
        let config = PortConfig::named(format!("net_memif{id}"));
        DpdkPort::open(&eal, &config).expect("the device is there").remove(0)
    };
    let port = Several { queues: (0..WORKERS).map(open).collect() };
    let members: Vec<_> = (0..WORKERS).map(worker_addr).collect();
    let settings = settings(&members);
    let mac = port.info().mac;
    let table = settings.table_at(mac);
    let engine = settings.aggregator(&table, 0, 42_u64, Kernels::detect());
    let host = Answers(HostStack::new(box_addr().ip(), 24, mac, MTU, 1));
    breathe(AggregatorLane::new(port, engine), host);
}

/// What the box's row is.
fn settings(members: &[SocketAddr]) -> Settings {
    let members = members.iter().copied().map(Into::into).collect();
    let row = RowSection { exponent: Some(0), ..RowSection::new(0, 0, members) };
    let section = PortSection {
        udp_port: box_addr().port(),
        ..PortSection::new(node::Io::Udp, box_addr().ip())
    };
    let config =
        NodeConfig { job: vec![JobSection::new(0)], row: vec![row], ..NodeConfig::new(section) };
    Settings::new(config).expect("a good configuration")
}

fn breathe<P: Port>(mut lane: AggregatorLane<P>, mut host: impl HostSide<P>) {
    let origin = Instant::now();
    loop {
        let now = Nanos(u64::try_from(origin.elapsed().as_nanos()).expect("a short test"));
        if lane.breathe(now, &mut host) == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// The box's ARP.
struct Answers(HostStack);

impl<P: Port> HostSide<P> for Answers {
    fn handle(&mut self, now: Nanos, _: &mut P, mut frame: P::Frame) -> Option<P::Frame> {
        let answer = self.0.answer(now, frame.as_ref())?;
        frame.set_len(answer.len());
        frame.as_mut().copy_from_slice(answer);
        Some(frame)
    }
}

/// One port of several devices, each with one worker behind it.
struct Several {
    queues: Vec<DpdkQueue>,
}

/// Whose address a frame goes to: the last octet, of IPv4 or in an answer of ARP.
fn last_octet(frame: &[u8]) -> Option<u8> {
    let at = if frame.get(12..14)? == [0x08, 0x06] { 41 } else { 33 };
    frame.get(at).copied()
}

impl Port for Several {
    type Frame = <DpdkQueue as Port>::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<Self::Frame>) -> usize {
        self.queues.iter_mut().map(|queue| queue.rx_burst(now, rx)).sum()
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<Self::Frame>) -> usize {
        let count = tx.len();
        for frame in tx.drain(..) {
            let rank = last_octet(frame.as_ref()).and_then(|octet| octet.checked_sub(1));
            let queue = rank.and_then(|rank| self.queues.get_mut(usize::from(rank)));
            let Some(queue) = queue else { continue };
            let mut one = Burst::new();
            one.push(frame);
            // What a full ring does not take is lost, as at a switch.
            queue.tx_burst(now, &mut one);
        }
        count
    }

    fn alloc(&mut self) -> Option<Self::Frame> {
        self.queues[0].alloc()
    }

    fn copy(&mut self, frame: &Self::Frame, header_len: usize) -> Option<Self::Frame> {
        self.queues[0].copy(frame, header_len)
    }

    fn info(&self) -> PortInfo {
        self.queues[0].info()
    }

    fn stats(&self) -> PortStats {
        self.queues[0].stats()
    }
}

/// A network namespace with one link, gone when the test ends.
struct Namespace(String);

impl Namespace {
    /// `None` where this process may not make one, which is said.
    fn up(test: &str) -> Option<Self> {
        let name = format!("weftcd{}", std::process::id());
        if !tool("ip", &["netns", "add", &name]) {
            println!("SKIPPED {test}: no network namespace may be made: run as root");
            return None;
        }
        let up = Self(name);
        let name = up.0.as_str();
        let link = ["-n", name, "link", "add", "w", "type", "veth", "peer", "name", "b"];
        assert!(tool("ip", &link), "a link");
        assert!(tool("ip", &["-n", name, "address", "add", "10.98.0.100/24", "dev", "b"]));
        for interface in ["lo", "w", "b"] {
            assert!(
                tool("ip", &["-n", name, "link", "set", "dev", interface, "up"]),
                "{interface}"
            );
        }
        // A veth passes on what the kernel left to a NIC: runs of frames, and checksums.
        let offloads = ["netns", "exec", name, "ethtool", "-K", "b", "tx", "off", "gso", "off"];
        assert!(tool("ip", &offloads), "ethtool");
        Some(up)
    }

    fn again(&self, test: &str, role: &str, folder: &Path) -> Command {
        let inner = again(test, role, folder);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(inner.get_program()).args(inner.get_args());
        for (key, value) in inner.get_envs() {
            command.env(key, value.expect("it is set"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        tool("ip", &["netns", "delete", &self.0]);
    }
}

fn tool(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn a_worker_on_an_interface_sums_with_one_of_the_kernel() {
    const TEST: &str = "a_worker_on_an_interface_sums_with_one_of_the_kernel";
    let members = [worker_addr(0), SocketAddr::new(box_addr().ip(), 7001)];
    let config = |rank: u8| Config {
        member_timeout: PATIENCE,
        connect_timeout: PATIENCE,
        close_linger: Duration::from_secs(10),
        ..Config::new(members[usize::from(rank)], box_addr()).rank(rank)
    };
    match std::env::var(ROLE).as_deref() {
        Ok("box") => {
            let settings = settings(&members);
            let port = UdpPort::open(&UdpConfig { offload: false, ..UdpConfig::new(box_addr()) });
            let port = port.expect("the namespace has the address");
            let table = settings.table_at(port.info().mac);
            let engine = settings.aggregator(&table, 0, 42_u64, Kernels::detect());
            return breathe(AggregatorLane::new(port, engine), ());
        }
        Ok("0") => {
            let args = eal_args("interface").vdev("net_af_packet0,iface=w,qdisc_bypass=0");
            let eal = dpdk::start(&args).expect("EAL starts");
            let session = Session::connect_dpdk(&config(0), &eal, "net_af_packet0");
            sum(session.expect("all join"), 0, 2);
            return println!("all sums are right");
        }
        Ok(_) => {
            sum(Session::connect(&config(1).io(Io::Udp)).expect("all join"), 1, 2);
            return println!("all sums are right");
        }
        Err(_) => {}
    }
    let Some(namespace) = Namespace::up(TEST) else { return };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut served = namespace.again(TEST, "box", folder.path());
    served.stdout(Stdio::null()).stderr(Stdio::null());
    let _served = Running(served.spawn().expect("the box starts"));
    let start = |role| namespace.again(TEST, role, folder.path()).spawn().expect("it starts");
    for worker in ["0", "1"].map(start) {
        let Output { status, stdout, stderr } = worker.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
        assert!(status.success() && said.contains("all sums are right"), "{said}");
    }
}

#[test]
fn a_worker_that_cannot_says_why() {
    const TEST: &str = "a_worker_that_cannot_says_why";
    if std::env::var_os(ROLE).is_some() {
        return refused();
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let output = again(TEST, "worker", folder.path()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("all was refused"), "{said}");
}

fn refused() {
    // An interface that is not there: EAL is not started for it, so that it can be later.
    let args = eal_args("wrong").vdev("net_af_packet0,iface=weft-nowhere");
    let error = dpdk::start(&args).expect_err("there is no such interface");
    assert!(matches!(error, Error::DpdkLacks(_)), "{error:?}");
    assert!(error.to_string().contains("no interface weft-nowhere"), "{error}");

    let eal = dpdk::start(&eal_args("wrong").vdev("net_null0,no-rx=1")).expect("EAL starts");
    let error = dpdk::start(&eal_args("wrong")).expect_err("it has started");
    assert!(matches!(error, Error::Eal(EalError::AlreadyStarted)), "{error:?}");

    let config = |local: SocketAddr| Config {
        connect_timeout: Duration::from_secs(1),
        ..Config::new(local, box_addr())
    };
    let own = config(worker_addr(0));
    let error = Session::connect_dpdk(&own, &eal, "net_memif7").expect_err("no such device");
    let Error::Dpdk(PortError::Unknown { port, known }) = &error else { panic!("{error:?}") };
    assert!(port == "net_memif7" && known.contains("net_null0"), "{port}, {known}");

    let unspecified = config("0.0.0.0:7000".parse().expect("an address"));
    let error = Session::connect_dpdk(&unspecified, &eal, "net_null0").expect_err("no address");
    assert!(matches!(error, Error::Config { field: "local", .. }), "{error:?}");

    if let Some(ip) = kernels_own() {
        let error = Session::connect_dpdk(&config((ip, 7000).into()), &eal, "net_null0");
        let error = error.expect_err("the kernel has it");
        assert!(matches!(error, Error::KernelAnswers { .. }), "{error:?}");
    }

    // A memif whose server is not there.
    let folder = std::env::var_os(FOLDER).expect("the folder of the test");
    eal.probe(&memif("client", 0, 0, Path::new(&folder))).expect("the device can be made");
    let error = Session::connect_dpdk(&own, &eal, "net_memif0").expect_err("nobody is there");
    assert!(matches!(error, Error::NoMemif { .. }), "{error:?}");

    let begun = Instant::now();
    let error = Session::connect_dpdk(&own, &eal, "net_null0").expect_err("nobody is there");
    assert!(matches!(error, Error::Link { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("nobody on net_null0 answers for 10.98.0.100"), "{said}");
    assert!(!said.contains("has no link"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    println!("all was refused");
}

/// An address of this machine on a link, if it has any. Nothing is sent.
fn kernels_own() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}
