//! The workers of two hosts, each with a leaf in a worker's process, against plain loops and one
//! box for all.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weft_client::leaf::{self, Leaf};
use weft_client::{Config, Error, Io, Numbers, Session};
use weft_config::node::{
    self, FaultsSection, JobSection, MemberSection, NodeConfig, ParentSection, PortSection,
    RowSection,
};
use weft_control::SumOrder;
use weft_engine::role::worker::WorkerError;
use weft_io::memory::MemoryPort;
use weft_io::pool::PoolFrame;
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Burst, Port, PortInfo, forward_port, memory};
use weft_kernel::Kernels;
use weft_lane::{AggregatorLane, Settings};
use weft_wire::header::{ElementType, Operation};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{MacAddr, Members, Nanos, Rank, quant};

/// Workers of each host.
const HOSTS: [u8; 2] = [3, 2];
const WORKERS: u8 = HOSTS[0] + HOSTS[1];

/// The hosts of a test, by addresses of loopback.
#[derive(Clone, Copy)]
struct Site {
    base: u16,
    numbers: Numbers,
}

impl Site {
    fn root(self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.base))
    }

    fn leaf(self, host: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 2 + host], self.base))
    }

    fn worker(self, host: u8, rank: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 2 + host], self.base + 1 + u16::from(rank)))
    }

    /// Every worker, as its host and its rank there, in the order of the flat run's ranks.
    fn workers() -> impl Iterator<Item = (u8, u8)> {
        (0..2).flat_map(|host| (0..HOSTS[usize::from(host)]).map(move |rank| (host, rank)))
    }

    fn rows(self, members: &[MemberSection], parent: Option<(SocketAddr, u8)>) -> Vec<RowSection> {
        let row = |row, operation, exponent| RowSection {
            operation,
            exponent,
            element_type: match self.numbers {
                Numbers::F32 => ElementType::F32,
                Numbers::Bf16 => ElementType::Bf16,
                _ => ElementType::I32,
            },
            sum_order: match self.numbers {
                Numbers::F32 => SumOrder::Rank,
                _ => SumOrder::Arrival,
            },
            overflow: match self.numbers {
                Numbers::Fixed | Numbers::Block { .. } => Overflow::Clamp,
                _ => Overflow::Wrap,
            },
            window: 64,
            fan_in: Some(WORKERS.into()),
            parent: parent.map(|(addr, rank)| ParentSection {
                addr,
                row,
                rank,
                source_port: None,
                mac: None,
            }),
            ..RowSection::new(row, 0, members.to_vec())
        };
        match self.numbers {
            Numbers::Fixed => vec![row(0, Operation::Sum, Some(-16))],
            Numbers::Block { exponent_row } => {
                vec![row(0, Operation::Sum, None), row(exponent_row, Operation::Max, Some(0))]
            }
            Numbers::F32 | Numbers::Bf16 => vec![row(0, Operation::Sum, None)],
        }
    }

    fn config(self, addr: SocketAddr, rows: Vec<RowSection>) -> NodeConfig {
        let port =
            PortSection { udp_port: addr.port(), ..PortSection::new(node::Io::Udp, addr.ip()) };
        NodeConfig { job: vec![JobSection::new(0)], row: rows, ..NodeConfig::new(port) }
    }

    /// The box above the leaves.
    fn start_root(self) -> Root {
        let member = |host: u8| MemberSection {
            addr: self.leaf(host),
            weight: HOSTS[usize::from(host)].into(),
            is_box: true,
        };
        let rows = self.rows(&[member(0), member(1)], None);
        Root::start(self.config(self.root(), rows))
    }

    /// One box for all.
    fn start_flat(self) -> Root {
        let members: Vec<_> =
            Self::workers().map(|(host, rank)| self.worker(host, rank).into()).collect();
        Root::start(self.config(self.root(), self.rows(&members, None)))
    }

    fn leaf_config(self, host: u8) -> NodeConfig {
        let own = (0..HOSTS[usize::from(host)]).map(|rank| self.worker(host, rank).into());
        let members: Vec<MemberSection> = own.collect();
        self.config(self.leaf(host), self.rows(&members, Some((self.root(), host))))
    }

    fn worker_config(self, host: u8, rank: u8) -> Config {
        let config = leaf::worker(&self.leaf_config(host), rank).unwrap();
        assert_eq!((config.numbers, config.rank), (self.numbers, rank));
        Config { member_timeout: Duration::from_secs(2), ..config }
    }
}

/// A box in a thread.
struct Root {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Root {
    fn start(config: NodeConfig) -> Self {
        let settings = Settings::new(config).unwrap();
        let port = UdpPort::open(&UdpConfig::new(settings.table.local.addr)).unwrap();
        let table = settings.table_at(port.info().mac);
        let engine = settings.aggregator(&table, 0, 42_u64, Kernels::detect());
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut lane = AggregatorLane::new(port, engine);
            let origin = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                let now = Nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap());
                if lane.breathe(now, &mut ()) == 0 {
                    lane.port_mut().wait(1_000_000);
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking(), "the box has panicked");
    }
}

/// What a worker of this index in the flat run gives: magnitudes far apart, so that the order of
/// f32 additions shows, and some that are beyond what a contribution may be.
fn gradient(index: u8, len: usize) -> Vec<f32> {
    let value = |at: usize| {
        let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ u64::from(index) << 17);
        let unit = ((mixed >> 40) as f32 / 8_388_608.0) - 1.0;
        unit * [1.0e-3, 1.0, 37.0, 9000.0][at % 4]
    };
    (0..len).map(value).collect()
}

const LEN: usize = 20_000;

/// Runs every worker of both hosts; the sums in the order of the flat run's ranks.
fn sum_over_leaves(site: Site, faults: Option<FaultsSection>) -> Vec<Vec<f32>> {
    let _root = site.start_root();
    let threads: Vec<_> = (0_u8..)
        .zip(Site::workers())
        .map(|(index, (host, rank))| {
            thread::spawn(move || {
                // The first of each host opens the box; the others wait for it.
                let open = || {
                    let config = NodeConfig { faults, ..site.leaf_config(host) };
                    Leaf::open(config).unwrap()
                };
                let leaf = (rank == 0).then(open);
                let mut session = Session::connect(&site.worker_config(host, rank)).unwrap();
                assert_eq!(session.port().to_string(), "shm");
                assert_eq!(session.lease().fan_in, u32::from(WORKERS), "over all hosts");
                let mut values = site.given(index);
                session.allreduce(&mut values).unwrap();
                session.close().unwrap();
                if let Some(leaf) = leaf {
                    assert_eq!(leaf.addr(), site.leaf(host));
                    assert!(leaf.close(Duration::from_secs(10)), "all have closed");
                }
                values
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// The same over one box.
fn sum_flat(site: Site) -> Vec<Vec<f32>> {
    let _root = site.start_flat();
    let threads: Vec<_> = (0_u8..)
        .zip(Site::workers())
        .map(|(index, (host, rank))| {
            thread::spawn(move || {
                let config = Config {
                    aggregator: site.root(),
                    io: Io::Udp,
                    ..site.worker_config(host, rank).rank(index)
                };
                let mut session = Session::connect(&config).unwrap();
                let mut values = site.given(index);
                session.allreduce(&mut values).unwrap();
                session.close().unwrap();
                values
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

impl Site {
    fn given(self, index: u8) -> Vec<f32> {
        match self.numbers {
            Numbers::Bf16 => gradient(index, LEN).into_iter().map(short).collect(),
            _ => gradient(index, LEN),
        }
    }
}

/// An integer that bf16 has: f32 sums of such are exact in any order, and their bf16 are not.
fn short(value: f32) -> f32 {
    (value * 1.0e4).trunc() % 256.0
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn all_are(sums: &[Vec<f32>], expected: &[f32]) {
    for (index, sum) in sums.iter().enumerate() {
        assert!(bits(sum) == bits(expected), "worker {index}");
    }
}

/// Sums of each place over the workers, by the caller's arithmetic over the hosts.
fn by_host(site: Site, of_level: impl Fn(&[f32]) -> f32) -> Vec<f32> {
    let given: Vec<Vec<f32>> = (0..WORKERS).map(|index| site.given(index)).collect();
    let place = |at: usize| {
        let (first, second) = given.split_at(usize::from(HOSTS[0]));
        let of = |host: &[Vec<f32>]| {
            of_level(&host.iter().map(|values| values[at]).collect::<Vec<f32>>())
        };
        of_level(&[of(first), of(second)])
    };
    (0..LEN).map(place).collect()
}

fn in_order(values: &[f32]) -> f32 {
    values.iter().copied().reduce(|sum, value| sum + value).unwrap()
}

#[test]
fn integers_have_the_bits_of_one_box_for_all() {
    let site = Site { base: 24_700, numbers: Numbers::Fixed };
    let sums = sum_over_leaves(site, None);
    // Each contribution is clamped for the fan-in of the job, not of its host: no sum overflows.
    let limit = f64::from(quant::clamp_limit(WORKERS.into()));
    let quantised =
        |value: f32| (f64::from(value) * 65_536.0).round_ties_even().clamp(-limit, limit);
    let given: Vec<Vec<f32>> = (0..WORKERS).map(|index| gradient(index, LEN)).collect();
    let clamped =
        given.iter().flatten().filter(|value| f64::from(**value * 65_536.0).abs() > limit);
    assert!(clamped.count() > 0, "some contributions are clamped");
    #[expect(clippy::cast_possible_truncation, reason = "rounds to nearest, as i32 to f32 does")]
    let place = |at: usize| {
        // Integers have no negative zero.
        let sum: f64 = given.iter().map(|values| quantised(values[at])).sum();
        (sum + 0.0) as f32 / 65_536.0
    };
    all_are(&sums, &(0..LEN).map(place).collect::<Vec<_>>());
    all_are(&sum_flat(site), &sums[0]);
}

#[test]
fn block_exponents_are_those_of_all_hosts() {
    let site = Site { base: 24_720, numbers: Numbers::Block { exponent_row: 1 } };
    let sums = sum_over_leaves(site, None);
    all_are(&sums, &sums[0]);
    all_are(&sum_flat(site), &sums[0]);
}

#[test]
fn f32_in_rank_order_has_the_bits_of_the_tree() {
    let site = Site { base: 24_740, numbers: Numbers::F32 };
    let expected = by_host(site, in_order);
    all_are(&sum_over_leaves(site, None), &expected);
    let flat = sum_flat(site);
    assert!(bits(&flat[0]) != bits(&expected), "the order of additions shows");
}

#[test]
fn bf16_is_rounded_once_per_level() {
    let site = Site { base: 24_760, numbers: Numbers::Bf16 };
    let rounded = |values: &[f32]| quant::f32_from_bf16(quant::bf16_from_f32(in_order(values)));
    let expected = by_host(site, rounded);
    all_are(&sum_over_leaves(site, None), &expected);
    let flat = sum_flat(site);
    assert!(bits(&flat[0]) != bits(&expected), "the first level's rounding shows");
}

#[test]
fn a_leaf_that_loses_frames_loses_no_sum() {
    let site = Site { base: 24_780, numbers: Numbers::Block { exponent_row: 1 } };
    let faults =
        FaultsSection { loss: 0.02, duplicate: 0.02, reorder: 0.02, ..FaultsSection::default() };
    let lossy = sum_over_leaves(site, Some(faults));
    all_are(&lossy, &sum_flat(site)[0]);
}

#[test]
fn who_dies_is_named_at_its_host_and_its_level_elsewhere() {
    let site = Site { base: 24_800, numbers: Numbers::Fixed };
    let _root = site.start_root();
    let leaves = [0, 1].map(|host| Leaf::open(site.leaf_config(host)).unwrap());
    let threads: Vec<_> = Site::workers()
        .map(|(host, rank)| {
            thread::spawn(move || {
                let mut session = Session::connect(&site.worker_config(host, rank)).unwrap();
                session.allreduce(&mut vec![1.0; LEN]).unwrap();
                if (host, rank) == (0, 1) {
                    // Gone without a word, while the others are in their round.
                    drop(session);
                    return (host, rank, Duration::ZERO, None);
                }
                let begun = Instant::now();
                let error = session.allreduce(&mut vec![1.0; LEN]).unwrap_err();
                (host, rank, begun.elapsed(), Some(error))
            })
        })
        .collect();
    for thread in threads {
        let (host, rank, took, error) = thread.join().unwrap();
        let Some(error) = error else { continue };
        let Error::Session(WorkerError::MembersMissing { missing }) = error else {
            panic!("worker {rank} of host {host}: {error}");
        };
        let expected = if host == 0 { Rank::new(1).unwrap().bit() } else { Members::EMPTY };
        assert_eq!(missing, expected, "worker {rank} of host {host}");
        assert!(took < Duration::from_secs(8), "member_timeout is 2 s, and it took {took:?}");
    }
    let [first, second] = leaves;
    drop(first);
    // They ended without closing, so somebody may still need it.
    assert!(!second.close(Duration::from_millis(200)));
}

/// A worker's process, whose standard output is read.
fn process(file: &Path, rank: u8, rounds: &str) -> Child {
    let this = std::env::current_exe().unwrap();
    let folder = this.ancestors().nth(2).expect("test programs are in target/PROFILE/deps");
    let mut command = Command::new(folder.join("examples/host_sum"));
    command.arg(file).arg(rank.to_string()).arg(rounds);
    command.env_remove("RUST_BACKTRACE").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn processes_of_two_hosts_sum_and_one_that_is_killed_is_named() {
    let site = Site { base: 24_820, numbers: Numbers::Fixed };
    let directory = tempfile::tempdir().unwrap();
    let files = [0, 1].map(|host| {
        let path = directory.path().join(format!("leaf{host}.toml"));
        std::fs::write(&path, weft_config::to_toml(&site.leaf_config(host))).unwrap();
        path
    });
    let start = |rounds| -> Vec<(u8, u8, Child)> {
        let of =
            |(host, rank): (u8, u8)| (host, rank, process(&files[usize::from(host)], rank, rounds));
        Site::workers().map(of).collect()
    };
    let _root = site.start_root();
    for (host, rank, child) in start("3") {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let problem = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "worker {rank} of host {host}: {problem}");
        // Each gives its rank at its host and one: 1 + 2 + 3 and 1 + 2.
        assert!(said.contains("round 2: 5 workers, sum 9"), "{said}");
    }
    let mut children = start("1000000");
    let (_, _, killed) = &mut children[1];
    let mut lines = BufReader::new(killed.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("round 20:")), "it is in the middle");
    killed.kill().unwrap();
    killed.wait().unwrap();
    let begun = Instant::now();
    for (host, rank, mut child) in children {
        if (host, rank) == (0, 1) {
            continue;
        }
        // Its pipe is read to its end, or it would wait for a reader.
        let output = thread::spawn(move || {
            let _ = std::io::copy(&mut child.stdout.take().unwrap(), &mut std::io::sink());
            child.wait_with_output().unwrap()
        });
        let output = output.join().unwrap();
        let problem = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "worker {rank} of host {host}");
        let expected = if host == 0 { "rank 1" } else { "level above" };
        assert!(problem.contains(expected), "worker {rank} of host {host}: {problem}");
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// Says that its frames come through memory. The box answers while it waits.
struct InMemory {
    port: MemoryPort,
    boxed: AggregatorLane<MemoryPort>,
    begun: Instant,
}

impl Port for InMemory {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        self.port.rx_burst(now, rx)
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        self.port.tx_burst(now, tx)
    }

    fn info(&self) -> PortInfo {
        PortInfo { mac: MacAddr::MEMORY, ..self.port.info() }
    }

    fn wait(&mut self, _: u64) {
        let now = Nanos(u64::try_from(self.begun.elapsed().as_nanos()).unwrap());
        while self.boxed.breathe(now, &mut ()) > 0 {}
    }

    forward_port!(port: alloc, free, stats);
}

/// Others believe nobody, for on a wire anybody may say so.
#[test]
fn a_box_believes_members_to_be_in_memory_where_its_file_says_that_it_shares_some() {
    let site = Site { base: 24_190, numbers: Numbers::Fixed };
    for (shm, integrity) in [(false, Integrity::Crc32c), (true, Integrity::None)] {
        let own = site.worker(0, 0);
        let row = RowSection { exponent: Some(0), ..RowSection::new(0, 0, vec![own.into()]) };
        let mut config = site.config(site.root(), vec![row]);
        config.port.shm = shm;
        let settings = Settings::new(config).unwrap();
        let mut ports = memory::hub(256, 1500, &["box", "worker"]);
        let (port, box_port) = (ports.pop().unwrap(), ports.pop().unwrap());
        let table = settings.table_at(box_port.info().mac);
        let engine = settings.aggregator(&table, 0, 7, Kernels::detect());
        let boxed = AggregatorLane::new(box_port, engine);
        let port = InMemory { port, boxed, begun: Instant::now() };
        let session = Session::over(port, &Config::new(own, site.root())).unwrap();
        assert_eq!(session.lease().integrity, integrity);
        assert!(session.close().unwrap());
    }
}
