//! The box of a table in a thread of this process: for jobs whose network has none.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weft_engine::random::Seed;
use weft_engine::role::keys::{Home, HomeConfig, HomeStats, Outbox, TableConfig, To};
use weft_wire::Nanos;
use weft_wire::frame::UdpAddr;

use super::config::KeyConfig;
use super::error::KeyError;

/// What a box is told.
#[derive(Clone, Debug)]
pub struct KeyHomeConfig {
    local: SocketAddr,
    table: TableConfig,
    processes: Vec<SocketAddr>,
    death_timeout: Duration,
}

impl KeyHomeConfig {
    /// The box of the table that this process, or any other, is told of.
    #[must_use]
    pub fn of(config: &KeyConfig) -> Self {
        Self {
            local: config.home,
            table: config.table,
            processes: config.processes.clone(),
            death_timeout: Duration::from_secs(3),
        }
    }

    /// How long a process may be silent before it is dead; by default 3 s.
    #[must_use]
    pub fn death_timeout(mut self, timeout: Duration) -> Self {
        self.death_timeout = timeout;
        self
    }
}

/// A box that runs, until it is dropped.
#[derive(Debug)]
pub struct KeyHome {
    stop: Arc<AtomicBool>,
    home: Arc<Mutex<Home>>,
    thread: Option<JoinHandle<()>>,
}

struct Sender<'a>(&'a UdpSocket, &'a [SocketAddr]);

impl Outbox for Sender<'_> {
    fn send(&mut self, to: To, datagram: &[u8]) {
        if let To::Process(process) = to
            && let Some(to) = self.1.get(usize::from(process))
        {
            // What the kernel does not take is lost, as on any way.
            let _lost = self.0.send_to(datagram, to);
        }
    }
}

impl KeyHome {
    /// Begins a life of the box, which knows nothing yet.
    ///
    /// # Errors
    /// [`KeyError::Table`], [`KeyError::Port`], [`KeyError::System`].
    pub fn start(config: &KeyHomeConfig) -> Result<Self, KeyError> {
        let seed = getrandom::u64()
            .map_err(|error| KeyError::System { what: "a seed", cause: error.to_string() })?;
        let socket = UdpSocket::bind(config.local);
        let socket = socket.map_err(|error| KeyError::Port(Arc::new(error)))?;
        let addrs: Vec<UdpAddr> = config.processes.iter().map(|addr| (*addr).into()).collect();
        let death_timeout = u64::try_from(config.death_timeout.as_nanos()).unwrap_or(u64::MAX);
        let told = HomeConfig {
            table: config.table,
            processes: &addrs,
            death_timeout: Nanos(death_timeout),
        };
        let home = Home::new(&told, &Seed::from(seed), Nanos(0))?;
        let (stop, home) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(home)));
        let processes = config.processes.clone();
        let (stopping, serving) = (Arc::clone(&stop), Arc::clone(&home));
        let thread = thread::Builder::new()
            .name("weft-keys-home".to_owned())
            .spawn(move || serve(&socket, &processes, &serving, &stopping))
            .map_err(|error| KeyError::System { what: "a thread", cause: error.to_string() })?;
        Ok(Self { stop, home, thread: Some(thread) })
    }

    /// What happened.
    #[must_use]
    pub fn statistics(&self) -> HomeStats {
        self.home.lock().unwrap_or_else(PoisonError::into_inner).stats().clone()
    }
}

impl Drop for KeyHome {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ends within one pause of its socket.
            let _panicked = thread.join();
        }
    }
}

fn serve(socket: &UdpSocket, processes: &[SocketAddr], home: &Mutex<Home>, stop: &AtomicBool) {
    let start = Instant::now();
    let mut octets = vec![0; usize::from(u16::MAX)];
    let _keeps_old = socket.set_read_timeout(Some(PAUSE));
    while !stop.load(Ordering::Relaxed) {
        let received = socket.recv_from(&mut octets);
        let now = Nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let mut home = home.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok((len, source)) = received {
            let mut out = Sender(socket, processes);
            // What is refused is counted.
            let _refused = home.handle_datagram(now, source.into(), &octets[..len], &mut out);
        }
        home.poll(now);
    }
}

/// The longest that nobody looks who is silent.
const PAUSE: Duration = Duration::from_millis(10);
