//! A box and workers that share memory, both ends in this process.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use weft_io::shm::{ShmConfig, ShmError, ShmHost, ShmPort};
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Burst, Port};
use weft_wire::Nanos;

use super::{datagram, encap};

pub(crate) type Host = ShmHost<UdpPort>;

pub(crate) fn host_at(addr: SocketAddr, mtu: usize) -> (Host, SocketAddr) {
    let udp = UdpConfig { mtu, ..UdpConfig::new(addr) };
    let udp = UdpPort::open(&udp).expect("a free port");
    let addr = udp.local_addr();
    (ShmHost::open(udp, addr).expect("nobody else is there"), addr)
}

pub(crate) fn host() -> (Host, SocketAddr) {
    host_at("127.0.0.1:0".parse().unwrap(), 1500)
}

/// Opens a worker's end while the box breathes.
pub(crate) fn join(host: &mut Host, config: &ShmConfig) -> Result<ShmPort, ShmError> {
    let config = config.clone();
    let opening = std::thread::spawn(move || ShmPort::open(&config));
    let begun = Instant::now();
    while !opening.is_finished() && begun.elapsed() < LONG {
        host.rx_burst(clock(), &mut Burst::new());
        host.wait(1_000_000);
    }
    opening.join().expect("it does not panic")
}

pub(crate) fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

pub(crate) fn clock() -> Nanos {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    Nanos(
        u64::try_from(BEGUN.get_or_init(Instant::now).elapsed().as_nanos()).expect("some minutes"),
    )
}

/// Receives until `done` says so, or for long.
pub(crate) fn receive_until<P: Port>(
    port: &mut P,
    mut done: impl FnMut(&mut P, &mut Burst<P::Frame>) -> bool,
) {
    let begun = Instant::now();
    loop {
        let mut rx = Burst::new();
        port.rx_burst(clock(), &mut rx);
        if done(port, &mut rx) {
            return;
        }
        assert!(begun.elapsed() < LONG, "it does not come");
        port.wait(1_000_000);
    }
}

pub(crate) fn send<P: Port>(port: &mut P, source: SocketAddr, target: SocketAddr, payload: &[u8]) {
    let frame = datagram(port, &encap(source, target), payload);
    let mut tx = Burst::new();
    tx.push(frame);
    assert_eq!(port.tx_burst(clock(), &mut tx), 1);
}

pub(crate) const LONG: Duration = Duration::from_secs(10);
