//! Frames for the ports' tests.

pub(crate) mod shm;

use std::net::SocketAddr;

use weft_io::udp::pseudo_mac;
use weft_io::{Burst, Frame, Port};
use weft_wire::frame::{Encap, Endpoint, Udp};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::{ChunkIndex, Cookie, GroupId, JobId, MacAddr, Members, Nanos};

/// The headers from one socket address to another, with addresses as the UDP port makes them.
pub(crate) fn encap(source: SocketAddr, target: SocketAddr) -> Encap {
    let end = |addr: SocketAddr| Endpoint { mac: pseudo_mac(addr.ip()), addr };
    Encap::new(end(source), end(target)).expect("one address family")
}

/// Fills `frame` with a UDP datagram.
pub(crate) fn fill<F: Frame>(frame: &mut F, encap: &Encap, payload: &[u8]) {
    let start = encap.header_len();
    frame.buffer_mut()[start..start + payload.len()].copy_from_slice(payload);
    let frame_len = encap.emit(frame.buffer_mut(), payload.len());
    frame.set_len(frame_len);
    if encap.target().addr.is_ipv6() {
        encap.finish(frame.as_mut());
    }
}

/// Makes a datagram in a frame of `port`.
pub(crate) fn datagram<P: Port>(port: &mut P, encap: &Encap, payload: &[u8]) -> P::Frame {
    let mut frame = port.alloc().expect("a frame for a test");
    fill(&mut frame, encap, payload);
    frame
}

/// A header for tests; its fields but `chunk` and `members` are the same every time.
pub(crate) fn header(chunk: u32, members: u64) -> Header {
    Header {
        kind: Kind::Contrib,
        flags: Flags::NONE,
        outcome: Outcome::None,
        job: JobId(3),
        cookie: Cookie(0x0102_0304),
        group: GroupId::new(5, 6),
        chunk: ChunkIndex(chunk),
        element_type: ElementType::I32,
        operation: Operation::Sum,
        exponent: -4,
        count: 16,
        members: Members(members),
    }
}

/// The UDP payload of a contribution: a header and 16 elements.
pub(crate) fn contribution(chunk: u32, members: u64) -> [u8; HEADER_LEN + 64] {
    let mut datagram = [0x5a; HEADER_LEN + 64];
    header(chunk, members).emit(&mut Packet::new_unchecked(&mut datagram[..]));
    datagram
}

/// The route that tests on memory ports use.
pub(crate) fn route() -> Encap {
    let addr = |text: &str| text.parse().expect("an address");
    encap(addr("10.0.0.1:22341"), addr("10.0.0.2:22341"))
}

/// The chunk of a frame that carries a Weft datagram.
pub(crate) fn chunk_of(frame: &[u8]) -> u32 {
    Packet::new_checked(payload(frame)).expect("a header").chunk().0
}

/// Makes an Ethernet frame of another protocol.
pub(crate) fn ethernet<P: Port>(
    port: &mut P,
    target: MacAddr,
    source: MacAddr,
    mark: u8,
) -> P::Frame {
    let mut frame = port.alloc().expect("a frame for a test");
    frame.set_len(60);
    frame.as_mut().fill(mark);
    frame.as_mut()[..6].copy_from_slice(&target.0);
    frame.as_mut()[6..12].copy_from_slice(&source.0);
    frame.as_mut()[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Receives until `count` frames have come or five seconds have passed.
pub(crate) fn receive<P: Port>(port: &mut P, count: usize) -> Vec<P::Frame> {
    let start = std::time::Instant::now();
    let mut frames = Vec::new();
    while frames.len() < count && start.elapsed().as_secs() < 5 {
        let mut rx = Burst::new();
        if port.rx_burst(Nanos(0), &mut rx) == 0 {
            port.wait(1_000_000);
        }
        frames.extend(rx);
    }
    frames
}

/// The payload of a frame that must be a whole datagram.
pub(crate) fn payload(frame: &[u8]) -> &[u8] {
    &frame[Udp::parse(frame).expect("a whole datagram").payload_range()]
}

/// Says that a test could not run and why. Written past the harness, which hides what passing
/// tests print.
pub(crate) fn skip(reason: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}

/// Runs the calling test again inside a network namespace of its own, where it may make devices:
/// true inside. Outside, runs it there and returns false; says so when this host forbids it.
pub(crate) fn inside_namespace(test_name: &str) -> bool {
    const INSIDE: &str = "WEFT_TEST_IN_NAMESPACE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let exe = std::env::current_exe().expect("this test's file");
    let allowed = |flags: &str| {
        let output = std::process::Command::new("unshare").args([flags, "true"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let Some(flags) = ["-n", "-rn"].into_iter().find(|flags| allowed(flags)) else {
        skip(&format!("{test_name}: `unshare -n` and `unshare -rn` are both refused here"));
        return false;
    };
    let text = run_inner(
        std::process::Command::new("unshare")
            .arg(flags)
            .arg(exe)
            .args(["--exact", test_name, "--nocapture", "--test-threads=1"])
            .env(INSIDE, "1"),
    );
    text.lines().filter_map(|line| line.strip_prefix("SKIPPED: ")).for_each(skip);
    assert!(text.contains("1 passed"), "not run in the namespace");
    false
}

/// Runs a test program inside a test, which fails if that fails. Returns what it printed; prints it
/// too, indented, so that nobody counts its verdict as one more.
pub(crate) fn run_inner(command: &mut std::process::Command) -> String {
    let output = command.output().expect("a program that is there");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    text.lines().for_each(|line| eprintln!("    {line}"));
    assert!(output.status.success(), "{command:?} failed");
    text.into_owned()
}

/// Runs `ip` or `tc` with arguments separated by spaces; false when it fails.
pub(crate) fn configure(command: &str) -> bool {
    let mut words = command.split(' ');
    let mut process = std::process::Command::new(words.next().expect("a command"));
    process.args(words).status().is_ok_and(|status| status.success())
}

/// A path in the build's scratch directory.
pub(crate) fn scratch(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
}

/// Payloads as an engine sends them: two long runs, one with a short end, and single ones between.
pub(crate) fn payloads() -> Vec<Vec<u8>> {
    let mut payloads = vec![vec![0; 1000]; 12];
    payloads.push(vec![0; 999]);
    payloads.extend(vec![vec![0; 32]; 9]);
    payloads.extend([vec![0; 8900], vec![0; 1], vec![0; 40]]);
    payloads.extend(vec![vec![0; 8900]; 7]);
    assert_eq!(payloads.len(), 32);
    for (index, payload) in (0_u8..).zip(&mut payloads) {
        let len = payload.len();
        payload[len / 2..].fill(index ^ 0xff);
        payload[0] = index;
    }
    payloads
}
