use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_wire::MacAddr;
use weft_wire::header::{Header, Packet};
use weft_wire::hello::Phase;

use super::*;

const LEN: u16 = 900;

fn config() -> PathProbeConfig {
    let end = |host: u8, port| Endpoint {
        mac: MacAddr([2, 0, 0, 0, 0, host]),
        addr: SocketAddr::from(([10, 0, 0, host], port)),
    };
    PathProbeConfig {
        job: JobId(3),
        row: 7,
        members: Members(2),
        local: end(1, 7000),
        target: end(100, 22341),
        probe_len: LEN,
    }
}

fn next_frame(probe: &mut PathProbe, now: Nanos) -> Option<Vec<u8>> {
    let mut frame = vec![0; 1514];
    let len = probe.poll_transmit(now, &mut frame)?;
    frame.truncate(len);
    Some(frame)
}

/// What a host answers to a HELLO, after `change`.
fn answer(frame: &[u8], change: impl FnOnce(&mut Hello, &mut PathProbeConfig)) -> Vec<u8> {
    let Class::Weft(udp, header) = classify(frame, |port| port == 22341) else { panic!("a HELLO") };
    assert_eq!((header.kind, header.members), (Kind::Hello, Members(2)));
    let (hello, _) = Hello::parse(&frame[udp.payload_range()][HEADER_LEN..]).unwrap();
    assert_eq!(hello.phase, Phase::Hello, "nothing of it is kept");
    let Hello { life, probe_len, .. } = hello;
    let mut reply = Hello { life, probe_len, token: 5, ..Hello::new(Phase::Challenge) };
    let mut of = config();
    change(&mut reply, &mut of);
    let encap = Encap::new(of.target, of.local).unwrap();
    let header = plain_header(Kind::Hello, of.job, GroupId::new(of.row, 9), Members(3));
    let mut frame = vec![0; 1514];
    let len = write_hello(&encap, &header, &reply, &[], &mut frame).unwrap();
    frame.truncate(len);
    frame
}

/// Asks until there is a verdict; frames of at most `mtu` bytes pass. Also how long it took.
fn run(mtu: usize) -> (PathVerdict, Nanos) {
    let mut probe = PathProbe::new(config(), 1, Nanos(0)).unwrap();
    loop {
        let now = probe.poll_timeout();
        if let Some(verdict) = probe.verdict(now) {
            assert_eq!(next_frame(&mut probe, now), None, "it has been found out");
            return (verdict, now);
        }
        let frame = next_frame(&mut probe, now).expect("it is due");
        if frame.len() <= mtu {
            assert!(probe.handle_frame(now, &answer(&frame, |_, _| {})));
        }
        if let Some(verdict) = probe.verdict(now) {
            return (verdict, now);
        }
    }
}

#[test]
fn a_path_is_wide_with_the_first_answer_and_narrow_after_forty_questions() {
    assert_eq!(run(1514), (PathVerdict::Wide, Nanos(0)));
    let (verdict, took) = run(600);
    assert_eq!(verdict, PathVerdict::Narrow);
    assert!(took < PathProbe::TIME_MAX, "{took:?}");
    assert_eq!(run(0), (PathVerdict::Unknown, Nanos(PathProbe::TIME_MAX.0 / 4)));
}

#[test]
fn only_the_hosts_answer_to_this_life_and_row_is_believed() {
    let mut probe = PathProbe::new(config(), 1, Nanos(0)).unwrap();
    let asked = next_frame(&mut probe, Nanos(0)).unwrap();
    let foreign: [fn(&mut Hello, &mut PathProbeConfig); 5] = [
        |reply, _| reply.life += 1,
        |_, of| of.row += 1,
        |_, of| of.job = JobId(4),
        |_, of| of.target.addr.set_port(9),
        |_, of| of.local.addr.set_port(9),
    ];
    for (index, change) in foreign.into_iter().enumerate() {
        assert!(!probe.handle_frame(Nanos(0), &answer(&asked, change)), "case {index}");
    }
    let mut torn = answer(&asked, |_, _| {});
    *torn.last_mut().unwrap() ^= 1;
    assert!(!probe.handle_frame(Nanos(0), &torn));
    for len in 0..asked.len() {
        assert!(!probe.handle_frame(Nanos(0), &asked[..len]), "{len} bytes");
    }
    assert_eq!(probe.verdict(Nanos(0)), None);
    // An answer that was cut on its way shows that short ones pass, no more.
    assert!(probe.handle_frame(Nanos(0), &answer(&asked, |reply, _| reply.probe_len = 0)));
    assert_eq!(probe.verdict(Nanos(0)), None);
    assert!(probe.handle_frame(Nanos(0), &answer(&asked, |_, _| {})));
    assert_eq!(probe.verdict(Nanos(0)), Some(PathVerdict::Wide));
}

#[test]
fn a_probe_is_no_shorter_than_a_hello_and_of_one_family() {
    let short = PathProbeConfig { probe_len: 40, ..config() };
    let mut probe = PathProbe::new(short, 0, Nanos(0)).unwrap();
    let frame = next_frame(&mut probe, Nanos(0)).unwrap();
    let udp = Header::parse(&Packet::new_unchecked(&frame[42..])).map(|header| header.kind);
    assert_eq!((frame.len(), udp), (42 + usize::from(LEN_MIN), Ok(Kind::Hello)));
    let mut mixed = config();
    mixed.target.addr = "[fd00::1]:1".parse().unwrap();
    assert!(PathProbe::new(mixed, 1, Nanos(0)).is_none());
}
