//! net_memif: two processes, one shared-memory device, without hugepages or root.
//!
//! The test starts its own binary again as the second process, which sends every frame back.

#[expect(dead_code, reason = "each test binary uses its part")]
mod common;

use common::{TempDir, eal_args, frame_of, pattern};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use weft_dpdk::{DpdkPort, DpdkQueue, Eal, PortConfig};
use weft_io::{Burst, Port};
use weft_wire::Nanos;

const FRAMES: u32 = 10_000;
/// Frames on the way at most: fewer than the ring holds, so none can be lost.
const WINDOW: u32 = 256;
const ECHO_SOCKET: &str = "WEFT_DPDK_TEST_ECHO_SOCKET";
const NOW: Nanos = Nanos(0);
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn another_process_sends_every_frame_back() {
    if let Some(socket) = std::env::var_os(ECHO_SOCKET) {
        return echo(Path::new(&socket));
    }
    let folder = TempDir::new("memif");
    let socket = folder.path().join("memif.sock");
    let (eal, mut port) = open(&folder, &socket, "server");
    let mut peer = Peer(
        Command::new(std::env::current_exe().expect("this binary has a path"))
            .args(["--exact", "another_process_sends_every_frame_back", "--nocapture"])
            .env(ECHO_SOCKET, &socket)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("the second process starts"),
    );
    let deadline = Instant::now() + PATIENCE;
    while !port.is_link_up() {
        assert!(Instant::now() < deadline, "the second process did not connect");
        std::thread::sleep(Duration::from_millis(5));
    }

    let free = port.pool().available();
    let (mut sent, mut back) = (0, 0);
    let mut tx = Burst::new();
    let mut rx = Burst::new();
    while back < FRAMES {
        assert!(Instant::now() < deadline, "{back} of {FRAMES} frames came back");
        let mut next = sent + u32::try_from(tx.len()).expect("a burst is short");
        while !tx.is_full() && next < FRAMES && next - back < WINDOW {
            let mut bytes = pattern(next, 1100);
            bytes[12..16].copy_from_slice(&next.to_be_bytes());
            tx.push(frame_of(&mut port, &bytes));
            next += 1;
        }
        sent += u32::try_from(port.tx_burst(NOW, &mut tx)).expect("a burst is short");
        port.rx_burst(NOW, &mut rx);
        for frame in rx.drain(..) {
            let mut expected = pattern(back, 1100);
            expected[12..16].copy_from_slice(&back.to_be_bytes());
            swap_addresses(&mut expected);
            assert_eq!(frame.as_ref(), expected, "frame {back} changed on the way");
            back += 1;
        }
    }
    let stats = port.stats();
    assert_eq!((stats.rx_packets, stats.tx_packets), (10_000, 10_000));
    assert_eq!((stats.rx_bytes, stats.tx_bytes), (11_000_000, 11_000_000));
    assert_eq!(port.pool().available(), free, "buffers leaked");
    drop(port);
    let status = peer.0.wait().expect("the second process ends");
    assert!(status.success(), "the second process: {status}");
    let again = DpdkPort::open(&eal, &PortConfig::named("net_memif0"));
    drop(again.expect("a memif is stopped, not closed, so it opens again"));
    drop(eal);
    assert!(!socket.exists(), "the socket's file would keep the next server from starting");
}

/// The second process: sends back `FRAMES` frames with their addresses swapped.
fn echo(socket: &Path) {
    let folder = TempDir::new("memif-echo");
    let (_eal, mut port) = open(&folder, socket, "client");
    let deadline = Instant::now() + PATIENCE;
    let mut burst = Burst::new();
    let mut sent = 0;
    while sent < FRAMES as usize {
        assert!(Instant::now() < deadline, "echoed {sent} of {FRAMES} frames");
        let unsent = burst.len();
        if port.rx_burst(NOW, &mut burst) == 0 && unsent == 0 {
            std::thread::yield_now();
        }
        for frame in &mut burst[unsent..] {
            swap_addresses(frame.as_mut());
        }
        sent += port.tx_burst(NOW, &mut burst);
    }
    // The last frames lie in this process's memory until the peer has read them and hangs up.
    while port.is_link_up() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn swap_addresses(frame: &mut [u8]) {
    let (destination, rest) = frame.split_at_mut(6);
    destination.swap_with_slice(&mut rest[..6]);
}

fn open(folder: &TempDir, socket: &Path, role: &str) -> (Eal, DpdkQueue) {
    let devargs = format!(
        "net_memif0,role={role},id=0,socket={},socket-abstract=no,bsize=2048,rsize=10",
        socket.display()
    );
    let eal = Eal::init(&eal_args(folder).vdev(devargs)).expect("EAL starts");
    let queue =
        DpdkPort::open(&eal, &PortConfig::named("net_memif0")).expect("the port opens").remove(0);
    (eal, queue)
}

/// Ends the second process when the test fails half-way.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
