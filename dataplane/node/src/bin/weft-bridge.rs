//! `weft-bridge`: carries frames between UDP sockets and a memif.
//!
//! Where no network namespaces can be had, DPDK still runs between two processes without root,
//! hugepages or a NIC. Workers send to this program over loopback; it passes each frame on to a
//! `weft-node` at the other end of the memif, and the answers back. It changes nothing and decides
//! nothing: a frame that does not fit is lost, and the protocol recovers it.

// These macros panic when nobody reads: `weft_process::say` does not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Parser;
use weft_dpdk::{DpdkPort, DpdkQueue, Eal, EalArgs, Memory, PortConfig};
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Burst, Frame, Port};
use weft_wire::Nanos;

/// Carries frames between UDP sockets and a memif, for machines without network namespaces.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Address of the aggregator, which workers send to; bound here in its place.
    #[arg(long)]
    addr: SocketAddr,
    /// Lanes of the aggregator: its answers leave from as many UDP ports.
    #[arg(long, default_value_t = 1)]
    lanes: usize,
    /// The memif's socket; the aggregator is its server.
    #[arg(long)]
    socket: String,
    /// Largest IP packet in bytes.
    #[arg(long, default_value_t = 1500)]
    mtu: u16,
}

/// Empty rounds before the bridge sleeps.
const IDLE_ROUNDS: u32 = 512;
/// How long it sleeps.
const IDLE_PAUSE: Duration = Duration::from_micros(50);
/// Memory of EAL.
const MEMORY_MIB: u32 = 64;

fn main() -> ExitCode {
    match bridge(&Cli::parse()) {
        Ok((up, down)) => {
            weft_process::say!("weft-bridge: {up} frames up, {down} frames down");
            ExitCode::SUCCESS
        }
        Err(error) => {
            weft_process::say!("weft-bridge: {error}");
            ExitCode::from(3)
        }
    }
}

fn bridge(cli: &Cli) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    let stop = weft_process::signals::stop_flag()?;
    let udp = UdpConfig {
        socket_count: cli.lanes,
        mtu: usize::from(cli.mtu),
        ..UdpConfig::new(cli.addr)
    };
    let mut udp = UdpPort::open(&udp)?;
    let socket = &cli.socket;
    let args = EalArgs::new()
        .memory(Memory::NoHuge)
        .memory_mib(MEMORY_MIB)
        .file_prefix(format!("weft-bridge{}", std::process::id()))
        .pci(false)
        .vdev(format!(
            "net_memif0,role=client,id=0,socket={socket},socket-abstract=no,bsize=2048,rsize=10"
        ));
    let eal = Eal::init(&args)?;
    let _lcore = eal.register_lcore(None)?;
    let config = PortConfig { mtu: cli.mtu, ..PortConfig::named("net_memif0") };
    let mut queues = DpdkPort::open(&eal, &config)?;
    let mut memif: DpdkQueue = queues.remove(0);
    weft_process::say!("{{\"ready\":true,\"addr\":\"{}\"}}", cli.addr);
    let origin = Instant::now();
    let (mut up, mut down, mut idle) = (0, 0, 0);
    while !stop.load(Ordering::Relaxed) {
        let now = Nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let sent_up = carry(now, &mut udp, &mut memif);
        let sent_down = carry(now, &mut memif, &mut udp);
        up += sent_up as u64;
        down += sent_down as u64;
        idle = if sent_up + sent_down == 0 { idle + 1 } else { 0 };
        if idle > IDLE_ROUNDS {
            std::thread::sleep(IDLE_PAUSE);
        }
    }
    Ok((up, down))
}

/// Moves one burst; returns how many frames arrived on the other side.
fn carry<S: Port, T: Port>(now: Nanos, source: &mut S, target: &mut T) -> usize {
    let mut rx = Burst::new_const();
    source.rx_burst(now, &mut rx);
    let mut tx = Burst::new_const();
    for frame in &rx {
        let bytes = frame.as_ref();
        if let Some(mut copy) = target.alloc().filter(|_| bytes.len() <= MAX_FRAME) {
            copy.set_len(bytes.len());
            copy.as_mut().copy_from_slice(bytes);
            tx.push(copy);
        }
    }
    source.free(&mut rx);
    let sent = target.tx_burst(now, &mut tx);
    target.free(&mut tx);
    sent
}

/// Longest frame that both sides take: a memif buffer less its headroom.
const MAX_FRAME: usize = 1920;
