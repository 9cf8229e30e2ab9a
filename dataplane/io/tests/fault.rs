//! The fault wrapper on a memory link: every frame accounted for, the same fates every time.

use crate::common;
use std::collections::BTreeMap;

use crate::common::{chunk_of, contribution, datagram, ethernet, payload, route};
use weft_io::fault::{Fault, FaultConfig, FaultCounts, FaultRates, LINK_FRAMES_MAX, member_seed};
use weft_io::memory::{MemoryPort, link};
use weft_io::{Burst, Port};
use weft_wire::{MacAddr, Nanos};

const ALL: FaultRates =
    FaultRates { loss: 0.1, duplicate: 0.1, reorder: 0.1, delay: 0.1, corrupt: 0.1 };
const LATER: Nanos = Nanos(1_000_000_000);

fn pair(config: &FaultConfig) -> (Fault<MemoryPort>, MemoryPort) {
    let (left, right) = link(8192, 1500, ["left", "right"]);
    (Fault::new(left, config), right)
}

fn send<P: Port>(port: &mut P, now: Nanos, chunk: u32, rank: u32) {
    let mut tx = Burst::new();
    tx.push(datagram(port, &route(), &contribution(chunk, 1 << rank)));
    port.tx_burst(now, &mut tx);
    assert!(tx.is_empty());
}

/// Receives until nothing has come for so many bursts that nothing more can: a burst may be empty
/// because all of it was lost or held.
fn drain<P: Port>(port: &mut P, now: Nanos) -> Vec<P::Frame> {
    let mut frames = Vec::new();
    let mut empty_bursts = 0;
    while empty_bursts < 300 {
        let mut rx = Burst::new();
        let empty = port.rx_burst(now, &mut rx) == 0;
        empty_bursts = if empty { empty_bursts + 1 } else { 0 };
        frames.extend(rx);
    }
    frames
}

/// What arrives of each (chunk, rank), sent in the order of `sends`: the sorted payloads.
fn fates(config: &FaultConfig, sends: &[(u32, u32)]) -> BTreeMap<(u32, u32), Vec<Vec<u8>>> {
    let (mut faulty, mut far) = pair(config);
    let mut arrived: BTreeMap<_, Vec<Vec<u8>>> = BTreeMap::new();
    for (chunk, rank) in sends {
        send(&mut faulty, Nanos(0), *chunk, *rank);
        // One at a time, so that what arrives can be told apart even when it is corrupted.
        drain(&mut faulty, LATER);
        let seen = drain(&mut far, LATER);
        let payloads = seen.iter().map(|frame| payload(frame.as_ref()).to_vec());
        arrived.entry((*chunk, *rank)).or_default().extend(payloads);
    }
    arrived
}

#[test]
fn the_same_packets_meet_the_same_fate_in_another_order_of_arrival() {
    let config = FaultConfig { seed: 7, tx: ALL, ..FaultConfig::default() };
    // Three attempts of each packet.
    let forward: Vec<(u32, u32)> =
        (0..3).flat_map(|_| (0..200).flat_map(|chunk| [(chunk, 0), (chunk, 1)])).collect();
    let mut backward = forward.clone();
    backward.reverse();
    let expected = fates(&config, &forward);
    assert_eq!(expected, fates(&config, &backward));
    assert_eq!(expected, fates(&config, &forward));
    assert_ne!(expected, fates(&FaultConfig { seed: 8, ..config }, &forward));
    assert_ne!(expected, fates(&FaultConfig { seed: member_seed(7, 0), ..config }, &forward));
}

#[test]
fn received_and_sent_packets_meet_the_same_fate() {
    let rates = FaultRates { loss: 0.3, ..FaultRates::NONE };
    let config = FaultConfig { seed: 7, tx: rates, ..FaultConfig::default() };
    let (mut faulty, mut far) = pair(&config);
    for chunk in 0..300 {
        send(&mut faulty, Nanos(0), chunk, 0);
    }
    let sent: Vec<u32> = drain(&mut far, LATER).iter().map(|f| chunk_of(f.as_ref())).collect();
    let config = FaultConfig { seed: 7, rx: rates, ..FaultConfig::default() };
    let (mut faulty, mut far) = pair(&config);
    for chunk in 0..300 {
        send(&mut far, Nanos(0), chunk, 0);
    }
    let got: Vec<u32> = drain(&mut faulty, LATER).iter().map(|f| chunk_of(f.as_ref())).collect();
    assert!(sent.len() < 300);
    assert_eq!(sent, got);
}

#[test]
fn a_lost_packet_gets_through_in_the_end() {
    let config =
        FaultConfig { tx: FaultRates { loss: 0.9, ..FaultRates::NONE }, ..FaultConfig::default() };
    let (mut faulty, mut far) = pair(&config);
    for attempt in 0.. {
        send(&mut faulty, Nanos(0), 1, 0);
        if !drain(&mut far, LATER).is_empty() {
            break;
        }
        assert!(attempt < 1000, "each attempt draws anew");
    }
    assert!(faulty.tx_counts().lost > 0);
}

#[test]
fn every_frame_is_accounted_for() {
    let config = FaultConfig { seed: 1, rx: ALL, tx: ALL, ..FaultConfig::default() };
    let (mut faulty, mut far) = pair(&config);
    let (all_near, all_far) = (faulty.port().free_count(), far.free_count());
    for chunk in 0..4000 {
        send(&mut faulty, Nanos(u64::from(chunk) * 1000), chunk, 0);
        send(&mut far, Nanos(u64::from(chunk) * 1000), chunk, 1);
    }
    let mut received = drain(&mut faulty, LATER).len() as u64;
    received += drain(&mut faulty, LATER.saturating_add(LATER)).len() as u64;
    let arrived = drain(&mut far, LATER).len() as u64;
    for (counts, count) in [(faulty.tx_counts(), arrived), (faulty.rx_counts(), received)] {
        assert_eq!(counts.judged, 4000);
        assert_eq!(count, 4000 - counts.lost + counts.duplicated);
        let faults = [
            counts.lost,
            counts.duplicated,
            counts.reordered,
            counts.delayed,
            counts.corrupted,
            counts.doubly_hit,
        ];
        assert!(faults.iter().all(|count| (50..500).contains(count)), "{counts:?}");
        assert_eq!(counts.copy_failed + counts.passed, 0);
    }
    assert_eq!(faulty.held(), 0);
    assert_eq!((faulty.port().free_count(), far.free_count()), (all_near, all_far));
}

#[test]
fn corruption_hits_the_payload_alone_and_never_a_single_bit_only() {
    let config = FaultConfig {
        tx: FaultRates { corrupt: 1.0, ..FaultRates::NONE },
        ..FaultConfig::default()
    };
    let (mut faulty, mut far) = pair(&config);
    let mut wider_than_a_bit = 0;
    for chunk in 0..500 {
        send(&mut faulty, Nanos(0), chunk, 0);
        let seen = drain(&mut far, Nanos(0));
        let clean = contribution(chunk, 1);
        let dirty = payload(seen[0].as_ref());
        let flipped: u32 = clean.iter().zip(dirty).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert!(flipped > 0, "chunk {chunk} came out clean");
        wider_than_a_bit += u32::from(flipped > 1);
    }
    assert!(wider_than_a_bit > 480, "{wider_than_a_bit} of 500");
}

#[test]
fn a_reordered_frame_is_overtaken_but_not_for_ever() {
    let config = FaultConfig {
        tx: FaultRates { reorder: 0.2, ..FaultRates::NONE },
        reorder_span: 4,
        ..FaultConfig::default()
    };
    let (mut faulty, mut far) = pair(&config);
    for chunk in 0..1000 {
        send(&mut faulty, Nanos(0), chunk, 0);
    }
    let mut order: Vec<u32> =
        drain(&mut far, Nanos(0)).iter().map(|frame| chunk_of(frame.as_ref())).collect();
    assert!(!order.is_sorted());
    for (place, chunk) in order.iter().enumerate() {
        assert!(place.abs_diff(*chunk as usize) <= 5, "chunk {chunk} came as number {place}");
    }
    // Those that wait for frames that never come leave when their time is up.
    let held = faulty.held();
    assert_eq!(order.len() + held, 1000);
    drain(&mut faulty, Nanos(config.delay_max_ns));
    order.extend(drain(&mut far, Nanos(0)).iter().map(|frame| chunk_of(frame.as_ref())));
    order.sort_unstable();
    assert_eq!(order, (0..1000).collect::<Vec<u32>>());
}

#[test]
fn a_delayed_frame_comes_within_its_bounds() {
    let config = FaultConfig {
        rx: FaultRates { delay: 1.0, ..FaultRates::NONE },
        delay_min_ns: 1000,
        delay_max_ns: 2000,
        ..FaultConfig::default()
    };
    let (mut faulty, mut far) = pair(&config);
    for chunk in 0..100 {
        send(&mut far, Nanos(0), chunk, 0);
    }
    assert!(drain(&mut faulty, Nanos(5000)).is_empty());
    assert!(drain(&mut faulty, Nanos(5999)).is_empty());
    let half = drain(&mut faulty, Nanos(6500)).len();
    assert!((25..75).contains(&half), "{half}");
    assert_eq!(drain(&mut faulty, Nanos(7000)).len(), 100 - half);
    assert_eq!(faulty.rx_counts().delayed, 100);
}

#[test]
fn a_full_holding_queue_lets_frames_pass_and_counts() {
    let config = FaultConfig {
        tx: FaultRates { delay: 1.0, ..FaultRates::NONE },
        holding_max: 10,
        ..FaultConfig::default()
    };
    let (mut faulty, mut far) = pair(&config);
    for chunk in 0..25 {
        send(&mut faulty, Nanos(0), chunk, 0);
    }
    assert_eq!(faulty.held(), 10);
    assert_eq!(drain(&mut far, Nanos(0)).len(), 15);
    assert_eq!(faulty.tx_counts().holding_full, 15);
    assert_eq!(faulty.tx_counts().delayed, 10);
}

#[test]
fn other_protocols_pass_untouched_and_in_order() {
    let config =
        FaultConfig { tx: FaultRates { loss: 1.0, ..FaultRates::NONE }, ..FaultConfig::default() };
    let (mut faulty, mut far) = pair(&config);
    let mut tx = Burst::new();
    for mark in 0..10 {
        tx.push(ethernet(&mut faulty, MacAddr::BROADCAST, MacAddr::default(), mark));
        tx.push(datagram(&mut faulty, &route(), &contribution(u32::from(mark), 1)));
    }
    assert_eq!(faulty.tx_burst(Nanos(0), &mut tx), 20);
    let seen: Vec<u8> = drain(&mut far, Nanos(0)).iter().map(|frame| frame.as_ref()[20]).collect();
    assert_eq!(seen, (0..10).collect::<Vec<u8>>());
    assert_eq!((faulty.tx_counts().passed, faulty.tx_counts().lost), (10, 10));
}

#[test]
fn without_a_rate_nothing_is_judged() {
    let (left, mut far) = link(16, 1500, ["left", "right"]);
    let mut faulty = Fault::new(left, &FaultConfig::default());
    let mut tx = Burst::new();
    for chunk in 0..10 {
        tx.push(datagram(&mut faulty, &route(), &contribution(chunk, 1)));
    }
    assert_eq!(faulty.tx_burst(Nanos(0), &mut tx), 10);
    let seen: Vec<u32> =
        drain(&mut far, Nanos(0)).iter().map(|frame| chunk_of(frame.as_ref())).collect();
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
    let counts = FaultCounts { passed: 10, ..FaultCounts::default() };
    assert_eq!(faulty.tx_counts(), counts);
}

#[test]
fn a_refusing_port_draws_no_fate_twice() {
    let config = FaultConfig {
        tx: FaultRates { duplicate: 0.5, ..FaultRates::NONE },
        ..FaultConfig::default()
    };
    let (left, mut far) = link(16, 1500, ["left", "right"]);
    let mut faulty = Fault::new(left, &config);
    let mut tx = Burst::new();
    let (mut next, mut arrived) = (0, Vec::new());
    for _ in 0..400 {
        while next < 200 && !tx.is_full() {
            let Some(mut frame) = faulty.alloc() else { break };
            common::fill(&mut frame, &route(), &contribution(next, 1));
            tx.push(frame);
            next += 1;
        }
        faulty.tx_burst(Nanos(0), &mut tx);
        arrived.extend(drain(&mut far, Nanos(0)).iter().map(|frame| chunk_of(frame.as_ref())));
    }
    let counts = faulty.tx_counts();
    assert_eq!(counts.judged, 200);
    assert_eq!(counts.copy_failed, 0);
    assert!(counts.duplicated > 50);
    assert!(arrived.is_sorted(), "neither duplication nor refusal reorders");
    assert_eq!(arrived.len() as u64, 200 + counts.duplicated);
    arrived.dedup();
    assert_eq!(arrived, (0..200).collect::<Vec<u32>>());
}

#[test]
fn a_port_stays_open_while_frames_are_held() {
    let config =
        FaultConfig { rx: FaultRates { delay: 1.0, ..FaultRates::NONE }, ..FaultConfig::default() };
    let (mut faulty, mut far) = pair(&config);
    for chunk in 0..32 {
        send(&mut far, Nanos(0), chunk, 0);
    }
    drop(far);
    assert!(drain(&mut faulty, Nanos(0)).is_empty());
    assert!(faulty.is_open());
    assert_eq!(drain(&mut faulty, LATER).len(), 32);
    assert!(!faulty.is_open());
}

#[test]
fn a_long_link_takes_its_time_in_both_directions_and_keeps_the_order() {
    let config = FaultConfig { link_delay_ns: 5_000_000, ..FaultConfig::default() };
    let (mut faulty, mut far) = pair(&config);
    for chunk in 0..20 {
        send(&mut faulty, Nanos(u64::from(chunk) * 1000), chunk, 0);
    }
    assert!(drain(&mut far, Nanos(0)).is_empty());
    // What is due leaves when the port is asked for frames, not before.
    let mut none = Burst::new();
    faulty.rx_burst(Nanos(4_999_999), &mut none);
    assert!(drain(&mut far, Nanos(0)).is_empty());
    faulty.rx_burst(Nanos(5_009_500), &mut none);
    let seen = drain(&mut far, Nanos(0)).iter().map(|f| chunk_of(f.as_ref())).collect::<Vec<_>>();
    assert_eq!(seen, (0..10).collect::<Vec<_>>(), "those that were sent by 9,500 ns");
    assert!(none.is_empty());
    // And the other way.
    send(&mut far, Nanos(0), 7, 0);
    faulty.rx_burst(Nanos(6_000_000), &mut none);
    assert!(none.is_empty() && faulty.is_open());
    faulty.rx_burst(Nanos(10_999_999), &mut none);
    assert!(none.is_empty());
    faulty.rx_burst(Nanos(11_000_000), &mut none);
    assert_eq!(none.len(), 1);
}

#[test]
fn faults_of_frames_do_not_depend_on_the_length_of_their_link() {
    let rates = FaultRates { loss: 0.2, duplicate: 0.3, reorder: 0.3, corrupt: 0.2, delay: 0.0 };
    let run = |link_delay_ns| {
        let config = FaultConfig { seed: 5, tx: rates, link_delay_ns, ..FaultConfig::default() };
        let (mut faulty, mut far) = pair(&config);
        let mut seen = Vec::new();
        for chunk in 0..200 {
            send(&mut faulty, Nanos(0), chunk, 0);
            seen.extend(drain(&mut far, Nanos(0)).iter().map(|f| f.as_ref().to_vec()));
        }
        // Reordered frames that nobody overtook leave first, then the link is left.
        for later in 1..4 {
            faulty.rx_burst(Nanos(later * LATER.0), &mut Burst::new());
            seen.extend(drain(&mut far, Nanos(0)).iter().map(|f| f.as_ref().to_vec()));
        }
        (faulty.tx_counts(), seen)
    };
    let (short, long) = (run(0), run(5_000_000));
    assert!(short.0.lost > 20 && short.0.reordered > 20 && short.0.duplicated > 20);
    assert_eq!(short.0, long.0);
    assert!(short.1 == long.1, "the same frames in the same order");
}

#[test]
fn a_full_link_loses_frames_and_counts_them() {
    let config = FaultConfig { link_delay_ns: 1_000, ..FaultConfig::default() };
    let (mut faulty, mut far) = pair(&config);
    let sent = LINK_FRAMES_MAX as u64 + 32;
    for chunk in 0..u32::try_from(sent).expect("few") {
        let mut tx = Burst::new();
        tx.push(datagram(&mut faulty, &route(), &contribution(chunk, 1)));
        assert_eq!(faulty.tx_burst(Nanos(0), &mut tx), 1);
    }
    assert_eq!(faulty.tx_counts().link_full, 32);
    let mut arrived = 0;
    while arrived < LINK_FRAMES_MAX {
        faulty.rx_burst(Nanos(1_000), &mut Burst::new());
        let came = drain(&mut far, Nanos(0)).len();
        assert!(came > 0, "{arrived} of {LINK_FRAMES_MAX} arrived");
        arrived += came;
    }
}
