//! The memory ports: delivery, refusal, flooding, threads.

use crate::common::{ethernet, receive};
use weft_io::memory::{MemoryPort, hub, link};
use weft_io::{BURST_MAX, Burst, Port};
use weft_wire::{MacAddr, Nanos};

const NOW: Nanos = Nanos(0);
const STRANGER: MacAddr = MacAddr([0x02, 9, 9, 9, 9, 9]);

fn send_one(from: &mut MemoryPort, target: MacAddr, source: MacAddr, mark: u8) -> usize {
    let mut tx = Burst::new();
    tx.push(ethernet(from, target, source, mark));
    from.tx_burst(NOW, &mut tx)
}

fn marks(port: &mut MemoryPort) -> Vec<u8> {
    let mut rx = Burst::new();
    port.rx_burst(NOW, &mut rx);
    rx.iter().map(|frame| frame.as_ref()[20]).collect()
}

#[test]
fn a_link_keeps_order_both_ways() {
    let (mut left, mut right) = link(128, 1500, ["left", "right"]);
    let (a, b) = (left.info().mac, right.info().mac);
    assert_ne!(a, b);
    for mark in 0..80 {
        assert_eq!(send_one(&mut left, b, a, mark), 1);
        assert_eq!(send_one(&mut right, a, b, mark + 100), 1);
    }
    assert_eq!(marks(&mut right), (0..64).collect::<Vec<u8>>());
    assert_eq!(marks(&mut right), (64..80).collect::<Vec<u8>>());
    assert_eq!(marks(&mut left), (100..164).collect::<Vec<u8>>());
    assert_eq!(right.stats().rx_packets, 80);
    assert_eq!(right.stats().rx_bytes, 80 * 60);
    assert_eq!(right.stats().tx_packets, 80);
}

#[test]
fn a_full_ring_leaves_the_rest_with_the_sender_in_order() {
    let (mut left, mut right) = link(10, 1500, ["left", "right"]);
    let mut tx = Burst::new();
    for mark in 0..16 {
        tx.push(ethernet(&mut left, MacAddr::BROADCAST, STRANGER, mark));
    }
    assert_eq!(left.tx_burst(NOW, &mut tx), 10);
    assert_eq!(tx.iter().map(|f| f.as_ref()[20]).collect::<Vec<_>>(), [10, 11, 12, 13, 14, 15]);
    assert_eq!(left.tx_burst(NOW, &mut tx), 0);
    assert_eq!(marks(&mut right), (0..10).collect::<Vec<u8>>());
    assert_eq!(left.tx_burst(NOW, &mut tx), 6);
    assert!(tx.is_empty());
    assert_eq!(marks(&mut right), (10..16).collect::<Vec<u8>>());
    assert_eq!(left.stats().tx_packets, 16);
}

#[test]
fn every_frame_returns_to_the_pool_that_made_it() {
    let (mut left, mut right) = link(64, 1500, ["left", "right"]);
    let (all_left, all_right) = (left.free_count(), right.free_count());
    for mark in 0..20 {
        send_one(&mut left, MacAddr::BROADCAST, STRANGER, mark);
    }
    let mut rx = Burst::new();
    right.rx_burst(NOW, &mut rx);
    assert_eq!(left.free_count(), all_left - 20);
    // The box answers in the frames it received.
    assert_eq!(right.tx_burst(NOW, &mut rx), 20);
    let mut rx = Burst::new();
    left.rx_burst(NOW, &mut rx);
    left.free(&mut rx);
    assert_eq!((left.free_count(), right.free_count()), (all_left, all_right));
}

#[test]
fn an_exhausted_pool_is_counted() {
    let (mut left, _right) = link(1, 1500, ["left", "right"]);
    let held: Vec<_> = std::iter::from_fn(|| left.alloc()).collect();
    assert_eq!(held.len(), 2 + 4 * BURST_MAX);
    assert_eq!(left.stats().rx_nombuf, 1);
}

#[test]
fn a_port_is_open_until_its_peer_is_gone_and_the_ring_is_empty() {
    let (mut left, mut right) = link(4, 1500, ["left", "right"]);
    send_one(&mut left, MacAddr::BROADCAST, STRANGER, 1);
    drop(left);
    assert!(right.is_open());
    assert_eq!(marks(&mut right), [1]);
    assert!(!right.is_open());
    // Nobody listens: the frame is lost and counted, and the caller is not held up.
    assert_eq!(send_one(&mut right, MacAddr::BROADCAST, STRANGER, 2), 1);
    assert_eq!(right.stats().tx_errors, 1);
    assert_eq!(right.stats().tx_packets, 0);
}

#[test]
fn a_hub_delivers_by_address_and_floods_what_it_does_not_know() {
    let mut ports = hub(8, 1500, &["a", "b", "c"]);
    let macs: Vec<MacAddr> = ports.iter().map(|port| port.info().mac).collect();
    send_one(&mut ports[0], macs[2], macs[0], 1);
    assert_eq!(marks(&mut ports[1]), []);
    assert_eq!(marks(&mut ports[2]), [1]);

    send_one(&mut ports[0], MacAddr::BROADCAST, macs[0], 2);
    assert_eq!(marks(&mut ports[0]), []);
    assert_eq!(marks(&mut ports[1]), [2]);
    assert_eq!(marks(&mut ports[2]), [2]);

    send_one(&mut ports[0], STRANGER, macs[0], 3);
    assert_eq!(marks(&mut ports[1]), [3]);
    assert_eq!(marks(&mut ports[2]), [3]);

    // Port b speaks as the stranger: from now on the hub knows where that is.
    send_one(&mut ports[1], macs[0], STRANGER, 4);
    assert_eq!(marks(&mut ports[0]), [4]);
    send_one(&mut ports[0], STRANGER, macs[0], 5);
    assert_eq!(marks(&mut ports[1]), [5]);
    assert_eq!(marks(&mut ports[2]), []);
}

#[test]
fn a_flood_into_a_full_ring_counts_there_and_reaches_the_others() {
    let mut ports = hub(2, 1500, &["a", "b", "c"]);
    let macs: Vec<MacAddr> = ports.iter().map(|port| port.info().mac).collect();
    for mark in 0..2 {
        send_one(&mut ports[0], macs[1], macs[0], mark);
    }
    // Unicast into the full ring is refused.
    assert_eq!(send_one(&mut ports[0], macs[1], macs[0], 2), 0);
    assert_eq!(send_one(&mut ports[0], MacAddr::BROADCAST, macs[0], 3), 1);
    assert_eq!(marks(&mut ports[1]), [0, 1]);
    assert_eq!(marks(&mut ports[2]), [3]);
    assert_eq!(ports[1].stats().rx_missed, 1);
    assert_eq!(ports[2].stats().rx_missed, 0);
}

#[test]
fn no_frame_overtakes_a_refused_one() {
    let mut ports = hub(1, 1500, &["a", "b", "c"]);
    let macs: Vec<MacAddr> = ports.iter().map(|port| port.info().mac).collect();
    send_one(&mut ports[0], macs[1], macs[0], 1);
    let mut tx = Burst::new();
    for (target, mark) in [(2, 2), (1, 3), (2, 4)] {
        tx.push(ethernet(&mut ports[0], macs[target], macs[0], mark));
    }
    assert_eq!(ports[0].tx_burst(NOW, &mut tx), 1);
    assert_eq!(marks(&mut ports[2]), [2]);
    // There is room for the third again, but the second is in front of it.
    assert_eq!(ports[0].tx_burst(NOW, &mut tx), 0);
    assert_eq!(marks(&mut ports[2]), []);
    assert_eq!(marks(&mut ports[1]), [1]);
    assert_eq!(ports[0].tx_burst(NOW, &mut tx), 2);
    assert_eq!((marks(&mut ports[1]), marks(&mut ports[2])), (vec![3], vec![4]));
}

#[test]
fn a_link_crosses_threads_and_wakes_a_sleeper() {
    let (mut left, mut right) = link(32, 1500, ["left", "right"]);
    let echo = std::thread::spawn(move || {
        let mut count = 0;
        while right.is_open() {
            let mut rx = Burst::new();
            if right.rx_burst(NOW, &mut rx) == 0 {
                // Far longer than the test may take: only a wake-up ends it in time.
                right.wait(20_000_000_000);
            }
            count += rx.len();
            while !rx.is_empty() {
                right.tx_burst(NOW, &mut rx);
            }
        }
        count
    });
    let start = std::time::Instant::now();
    for mark in 0..100 {
        send_one(&mut left, MacAddr::BROADCAST, STRANGER, mark);
        let answer = receive(&mut left, 1);
        assert_eq!(answer[0].as_ref()[20], mark);
    }
    drop(left);
    assert_eq!(echo.join().expect("the echo ends"), 100);
    assert!(start.elapsed().as_secs() < 10, "a sleeper was not woken");
}

#[test]
fn a_frame_without_an_ethernet_header_is_an_error() {
    let (mut left, mut right) = link(4, 1500, ["left", "right"]);
    let mut tx = Burst::new();
    tx.push(left.alloc().expect("a frame"));
    assert_eq!(left.tx_burst(NOW, &mut tx), 1);
    assert_eq!(left.stats().tx_errors, 1);
    assert_eq!(marks(&mut right), []);
}
