//! net_ring: a device that gives back what is sent on it. Buffers, bursts and copies, without
//! hugepages or root.

mod common;

use common::{TempDir, eal_args, frame_of, pattern, rx};
use weft_dpdk::{
    DpdkPort, DpdkQueue, Eal, EalError, EalHandle, PortConfig, PortError, PortId, Steering,
};
use weft_io::{BURST_MAX, Burst, Frame, Port};
use weft_wire::Nanos;

const NOW: Nanos = Nanos(0);

#[test]
fn net_ring() {
    let folder = TempDir::new("ring");
    let args =
        eal_args(&folder).vdev("net_ring0").vdev("net_ring1").vdev("net_ring2").vdev("net_null0");
    let eal = Eal::init(&args).expect("EAL starts without hugepages");
    assert!(matches!(Eal::init(&args), Err(EalError::AlreadyStarted)));
    assert!(weft_dpdk::rte_version().starts_with("DPDK "));
    assert!(eal.tsc_hz() > 1_000_000);

    devices_are_listed(&eal);
    impossible_configurations_name_their_limit(&eal);

    let config = PortConfig { copy_break_bytes: 512, ..PortConfig::named("net_ring0") };
    let mut port = open_one(&eal, &config);
    assert!(port.is_link_up());
    assert_eq!(port.steering(), Steering::Unsupported);
    assert_eq!(port.info().driver, "net_ring");
    a_port_opens_once(&eal);
    bytes_come_back_and_counters_agree(&mut port);
    a_full_ring_leaves_the_rest_with_the_caller(&mut port);
    an_exhausted_pool_is_counted(&mut port);
    lengths_stay_inside_the_buffer(&mut port);
    payloads_start_on_a_cache_line(&mut port);
    short_copies_are_whole(&mut port);
    long_copies_share_their_payload(&mut port);
    a_shared_copy_can_be_copied_again(&mut port);
    a_frame_in_two_segments_arrives_in_one(&mut port);
    a_chain_that_fits_no_buffer_is_an_error(&eal, &mut port);
    frames_may_be_freed_on_any_thread(&eal, &mut port);
    a_handle_moves_between_threads(&eal);
    one_port_gives_a_handle_per_transmit_queue(&eal);
    unread_frames_do_not_leak_when_a_port_closes(&eal, port);
    let runtime = folder.path().join("dpdk");
    assert!(runtime.is_dir(), "EAL keeps its files there");
    drop(eal);
    assert!(!runtime.exists(), "and a normal end leaves none");
}

/// Headers of Ethernet, IPv4, UDP and Weft are 74 bytes. Of frames that were allocated, received
/// and copied; a kernel that adds in pieces of a cache line then touches one line per piece.
fn payloads_start_on_a_cache_line(port: &mut DpdkQueue) {
    let is_aligned = |frame: &weft_dpdk::Mbuf| (frame.as_ref().as_ptr().addr() + 74) % 64 == 0;
    balanced(port, |port| {
        let frame = frame_of(port, &pattern(1, 400));
        assert!(is_aligned(&frame));
        let mut tx: Burst<_> = port.copy(&frame, 74).into_iter().collect();
        assert!(tx.iter().all(is_aligned));
        port.tx_burst(NOW, &mut tx);
        let received = rx(port);
        assert!(received.len() == 1 && received.iter().all(is_aligned));
    });
}

fn open_one(eal: &EalHandle, config: &PortConfig) -> DpdkQueue {
    DpdkPort::open(eal, config).expect("the port opens").pop().expect("one queue")
}

/// Runs `body` and checks that every buffer is back afterwards.
fn balanced(port: &mut DpdkQueue, body: impl FnOnce(&mut DpdkQueue)) {
    let pools = |port: &DpdkQueue| {
        (port.pool().available(), port.clone_pool().map(weft_dpdk::Mempool::available))
    };
    let before = pools(port);
    body(port);
    assert_eq!(pools(port), before, "buffers leaked or were freed twice");
}

fn devices_are_listed(eal: &EalHandle) {
    let names: Vec<_> = eal.ports().into_iter().map(|port| (port.name, port.driver)).collect();
    assert!(names.contains(&("net_ring0".into(), "net_ring".into())), "{names:?}");
    assert_eq!(names.len(), 4);
    let error = eal.probe("net_nonsense0").expect_err("no such driver");
    assert!(error.to_string().contains("net_nonsense0"), "{error}");
}

fn impossible_configurations_name_their_limit(eal: &EalHandle) {
    let base = PortConfig::named("net_ring0");
    let refused =
        |config: &PortConfig| DpdkPort::open(eal, config).expect_err("refused").to_string();

    let unknown = refused(&PortConfig::named("net_ring9"));
    assert!(unknown.contains("net_ring9") && unknown.contains("net_ring0"), "{unknown}");
    let small = refused(&PortConfig { mtu: 9000, ..base.clone() });
    assert!(small.contains("needs 9142"), "{small}");
    let queues = refused(&PortConfig { rx_queues: 2, ..base.clone() });
    assert!(queues.contains("a transmit queue for each"), "{queues}");
    let many = refused(&PortConfig { rx_queues: 500, tx_queues: 500, ..base.clone() });
    assert!(many.contains("at most"), "{many}");
    let few = refused(&PortConfig { mbuf_count: 100, ..base.clone() });
    assert!(few.contains("need 640"), "{few}");
    assert!(matches!(
        DpdkPort::open(eal, &PortConfig { port: PortId::Index(77), ..base }),
        Err(PortError::Unknown { .. })
    ));
}

fn a_port_opens_once(eal: &EalHandle) {
    let error = DpdkPort::open(eal, &PortConfig::named("net_ring0")).expect_err("open already");
    assert!(error.to_string().contains("open already"), "{error}");
}

fn bytes_come_back_and_counters_agree(port: &mut DpdkQueue) {
    balanced(port, |port| {
        let before = port.stats();
        let sent: Vec<_> = (0..20).map(|i| pattern(i, 60 + 70 * i as usize)).collect();
        let mut tx: Burst<_> = sent.iter().map(|bytes| frame_of(port, bytes)).collect();
        assert_eq!(port.tx_burst(NOW, &mut tx), 20);
        assert!(tx.is_empty());
        // Frames are appended behind what the burst holds, as far as it has room.
        let mut got = Burst::new();
        for _ in 0..BURST_MAX - 15 {
            got.push(port.alloc().expect("a buffer"));
        }
        assert_eq!(port.rx_burst(NOW, &mut got), 15);
        assert_eq!(port.rx_burst(NOW, &mut got), 0);
        let rest = rx(port);
        let received: Vec<_> = got[BURST_MAX - 15..]
            .iter()
            .chain(&rest)
            .map(|frame| frame.as_ref().to_vec())
            .collect();
        assert_eq!(received, sent);

        let bytes: u64 = sent.iter().map(|frame| frame.len() as u64).sum();
        let after = port.stats();
        assert_eq!(after.rx_packets - before.rx_packets, 20);
        assert_eq!(after.tx_packets - before.tx_packets, 20);
        assert_eq!(after.rx_bytes - before.rx_bytes, bytes);
        assert_eq!(after.tx_bytes - before.tx_bytes, bytes);
        port.free(&mut got);
        assert!(got.is_empty());
    });
    let xstats = port.xstats();
    assert!(xstats.iter().any(|(name, value)| name == "rx_good_packets" && *value >= 20));
}

fn a_full_ring_leaves_the_rest_with_the_caller(port: &mut DpdkQueue) {
    balanced(port, |port| {
        let mut sent = 0;
        let mut numbers = 0_u32..;
        let mut tx = Burst::new();
        // The ring holds 1023 frames, so the last burst is cut short by one.
        let unsent = loop {
            let burst = numbers.by_ref().take(BURST_MAX);
            tx.extend(burst.map(|number| frame_of(port, &number.to_be_bytes())));
            sent += port.tx_burst(NOW, &mut tx);
            if !tx.is_empty() {
                break tx;
            }
        };
        assert_eq!(sent, 1023);
        let left: Vec<_> = unsent.iter().map(|frame| frame.as_ref().to_vec()).collect();
        assert_eq!(left, [1023_u32.to_be_bytes()], "the unsent frame stays, with its bytes");

        // Offered again after the ring has room, it arrives behind the others.
        let mut tx = unsent;
        assert_eq!(port.tx_burst(NOW, &mut tx), 0);
        let mut arrived = Vec::new();
        loop {
            let burst = rx(port);
            if burst.is_empty() {
                break;
            }
            arrived.extend(
                burst.iter().map(|frame| {
                    u32::from_be_bytes(frame.as_ref().try_into().expect("four bytes"))
                }),
            );
            port.tx_burst(NOW, &mut tx);
        }
        assert_eq!(arrived, (0..1024).collect::<Vec<_>>());
    });
}

fn an_exhausted_pool_is_counted(port: &mut DpdkQueue) {
    balanced(port, |port| {
        let before = port.stats().rx_nombuf;
        let mut held = Vec::new();
        while let Some(frame) = port.alloc() {
            held.push(frame);
        }
        assert_eq!(held.len(), port.pool().count() as usize);
        assert!(port.copy(&held[0], 0).is_none());
        assert_eq!(port.stats().rx_nombuf - before, 2);
    });
}

fn lengths_stay_inside_the_buffer(port: &mut DpdkQueue) {
    let mut frame = port.alloc().expect("a buffer");
    assert_eq!(frame.as_ref().len(), 0);
    assert_eq!(frame.buffer_mut().len(), 2048);
    frame.set_len(2048);
    assert_eq!(frame.as_mut().len(), 2048);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| frame.set_len(2049)));
    assert!(panicked.is_err());
}

fn short_copies_are_whole(port: &mut DpdkQueue) {
    balanced(port, |port| {
        let bytes = pattern(7, 512);
        let mut original = frame_of(port, &bytes);
        let mut copy = port.copy(&original, 42).expect("a buffer");
        assert_eq!(copy.as_ref(), bytes);
        assert!(copy.is_exclusive() && original.is_exclusive());
        copy.as_mut().fill(0);
        assert_eq!(original.as_ref(), bytes);
        original.as_mut().fill(1);
        assert!(copy.as_ref().iter().all(|byte| *byte == 0));
    });
}

fn long_copies_share_their_payload(port: &mut DpdkQueue) {
    balanced(port, |port| {
        let bytes = pattern(9, 1100);
        let mut original = frame_of(port, &bytes);
        let mut copies: Burst<_> =
            (0..3).map(|_| port.copy(&original, 74).expect("a buffer")).collect();
        for (copy, first) in copies.iter_mut().zip(100..) {
            assert_eq!(copy.as_ref(), &bytes[..74]);
            assert_eq!(copy.buffer_mut().len(), 74);
            assert_eq!(copy.frame_len(), 1100);
            copy.as_mut()[0] = first;
        }
        assert!(!original.is_exclusive());
        assert_eq!(original.as_ref(), bytes, "rewriting a copy's header changed the original");
        assert_eq!(original.as_mut().len(), 74, "the shared payload is still writable");
        original.as_mut()[0] = 99;

        // Each arrives whole and exclusive, though all share one payload: the original too, which
        // goes first, while the copies still refer to it, one of them not even sent.
        let last: Burst<_> = copies.drain(2..).collect();
        copies.insert(0, original);
        let mut got = Burst::new();
        for mut tx in [copies, last] {
            let sent = port.tx_burst(NOW, &mut tx);
            let seen = got.len();
            assert_eq!(port.rx_burst(NOW, &mut got), sent);
            for (frame, first) in got.iter_mut().zip(99..).skip(seen) {
                assert!(frame.is_exclusive());
                assert_eq!(frame.as_ref()[0], first);
                assert_eq!(frame.as_ref()[1..], bytes[1..], "two frames share bytes");
                frame.as_mut().fill(first);
            }
        }
        assert_eq!(got.len(), 4);
        for (frame, first) in got.iter().zip(99..) {
            assert!(frame.as_ref().iter().all(|byte| *byte == first), "two frames share bytes");
        }
    });
}

fn a_shared_copy_can_be_copied_again(port: &mut DpdkQueue) {
    balanced(port, |port| {
        let bytes = pattern(11, 1400);
        let original = frame_of(port, &bytes);
        let first = port.copy(&original, 100).expect("a buffer");
        drop(original);
        let mut tx = Burst::new();
        // A copy with the same header needs the payload's segment only.
        for (header_len, segments) in [(100, 1), (60, 2), (0, 2)] {
            let before = port.clone_pool().expect("copies share").available();
            let copy = port.copy(&first, header_len).expect("a buffer");
            assert_eq!(before - port.clone_pool().expect("copies share").available(), segments);
            assert_eq!((copy.as_ref(), copy.frame_len()), (&bytes[..header_len], 1400));
            tx.push(copy);
        }
        // A longer header than the first segment has: copied whole.
        let whole = port.copy(&first, 101).expect("a buffer");
        assert!(whole.is_exclusive());
        tx.push(whole);
        tx.push(first);
        assert_eq!(port.tx_burst(NOW, &mut tx), 5);
        let got = rx(port);
        assert_eq!(got.len(), 5);
        assert!(got.iter().all(|frame| frame.as_ref() == bytes));
    });
}

fn a_frame_in_two_segments_arrives_in_one(port: &mut DpdkQueue) {
    balanced(port, |port| {
        let before = port.stats();
        let bytes = pattern(13, 1500);
        let original = frame_of(port, &bytes);
        // Alone, so that the chain's first segment takes the payload in place.
        let mut tx: Burst<_> = [port.copy(&original, 74).expect("a buffer")].into_iter().collect();
        assert_eq!(port.tx_burst(NOW, &mut tx), 1);
        let got = rx(port);
        assert_eq!(got[0].as_ref(), bytes);
        assert!(got[0].is_exclusive());
        assert_eq!(port.stats().rx_errors, before.rx_errors);
        assert_eq!(port.stats().rx_bytes - before.rx_bytes, 1500);
    });
}

fn a_chain_that_fits_no_buffer_is_an_error(eal: &EalHandle, large: &mut DpdkQueue) {
    let config = PortConfig {
        mtu: 200,
        mbuf_data_room_bytes: 128 + 256,
        copy_break_bytes: 64,
        ..PortConfig::named("net_ring1")
    };
    let mut small = open_one(eal, &config);
    balanced(large, |large| {
        let original = frame_of(large, &pattern(15, 1500));
        balanced(&mut small, |small| {
            let before = small.stats();
            let mut tx: Burst<_> =
                [small.copy(&original, 74).expect("a buffer")].into_iter().collect();
            assert_eq!(small.tx_burst(NOW, &mut tx), 1);
            assert!(rx(small).is_empty());
            assert_eq!(small.stats().rx_errors - before.rx_errors, 1);
            assert_eq!(small.stats().rx_packets, before.rx_packets);
        });
    });
}

fn frames_may_be_freed_on_any_thread(eal: &EalHandle, port: &mut DpdkQueue) {
    balanced(port, |port| {
        let frames: Vec<_> = (0..100).map(|i| frame_of(port, &pattern(i, 100))).collect();
        let handle = eal.clone();
        std::thread::spawn(move || {
            let lcore = handle.register_lcore(None).expect("an lcore is left");
            assert!(lcore.id() > 0);
            drop(frames);
        })
        .join()
        .expect("the thread ends well");
    });
    let here = eal.register_lcore(None).expect("the thread that started EAL is an lcore");
    assert_eq!(here.id(), 0);
}

fn a_handle_moves_between_threads(eal: &EalHandle) {
    let mut queue = open_one(eal, &PortConfig::named("net_ring2"));
    let handle = eal.clone();
    let mut queue = std::thread::spawn(move || {
        let _lcore = handle.register_lcore(None).expect("an lcore is left");
        balanced(&mut queue, |queue| {
            for round in 0..1000 {
                let bytes = pattern(round, 64);
                let mut tx: Burst<_> = [frame_of(queue, &bytes)].into_iter().collect();
                assert_eq!(queue.tx_burst(NOW, &mut tx), 1);
                assert_eq!(rx(queue)[0].as_ref(), bytes);
            }
        });
        queue
    })
    .join()
    .expect("the thread ends well");
    balanced(&mut queue, |queue| drop(frame_of(queue, &[1, 2, 3])));
}

fn one_port_gives_a_handle_per_transmit_queue(eal: &EalHandle) {
    // net_null delivers a full burst of zeroes whenever it is asked, and swallows what is sent.
    let config = PortConfig { rx_queues: 2, tx_queues: 3, ..PortConfig::named("net_null0") };
    let mut queues = DpdkPort::open(eal, &config).expect("the port opens");
    assert_eq!(queues.iter().map(DpdkQueue::queue).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(queues.iter().map(DpdkQueue::receives).collect::<Vec<_>>(), [true, true, false]);
    assert!(queues.iter().all(|queue| queue.steering() == Steering::Unsupported));
    let received: Vec<_> = queues.iter_mut().map(|queue| rx(queue).len()).collect();
    assert_eq!(received, [32, 32, 0]);
    for queue in &mut queues {
        let mut tx: Burst<_> = [frame_of(queue, &[0; 64])].into_iter().collect();
        assert_eq!(queue.tx_burst(NOW, &mut tx), 1);
    }
    let stats: Vec<_> = queues.iter().map(Port::stats).collect();
    assert_eq!(stats.iter().map(|stats| stats.rx_packets).collect::<Vec<_>>(), [32, 32, 0]);
    assert_eq!(stats.iter().map(|stats| stats.tx_packets).collect::<Vec<_>>(), [1, 1, 1]);
    let balance: Vec<_> =
        queues.iter().map(|queue| queue.pool().count() - queue.pool().available()).collect();
    assert_eq!(balance, [0, 0, 0]);
}

fn unread_frames_do_not_leak_when_a_port_closes(eal: &EalHandle, mut port: DpdkQueue) {
    let pool = port.pool().clone();
    let mut tx: Burst<_> = (0..32).map(|i| frame_of(&mut port, &pattern(i, 64))).collect();
    assert_eq!(port.tx_burst(NOW, &mut tx), 32);
    assert_eq!(pool.available(), pool.count() - 32);
    drop(port);
    assert_eq!(pool.available(), pool.count());
    assert!(!eal.ports().iter().any(|port| port.name == "net_ring0"), "a closed port is gone");
}
