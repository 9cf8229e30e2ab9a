//! One end of memory shared between two processes: a box that sends each frame back, or a worker
//! that sends numbered frames for as long as it lives. The tests of crashes kill it; by hand, in
//! two terminals:
//!
//! `cargo run -p weft-io --example shm_peer -- box 127.0.0.1:22341`
//! `cargo run -p weft-io --example shm_peer -- worker 127.0.0.1:22341 127.0.0.1:22500`

use std::error::Error;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Instant;

use weft_io::shm::{ShmConfig, ShmHost, ShmPort};
use weft_io::udp::{UdpConfig, UdpPort, pseudo_mac};
use weft_io::{BURST_MAX, Burst, Frame, Port};
use weft_wire::Nanos;
use weft_wire::frame::{Encap, Endpoint, Udp};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["box", addr] => echo(addr.parse()?),
        ["worker", addr, local] => flood(addr.parse()?, local.parse()?),
        _ => Err("either `box ADDR` or `worker BOX-ADDR OWN-ADDR`".into()),
    }
}

/// Whoever waits for this process to be ready reads a line.
fn ready() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready")?;
    Ok(out.flush()?)
}

fn clock(origin: Instant) -> Nanos {
    Nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

fn encap(source: SocketAddr, target: SocketAddr) -> Result<Encap, Box<dyn Error>> {
    let end = |addr: SocketAddr| Endpoint { mac: pseudo_mac(addr.ip()), addr };
    Encap::new(end(source), end(target)).ok_or_else(|| "two address families".into())
}

fn echo(addr: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut port = ShmHost::open(UdpPort::open(&UdpConfig::new(addr))?, addr)?;
    let origin = Instant::now();
    ready()?;
    loop {
        let mut burst = Burst::new();
        if port.rx_burst(clock(origin), &mut burst) == 0 {
            port.wait(1_000_000);
            continue;
        }
        for frame in &mut burst {
            let Ok(udp) = Udp::parse(frame.as_ref()) else { continue };
            encap(udp.target, udp.source)?.emit(frame.as_mut(), udp.payload_len);
        }
        port.tx_burst(clock(origin), &mut burst);
    }
}

/// Sends frames whose every payload word is their number.
fn flood(addr: SocketAddr, local: SocketAddr) -> Result<(), Box<dyn Error>> {
    const WORDS: usize = 250;
    let mut port = ShmPort::open(&ShmConfig::new(local, addr))?;
    let headers = encap(local, addr)?;
    let origin = Instant::now();
    let mut number = 0_u32;
    ready()?;
    loop {
        let mut burst = Burst::new();
        while burst.len() < BURST_MAX
            && let Some(mut frame) = port.alloc()
        {
            let start = headers.header_len();
            let payload = &mut frame.buffer_mut()[start..start + 4 * WORDS];
            for word in payload.chunks_exact_mut(4) {
                word.copy_from_slice(&number.to_be_bytes());
            }
            let len = headers.emit(frame.buffer_mut(), 4 * WORDS);
            frame.set_len(len);
            burst.push(frame);
            number = number.wrapping_add(1);
        }
        while !burst.is_empty() {
            port.tx_burst(clock(origin), &mut burst);
            port.rx_burst(clock(origin), &mut Burst::new());
        }
    }
}
