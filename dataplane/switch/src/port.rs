//! The CPU port of a switch as a port: packet-in and packet-out.
//!
//! Does I/O over queues to the thread that speaks to the switch; it owns no socket. Invariant: a
//! full queue is a full ring: what is to be sent stays with the caller, what came is lost and
//! counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::Receiver;
use crossbeam_utils::sync::Parker;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use weft_io::pool::{Pool, PoolFrame};
use weft_io::{Burst, Frame, Port, PortInfo, PortStats};
use weft_wire::Nanos;
use weft_wire::frame::ETHERNET_LEN;

/// A switch's CPU port.
#[derive(Debug)]
pub struct SwitchPort {
    pub(crate) info: PortInfo,
    pub(crate) pool: Pool,
    pub(crate) received: Receiver<Vec<u8>>,
    pub(crate) sending: mpsc::Sender<Vec<u8>>,
    pub(crate) parker: Parker,
    pub(crate) shared: Arc<Shared>,
    pub(crate) stats: PortStats,
}

/// What the port and the thread share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The switch is gone, or is not what it was.
    pub(crate) is_closed: AtomicBool,
    /// Frames that found the queue full.
    pub(crate) missed: AtomicU64,
}

impl SwitchPort {
    /// Takes the memory of a port for frames of this MTU.
    pub(crate) fn pool(frame_count: usize, mtu: u16) -> Pool {
        Pool::new(frame_count, usize::from(mtu) + ETHERNET_LEN)
    }
}

impl Port for SwitchPort {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, _now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        let before = rx.len();
        while !rx.is_full() {
            let Ok(bytes) = self.received.try_recv() else { break };
            let Some(mut frame) = self.pool.alloc() else {
                self.stats.rx_nombuf += 1;
                continue;
            };
            if bytes.len() > frame.buffer_mut().len() {
                self.stats.rx_errors += 1;
                continue;
            }
            frame.set_len(bytes.len());
            frame.as_mut().copy_from_slice(&bytes);
            self.stats.rx_packets += 1;
            self.stats.rx_bytes += bytes.len() as u64;
            rx.push(frame);
        }
        rx.len() - before
    }

    fn tx_burst(&mut self, _now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        let mut sent = 0;
        for frame in tx.iter() {
            match self.sending.try_send(frame.as_ref().to_vec()) {
                Ok(()) => {
                    self.stats.tx_packets += 1;
                    self.stats.tx_bytes += frame.as_ref().len() as u64;
                }
                Err(TrySendError::Full(_)) => break,
                Err(TrySendError::Closed(_)) => self.stats.tx_errors += 1,
            }
            sent += 1;
        }
        tx.drain(..sent);
        sent
    }

    fn alloc(&mut self) -> Option<PoolFrame> {
        let frame = self.pool.alloc();
        self.stats.rx_nombuf += u64::from(frame.is_none());
        frame
    }

    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn stats(&self) -> PortStats {
        PortStats { rx_missed: self.shared.missed.load(Ordering::Relaxed), ..self.stats }
    }

    fn is_open(&self) -> bool {
        !self.shared.is_closed.load(Ordering::Acquire)
    }

    fn wait(&mut self, timeout_ns: u64) {
        if self.received.is_empty() {
            self.parker.park_timeout(Duration::from_nanos(timeout_ns));
        }
    }
}
