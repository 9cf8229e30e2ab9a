mod exact;

use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_wire::frame::{Datagram, Endpoint};
use weft_wire::header::{Header, Kind, Packet};
use weft_wire::hello::Integrity;
use weft_wire::{ChunkIndex, Cookie, GroupId, JobId, MacAddr, Members, Nanos, Rank};

use super::*;
use crate::random::SplitMix64;
use crate::send::datagram::plain_header;

fn host_endpoint() -> Endpoint {
    Endpoint { mac: MacAddr([2, 0, 0, 0, 0, 1]), addr: "10.0.0.100:22341".parse().unwrap() }
}

fn addr(host: u8) -> SocketAddr {
    alloc::format!("10.0.0.{host}:7000").parse().unwrap()
}

fn terms() -> JobTerms {
    JobTerms {
        job: JobId(3),
        elements: 256,
        integrity: Integrity::Crc32c,
        exponent: Some(-20),
        chunks: 9,
    }
}

fn host(seed: u64) -> ChannelHost {
    let config = ChannelHostConfig {
        local: host_endpoint(),
        terms: terms(),
        workers: vec![addr(1), addr(2)],
        boxes: vec![None, Some(addr(50))],
    };
    ChannelHost::new(&config, SplitMix64::new(seed))
}

fn worker(rank: u8) -> Peer {
    Peer::Worker(Rank::new(rank).unwrap())
}

fn client(peer: Peer, life: u64) -> ChannelClient {
    let from = match peer {
        Peer::Worker(rank) => addr(u8::try_from(rank.index()).unwrap() + 1),
        Peer::Box(_) => addr(50),
    };
    let local = Endpoint { mac: MacAddr([2, 0, 0, 0, 9, 9]), addr: from };
    let target = Endpoint { mac: MacAddr::BROADCAST, addr: host_endpoint().addr };
    let config = ChannelClientConfig::new(JobId(3), peer, local, target);
    ChannelClient::new(config, life, Nanos(0)).unwrap()
}

fn parse(frame: &[u8]) -> (Datagram, Header) {
    let udp = Datagram::find(frame).unwrap();
    let header = Header::parse(&Packet::new_unchecked(&frame[udp.payload_range()])).unwrap();
    (udp, header)
}

/// The next handshake datagram, if one is due.
fn next_frame(client: &mut ChannelClient, now: Nanos) -> Option<Vec<u8>> {
    let mut frame = vec![0; 1514];
    let len = client.poll_transmit(now, &mut frame)?;
    frame.truncate(len);
    Some(frame)
}

/// The host's reply to a handshake datagram.
fn answer(
    host: &mut ChannelHost,
    frame: &[u8],
) -> Result<(Vec<u8>, Option<PeerChange>), DropReason> {
    let mut buffer = vec![0; 1514];
    buffer[..frame.len()].copy_from_slice(frame);
    let (udp, header) = parse(frame);
    let reply = host.handle_hello(&udp, &header, &mut buffer)?;
    buffer.truncate(reply.len);
    Ok((buffer, reply.change))
}

fn deliver(
    client: &mut ChannelClient,
    now: Nanos,
    frame: &[u8],
) -> Result<ClientEvent, DropReason> {
    let mut frame = frame.to_vec();
    let (udp, header) = parse(&frame);
    client.handle_frame(now, &udp, &header, &mut frame)
}

/// Runs the handshake to its end; returns the JOIN, and what changed at the host.
fn open(host: &mut ChannelHost, client: &mut ChannelClient) -> (Vec<u8>, Option<PeerChange>) {
    for ms in 0..10_000 {
        let now = Nanos::from_millis(ms);
        let Some(frame) = next_frame(client, now) else { continue };
        let (reply, change) = answer(host, &frame).unwrap();
        if deliver(client, now, &reply) == Ok(ClientEvent::Opened) {
            return (frame, change);
        }
    }
    panic!("the channel did not open");
}

fn identify(host: &ChannelHost, client: &ChannelClient) -> Result<(), DropReason> {
    let cookie = client.terms().unwrap().cookie_up;
    host.identify(client.peer(), cookie, client.local().into())
}

#[test]
fn a_channel_opens_in_two_round_trips_and_carries_the_terms() {
    let mut host = host(1);
    for peer in [worker(0), worker(1), Peer::Box(BoxIndex(1))] {
        let mut client = client(peer, 77);
        let (_, change) = open(&mut host, &mut client);
        assert_eq!(change, Some(PeerChange::NewLife(peer)));
        let learnt = client.terms().unwrap();
        assert_eq!(learnt.job, terms());
        let mask = if matches!(peer, Peer::Box(_)) { 0b10 } else { 0b11 };
        assert_eq!(learnt.mask, Members(mask));
        assert_eq!(identify(&host, &client), Ok(()));
    }
    assert_eq!(host.peer_at(addr(50).into()), Some(Peer::Box(BoxIndex(1))));
    assert_eq!(host.peer_at(addr(2).into()), Some(worker(1)));
}

#[test]
fn peers_that_the_table_lacks_are_refused() {
    let mut host = host(1);
    for (peer, from) in [(worker(2), 3), (Peer::Box(BoxIndex(0)), 50), (worker(0), 9)] {
        let local = Endpoint { mac: MacAddr::default(), addr: addr(from) };
        let config = ChannelClientConfig::new(JobId(3), peer, local, host_endpoint());
        let mut client = ChannelClient::new(config, 5, Nanos(0)).unwrap();
        let frame = next_frame(&mut client, Nanos(0)).unwrap();
        let reason = if from == 9 { DropReason::WrongSource } else { DropReason::BadMembers };
        assert_eq!(answer(&mut host, &frame), Err(reason));
    }
}

#[test]
fn a_repeated_join_is_welcomed_alike() {
    let mut host = host(1);
    let mut client = client(worker(0), 7);
    let (join, _) = open(&mut host, &mut client);
    let before = *client.terms().unwrap();
    let (_, change) = answer(&mut host, &join).unwrap();
    assert_eq!(change, None);
    assert_eq!(*client.terms().unwrap(), before);
    assert_eq!(identify(&host, &client), Ok(()));
}

#[test]
fn a_new_life_ends_the_old_one() {
    let mut host = host(1);
    let mut first = client(worker(0), 7);
    let (old_join, _) = open(&mut host, &mut first);
    let mut second = client(worker(0), 8);
    let (_, change) = open(&mut host, &mut second);
    assert_eq!(change, Some(PeerChange::NewLife(worker(0))));
    assert_eq!(identify(&host, &first), Err(DropReason::BadCookie));
    assert_eq!(identify(&host, &second), Ok(()));
    // The delayed JOIN of the first life does not bring it back.
    assert_eq!(answer(&mut host, &old_join), Err(DropReason::Token));
    assert_eq!(identify(&host, &second), Ok(()));
}

#[test]
fn a_restarted_host_makes_its_peers_handshake_again() {
    let mut host1 = host(1);
    let mut client = client(worker(1), 7);
    let (old_join, _) = open(&mut host1, &mut client);
    let mut host2 = host(2);
    assert_eq!(answer(&mut host2, &old_join), Err(DropReason::Token));
    let status = plain_header(Kind::Status, JobId(3), GroupId::new(4, 1), worker(1).bit());
    let status = Header { chunk: ChunkIndex(77), ..status };
    let mut frame = vec![0; 1514];
    let len = client.write(&status, &mut frame, 0).unwrap();
    let (udp, header) = parse(&frame[..len]);
    let source = udp.source(&frame);
    assert_eq!(host2.identify(worker(1), header.cookie, source), Err(DropReason::StaleEpoch));
    let len = host2.refuse_stale(worker(1), &udp, &header, &mut frame).unwrap();
    let (_, stale) = parse(&frame[..len]);
    assert_eq!((stale.group, stale.chunk), (header.group, header.chunk));
    let now = Nanos::from_millis(2000);
    assert_eq!(deliver(&mut client, now, &frame[..len]), Ok(ClientEvent::Lost));
    assert_eq!(client.standing(), Standing::Opening);
    open(&mut host2, &mut client);
    assert_eq!(identify(&host2, &client), Ok(()));
}

#[test]
fn stale_for_another_cookie_does_not_disturb_an_open_channel() {
    let mut host = host(1);
    let mut client = client(worker(0), 7);
    open(&mut host, &mut client);
    let status = plain_header(Kind::Status, JobId(3), GroupId::new(4, 1), worker(0).bit());
    let mut frame = vec![0; 1514];
    let len = client.write(&status, &mut frame, 0).unwrap();
    let (udp, header) = parse(&frame[..len]);
    let forged = Header { cookie: Cookie(header.cookie.0 ^ 1), ..header };
    let len = host.refuse_stale(worker(0), &udp, &forged, &mut frame).unwrap();
    assert_eq!(
        deliver(&mut client, Nanos::from_millis(2000), &frame[..len]),
        Err(DropReason::BadCookie)
    );
    assert_eq!(client.standing(), Standing::Open);
}

/// Else anybody could make a host send to a peer whenever he likes.
#[test]
fn a_stale_cookie_from_another_address_is_not_answered() {
    let mut host = host(1);
    let mut client = client(worker(0), 7);
    open(&mut host, &mut client);
    let status = plain_header(Kind::Status, JobId(3), GroupId::new(4, 1), worker(1).bit());
    let mut frame = vec![0; 1514];
    let len = client.write(&status, &mut frame, 0).unwrap();
    let (udp, header) = parse(&frame[..len]);
    assert_eq!(host.refuse_stale(worker(1), &udp, &header, &mut frame), None);
    assert!(host.refuse_stale(worker(0), &udp, &header, &mut frame).is_some());
}

#[test]
fn a_closed_channel_stays_closed_whatever_comes_late() {
    let mut host = host(1);
    let mut client = client(worker(0), 7);
    let (join, _) = open(&mut host, &mut client);
    let now = Nanos::from_millis(3000);
    client.close(now);
    let close = next_frame(&mut client, now).unwrap();
    let (reply, change) = answer(&mut host, &close).unwrap();
    assert_eq!(change, Some(PeerChange::Closed(worker(0))));
    assert!(!host.is_open(worker(0)));
    // The confirmation is lost: CLOSE again, the same answer.
    let (_, change) = answer(&mut host, &close).unwrap();
    assert_eq!(change, None);
    assert_eq!(answer(&mut host, &join), Err(DropReason::Token));
    assert!(!host.is_open(worker(0)));
    assert_eq!(deliver(&mut client, now, &reply), Ok(ClientEvent::Closed));
    assert_eq!(client.standing(), Standing::Closed);
}

#[test]
fn no_join_of_a_closed_channel_opens_it_again() {
    let mut host = host(1);
    let mut recorded = Vec::new();
    // The same process comes back twice, then another.
    for life in [7, 7, 7, 8, 9] {
        let mut client = client(worker(0), life);
        recorded.push(open(&mut host, &mut client).0);
        let now = Nanos::from_millis(30_000);
        client.close(now);
        let close = next_frame(&mut client, now).unwrap();
        answer(&mut host, &close).unwrap();
        for join in &recorded {
            assert_eq!(answer(&mut host, join), Err(DropReason::Token), "life {life}");
        }
        assert!(!host.is_open(worker(0)));
    }
}

#[test]
fn a_silent_host_is_an_error_in_bounded_time() {
    let mut client = client(worker(0), 7);
    let mut frames = 0;
    let mut now = Nanos(0);
    while client.error().is_none() {
        now = client.poll_timeout();
        frames += u32::from(next_frame(&mut client, now).is_some());
        assert!(frames < 200);
    }
    assert_eq!(client.error(), Some(ChannelError::Silent));
    assert!(now <= Nanos::from_millis(5_100));
    assert!((40..100).contains(&frames), "{frames}");
}

#[test]
fn a_path_that_swallows_long_datagrams_is_named() {
    let mut host = host(1);
    let mut client = client(worker(0), 7);
    while client.error().is_none() {
        let now = client.poll_timeout();
        let frame = next_frame(&mut client, now).unwrap();
        if frame.len() < 1000 {
            let (reply, _) = answer(&mut host, &frame).unwrap();
            let _ = deliver(&mut client, now, &reply);
        }
    }
    assert_eq!(client.error(), Some(ChannelError::MtuTooSmall { probe_len: 1056 }));
}

#[test]
fn a_late_answer_to_a_padded_probe_clears_the_error() {
    let mut host = host(1);
    let mut client = client(worker(0), 7);
    let (mut padded, mut short) = (Vec::new(), 0);
    while client.error().is_none() {
        let now = client.poll_timeout();
        let frame = next_frame(&mut client, now).unwrap();
        let (reply, _) = answer(&mut host, &frame).unwrap();
        if frame.len() < 1000 {
            short += 1;
            let _ = deliver(&mut client, now, &reply);
        } else {
            padded.push(reply);
        }
    }
    assert!(padded.len() >= 20 && short >= 10, "{} padded, {short} short", padded.len());
    let now = client.poll_timeout();
    deliver(&mut client, now, &padded[0]).unwrap();
    assert_eq!(client.error(), None);
    open(&mut host, &mut client);
}

#[test]
fn an_open_channel_asks_a_silent_host_and_learns_of_its_restart() {
    let mut host1 = host(1);
    let mut client = client(worker(0), 7);
    open(&mut host1, &mut client);
    let mut host2 = host(2);
    client.ask(Nanos::from_millis(5000));
    let mut events = Vec::new();
    for ms in 5000..5200 {
        let now = Nanos::from_millis(ms);
        let Some(frame) = next_frame(&mut client, now) else { continue };
        let (reply, _) = answer(&mut host2, &frame).unwrap();
        events.push(deliver(&mut client, now, &reply).unwrap());
    }
    assert_eq!(events, [ClientEvent::Handshake, ClientEvent::Opened]);
    assert_eq!(identify(&host2, &client), Ok(()));
    // The same host again: nothing was lost.
    client.ask(Nanos::from_millis(6000));
    let mut events = Vec::new();
    for ms in 6000..6200 {
        let now = Nanos::from_millis(ms);
        let Some(frame) = next_frame(&mut client, now) else { continue };
        let (reply, _) = answer(&mut host2, &frame).unwrap();
        events.push(deliver(&mut client, now, &reply).unwrap());
    }
    assert_eq!(events, [ClientEvent::Handshake, ClientEvent::Handshake]);
}

#[test]
fn handshakes_survive_loss_and_late_copies() {
    for seed in 0..500 {
        let mut random = SplitMix64::new(seed);
        let mut host = host(seed + 1);
        let mut client = client(worker(0), seed + 1);
        let mut wire: Vec<Vec<u8>> = Vec::new();
        let mut is_open = false;
        for ms in 0..4000 {
            let now = Nanos::from_millis(ms);
            wire.extend(next_frame(&mut client, now));
            if wire.is_empty() || !random.next_u64().is_multiple_of(3) {
                continue;
            }
            let pick = usize::try_from(random.next_u64() % wire.len() as u64).unwrap();
            let is_copy = random.next_u64().is_multiple_of(4);
            let frame = if is_copy { wire[pick].clone() } else { wire.swap_remove(pick) };
            if random.next_u64().is_multiple_of(3) {
                continue;
            }
            let (udp, _) = parse(&frame);
            if udp.target(&frame).port() == 22341 {
                if let Ok((reply, _)) = answer(&mut host, &frame) {
                    wire.push(reply);
                }
            } else {
                let _ = deliver(&mut client, now, &frame);
            }
            if client.standing() == Standing::Open {
                is_open = true;
                assert_eq!(identify(&host, &client), Ok(()), "seed {seed}");
            }
        }
        assert!(is_open, "seed {seed}");
    }
}
