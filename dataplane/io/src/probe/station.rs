//! A host's end of probe trains (SPEC#probe-trains): a socket that sends when it is told to, and a
//! thread that receives. Decides nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{ArrivedTrain, Collector, ProbeError, ProbeSocket, realtime_ns};
use crate::nic::{Carried, NicCounters};

/// The socket and its thread, which ends soon after this is dropped.
#[derive(Debug)]
pub struct ProbeStation {
    socket: ProbeSocket,
    carried: Arc<Carried>,
    ended: Arc<AtomicBool>,
}

impl ProbeStation {
    /// Opens a socket as [`ProbeSocket::bind`] does and begins to receive: each train that has come
    /// is told, with readings of `nic` taken meanwhile. All that comes and goes adds to `carried`.
    ///
    /// # Errors
    /// When the socket cannot be opened, or no thread can be had.
    pub fn open(
        (addr, mtu, nonce): (SocketAddr, usize, u64),
        nic: Option<NicCounters>,
        carried: Arc<Carried>,
        tell: impl FnMut(ArrivedTrain) + Send + 'static,
    ) -> Result<Self, ProbeError> {
        let socket = ProbeSocket::bind(addr, mtu, nonce)?;
        let receiving = socket.try_clone()?;
        let ended = Arc::new(AtomicBool::new(false));
        let thread = Receiving {
            socket: receiving,
            nic,
            carried: Arc::clone(&carried),
            ended: Arc::clone(&ended),
        };
        let failed = |source| ProbeError::Open { addr, source };
        thread::Builder::new()
            .name("weft-probe".to_owned())
            .spawn(move || thread.run(tell))
            .map_err(failed)?;
        Ok(Self { socket, carried, ended })
    }

    /// Where trains are received.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.socket.local()
    }

    /// Sends a train as fast as the kernel takes it; returns how many datagrams it took.
    ///
    /// # Errors
    /// When the kernel refuses even the first.
    pub fn send(
        &mut self,
        target: SocketAddr,
        train: u32,
        packets: u16,
    ) -> Result<u16, ProbeError> {
        let sent = self.socket.send_train(target, train, packets)?;
        self.carried.add(0, u64::from(self.socket.frame_len()) * u64::from(sent));
        Ok(sent)
    }
}

impl Drop for ProbeStation {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

struct Receiving {
    socket: ProbeSocket,
    nic: Option<NicCounters>,
    carried: Arc<Carried>,
    ended: Arc<AtomicBool>,
}

impl Receiving {
    /// A socket that is broken ends it: the host is then one that no train reaches.
    fn run(mut self, mut tell: impl FnMut(ArrivedTrain)) {
        let mut collector = Collector::default();
        while !self.ended.load(Ordering::Relaxed) {
            let patience = if collector.is_idle() { IDLE_POLL } else { POLL };
            let carried = &self.carried;
            let received = self.socket.receive(patience, |arrival| {
                carried.add(u64::from(arrival.frame_len), 0);
                collector.handle(&arrival);
            });
            let Ok(came) = received else { return };
            if let Some((at_ns, total_bytes)) =
                self.nic.as_ref().filter(|_| came).and_then(read_promptly)
            {
                collector.handle_reading(at_ns, total_bytes);
            }
            while let Some(train) = collector.poll(realtime_ns()) {
                tell(train);
            }
        }
    }
}

/// When, and all bytes received by then; a reading that was interrupted is of no known moment.
#[must_use]
pub fn read_promptly(nic: &NicCounters) -> Option<(u64, u64)> {
    let before_ns = realtime_ns();
    let total_bytes = nic.rx_bytes().ok()?;
    let now_ns = realtime_ns();
    (now_ns.saturating_sub(before_ns) < READING_NS_MAX).then_some((now_ns, total_bytes))
}

const READING_NS_MAX: u64 = 50_000;
/// How often the end of a train is looked for while one is under way,
const POLL: Duration = Duration::from_millis(20);
/// and the end of the station while there is none.
const IDLE_POLL: Duration = Duration::from_millis(200);
