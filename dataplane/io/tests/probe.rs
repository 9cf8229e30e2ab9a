//! Packet trains and counters on loopback.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use weft_io::nic::{Carried, NicCounters, interface_with, kernel_address};
use weft_io::probe::{
    ProbeArrival, ProbeError, ProbeSocket, ProbeStation, StampedSocket, TRAIN_PACKETS_MAX,
    realtime_ns,
};

const WAIT: Duration = Duration::from_secs(5);

fn socket(nonce: u64) -> ProbeSocket {
    ProbeSocket::bind("127.0.0.1:0".parse().unwrap(), 1500, nonce).unwrap()
}

fn receive(socket: &mut ProbeSocket, count: usize) -> Vec<ProbeArrival> {
    let mut arrivals = Vec::new();
    while arrivals.len() < count {
        assert!(socket.receive(WAIT, |arrival| arrivals.push(arrival)).unwrap(), "{arrivals:?}");
    }
    arrivals
}

/// Sends single datagrams until the kernel stamps them as they arrive: it switches stamps on in the
/// background, and until then a datagram has the time at which it is read.
fn await_stamps(sender: &mut ProbeSocket, receiver: &mut ProbeSocket) {
    for _ in 0..500 {
        sender.send_train(receiver.local(), 1, 1).unwrap();
        let sent = realtime_ns();
        std::thread::sleep(Duration::from_millis(10));
        if receive(receiver, 1)[0].at_ns <= sent {
            return;
        }
    }
    panic!("no stamp of an arrival within 5 s");
}

#[test]
fn a_train_arrives_in_order_with_the_kernels_time_stamps() {
    let (mut sender, mut receiver) = (socket(7), socket(7));
    await_stamps(&mut sender, &mut receiver);
    let before = realtime_ns();
    assert_eq!(sender.send_train(receiver.local(), 42, TRAIN_PACKETS_MAX + 9).unwrap(), 256);
    let sent = realtime_ns();
    // The stamps are of the arrival, not of the reading.
    std::thread::sleep(Duration::from_millis(30));
    let arrivals = receive(&mut receiver, 256);
    assert_eq!(arrivals.len(), 256);
    for (index, arrival) in arrivals.iter().enumerate() {
        assert_eq!((arrival.probe.train, usize::from(arrival.probe.index)), (42, index));
        assert_eq!((arrival.probe.packets, arrival.source), (256, sender.local()));
        assert_eq!((arrival.frame_len, sender.frame_len()), (1514, 1514));
        assert!((before..=sent).contains(&arrival.at_ns), "{} {before} {sent}", arrival.at_ns);
    }
    assert!(arrivals.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
}

#[test]
fn the_departures_of_each_train_are_noted() {
    let mut receiver = socket(7);
    let mut sender = StampedSocket::bind("127.0.0.1:0".parse().unwrap(), 1500, 7).unwrap();
    for (train, packets) in [(1, 200), (2, 12), (3, 100)] {
        let before = realtime_ns();
        assert_eq!(sender.send_train(receiver.local(), train, packets).unwrap(), packets);
        let departures = sender.departures().unwrap();
        assert_eq!(departures.len(), usize::from(packets), "train {train}");
        let order = departures.windows(2).all(|pair| pair[0] <= pair[1]);
        assert!(order && departures[0] >= before && departures[0] <= realtime_ns());
        receive(&mut receiver, usize::from(packets));
    }
}

#[test]
fn other_datagrams_are_not_shown() {
    let mut receiver = socket(1);
    let plain = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    plain.send_to(&[0x1f; 30], receiver.local()).unwrap();
    socket(2).send_train(receiver.local(), 1, 3).unwrap();
    socket(1).send_train(receiver.local(), 2, 1).unwrap();
    let arrivals = receive(&mut receiver, 1);
    assert_eq!((arrivals.len(), arrivals[0].probe.train), (1, 2));
    assert!(!receiver.receive(Duration::from_millis(1), |_| panic!("nothing is left")).unwrap());
}

#[test]
fn what_cannot_work_is_said_at_once() {
    let addr: SocketAddr = "127.0.0.1:0".parse().unwrap();
    assert!(matches!(ProbeSocket::bind(addr, 40, 0), Err(ProbeError::Mtu { mtu: 40 })));
    let foreign = "203.0.113.1:0".parse().unwrap();
    assert!(matches!(ProbeSocket::bind(foreign, 1500, 0), Err(ProbeError::Open { .. })));
    let error = NicCounters::open("nosuch0").unwrap_err().to_string();
    assert!(error.contains("nosuch0/statistics/rx_bytes"), "{error}");
}

#[test]
fn counters_grow_with_what_is_sent() {
    let Ok(counters) = NicCounters::open("lo") else {
        eprintln!("SKIPPED counters_grow_with_what_is_sent: no /sys/class/net/lo");
        return;
    };
    let (rx, tx) = (counters.rx_bytes().unwrap(), counters.tx_bytes().unwrap());
    let (mut sender, mut receiver) = (socket(3), socket(3));
    sender.send_train(receiver.local(), 1, 100).unwrap();
    receive(&mut receiver, 100);
    assert!(counters.rx_bytes().unwrap() >= rx + 100 * 1500);
    assert!(counters.tx_bytes().unwrap() >= tx + 100 * 1500);
}

/// All hosts of a run on loopback share its counters: others' bytes would pass for a host's own.
#[test]
fn the_loopback_is_no_hosts_link() {
    let here = "127.0.0.1".parse().unwrap();
    assert_eq!(interface_with(here).as_deref(), Some("lo"));
    assert!(NicCounters::of_link(here, None).is_none());
    let nowhere = "203.0.113.1".parse().unwrap();
    assert!(NicCounters::of_link(nowhere, Some("nosuch0")).is_none());
    if NicCounters::open("lo").is_ok() {
        assert!(NicCounters::of_link(nowhere, Some("lo")).is_some());
    }
}

#[test]
fn stations_tell_of_whole_trains_and_count_what_they_carry() {
    let nowhere = "127.0.0.1:0".parse().unwrap();
    let open = |nonce: u64| {
        let carried = Arc::new(Carried::default());
        let (told, trains) = mpsc::channel();
        let tell = move |train| drop(told.send(train));
        let nic = NicCounters::open("lo").ok();
        let station =
            ProbeStation::open((nowhere, 1500, nonce), nic, Arc::clone(&carried), tell).unwrap();
        (station, carried, trains)
    };
    let (mut sender, sent, own) = open(5);
    let (receiver, received, trains) = open(5);
    assert_eq!(sender.send(receiver.local(), 77, 40).unwrap(), 40);
    let train = trains.recv_timeout(WAIT).expect("a train");
    assert_eq!((train.train, train.frame_len, train.at_ns.len()), (77, 1514, 40));
    assert!(train.at_ns.is_sorted());
    assert_eq!((sent.read(), received.read()), ((0, 40 * 1514), (40 * 1514, 0)));
    // Those of another controller are not looked at.
    let (stranger, _, strangers) = open(6);
    assert_eq!(sender.send(stranger.local(), 78, 3).unwrap(), 3);
    sender.send(receiver.local(), 79, 2).unwrap();
    assert_eq!(trains.recv_timeout(WAIT).expect("a train").train, 79);
    assert!(strangers.try_recv().is_err() && own.try_recv().is_err());
    drop(receiver);
    assert!(trains.recv_timeout(WAIT).is_err(), "the thread ends, and lets go of its end");
}

#[test]
fn a_link_is_probed_by_an_address_of_the_kernels_on_it() {
    let ip = |text: &str| text.parse().unwrap();
    assert_eq!(kernel_address(ip("127.0.0.1"), Some("lo")), None);
    // A port that owns its address: another one on its interface will do.
    assert_eq!(kernel_address(ip("203.0.113.1"), Some("lo")), Some(ip("127.0.0.1")));
    assert_eq!(kernel_address(ip("203.0.113.1"), None), None);
    assert_eq!(kernel_address(ip("203.0.113.1"), Some("nosuch0")), None);
}
