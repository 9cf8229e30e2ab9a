//! Sums that leave the box once for all members, against the real programs: from every lane, over
//! IPv6, and with exponents that are agreed chunk by chunk.
//!
//! Needs root, and `weft-node` beside this test (`.ci/test` builds it).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use weft_client::{Config, Io, Numbers, Session, Statistics};
use weft_config::node::{self, JobSection, NodeConfig, PortSection, RowSection};
use weft_testbed::lab::rootless;
use weft_tests::live::run::weft;
use weft_tests::live::sums::{integer_sums, integers};
use weft_tests::live::{PATIENCE, skip, together};
use weft_wire::header::Operation;

use crate::star::Lab;

const HOSTS: [&str; 3] = ["w0", "w1", "w2"];

/// The members' configurations.
fn configs(members: &[SocketAddr; 3], target: SocketAddr, base: IpAddr) -> [Config; 3] {
    [0, 1, 2].map(|rank: u8| {
        let config = Config::new(members[usize::from(rank)], target).rank(rank).io(Io::Udp);
        Config { connect_timeout: PATIENCE, ..config.multicast(base) }
    })
}

/// The chunks of all but a few sums came by multicast: before all had said that they hear, and
/// where one was lost, each got its own.
fn are_cast(statistics: &Statistics, chunks: u64) {
    let cast = statistics.data.answers_by_multicast;
    assert!(cast * 10 > chunks * 8, "{cast} of {chunks} chunks came by multicast");
}

/// Gives a host of the lab an IPv6 address, which it can use at once.
fn add_ipv6(lab: &Lab, host: &str, last: u16) -> IpAddr {
    let ip = Ipv6Addr::new(0xfd87, 0, 0, 0, 0, 0, 0, last);
    let (address, interface) = (format!("{ip}/64"), lab.interface(host));
    lab.tool(host, "sysctl", &["-qw", "net.ipv6.conf.all.disable_ipv6=0"]);
    lab.tool(host, "sysctl", &["-qw", &format!("net.ipv6.conf.{interface}.disable_ipv6=0")]);
    lab.tool(host, "ip", &["-6", "address", "add", &address, "dev", interface, "nodad"]);
    ip.into()
}

#[test]
fn sums_come_once_for_all_over_ipv6() {
    let test = "sums_come_once_for_all_over_ipv6";
    // A base whose scope is the organisation, and one of this link alone.
    for base in ["ff18::5745:0", "ff12::5745:0"] {
        for lanes in [1, 2] {
            let Some(mut lab) = Lab::up(test, "six", 3, false) else { return };
            let base: IpAddr = base.parse().unwrap();
            let ip = add_ipv6(&lab, "a0", 100);
            let members = [1, 2, 3].map(|last| add_ipv6(&lab, HOSTS[usize::from(last) - 1], last));
            let members = members.map(|ip| SocketAddr::from((ip, 7000)));
            let port = PortSection::new(node::Io::Udp, ip);
            lab.start(PortSection { multicast: Some(base), ..port }, &members, lanes);
            let configs = configs(&members, (ip, 22341).into(), base);
            together(3, |rank| {
                let config = configs[usize::from(rank)].clone().lanes(lanes);
                lab.within(HOSTS[usize::from(rank)], || {
                    let mut session = Session::connect(&config).expect("a box");
                    let chunk = usize::from(session.lease().elements);
                    for round in 0..20 {
                        let mut values = integers(rank, round, 50 * chunk);
                        session.allreduce_i32(&mut values).expect("a sum");
                        assert!(values == integer_sums(3, round, 50 * chunk), "round {round}");
                    }
                    are_cast(&session.statistics(), 20 * 50);
                    session.close().expect("the port is open");
                });
            });
        }
    }
}

/// Integers, in each chunk times another power of two: their sums are exact with any exponent that
/// has room for them.
fn block_values(rank: u8, round: u32, chunk: usize, chunks: usize) -> Vec<f32> {
    let number = |at: usize| {
        let scale = f32::from(u16::try_from(1 << (at / chunk % 12)).unwrap());
        f32::from(u16::try_from((at * 7 + round as usize) % 1000).unwrap()) * scale
    };
    (0..chunk * chunks).map(|at| number(at) * f32::from(1 + rank)).collect()
}

/// The maxima and the sums are two rows, each with a multicast address of its own.
#[test]
fn exponents_of_chunks_are_agreed_and_sums_come_by_multicast() {
    const ROUNDS: u32 = 20;
    const CHUNKS: usize = 300;
    let test = "exponents_of_chunks_are_agreed_and_sums_come_by_multicast";
    let Some(mut lab) = Lab::up(test, "block", 3, true) else { return };
    let members = HOSTS.map(|host| SocketAddr::from((lab.ip(host), 7000)));
    let base: IpAddr = "239.87.69.0".parse().unwrap();
    let port = PortSection::new(node::Io::Udp, lab.ip("a0"));
    let row = |row, operation, exponent| RowSection {
        operation,
        exponent,
        ..RowSection::new(row, 0, members.map(Into::into).to_vec())
    };
    lab.start_as(&NodeConfig {
        job: vec![JobSection::new(0)],
        row: vec![row(0, Operation::Sum, None), row(1, Operation::Max, Some(0))],
        ..NodeConfig::new(PortSection { multicast: Some(base), ..port })
    });
    let configs = configs(&members, lab.box_addr(), base);
    together(3, |rank| {
        let config = configs[usize::from(rank)].clone();
        let config = config.numbers(Numbers::Block { exponent_row: 1 });
        lab.within(HOSTS[usize::from(rank)], || {
            let mut session = Session::connect(&config).expect("a box");
            let chunk = usize::from(session.lease().elements);
            for round in 0..ROUNDS {
                let mut values = block_values(rank, round, chunk, CHUNKS);
                session.allreduce(&mut values).expect("a sum");
                // 1 + 2 + 3 times what rank 0 has.
                let one = block_values(0, round, chunk, CHUNKS);
                assert!(values.iter().zip(one).all(|(sum, one)| *sum == 6.0 * one), "{round}");
            }
            let statistics = session.statistics();
            are_cast(&statistics, u64::from(ROUNDS) * CHUNKS as u64);
            // A maximum is one element a chunk of the data, so each round's are a few chunks.
            let maxima = statistics.exponents.expect("a second group").answers_by_multicast;
            assert!(maxima >= u64::from(ROUNDS / 2), "{maxima} chunks of maxima");
            session.close().expect("the port is open");
        });
    });
}

#[test]
fn every_lane_of_a_box_sends_sums_once_for_all() {
    let test = "every_lane_of_a_box_sends_sums_once_for_all";
    if !rootless::is_privileged() {
        skip(test, "run as root");
        return;
    }
    // At 352 elements a chunk each lane has chunks of both sums.
    let sizes = ["-b", "4K", "-e", "64K", "-f", "16", "-n", "2", "-w", "3", "--format", "json"];
    for (ports, lanes) in [
        (&["--io=shm"][..], 2),
        (&["--io=shm"], 4),
        (&["--io=udp", "--worker-io=udp_multicast", "--lab"], 2),
    ] {
        let count = format!("--lanes={lanes}");
        let mut arguments = vec!["bench", "allreduce", &count];
        arguments.extend(ports.iter().chain(&sizes));
        let ended = weft(&arguments, PATIENCE);
        assert_eq!(ended.code, Some(0), "{ports:?}: {}", ended.stderr);
        let json = ended.json.expect("JSON");
        let rows = json.as_array().expect("rows");
        assert_eq!(rows.len(), 2, "{ports:?}");
        for row in rows {
            assert_eq!((&row["wrong"], &row["lanes"]), (&0.into(), &lanes.into()), "{row}");
            // Two sums at three workers, and the one-chunk sums before them.
            let chunks = row["bytes"].as_u64().expect("a size").div_ceil(352 * 4) + 1;
            assert_eq!(row["chunks_by_multicast"], 2 * 3 * chunks, "from each lane: {row}");
        }
    }
    let ended = weft(&["bench", "allreduce", "--io=memory", "--lanes=2"], PATIENCE);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
}
