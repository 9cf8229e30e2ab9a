//! Nanoseconds per frame of this binding, without an engine:
//!
//! ```sh
//! cargo run --release -p weft-dpdk --example burst_cost -- echo --vdev=net_ring0
//! cargo run --release -p weft-dpdk --example burst_cost -- \
//!     rx --vdev=net_pcap0,rx_pcap=in.pcap,infinite_rx=1
//! cargo run --release -p weft-dpdk --example burst_cost -- copy:1100
//! ```
//!
//! `echo` receives, swaps the Ethernet addresses and sends; a first burst primes the loop. `rx`
//! receives and frees. `copy:LEN` copies a frame, whole and then sharing its payload, and frees the
//! copies: `copy_break_bytes` belongs where the two meet.
//! Prints the median of five windows of 0.4 s.

use std::time::{Duration, Instant};
use weft_dpdk::{DpdkPort, DpdkQueue, Eal, EalArgs, PortConfig, PortId};
use weft_io::{BURST_MAX, Burst, Frame, Port};
use weft_wire::Nanos;

const NOW: Nanos = Nanos(0);
const WINDOW: Duration = Duration::from_millis(400);
const HEADER_LEN: usize = 74;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mode = args.next().ok_or("usage: burst_cost echo|rx|copy:LEN --vdev=…")?;
    let args = args.fold(EalArgs::new().memory_mib(256), EalArgs::arg);
    let eal = Eal::init(&args)?;
    let open = |port, copy_break_bytes, longest: u16| {
        let config = PortConfig {
            port,
            mbuf_data_room_bytes: (longest + 128).max(2176),
            copy_break_bytes,
            ..PortConfig::named("")
        };
        DpdkPort::open(&eal, &config).map(|mut queues| queues.remove(0))
    };
    match mode.split_once(':') {
        None if mode == "rx" => {
            report("rx", &mut open(PortId::Index(0), usize::MAX, 2000)?, receive)
        }
        None if mode == "echo" => {
            let mut port = open(PortId::Index(0), usize::MAX, 2000)?;
            let mut primer: Burst<_> =
                (0..BURST_MAX).filter_map(|_| frame(&mut port, 64)).collect();
            port.tx_burst(NOW, &mut primer);
            report("echo", &mut port, echo);
        }
        Some(("copy", len)) => {
            let len = len.parse()?;
            for (name, copy_break_bytes) in [("net_ring8", usize::MAX), ("net_ring9", 0)] {
                eal.probe(name)?;
                let mut port = open(PortId::Name(name.into()), copy_break_bytes, len)?;
                let original = frame(&mut port, usize::from(len)).ok_or("the pool is empty")?;
                let what = if copy_break_bytes == 0 { "shared" } else { "whole" };
                report(what, &mut port, |port| copies(port, &original));
            }
        }
        _ => return Err("the first argument is echo, rx or copy:LEN".into()),
    }
    Ok(())
}

fn frame(port: &mut DpdkQueue, len: usize) -> Option<weft_dpdk::Mbuf> {
    let mut frame = port.alloc()?;
    frame.set_len(len);
    frame.as_mut().fill(0);
    Some(frame)
}

fn receive(port: &mut DpdkQueue) -> usize {
    let mut burst = Burst::new();
    let n = port.rx_burst(NOW, &mut burst);
    port.free(&mut burst);
    n
}

fn echo(port: &mut DpdkQueue) -> usize {
    let mut burst = Burst::new();
    let n = port.rx_burst(NOW, &mut burst);
    for frame in &mut burst {
        if let Some((destination, rest)) = frame.as_mut().split_at_mut_checked(6)
            && let Some(source) = rest.first_chunk_mut::<6>()
        {
            destination.swap_with_slice(source);
        }
    }
    port.tx_burst(NOW, &mut burst);
    n
}

fn copies(port: &mut DpdkQueue, original: &weft_dpdk::Mbuf) -> usize {
    let mut burst = Burst::new();
    while let Some(mut copy) = port.copy(original, HEADER_LEN) {
        copy.as_mut()[0] = 1;
        burst.push(copy);
        if burst.is_full() {
            break;
        }
    }
    let n = burst.len();
    port.free(&mut burst);
    n
}

fn report(what: &str, port: &mut DpdkQueue, mut step: impl FnMut(&mut DpdkQueue) -> usize) {
    let mut ns_per_frame: Vec<f64> = (0..5)
        .map(|_| {
            let start = Instant::now();
            let mut frames = 0;
            while start.elapsed() < WINDOW {
                for _ in 0..1000 {
                    frames += step(port);
                }
            }
            start.elapsed().as_secs_f64() * 1e9 / frames as f64
        })
        .collect();
    ns_per_frame.sort_by(f64::total_cmp);
    println!(
        "{what}: {:.2} ns/frame ({:.2} to {:.2}), {}",
        ns_per_frame[2],
        ns_per_frame[0],
        ns_per_frame[4],
        weft_dpdk::rte_version()
    );
}
