//! Sums for all members of a row, once in the memory that a box shares with their workers.

use crate::common;
use std::net::{IpAddr, SocketAddr};

use crate::common::shm::{Host, clock, host, join, local, receive_until, send};
use crate::common::{contribution, payload};
use weft_io::shm::{ShmConfig, ShmHost, ShmPort};
use weft_io::udp::{Hears, UdpConfig, UdpPort, pseudo_mac};
use weft_io::{Burst, Port};
use weft_wire::frame::multicast::{group_of, mac_of, memory_base};
use weft_wire::frame::{Encap, Endpoint};

/// A worker that hears these rows.
fn worker(host: &mut Host, port: u16, addr: SocketAddr, rows: &[u16]) -> ShmPort {
    let config = ShmConfig { rows: rows.to_vec(), ..ShmConfig::new(local(port), addr) };
    join(host, &config).expect("it is let in")
}

fn group(addr: SocketAddr, row: u16) -> IpAddr {
    group_of(memory_base(addr.ip()), row).expect("a row's address")
}

/// Sends a datagram to a multicast address.
fn cast(host: &mut Host, addr: SocketAddr, group: IpAddr, payload: &[u8]) {
    let source = Endpoint { mac: pseudo_mac(addr.ip()), addr };
    let target = Endpoint { mac: mac_of(group), addr: SocketAddr::new(group, addr.port()) };
    let encap = Encap::new(source, target).expect("one family");
    let mut frame = host.alloc().expect("a frame");
    common::fill(&mut frame, &encap, payload);
    assert_eq!(host.tx_burst(clock(), &mut [frame].into_iter().collect()), 1);
}

/// What comes at once.
fn taken(port: &mut ShmPort) -> Vec<u8> {
    let mut rx = Burst::new();
    port.rx_burst(clock(), &mut rx);
    rx.iter().map(|frame| payload(frame.as_ref())[0]).collect()
}

#[test]
fn who_hears_a_row_gets_its_sums_in_order_with_its_own() {
    let (mut host, addr) = host();
    let mut first = worker(&mut host, 21_001, addr, &[0, 7]);
    let mut second = worker(&mut host, 21_002, addr, &[7]);
    let mut third = worker(&mut host, 21_003, addr, &[]);
    for (port, heard) in [(&first, [true, true]), (&second, [false, true]), (&third, [false; 2])] {
        assert_eq!(port.multicast_base(), Some(memory_base(addr.ip())));
        assert_eq!([0, 7].map(|row| port.hears(group(addr, row))), heard);
    }
    cast(&mut host, addr, group(addr, 7), &[1; 900]);
    send(&mut host, addr, local(21_001), &[2; 64]);
    cast(&mut host, addr, group(addr, 0), &[3; 900]);
    cast(&mut host, addr, group(addr, 7), &[4; 64]);
    assert_eq!(taken(&mut first), [1, 2, 3, 4]);
    assert_eq!(taken(&mut second), [1, 4]);
    assert_eq!(taken(&mut third), []);
    assert_eq!(host.stats().tx_packets, 6, "the inner port has sent none of them");
    assert_eq!(host.inner().stats().tx_packets, 0);
}

#[test]
fn a_sum_is_what_it_was_whatever_comes_after_it() {
    let (mut host, addr) = host();
    let mut hearer = worker(&mut host, 21_011, addr, &[0]);
    let mut other = worker(&mut host, 21_012, addr, &[1]);
    for round in 0..2000_u32 {
        let sum = contribution(round, 3);
        cast(&mut host, addr, group(addr, 0), &sum);
        cast(&mut host, addr, group(addr, 1), &contribution(round, 4));
        receive_until(&mut hearer, |_, rx| {
            rx.pop().is_some_and(|frame| payload(frame.as_ref()) == sum)
        });
        receive_until(&mut other, |_, rx| rx.pop().is_some());
    }
    assert_eq!(hearer.stats().rx_errors, 0);
}

#[test]
fn a_sum_that_was_overwritten_before_it_was_taken_is_lost_and_counted() {
    let (mut host, addr) = host();
    let mut late = worker(&mut host, 21_021, addr, &[0]);
    let mut other = worker(&mut host, 21_022, addr, &[1]);
    cast(&mut host, addr, group(addr, 0), &[1; 64]);
    for index in 0..2000_u32 {
        cast(&mut host, addr, group(addr, 1), &index.to_be_bytes());
        receive_until(&mut other, |_, rx| rx.pop().is_some());
    }
    cast(&mut host, addr, group(addr, 0), &[2; 64]);
    assert_eq!(taken(&mut late), [2], "nothing that was made of two frames");
    assert_eq!(late.stats().rx_errors, 1);
    assert_eq!(other.stats().rx_errors, 0);
}

#[test]
fn a_worker_that_takes_nothing_holds_up_nobody() {
    let (mut host, addr) = host();
    let mut idle = worker(&mut host, 21_031, addr, &[0]);
    let mut busy = worker(&mut host, 21_032, addr, &[0]);
    let mut got = 0;
    for _ in 0..5000 {
        cast(&mut host, addr, group(addr, 0), &[9; 64]);
        got += taken(&mut busy).len();
    }
    assert_eq!(got, 5000);
    assert!(host.counts().ring_full() > 0, "its own ring is full");
    let kept = std::iter::from_fn(|| Some(taken(&mut idle).len()).filter(|count| *count > 0));
    assert!(kept.sum::<usize>() < 5000, "a ring and no more");
}

/// Sums would be on the network else.
#[test]
fn what_is_for_memory_alone_stays_there_when_nobody_shares_it_any_more() {
    let (mut host, addr) = host();
    cast(&mut host, addr, group(addr, 0), &[6; 64]);
    assert_eq!((host.inner().stats().tx_packets, host.inner().stats().tx_errors), (0, 0));
}

/// A box with a multicast address of its own sends there, too, for members on other ports.
#[test]
fn an_address_from_the_configuration_is_heard_over_memory_and_over_udp() {
    let group: IpAddr = "239.87.70.0".parse().unwrap();
    let udp = UdpPort::open(&UdpConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let addr = udp.local_addr();
    let mut host = ShmHost::open(udp, addr).unwrap().with_multicast(Some(group));
    let mut near = worker(&mut host, 21_041, addr, &[0]);
    assert_eq!(near.multicast_base(), Some(group));
    let hears = Hears { group: SocketAddr::new(group, addr.port()), source: addr };
    let far = UdpConfig { hears: vec![hears], ..UdpConfig::new("127.0.0.1:0".parse().unwrap()) };
    let mut far = UdpPort::open(&far).unwrap();
    cast(&mut host, addr, group, &[5; 64]);
    assert_eq!(taken(&mut near), [5]);
    receive_until(&mut far, |_, rx| {
        rx.pop().is_some_and(|frame| payload(frame.as_ref()) == [5; 64])
    });
}
