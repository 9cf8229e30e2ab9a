use std::io::Read;
use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};
use weft_wire::MacAddr;
use weft_wire::frame::{Encap, Endpoint};

use super::*;
use crate::pool::Pool;
use crate::port::Frame;

const NOW: Nanos = Nanos(0);

/// A sender that writes packets into a socket of ours, and that socket.
fn sender(is_direct: bool) -> (Sender, Socket) {
    let (socket, wire) = Socket::pair(Domain::UNIX, Type::DGRAM.nonblocking(), None).unwrap();
    (Sender::new(PacketSocket::of(socket), "pair", 9000, true, is_direct), wire)
}

fn encap() -> Encap {
    let end = |text: &str| Endpoint { mac: MacAddr::default(), addr: text.parse().unwrap() };
    Encap::new(end("10.0.0.1:7"), end("10.0.0.2:8")).unwrap()
}

fn burst(pool: &Pool, lens: &[usize]) -> Burst<PoolFrame> {
    let frame = |(mark, len): (u8, &usize)| {
        let mut frame = pool.alloc().unwrap();
        frame.buffer_mut()[42..42 + len].fill(mark);
        let len = encap().emit(frame.buffer_mut(), *len);
        frame.set_len(len);
        frame
    };
    (0..).zip(lens).map(frame).collect()
}

/// The packets that have come, with the header in front of each.
fn packets(mut wire: &Socket) -> Vec<Vec<u8>> {
    let mut bytes = vec![0; 1 << 17];
    let mut packets = Vec::new();
    while let Ok(len) = wire.read(&mut bytes) {
        packets.push(bytes[..len].to_vec());
    }
    packets
}

fn transmit(sender: &mut Sender, tx: &mut Burst<PoolFrame>) -> (usize, PortStats) {
    let mut stats = PortStats::default();
    (sender.transmit(NOW, tx, &mut stats, drop), stats)
}

#[test]
fn a_run_is_one_packet_with_the_lengths_of_all() {
    let pool = Pool::new(32, 9014);
    let (mut sender, wire) = sender(false);
    let (sent, stats) = transmit(&mut sender, &mut burst(&pool, &[100, 100, 60, 60]));
    assert_eq!((sent, stats.tx_packets, stats.tx_bytes), (4, 4, 4 * 42 + 320));
    let packets = packets(&wire);
    let lens: Vec<usize> = packets.iter().map(Vec::len).collect();
    assert_eq!(lens, [10 + 42 + 260, 10 + 42 + 60]);
    assert_eq!(packets[0][..10], VnetHeader::of_run(42, 100));
    assert_eq!(run::header_len(&packets[0][10..], 42 + 260), Some(42));
    let payload: Vec<u8> =
        [(0, 100), (1, 100), (2, 60)].into_iter().flat_map(|(mark, len)| vec![mark; len]).collect();
    assert_eq!(packets[0][52..], payload);
    assert_eq!(packets[1][..10], VnetHeader::PLAIN);
    assert_eq!(packets[1][52..], [3; 60]);
}

#[test]
fn who_asks_to_stay_apart_or_has_a_checksum_is_in_no_run() {
    let pool = Pool::new(32, 9018);
    let (mut sender, wire) = sender(false);
    let mut tx = burst(&pool, &[100; 12]);
    tx[2].keep_apart(true);
    encap().finish(tx[5].as_mut());
    // Padding behind the datagram would lie between two segments.
    tx[8].set_len(42 + 101);
    let elsewhere = Endpoint { addr: SocketAddr::from(([10, 0, 0, 3], 8)), ..encap().target() };
    Encap::new(encap().source(), elsewhere).unwrap().emit(tx[11].as_mut(), 100);
    assert_eq!(transmit(&mut sender, &mut tx).0, 12);
    let lens: Vec<usize> = packets(&wire).iter().map(|packet| packet.len() - 52).collect();
    assert_eq!(lens, [200, 100, 200, 100, 200, 101, 200, 100]);
    // A frame that the interface has no room for is in none either.
    let mut tx = burst(&pool, &[8972, 8973, 8973]);
    assert_eq!(transmit(&mut sender, &mut tx).0, 3);
    assert_eq!(packets(&wire).len(), 3);
}

#[test]
fn what_refuses_runs_gets_frames_and_is_asked_again_later() {
    let pool = Pool::new(32, 9014);
    let (mut sender, wire) = sender(false);
    // A socket buffer that has no room for a run makes it an error of this message.
    sender.socket.shrink(1 << 12);
    let (sent, stats) = transmit(&mut sender, &mut burst(&pool, &[1200; 8]));
    assert_eq!(sent as u64, stats.tx_packets);
    assert!(sent > 0 && stats.tx_errors == 0, "{stats:?}");
    assert!(!sender.takes_runs(NOW));
    assert_eq!(stats.tx_runs_refused, 1);
    assert!(packets(&wire).iter().all(|packet| packet.len() == 1252));
    let (sent, _) = transmit(&mut sender, &mut burst(&pool, &[100, 100]));
    assert_eq!((sent, packets(&wire).len()), (2, 2));
    let later = Nanos::from_millis(1_000);
    let (mut tx, mut stats) = (burst(&pool, &[100, 100]), PortStats::default());
    assert_eq!(sender.transmit(later, &mut tx, &mut stats, drop), 2);
    assert_eq!((packets(&wire).len(), stats.tx_runs_refused), (1, 0), "a run");
}

#[test]
fn a_device_that_drops_runs_is_told_from_a_full_ring() {
    let pool = Pool::new(32, 9014);
    let (mut sender, _wire) = sender(true);
    for round in 1..=DOUBTS_MAX {
        assert!(sender.takes_runs(NOW), "round {round}");
        // As if the kernel had said so of the run, and then taken its frames.
        sender.doubt = Some(Errno::ENOBUFS);
        assert_eq!(sender.resolve(NOW, false), round == DOUBTS_MAX);
        if round == 3 {
            let (sent, _) = transmit(&mut sender, &mut burst(&pool, &[100, 100]));
            assert_eq!((sent, sender.doubts), (2, 0), "a run has left");
            sender.doubts = round;
        }
    }
    assert!(!sender.takes_runs(NOW));
}
