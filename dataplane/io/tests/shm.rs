//! Shared memory between a worker and a box, both ends in this process and in others; peers that
//! lie, that die, and that are somebody else's.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::shm::{Host, LONG, clock, host, host_at, join, local, receive_until, send};
use crate::common::{contribution, datagram, encap};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use weft_io::shm::{self, Refusal, ShmConfig, ShmError, ShmHost, ShmPort};
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Burst, Frame, Port};
use weft_wire::Nanos;
use weft_wire::frame::Udp;

#[test]
fn frames_go_both_ways_and_show_who_sent_them() {
    let (mut host, addr) = host();
    let own = local(20_001);
    let mut worker = join(&mut host, &ShmConfig::new(own, addr)).expect("it is let in");
    assert_eq!(worker.info().driver, "shm");
    assert_eq!(host.info().driver, "udp+shm");
    let payload = contribution(3, 1);
    for round in 0..1000_u32 {
        let payload = contribution(round, 1);
        send(&mut worker, own, addr, &payload);
        receive_until(&mut host, |host, rx| {
            let Some(frame) = rx.pop() else { return false };
            let udp = Udp::parse(frame.as_ref()).expect("a datagram");
            assert_eq!((udp.source, udp.target), (own, addr));
            assert_eq!(frame.as_ref()[udp.payload_range()], payload);
            send(host, addr, own, &payload);
            true
        });
        receive_until(&mut worker, |_, rx| {
            rx.pop().is_some_and(|frame| frame.as_ref()[42..] == payload)
        });
    }
    assert_eq!(worker.stats().rx_packets, 1000);
    assert_eq!(host.stats().rx_packets, 1000);
    assert_eq!(host.carried().0, 1000 * (42 + payload.len() as u64));
}

/// Lanes hand frames to each other; a lane that kept them would have another's socket starve.
#[test]
fn frames_of_another_ports_pool_go_home() {
    let (mut host, addr) = host();
    let _worker = join(&mut host, &ShmConfig::new(local(20_008), addr)).expect("it is let in");
    let config = UdpConfig { frame_count: 64, ..UdpConfig::new("127.0.0.1:0".parse().unwrap()) };
    let mut other = UdpPort::open(&config).expect("a free port");
    let mut frames: Burst<_> = std::iter::from_fn(|| other.alloc()).collect();
    assert_eq!(frames.len(), 64);
    host.free(&mut frames);
    assert!(other.alloc().is_some());
}

#[test]
fn members_over_udp_and_over_memory_are_served_at_once() {
    let (mut host, addr) = host();
    let near = local(20_011);
    let mut worker = join(&mut host, &ShmConfig::new(near, addr)).expect("it is let in");
    let mut other = UdpPort::open(&UdpConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let far = other.local_addr();
    send(&mut worker, near, addr, &contribution(1, 1));
    send(&mut other, far, addr, &contribution(2, 2));
    let mut sources = Vec::new();
    receive_until(&mut host, |_, rx| {
        let source = |frame: &<Host as Port>::Frame| Udp::parse(frame.as_ref()).unwrap().source;
        sources.extend(rx.iter().map(source));
        sources.len() == 2
    });
    sources.sort_unstable();
    let mut expected = [near, far];
    expected.sort_unstable();
    assert_eq!(sources, expected);
    let mut tx = Burst::new();
    for target in [far, near, far, near] {
        tx.push(datagram(&mut host, &encap(addr, target), &contribution(1, 3)));
    }
    assert_eq!(host.tx_burst(clock(), &mut tx), 4);
    let mut got = [0, 0];
    receive_until(&mut worker, |_, rx| {
        got[0] += rx.len();
        got[0] == 2
    });
    receive_until(&mut other, |_, rx| {
        got[1] += rx.len();
        got[1] == 2
    });
}

/// Offers a burst of `count` frames; what is refused is dropped.
/// Else a box sends answers that could be one message one by one.
#[test]
fn a_port_that_merges_frames_does_so_with_memory_beside_it() {
    let addr = "127.0.0.1:0".parse().unwrap();
    let open = || UdpPort::open(&UdpConfig { offload: true, ..UdpConfig::new(addr) }).unwrap();
    assert!(open().merges(), "this kernel cuts messages into datagrams");
    assert!(ShmHost::closed(open()).merges());
    let port = open();
    let addr = port.local_addr();
    assert!(ShmHost::open(port, addr).unwrap().merges());
}

fn offer<P: Port>(port: &mut P, source: SocketAddr, target: SocketAddr, count: usize) {
    let mut tx = Burst::new();
    for _ in 0..count {
        tx.push(datagram(port, &encap(source, target), &contribution(1, 1)));
    }
    port.tx_burst(clock(), &mut tx);
}

#[test]
fn neither_side_starves_the_other() {
    for counts in [[32, 1], [1, 32]] {
        let (mut host, addr) = host();
        let near = local(20_021);
        let mut worker = join(&mut host, &ShmConfig::new(near, addr)).expect("it is let in");
        let mut other = UdpPort::open(&UdpConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
        let far = other.local_addr();
        let mut seen = [0, 0];
        for _ in 0..400 {
            // More than the box takes in.
            offer(&mut worker, near, addr, counts[0]);
            offer(&mut other, far, addr, counts[1]);
            let mut rx = Burst::new();
            host.rx_burst(clock(), &mut rx);
            for frame in &rx {
                let is_far = Udp::parse(frame.as_ref()).unwrap().source == far;
                seen[usize::from(is_far)] += 1;
            }
        }
        assert!(seen[0] > 100 && seen[1] > 100, "{seen:?} of {counts:?} each turn");
    }
}

#[test]
fn a_full_ring_leaves_the_rest_to_the_worker_and_costs_the_box_that_frame() {
    let (mut host, addr) = host();
    let (own, second) = (local(20_031), local(20_032));
    let mut worker = join(&mut host, &ShmConfig::new(own, addr)).expect("it is let in");
    let mut other = join(&mut host, &ShmConfig::new(second, addr)).expect("it is let in");
    let mut sent = 0;
    loop {
        let mut tx = Burst::new();
        for _ in 0..32 {
            tx.push(datagram(&mut worker, &encap(own, addr), &contribution(sent, 1)));
            sent += 1;
        }
        let taken = worker.tx_burst(clock(), &mut tx);
        assert_eq!(taken + tx.len(), 32);
        if taken < 32 {
            break;
        }
        assert!(sent < 5000, "it is never full");
    }
    // The box's answers to one that does not take them do not hold up the other's.
    let mut tx = Burst::new();
    for _ in 0..400 {
        tx.push(datagram(&mut host, &encap(addr, own), &contribution(0, 1)));
        tx.push(datagram(&mut host, &encap(addr, second), &contribution(0, 1)));
        assert_eq!(host.tx_burst(clock(), &mut tx), 2);
        let mut rx = Burst::new();
        assert_eq!(other.rx_burst(clock(), &mut rx), 1);
    }
    assert!(host.counts().ring_full() > 0);
    assert_eq!(host.counts().ring_full(), host.stats().tx_errors);
}

#[test]
fn the_largest_frames_go_through() {
    let (mut host, addr) = host_at("127.0.0.1:0".parse().unwrap(), 65_535);
    let own = local(20_041);
    let config = ShmConfig { mtu: 65_535, ..ShmConfig::new(own, addr) };
    let mut worker = join(&mut host, &config).expect("it is let in");
    let payload: Vec<u8> = (0..65_507_u32).map(|at| at.to_le_bytes()[0]).collect();
    for _ in 0..100 {
        send(&mut worker, own, addr, &payload);
        receive_until(&mut host, |host, rx| {
            let Some(mut frame) = rx.pop() else { return false };
            encap(addr, own).emit(frame.as_mut(), payload.len());
            let mut tx = Burst::new();
            tx.push(frame);
            assert_eq!(host.tx_burst(clock(), &mut tx), 1);
            true
        });
        receive_until(&mut worker, |_, rx| {
            rx.pop().is_some_and(|frame| frame.as_ref()[42..] == payload)
        });
    }
}

/// A burst of them would be several caches full.
#[test]
fn long_frames_come_a_few_at_a_time_and_all_of_them_in_order() {
    fn lens<P: Port>(port: &mut P, payload_len: usize) -> Vec<usize> {
        let mut lens = Vec::new();
        let mut next = 0;
        loop {
            let mut rx = Burst::new();
            match port.rx_burst(clock(), &mut rx) {
                0 => return lens,
                count => lens.push(count),
            }
            for frame in rx {
                assert_eq!(frame.as_ref()[42..], vec![next; payload_len]);
                next += 1;
            }
        }
    }
    for (payload_len, wanted) in [(60_000, &[3, 3, 2][..]), (9_000, &[8])] {
        let (mut host, addr) = host_at("127.0.0.1:0".parse().unwrap(), 65_535);
        let own = local(20_042);
        let config = ShmConfig { mtu: 65_535, ..ShmConfig::new(own, addr) };
        let mut worker = join(&mut host, &config).expect("it is let in");
        for mark in 0..8 {
            send(&mut worker, own, addr, &vec![mark; payload_len]);
            send(&mut host, addr, own, &vec![mark; payload_len]);
        }
        assert_eq!(lens(&mut host, payload_len), wanted);
        assert_eq!(lens(&mut worker, payload_len), wanted);
    }
}

#[test]
fn ipv6_members_are_bound_to_their_address_too() {
    let Ok(udp) = UdpPort::open(&UdpConfig::new("[::1]:0".parse().unwrap())) else {
        println!("SKIPPED ipv6_members_are_bound_to_their_address_too: no IPv6 here");
        return;
    };
    let addr = udp.local_addr();
    let mut host = ShmHost::open(udp, addr).expect("nobody else is there");
    let own = "[::1]:20051".parse().unwrap();
    let mut worker = join(&mut host, &ShmConfig::new(own, addr)).expect("it is let in");
    send(&mut worker, own, addr, &contribution(1, 1));
    receive_until(&mut host, |_, rx| rx.len() == 1);
    send(&mut worker, "[::1]:20052".parse().unwrap(), addr, &contribution(1, 1));
    host.rx_burst(clock(), &mut Burst::new());
    assert_eq!(host.counts().bad_source(), 1);
}

#[test]
fn a_frame_that_names_another_source_is_refused() {
    let (mut host, addr) = host();
    let config = ShmConfig { lanes: 2, ..ShmConfig::new(local(20_061), addr) };
    let mut worker = join(&mut host, &config).expect("it is let in");
    for source in [local(20_060), local(20_063), "127.0.0.2:20061".parse().unwrap()] {
        send(&mut worker, source, addr, &contribution(1, 1));
    }
    let mut arp = worker.alloc().expect("a frame");
    arp.set_len(60);
    arp.as_mut().fill(0);
    let mut tx = Burst::new();
    tx.push(arp);
    worker.tx_burst(clock(), &mut tx);
    for lane in [local(20_061), local(20_062)] {
        send(&mut worker, lane, addr, &contribution(1, 1));
    }
    let mut rx = Burst::new();
    assert_eq!(host.rx_burst(clock(), &mut rx), 2, "its own two lanes");
    assert_eq!(host.counts().bad_source(), 4);
    assert_eq!(host.stats().rx_errors, 4);
}

#[test]
fn what_may_not_come_in_is_told_why() {
    let (mut host, addr) = host();
    let own = local(20_071);
    let config = ShmConfig { lanes: 4, ..ShmConfig::new(own, addr) };
    let _worker = join(&mut host, &config).expect("it is let in");
    let refused = |host: &mut Host, config: &ShmConfig| match join(host, config) {
        Err(ShmError::Refused { refusal, .. }) => refusal,
        other => panic!("{other:?}"),
    };
    for taken in [20_071, 20_074] {
        let config = ShmConfig::new(local(taken), addr);
        assert_eq!(refused(&mut host, &config), Refusal::InUse);
    }
    join(&mut host, &ShmConfig::new(local(20_075), addr)).expect("the next is free");
    // TEST-NET-1 is nobody's.
    let config = ShmConfig::new("192.0.2.1:20071".parse().unwrap(), addr);
    assert_eq!(refused(&mut host, &config), Refusal::NotHere);
    let config = ShmConfig { mtu: 9000, ..ShmConfig::new(local(20_080), addr) };
    assert_eq!(refused(&mut host, &config), Refusal::Mtu);
    assert_eq!(host.counts().refused(Refusal::InUse), 2);
    assert_eq!(host.counts().refused(Refusal::NotHere), 1);
    assert_eq!(host.counts().refused(Refusal::Mtu), 1);
    let text = join(&mut host, &ShmConfig::new(own, addr)).expect_err("in use").to_string();
    assert!(text.contains("another process has this worker's address"), "{text}");
}

#[test]
fn a_box_has_room_for_the_members_of_a_row() {
    let (mut host, addr) = host();
    let mut workers = Vec::new();
    for rank in 0..64 {
        let config = ShmConfig::new(local(21_000 + rank), addr);
        workers.push(join(&mut host, &config).expect("it is let in"));
    }
    assert_eq!(host.counts().links(), 64);
    let one_more = ShmConfig::new(local(21_064), addr);
    let error = join(&mut host, &one_more).expect_err("65 of 64");
    assert!(matches!(error, ShmError::Refused { refusal: Refusal::Full, .. }), "{error}");
    assert!(error.to_string().contains("hold its 64 places: end one"), "{error}");
    drop(workers.pop());
    join(&mut host, &ShmConfig::new(local(21_063), addr)).expect("its address is free again");
}

#[test]
fn where_no_box_is_says_what_to_do() {
    let addr = local(1);
    assert!(!ShmPort::is_offered(addr));
    let error = ShmPort::open(&ShmConfig::new(local(20_081), addr)).expect_err("no box");
    assert!(matches!(error, ShmError::NoBox { .. }), "{error:?}");
    assert!(error.to_string().contains("port.shm = true"), "{error}");
    let (host, addr) = host();
    assert!(ShmPort::is_offered(addr));
    let udp = UdpPort::open(&UdpConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let error = ShmHost::open(udp, addr).expect_err("there is one");
    assert!(matches!(error, ShmError::Taken { .. }), "{error:?}");
    drop(host);
    // A program that another test starts has every descriptor until it runs.
    let begun = Instant::now();
    while ShmPort::is_offered(addr) {
        assert!(begun.elapsed() < LONG, "its rendezvous ends with it");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_box_that_never_answers_is_no_hang() {
    let addr = local(20_091);
    let _deaf = rendezvous(addr);
    let config = ShmConfig { timeout: Duration::from_millis(50), ..ShmConfig::new(local(1), addr) };
    let error = ShmPort::open(&config).expect_err("it says nothing");
    assert!(matches!(error, ShmError::Silent { .. }), "{error:?}");
}

fn path(addr: SocketAddr) -> PathBuf {
    shm::rendezvous(addr).expect("a folder of this user")
}

/// Listens where a box at `addr` would.
fn rendezvous(addr: SocketAddr) -> UnixListener {
    let _ = std::fs::remove_file(path(addr));
    UnixListener::bind(path(addr)).expect("nobody else is there")
}

fn caller(addr: SocketAddr) -> UnixStream {
    UnixStream::connect(path(addr)).expect("a box is there")
}

/// A greeting, by hand.
fn greeting(version: u32, port: u16) -> [u8; 64] {
    let mut message = [0; 64];
    message[..8].copy_from_slice(b"weft-shm");
    message[8..12].copy_from_slice(&version.to_le_bytes());
    message[12] = 1;
    message[14..16].copy_from_slice(&port.to_le_bytes());
    message[26..32].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
    message[32..36].copy_from_slice(&1500_u32.to_le_bytes());
    message
}

#[test]
fn a_box_answers_a_worker_of_another_version_and_one_that_makes_no_sense() {
    let (mut host, addr) = host();
    for (message, status) in [
        (greeting(1, 20_101), 1_u8),
        ([0xff; 64], 2),
        (greeting(3, 0), 2),
        (greeting(3, 20_102), 0),
    ] {
        let mut stream = caller(addr);
        stream.write_all(&message).unwrap();
        host.rx_burst(later(), &mut Burst::new());
        let mut answer = [0; 64];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer[12], status);
        assert_eq!(answer[8..12], [3, 0, 0, 0], "it says its version");
    }
    let mut cut = caller(addr);
    cut.write_all(&[0; 63]).unwrap();
    host.rx_burst(later(), &mut Burst::new());
    assert_eq!(host.counts().refused(Refusal::Malformed), 3);
    assert_eq!(host.counts().refused(Refusal::Version), 1);
    assert_eq!(host.counts().joined(), 1);
}

/// A time at which the box looks for workers again.
fn later() -> Nanos {
    use std::sync::atomic::{AtomicU64, Ordering};
    static MORE: AtomicU64 = AtomicU64::new(0);
    Nanos(clock().0 + MORE.fetch_add(3_000_000, Ordering::Relaxed) + 3_000_000)
}

#[test]
fn callers_that_say_nothing_keep_nobody_out() {
    let (mut host, addr) = host();
    let silent: Vec<_> = (0..200).map(|_| caller(addr)).collect();
    let mut stream = caller(addr);
    stream.write_all(&greeting(3, 20_111)).unwrap();
    // A tenth of a second; a box has the patience of one with somebody who comes alone.
    for _ in 0..30 {
        host.rx_burst(later(), &mut Burst::new());
    }
    let mut answer = [0xee; 64];
    stream.set_nonblocking(true).unwrap();
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[12], 0, "let in");
    drop(silent);
}

/// A program of another user at the rendezvous: how many of its hundred calls came through, and
/// whether it could put a name there. It holds them for as long as the process lives.
fn stranger(uid: &str, addr: SocketAddr) -> (Child, String) {
    const SCRIPT: &str = "import socket, sys, time\n\
        made, calls = 0, [socket.socket(socket.AF_UNIX) for _ in range(101)]\n\
        for call in calls[1:]:\n  \
          try: call.connect(sys.argv[1]); made += 1\n  \
          except PermissionError: pass\n\
        try: calls[0].bind(sys.argv[1] + '1'); made = 'bound'\n\
        except PermissionError: pass\n\
        print(made, flush=True)\n\
        time.sleep(60)\n";
    let mut other = Command::new("setpriv")
        .args(["--reuid", uid, "--regid", uid, "--clear-groups", "/usr/bin/python3", "-c"])
        .arg(SCRIPT)
        .arg(path(addr))
        .stdout(Stdio::piped())
        .spawn()
        .expect("util-linux and python3 are installed");
    let mut line = String::new();
    BufReader::new(other.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (other, line.trim().to_owned())
}

#[test]
fn programs_of_another_user_cannot_call_nor_hold_a_name_and_named_users_can_call() {
    const NOBODY: u32 = 65_534;
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: needs root, to be another user");
        return;
    }
    for (users, calls, refused) in
        [(&[][..], "0", 0), (&[1][..], "100", 100), (&[NOBODY][..], "100", 0)]
    {
        let udp = UdpPort::open(&UdpConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
        let addr = udp.local_addr();
        let mut host = ShmHost::open_for(udp, addr, users).expect("nobody else is there");
        let (mut other, made) = stranger("65534", addr);
        let joined = join(&mut host, &ShmConfig::new(local(20_112), addr));
        other.kill().unwrap();
        other.wait().unwrap();
        joined.expect("a place");
        assert_eq!((made.as_str(), host.counts().refused(Refusal::Owner)), (calls, refused));
    }
}

#[test]
fn a_worker_names_what_is_wrong_with_a_box() {
    let addr = local(20_121);
    let listener = rendezvous(addr);
    let answer = |message: [u8; 64]| {
        let config = ShmConfig::new(local(20_122), addr);
        let opening = std::thread::spawn(move || ShmPort::open(&config).expect_err("refused"));
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 64]).unwrap();
        stream.write_all(&message).unwrap();
        opening.join().unwrap().to_string()
    };
    let text = answer(greeting(9, 0));
    assert!(text.contains("version 9") && text.contains("one release"), "{text}");
    let text = answer([0; 64]);
    assert!(text.contains("makes no sense"), "{text}");
    let mut welcome = greeting(3, 0);
    welcome[12..].fill(0);
    welcome[16..20].copy_from_slice(&1514_u32.to_le_bytes());
    welcome[20..24].copy_from_slice(&256_u32.to_le_bytes());
    let text = answer(welcome);
    assert!(text.contains("without its descriptors"), "{text}");
}

/// A hostile program of this user at the rendezvous of `addr`, killed when dropped; it has done its
/// worst when this returns its line of output.
fn hostile(host: &mut Host, addr: SocketAddr, port: u16, script: &str) -> (Peer, String) {
    const CALL: &str = "import fcntl, os, socket, struct, sys, time\n\
        hello = b'weft-shm' + struct.pack('<IHH10x', 3, 1, int(sys.argv[2]))\n\
        hello += bytes([255, 255, 127, 0, 0, 1]) + struct.pack('<I28x', 1500)\n\
        call = socket.socket(socket.AF_UNIX)\n\
        call.connect(sys.argv[1])\n";
    let mut child = Command::new("/usr/bin/python3")
        .args(["-c", &format!("{CALL}{script}time.sleep(60)\n")])
        .args([path(addr).into_os_string(), port.to_string().into()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    let peer = Peer(child);
    let reading = std::thread::spawn(move || {
        let mut line = String::new();
        lines.read_line(&mut line).map(|_| line.trim().to_owned())
    });
    let begun = Instant::now();
    while !reading.is_finished() {
        host.rx_burst(clock(), &mut Burst::new());
        host.wait(1_000_000);
        assert!(begun.elapsed() < LONG, "the box is held");
    }
    (peer, reading.join().unwrap().expect("a line"))
}

/// Closing such a socket waits for what it has not sent, as long as its first owner likes.
#[test]
fn sockets_that_linger_and_are_passed_hold_no_box() {
    const SCRIPT: &str = "server = socket.create_server(('127.0.0.1', 0))\n\
        slow = socket.create_connection(server.getsockname())\n\
        slow.setblocking(False)\n\
        try:\n  \
          while True: slow.send(bytes(65536))\n\
        except BlockingIOError: pass\n\
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 30))\n\
        def give(what):\n  \
          try: socket.send_fds(call, [what], [slow.fileno()]); return 'passed'\n  \
          except PermissionError: call.send(what); return 'refused'\n\
        if sys.argv[2] == '20161': said = give(hello)\n\
        else: call.send(hello); call.recv(64); said = give(b'more')\n\
        if said == 'passed': slow.close()\n\
        print(said, flush=True)\n";
    let (mut host, addr) = host();
    for (port, is_let_in) in [(20_161, false), (20_162, true)] {
        let (peer, said) = hostile(&mut host, addr, port, SCRIPT);
        drop(peer);
        // The program has ended, and other workers come in meanwhile.
        let begun = Instant::now();
        while host.counts().links() > 0 {
            host.rx_burst(clock(), &mut Burst::new());
            assert!(begun.elapsed() < LONG, "the box is held");
        }
        join(&mut host, &ShmConfig::new(local(port), addr)).expect("its address is free");
        let refused = host.counts().refused(Refusal::Rights);
        assert_eq!(refused, u64::from(said == "passed"), "{said}, then let in: {is_let_in}");
    }
}

/// All holders of an eventfd share its flags and its counter.
#[test]
fn a_bell_that_a_worker_has_spoilt_holds_neither_the_box_nor_other_workers() {
    const SCRIPT: &str = "call.send(hello)\n\
        welcome, fds, _, _ = socket.recv_fds(call, 64, 8)\n\
        for fd in fds[2:]:\n  \
          fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)\n  \
          try: os.write(fd, struct.pack('=Q', 2**64 - 2))\n  \
          except OSError: pass\n\
        frame_len, slots = struct.unpack('<II', welcome[16:24])\n\
        slot_words = (1 + (frame_len + 7) // 8 + 7) // 8 * 8\n\
        asleep = 512 + 48 + slots * slot_words + 32\n\
        os.pwrite(fds[0], struct.pack('=Q', 1), 8 * asleep)\n\
        print('spoilt', flush=True)\n";
    let (mut host, addr) = host();
    let near = local(20_171);
    let mut worker = join(&mut host, &ShmConfig::new(near, addr)).expect("it is let in");
    let (_peer, said) = hostile(&mut host, addr, 20_172, SCRIPT);
    assert_eq!((said.as_str(), host.counts().links()), ("spoilt", 2));
    let (done, is_done) = std::sync::mpsc::channel();
    let talking = std::thread::spawn(move || {
        // Its memory shows a sleeper, so the box rings; and the box sleeps, so the worker rings.
        send(&mut host, addr, local(20_172), &contribution(1, 1));
        host.wait(0);
        let sending = std::thread::spawn(move || {
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(2));
                send(&mut worker, near, addr, &contribution(1, 1));
            }
        });
        let mut seen = 0;
        receive_until(&mut host, |_, rx| {
            seen += rx.len();
            seen == 20
        });
        sending.join().unwrap();
        done.send(()).unwrap();
    });
    is_done.recv_timeout(2 * LONG).expect("a lane or a worker is held");
    talking.join().unwrap();
}

#[test]
fn the_address_of_a_living_member_over_udp_cannot_be_claimed() {
    let (mut host, addr) = host();
    let mut member = UdpPort::open(&UdpConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let own = member.local_addr();
    for lanes in [1, 2] {
        // Also as one of several lanes.
        let first = local(own.port() + 1 - u16::try_from(lanes).unwrap());
        let config = ShmConfig { lanes, ..ShmConfig::new(first, addr) };
        let error = join(&mut host, &config).expect_err("somebody has it");
        assert!(matches!(error, ShmError::Refused { refusal: Refusal::InUse, .. }), "{error}");
    }
    send(&mut host, addr, own, &contribution(1, 1));
    receive_until(&mut member, |_, rx| rx.len() == 1);
}

#[test]
fn a_box_whose_callers_queue_up_is_no_hang() {
    let addr = local(20_181);
    let deaf = rendezvous(addr);
    nix::sys::socket::listen(&deaf, nix::sys::socket::Backlog::new(1).unwrap()).unwrap();
    let open = move |timeout| {
        let config = ShmConfig { timeout, ..ShmConfig::new(local(20_182), addr) };
        ShmPort::open(&config)
    };
    let (done, is_done) = std::sync::mpsc::channel();
    let calling = std::thread::spawn(move || {
        let callers: Vec<_> = (0..8).map(|_| open(Duration::from_millis(20))).collect();
        done.send((callers, ShmPort::is_offered(addr))).unwrap();
    });
    let (callers, is_offered) = is_done.recv_timeout(LONG).expect("a call waits without end");
    assert!(callers.iter().all(|it| matches!(it, Err(ShmError::Silent { .. }))), "{callers:?}");
    assert!(is_offered);
    calling.join().unwrap();
}

#[test]
fn descriptors_that_a_box_has_not_announced_are_closed() {
    let addr = local(20_191);
    let listener = rendezvous(addr);
    let file = tempfile::NamedTempFile::new().unwrap();
    let held = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap();
        let names = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        names.filter(|name| name == file.path()).count()
    };
    for count in [1, 5, 6, 60] {
        let opening =
            std::thread::spawn(move || ShmPort::open(&ShmConfig::new(local(20_192), addr)));
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 64]).unwrap();
        let fds = vec![file.as_raw_fd(); count];
        let rights = [ControlMessage::ScmRights(&fds)];
        let message = greeting(3, 0);
        let answer = [std::io::IoSlice::new(&message)];
        sendmsg::<()>(stream.as_raw_fd(), &answer, &rights, MsgFlags::empty(), None).unwrap();
        opening.join().unwrap().expect_err("no welcome");
        drop(stream);
        assert_eq!(held(), 1, "after {count}");
    }
}

/// A process at one end, killed when dropped.
struct Peer(Child);

impl Peer {
    /// Starts `examples/shm_peer.rs`, which cargo builds before the tests, and waits until it is
    /// ready; meanwhile `host` breathes.
    fn start(arguments: &[&str], mut host: Option<&mut Host>) -> Self {
        let this = std::env::current_exe().expect("a test program has a path");
        let folder = this.ancestors().nth(2).expect("test programs are in target/PROFILE/deps");
        let mut command = Command::new(folder.join("examples/shm_peer"));
        let mut child =
            command.args(arguments).stdout(Stdio::piped()).spawn().expect("it was built");
        let mut stdout = child.stdout.take().expect("it is piped");
        let reading = std::thread::spawn(move || stdout.read(&mut [0; 6]).unwrap_or(0));
        while !reading.is_finished() {
            if let Some(host) = &mut host {
                host.rx_burst(clock(), &mut Burst::new());
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        assert_eq!(reading.join().unwrap(), 6, "it says that it is ready");
        Self(child)
    }
}

impl Drop for Peer {
    /// SIGKILL: whatever it was doing.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A frame of the flood, whole: all its words are its number.
fn number_of(frame: &[u8]) -> u32 {
    let payload = &frame[Udp::parse(frame).expect("a datagram").payload_range()];
    assert_eq!(payload.len(), 1000);
    let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    let number = word(&payload[..4]);
    assert!(payload.chunks_exact(4).all(|bytes| word(bytes) == number), "a torn frame");
    number
}

#[test]
fn a_worker_that_is_killed_leaves_whole_frames_and_its_place() {
    let (mut host, addr) = host();
    let own = local(20_131);
    for life in 1..=20_u64 {
        let arguments = ["worker", &addr.to_string(), &own.to_string()];
        let mut peer = Some(Peer::start(&arguments, Some(&mut host)));
        let (mut last, mut seen) = (None, 0_u32);
        let mut begun = Instant::now();
        loop {
            let mut rx = Burst::new();
            host.rx_burst(clock(), &mut rx);
            for frame in &rx {
                let number = number_of(frame.as_ref());
                assert!(last.is_none_or(|last| number > last), "in order, each once");
                (last, seen) = (Some(number), seen + 1);
            }
            // Somewhere in a burst, another place each time.
            if peer.is_some() && seen > 500 + 37 * u32::try_from(life).unwrap() {
                peer = None;
                begun = Instant::now();
            }
            if host.counts().ended() == life {
                break;
            }
            assert!(begun.elapsed() < LONG, "the box does not notice");
        }
        assert_eq!((host.counts().links(), host.counts().broken()), (0, 0));
    }
    assert_eq!(host.stats().rx_errors, 0);
}

#[test]
fn a_killed_worker_keeps_nobody_out_who_comes_at_once() {
    let (mut host, addr) = host();
    let own = local(20_141);
    let peer = Peer::start(&["worker", &addr.to_string(), &own.to_string()], Some(&mut host));
    drop(peer);
    join(&mut host, &ShmConfig::new(own, addr)).expect("the address is free again");
    assert_eq!(host.counts().joined(), 2);
}

#[test]
fn a_worker_outlives_its_box_and_finds_the_next_one() {
    let port = UdpPort::open(&UdpConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let addr = port.local_addr();
    drop(port);
    let own = local(20_151);
    let boxed = Peer::start(&["box", &addr.to_string()], None);
    let mut worker = ShmPort::open(&ShmConfig::new(own, addr)).expect("it is let in");
    let mut echoed = 0;
    let exchange = |worker: &mut ShmPort, echoed: &mut u32, until: u32| {
        let begun = Instant::now();
        while *echoed < until {
            offer(worker, own, addr, 8);
            worker.wait(1_000_000);
            let mut rx = Burst::new();
            worker.rx_burst(clock(), &mut rx);
            *echoed += u32::try_from(rx.len()).unwrap();
            assert!(begun.elapsed() < LONG, "no answer");
        }
    };
    exchange(&mut worker, &mut echoed, 1000);
    drop(boxed);
    // Nothing hangs, and what is sent to nobody is counted.
    let begun = Instant::now();
    while worker.stats().tx_errors == 0 {
        offer(&mut worker, own, addr, 8);
        worker.wait(1_000_000);
        worker.rx_burst(clock(), &mut Burst::new());
        assert!(begun.elapsed() < LONG, "it does not notice");
    }
    assert_eq!(worker.rejoined(), 0);
    let _boxed = Peer::start(&["box", &addr.to_string()], None);
    let until = echoed + 1000;
    exchange(&mut worker, &mut echoed, until);
    assert_eq!(worker.rejoined(), 1);
}
