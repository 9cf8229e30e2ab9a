//! A table of rows, its home beside an aggregator as a node has it, and its processes, over UDP on
//! loopback or over memory.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_client::keys::{KeyConfig, KeySession};
use weft_engine::random::Seed;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::keys::TableConfig;
use weft_engine::table::{BoxConfig, Table};
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Port, memory};
use weft_kernel::Kernels;
use weft_lane::{Homes, KeyTable, Keyed, RoleLane};
use weft_wire::frame::Endpoint;
use weft_wire::{JobId, Nanos};

pub(crate) const ROW_LEN: u16 = 8;
pub(crate) const KEYS: u32 = 300;
pub(crate) const FIRST: u64 = 1_000;
pub(crate) const DEATH: Duration = Duration::from_millis(700);

/// The home and the processes of a table.
pub(crate) struct Site {
    pub(crate) home: SocketAddr,
    pub(crate) processes: Vec<SocketAddr>,
}

impl Site {
    /// On ports of loopback that are free now.
    pub(crate) fn on_loopback(processes: u8) -> Self {
        let sockets: Vec<_> =
            (0..=processes).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let mut addrs: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        let home = addrs.pop().unwrap();
        Self { home, processes: addrs }
    }

    pub(crate) fn in_memory(processes: u8) -> Self {
        let addr = |host| SocketAddr::from(([10, 0, 0, host], 4000));
        Self { home: addr(100), processes: (1..=processes).map(addr).collect() }
    }

    pub(crate) fn config(&self, me: u8) -> KeyConfig {
        let mut config = KeyConfig::new(self.home, self.processes.clone(), me, ROW_LEN, KEYS)
            .job(3)
            .first_key(FIRST)
            .call_timeout(Duration::from_secs(20));
        config.beat = Duration::from_millis(50);
        config.limits.queued_max = 4096;
        config
    }

    /// Runs the home on `port` while `work` goes on in this thread.
    pub(crate) fn with_home<P: Port + Send, R>(&self, port: P, work: impl FnOnce() -> R) -> R {
        let local = Endpoint { mac: port.info().mac, addr: self.home };
        let config = BoxConfig {
            local,
            shards: 1,
            mtu: 1500,
            jobs: Vec::new(),
            rows: Vec::new(),
            pushes: Vec::new(),
        };
        let table = TableConfig {
            job: JobId(3),
            table: 0,
            row_len: ROW_LEN,
            first_key: FIRST,
            key_count: KEYS,
            processes: u8::try_from(self.processes.len()).unwrap(),
            payload_max: 1472,
            in_flight: 1,
        };
        let death_timeout = Nanos(u64::try_from(DEATH.as_nanos()).unwrap());
        let tables = [KeyTable { table, processes: self.processes.clone(), death_timeout }];
        let homes = Homes::new(local, &tables, &Seed::from(42));
        let engine = Aggregator::new(&Table::new(config).unwrap(), 0, 42, Kernels::detect());
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut lane = RoleLane::new(port, Keyed::new(engine, homes));
                let origin = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    let now = Nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap());
                    if lane.breathe(now, &mut ()) == 0 {
                        lane.port_mut().wait(1_000_000);
                    }
                }
            });
            // Also when `work` panics, or nobody would hear of it.
            let _stop = StopOnDrop(&stop);
            work()
        })
    }

    pub(crate) fn with_udp_home<R>(&self, work: impl FnOnce() -> R) -> R {
        self.with_home(UdpPort::open(&UdpConfig::new(self.home)).unwrap(), work)
    }
}

pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Connects all processes, each in a thread of its own, and lets `work` use them.
pub(crate) fn connect(site: &Site) -> Vec<KeySession> {
    connect_with(site, |config| config)
}

pub(crate) fn connect_with(
    site: &Site,
    change: impl Fn(KeyConfig) -> KeyConfig + Sync,
) -> Vec<KeySession> {
    let change = &change;
    let count = u8::try_from(site.processes.len()).unwrap();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|me| {
                let config = change(site.config(me));
                scope.spawn(move || KeySession::connect(&config).unwrap())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub(crate) fn over_udp(processes: u8, work: impl FnOnce(&[KeySession])) {
    let site = Site::on_loopback(processes);
    site.with_udp_home(|| work(&connect(&site)));
}

pub(crate) fn over_memory(processes: u8, work: impl FnOnce(&[KeySession])) {
    let site = Site::in_memory(processes);
    let names = ["home", "p0", "p1", "p2"];
    let mut ports = memory::hub(1024, 1500, &names[..=usize::from(processes)]);
    let home = ports.remove(0);
    site.with_home(home, || {
        let sessions: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..processes)
                .zip(ports)
                .map(|(me, port)| {
                    let config = site.config(me);
                    scope.spawn(move || KeySession::over(port, &config).unwrap())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        work(&sessions);
    });
}

pub(crate) fn row(value: f32) -> Vec<f32> {
    vec![value; usize::from(ROW_LEN)]
}

pub(crate) fn pulled(session: &KeySession, key: u64) -> f32 {
    let mut values = row(0.0);
    session.pull(&[key], &mut values).unwrap();
    assert!(values.iter().all(|value| *value == values[0]), "a torn row: {values:?}");
    values[0]
}

pub(crate) fn is_local(session: &KeySession, key: u64) -> bool {
    session.pull_if_local(key, &mut row(0.0)).unwrap()
}
