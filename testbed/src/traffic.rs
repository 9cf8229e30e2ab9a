//! Sends and counts traffic of others: UDP datagrams at a steady rate, each at its time.
//!
//! Invariant: no call waits longer than [`WAIT_MAX`] at a time, whatever the link does, so that who
//! is told to stop has stopped within a few of them.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::lab::tc::Rate;

/// Datagrams and bytes of their frames.
#[derive(Debug, Default)]
pub struct Count {
    frames: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    fn add(&self, payload_len: usize) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add((payload_len + FRAME_OVERHEAD) as u64, Ordering::Relaxed);
    }

    /// Bytes of frames so far, as links are shaped by: Ethernet header included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Frames so far.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }
}

/// Payload of a datagram that fills a packet of `mtu` bytes, at most 1400 bytes.
#[must_use]
pub fn payload_len(mtu: usize) -> usize {
    PAYLOAD_LEN.min(mtu.saturating_sub(IP_UDP_LEN))
}

/// Sends from a connected socket while `is_on` says so. What the kernel does not take is lost, as
/// in a full queue.
///
/// # Errors
/// When the socket takes no timeout.
pub fn send_steadily(
    socket: &UdpSocket,
    rate: Rate,
    payload_len: usize,
    count: &Count,
    mut is_on: impl FnMut() -> bool,
) -> io::Result<()> {
    socket.set_write_timeout(Some(WAIT_MAX))?;
    let payload = vec![0; payload_len];
    let frame_bits = (payload_len + FRAME_OVERHEAD) as f64 * 8.0;
    let gap = Duration::from_secs_f64(frame_bits / rate.bits_per_sec() as f64);
    let mut next = Instant::now();
    while is_on() {
        let now = Instant::now();
        if now < next {
            thread::sleep((next - now).min(WAIT_MAX));
            continue;
        }
        if now - next > LATE_MAX {
            next = now;
        }
        if socket.send(&payload).is_ok() {
            count.add(payload_len);
        }
        next += gap;
    }
    Ok(())
}

/// Takes in what arrives while `is_on` says so.
///
/// # Errors
/// When the socket takes no timeout.
pub fn receive(
    socket: &UdpSocket,
    count: &Count,
    mut is_on: impl FnMut() -> bool,
) -> io::Result<()> {
    socket.set_read_timeout(Some(WAIT_MAX))?;
    let mut buffer = [0; PAYLOAD_LEN];
    while is_on() {
        if let Ok(len) = socket.recv(&mut buffer) {
            count.add(len);
        }
    }
    Ok(())
}

/// The longest wait at a time.
pub const WAIT_MAX: Duration = Duration::from_millis(20);
/// A sender that is later than this does not catch up.
const LATE_MAX: Duration = Duration::from_millis(20);
const PAYLOAD_LEN: usize = 1400;
/// Headers of IPv4 and UDP.
const IP_UDP_LEN: usize = 28;
/// Headers of Ethernet, IPv4 and UDP.
const FRAME_OVERHEAD: usize = 14 + IP_UDP_LEN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_keeps_its_rate_and_what_arrives_is_counted() {
        let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(sink.local_addr().unwrap()).unwrap();
        let (sent, received) = (Count::default(), Count::default());
        let begun = Instant::now();
        let is_on = || begun.elapsed() < Duration::from_millis(400);
        thread::scope(|scope| {
            scope.spawn(|| {
                receive(&sink, &received, || begun.elapsed() < Duration::from_millis(500))
            });
            let rate = Rate::from_mbit(8.0).unwrap();
            send_steadily(&socket, rate, payload_len(1280), &sent, is_on).unwrap();
        });
        // A frame has 1294 bytes, the largest that the MTU allows; 8 Mbit/s are 400 kB in 0.4 s. A
        // machine that is busy sends less, and none sends more but for the first.
        assert_eq!(sent.bytes(), sent.frames() * 1294);
        assert!((100_000..=402_000).contains(&sent.bytes()), "{} bytes", sent.bytes());
        assert!(received.bytes() > 0 && received.bytes() <= sent.bytes(), "{received:?} {sent:?}");
    }

    #[test]
    fn one_that_is_told_to_stop_stops_before_its_next_datagram() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        let begun = Instant::now();
        // One frame in 1.1 s.
        let rate = Rate::from_mbit(0.01).unwrap();
        let is_on = || begun.elapsed() < Duration::from_millis(50);
        send_steadily(&socket, rate, payload_len(1500), &Count::default(), is_on).unwrap();
        assert!(begun.elapsed() < Duration::from_millis(600), "{:?}", begun.elapsed());
    }
}
