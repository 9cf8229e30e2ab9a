//! Zero allocations per burst, counted.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;

use common::{datagram, encap};
use weft_io::memory::{hub, link};
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Burst, Port};
use weft_wire::frame::Encap;
use weft_wire::{MacAddr, Nanos};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator; the counter is a plain thread-local
// without a destructor, so touching it cannot allocate.
#[allow(unsafe_code, reason = "an allocator is unsafe by its trait")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations_of(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// Moves 100 bursts there and back in place; returns frames that came back.
fn ping_pong<P: Port>(left: &mut P, right: &mut P, there: &Encap, back: &Encap) -> usize {
    let mut returned = 0;
    for round in 0..100 {
        let now = Nanos(round * 1000);
        let (mut tx, mut rx) = (Burst::new(), Burst::new());
        while !tx.is_full() {
            tx.push(datagram(left, there, &[7; 1024]));
        }
        left.tx_burst(now, &mut tx);
        left.free(&mut tx);
        right.rx_burst(now, &mut rx);
        for frame in &mut rx {
            back.emit(frame.as_mut(), 1024);
        }
        right.tx_burst(now, &mut rx);
        right.free(&mut rx);
        returned += left.rx_burst(now, &mut rx);
        left.free(&mut rx);
        left.wait(1);
    }
    returned
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations_of(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

fn routes() -> (Encap, Encap) {
    let (a, b): (SocketAddr, SocketAddr) =
        ("10.0.0.1:1".parse().expect("an address"), "10.0.0.2:2".parse().expect("an address"));
    (encap(a, b), encap(b, a))
}

#[test]
fn memory_link() {
    let (mut left, mut right) = link(64, 1500, ["left", "right"]);
    let (there, back) = routes();
    let mut returned = 0;
    assert_eq!(allocations_of(|| returned = ping_pong(&mut left, &mut right, &there, &back)), 0);
    assert_eq!(returned, 3200);
}

#[test]
fn memory_hub_with_a_flood() {
    let mut ports = hub(64, 1500, &["a", "b", "c"]);
    let mut third = ports.pop().expect("three ports");
    let mut right = ports.pop().expect("three ports");
    let mut left = ports.pop().expect("three ports");
    let (there, back) = routes();
    let (there, back) =
        (there.with_target_mac(MacAddr::BROADCAST), back.with_target_mac(left.info().mac));
    let mut returned = 0;
    assert_eq!(allocations_of(|| returned = ping_pong(&mut left, &mut right, &there, &back)), 0);
    assert_eq!(returned, 3200);
    let mut rx = Burst::new();
    assert_eq!(third.rx_burst(Nanos(0), &mut rx), 32);
    assert_eq!(third.stats().rx_missed, 3200 - 64);
}

#[test]
fn udp_on_loopback() {
    let config = UdpConfig::new("127.0.0.1:0".parse().expect("an address"));
    let mut left = UdpPort::open(&UdpConfig { socket_count: 2, ..config.clone() }).expect("a port");
    let mut right = UdpPort::open(&config).expect("a port");
    let there = encap(left.local_addr(), right.local_addr());
    let back = encap(right.local_addr(), left.local_addr());
    let mut returned = 0;
    assert_eq!(allocations_of(|| returned = ping_pong(&mut left, &mut right, &there, &back)), 0);
    assert!(returned > 1600, "{returned} of 3200 came back");
}
