//! Agents that tell of counters and send each other trains. A machine that has nothing but the
//! loopback has no link to probe.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_agent::{Link, LinkAgent, Report};
use weft_io::nic::Carried;
use weft_rpc::v1;

const PERIOD_NS: u64 = 10_000_000;
const WAIT: Duration = Duration::from_secs(10);

fn agent(address: IpAddr) -> (LinkAgent, Arc<Carried>) {
    let carried = Arc::new(Carried::default());
    let link = Link { address, device: None, mtu: 9000 };
    (LinkAgent::new(link, Arc::clone(&carried)), carried)
}

async fn report(agent: &mut LinkAgent) -> Report {
    tokio::time::timeout(WAIT, agent.report()).await.expect("a report")
}

async fn telemetry(agent: &mut LinkAgent) -> v1::Telemetry {
    loop {
        if let Report::Telemetry(telemetry) = report(agent).await {
            return telemetry;
        }
    }
}

/// An address of this machine's that is not the loopback's.
fn real_address() -> Option<IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().ok()?;
    let v4 = interfaces.filter_map(|interface| {
        let address = interface.address?;
        Some(IpAddr::V4(address.as_sockaddr_in()?.ip()))
    });
    { v4 }.find(|address| !address.is_loopback())
}

#[tokio::test]
async fn counters_are_told_as_often_as_the_controller_wants() {
    let (mut agent, carried) = agent("127.0.0.1".parse().unwrap());
    let silence = tokio::time::timeout(Duration::from_millis(100), agent.report()).await;
    assert!(silence.is_err(), "nobody has asked");
    carried.note(5, 7);
    assert_eq!(agent.begin(PERIOD_NS, 3), None, "the loopback is no link to probe");
    let first = telemetry(&mut agent).await;
    assert_eq!((first.rx_bytes, first.tx_bytes, first.nic_rx_bytes), (5, 7, None));
    carried.note(6, 9);
    let second = telemetry(&mut agent).await;
    assert_eq!((second.rx_bytes, second.tx_bytes), (6, 9));
    assert!(second.at_ns >= first.at_ns + PERIOD_NS / 2, "{first:?} {second:?}");
    // A train that nobody can send is not sent, and nothing breaks.
    agent.obey(&v1::Probe { train: 1, target: "nonsense".into(), packets: 3 });
    agent.end();
    let silence = tokio::time::timeout(Duration::from_millis(100), agent.report()).await;
    assert!(silence.is_err(), "nobody wants to know any more");
    assert_eq!(agent.begin(0, 0), None);
    assert!(tokio::time::timeout(Duration::from_millis(100), agent.report()).await.is_err());
}

#[tokio::test]
async fn trains_are_sent_received_and_counted() {
    let Some(address) = real_address() else {
        eprintln!("SKIPPED trains_are_sent_received_and_counted: only a loopback");
        return;
    };
    let ((mut sender, _), (mut receiver, _)) = (agent(address), agent(address));
    assert_eq!(receiver.begin(PERIOD_NS, 0), None, "a controller that does not probe");
    sender.begin(PERIOD_NS, 11).expect("a port");
    let port = receiver.begin(PERIOD_NS, 11).expect("a port").address;
    assert_eq!(receiver.begin(PERIOD_NS, 11).expect("the same").address, port);
    for (train, target, packets) in
        [(1, "nonsense".to_owned(), 3), (2, port.clone(), 1 << 20), (3, port, 30)]
    {
        sender.obey(&v1::Probe { train, target, packets });
    }
    let arrived = tokio::time::timeout(WAIT, async {
        loop {
            if let Report::Train(train) = receiver.report().await {
                return train;
            }
        }
    });
    let train = arrived.await.expect("a train");
    // The frames of a train keep to 1500 bytes of IP whatever the MTU.
    assert_eq!((train.train, train.frame_bytes, train.at_ns.len()), (3, 1514, 30));
    assert_eq!(train.reading_at_ns.len(), train.reading_bytes.len());
    assert_eq!(telemetry(&mut receiver).await.rx_bytes, 30 * 1514);
    assert_eq!(telemetry(&mut sender).await.tx_bytes, 30 * 1514);
    // Another controller, another nonce: those of the former one are not heard.
    let moved = receiver.begin(PERIOD_NS, 12).expect("a port").address;
    sender.obey(&v1::Probe { train: 4, target: moved, packets: 12 });
    tokio::time::timeout(Duration::from_millis(200), async {
        while !matches!(receiver.report().await, Report::Train(_)) {}
    })
    .await
    .expect_err("a train of a former controller");
}
