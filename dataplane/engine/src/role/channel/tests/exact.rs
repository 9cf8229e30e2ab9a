//! Where a channel's rules begin and end: addresses, tokens, terms, room.

use weft_wire::frame::Encap;
use weft_wire::header::Outcome;
use weft_wire::hello::{Hello, Phase, Reason};

use super::*;
use crate::send::datagram::write_hello;

fn host_of(terms: JobTerms, boxes: Vec<Option<SocketAddr>>) -> ChannelHost {
    let workers = vec![addr(1), addr(2)];
    let config = ChannelHostConfig { local: host_endpoint(), terms, workers, boxes };
    ChannelHost::new(&config, SplitMix64::new(1))
}

fn target_mac(frame: &[u8]) -> [u8; 6] {
    frame[..6].try_into().unwrap()
}

/// The next handshake datagram, whenever that is due, and when.
fn due(client: &mut ChannelClient) -> (Vec<u8>, Nanos) {
    let now = client.poll_timeout();
    (next_frame(client, now).unwrap(), now)
}

/// Has the host answer what is due, and gives the client the answer.
fn turn(host: &mut ChannelHost, client: &mut ChannelClient) -> Result<ClientEvent, DropReason> {
    let (frame, now) = due(client);
    let (reply, _) = answer(host, &frame).unwrap();
    deliver(client, now, &reply)
}

#[test]
fn a_host_knows_a_peer_by_its_own_address_alone() {
    let host = host(1);
    assert!(host.is_at(worker(0), addr(1).into()) && host.is_at(worker(1), addr(2).into()));
    assert!(!host.is_at(worker(0), addr(2).into()));
    assert!(!host.is_at(worker(2), addr(1).into()));
    assert!(!host.is_at(Peer::Box(BoxIndex(0)), addr(50).into()));
    // The rank behind the last worker's is not the first box.
    let mut host = host_of(terms(), vec![Some(addr(3))]);
    let mut stranger = client(worker(2), 5);
    let (frame, _) = due(&mut stranger);
    assert_eq!(answer(&mut host, &frame), Err(DropReason::BadMembers));
}

#[test]
fn a_close_is_the_present_lifes_with_its_cookie_or_none() {
    let mut host = host(1);
    let mut other = client(worker(0), 6);
    open(&mut host, &mut other);
    let mut present = client(worker(0), 7);
    open(&mut host, &mut present);
    let close = |life, cookie_up| {
        let body = Hello { life, cookie_up, ..Hello::new(Phase::Close) };
        let header =
            plain_header(Kind::Hello, JobId(3), GroupId::new(worker(0).row(), 0), worker(0).bit());
        let local = Endpoint { mac: MacAddr([2, 0, 0, 0, 9, 9]), addr: addr(1) };
        let mut frame = vec![0; 1514];
        let encap = Encap::new(local, host_endpoint()).unwrap();
        let len = write_hello(&encap, &header, &body, &[], &mut frame).unwrap();
        frame.truncate(len);
        frame
    };
    let (old, new) = (other.terms().unwrap().cookie_up, present.terms().unwrap().cookie_up);
    assert_ne!(old, new);
    for (life, cookie) in [(6, old), (6, new), (7, old)] {
        assert_eq!(answer(&mut host, &close(life, cookie)), Err(DropReason::StaleEpoch));
        assert!(host.is_open(worker(0)));
    }
    answer(&mut host, &close(7, new)).unwrap();
    assert!(!host.is_open(worker(0)));
}

#[test]
fn a_frame_is_written_where_there_is_room_for_all_of_it() {
    let mut host = host(1);
    let mut client = client(worker(0), 7);
    open(&mut host, &mut client);
    let header = plain_header(Kind::Contrib, JobId(3), GroupId::new(4, 1), worker(0).bit());
    let len = client.payload_start() + 8;
    for (room, written) in [(len - 1, None), (len, Some(len)), (len + 9, Some(len))] {
        let mut frame = vec![0; room];
        assert_eq!(client.write(&header, &mut frame, 8), written);
        assert_eq!(host.write(worker(0), &header, &mut frame, 8), written);
    }
}

/// A STATE that is no echo of the client's own cookie is its owner's.
#[test]
fn only_stale_with_the_clients_own_cookie_ends_an_open_channel() {
    let mut host = host(1);
    let mut client = client(worker(0), 7);
    open(&mut host, &mut client);
    let now = Nanos::from_millis(2000);
    for outcome in [Outcome::Wait, Outcome::Have, Outcome::Stale] {
        let state = plain_header(Kind::State, JobId(3), GroupId::new(4, 1), Members::EMPTY);
        let state = Header { outcome, ..state };
        let mut frame = vec![0; 1514];
        let len = host.write(worker(0), &state, &mut frame, 0).unwrap();
        assert_eq!(deliver(&mut client, now, &frame[..len]), Ok(ClientEvent::Frame));
        assert_eq!(client.standing(), Standing::Open);
    }
}

#[test]
fn the_hosts_ethernet_address_is_learnt_unless_it_is_configured() {
    let mut host = host(1);
    let mut learning = client(worker(0), 7);
    let (hello, _) = due(&mut learning);
    assert_eq!(target_mac(&hello), [0xff; 6]);
    let now = Nanos::from_millis(30);
    let (challenge, _) = answer(&mut host, &hello).unwrap();
    deliver(&mut learning, now, &challenge).unwrap();
    let (join, now) = due(&mut learning);
    assert_eq!(target_mac(&join), host_endpoint().mac.0);
    let (welcome, _) = answer(&mut host, &join).unwrap();
    assert_eq!(deliver(&mut learning, now, &welcome), Ok(ClientEvent::Opened));
    // A restarted host may have another one.
    learning.ask(now);
    assert_eq!(target_mac(&due(&mut learning).0), [0xff; 6]);
    let local = Endpoint { mac: MacAddr([2, 0, 0, 0, 9, 9]), addr: addr(1) };
    let gateway = Endpoint { mac: MacAddr([2, 0, 0, 0, 0, 0xfe]), ..host_endpoint() };
    let config = ChannelClientConfig::new(JobId(3), worker(0), local, gateway);
    let mut told = ChannelClient::new(config, 8, Nanos(0)).unwrap();
    turn(&mut host, &mut told).unwrap();
    assert_eq!(target_mac(&due(&mut told).0), gateway.mac.0);
}

/// The host of the first token is gone, and so is what it welcomed.
#[test]
fn a_late_welcome_of_a_former_host_opens_nothing() {
    let (mut host1, mut host2) = (host(1), host(2));
    let mut client = client(worker(0), 7);
    turn(&mut host1, &mut client).unwrap();
    let (join, _) = due(&mut client);
    let (late, _) = answer(&mut host1, &join).unwrap();
    // The present host knows no such token; after a while it is asked for one.
    while answer(&mut host2, &due(&mut client).0) == Err(DropReason::Token) {}
    turn(&mut host2, &mut client).unwrap();
    let now = client.poll_timeout();
    assert_eq!(deliver(&mut client, now, &late), Err(DropReason::Unsolicited));
    assert_eq!(client.standing(), Standing::Opening);
    assert_eq!(turn(&mut host2, &mut client), Ok(ClientEvent::Opened));
}

/// It may have restarted between the answer to a question and the JOIN.
#[test]
fn an_open_channel_whose_token_is_not_known_asks_for_another() {
    let mut host1 = host(1);
    let mut client = client(worker(0), 7);
    open(&mut host1, &mut client);
    client.ask(Nanos::from_millis(5_000));
    turn(&mut host1, &mut client).unwrap();
    let mut host2 = host(2);
    let mut joins = 0;
    while answer(&mut host2, &due(&mut client).0) == Err(DropReason::Token) {
        joins += 1;
    }
    assert_eq!((joins, client.standing()), (4, Standing::Open));
    turn(&mut host2, &mut client).unwrap();
    assert_eq!(turn(&mut host2, &mut client), Ok(ClientEvent::Opened));
    assert_eq!(identify(&host2, &client), Ok(()));
}

#[test]
fn a_job_is_unknown_only_where_the_host_says_so() {
    for (reason, error) in [
        (Reason::UnknownGroup, Some(ChannelError::UnknownJob { job: JobId(3) })),
        (Reason::OtherSession, None),
    ] {
        let mut client = client(worker(0), 7);
        let (_, now) = due(&mut client);
        let body = Hello { life: 7, reason, ..Hello::new(Phase::Refused) };
        let row = GroupId::new(worker(0).row(), 0);
        let header = plain_header(Kind::Hello, JobId(3), row, worker(0).bit());
        let local = Endpoint { mac: MacAddr([2, 0, 0, 0, 9, 9]), addr: addr(1) };
        let mut frame = vec![0; 1514];
        let encap = Encap::new(host_endpoint(), local).unwrap();
        let len = write_hello(&encap, &header, &body, &[], &mut frame).unwrap();
        let taken = deliver(&mut client, now, &frame[..len]);
        assert_eq!((taken.is_ok(), client.error()), (error.is_some(), error));
    }
}

#[test]
fn terms_that_cannot_be_are_an_error_and_others_are_taken() {
    // 65,507 octets less a header hold 16,368 elements.
    for (elements, chunks, is_good) in
        [(256, 1, true), (16_368, 9, true), (16_369, 9, false), (0, 9, false), (256, 0, false)]
    {
        let mut host = host_of(JobTerms { elements, chunks, ..terms() }, Vec::new());
        let mut client = client(worker(0), 7);
        turn(&mut host, &mut client).unwrap();
        assert_eq!(turn(&mut host, &mut client).is_ok(), is_good, "{elements} in {chunks} chunks");
        let error = (!is_good).then_some(ChannelError::BadTerms);
        assert_eq!(client.error(), error, "{elements} in {chunks} chunks");
    }
}
