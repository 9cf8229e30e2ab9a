use super::row::{Run, bound_us};
use super::*;

const PLACE: Place =
    Place { rate_mbit: Some(1000), mtu: 1500, workers: 4, lanes: 2, one_host: false };

fn member(times_ns: &[u64], cpu_ns: u64) -> MemberResult {
    let times_ns = times_ns.to_vec();
    MemberResult { times_ns, cpu_ns, wire_bytes: 600, wrong: 1, ..MemberResult::default() }
}

#[test]
fn a_row_is_the_median_of_the_slowest_ranks_and_the_cpu_of_all() {
    let run = Run {
        members: vec![member(&[1_000_000, 9_000_000], 2_000_000), member(&[3_000_000, 1], 0)],
        failure: None,
    };
    let other = Run { members: vec![member(&[5_000_000], 4_000_000)], failure: None };
    let row = Row::new(PLACE, 4 << 20, Peer::Gloo, &[run, other]);
    assert_eq!((row.peer, row.io, row.sums, row.wrong), ("gloo", "tcp", 3, Some(3)));
    assert!((row.time_us.unwrap() - 5000.0).abs() < 1e-6, "of 3, 9 and 5 ms");
    assert!((row.cpu_s.unwrap() - 0.002).abs() < 1e-9, "6 ms over three sums");
    assert_eq!((row.wire_bytes, row.lanes), (Some(600), None), "Gloo has no box");
    assert!(!row.is_valid());
}

#[test]
fn a_vector_of_the_box_crosses_a_link_once_and_a_rings_three_halves_of_it() {
    let weft = bound_us(PLACE, 4 << 20, Some(256), 1000);
    assert!((weft - 4096.0 * 1098.0 * 8.0 / 1000.0).abs() < 1e-6);
    let ring = bound_us(PLACE, 4 << 20, None, 1000);
    let expected = 1.5 * (4 << 20) as f64 * (1.0 + 66.0 / 1448.0) * 8.0 / 1000.0;
    assert!((ring - expected).abs() < 1e-6);
    let padded = bound_us(PLACE, 4, Some(256), 1000);
    assert!((padded - 1098.0 * 8.0 / 1000.0).abs() < 1e-9, "a chunk is sent whole");
}

#[test]
fn a_peer_that_failed_is_a_row_that_says_so() {
    let run = Run { members: Vec::new(), failure: Some("w2 ended early".to_owned()) };
    let row = Row::new(PLACE, 4096, Peer::Weft, &[run]);
    assert!(!row.is_valid());
    let json = serde_json::to_value(&row).unwrap();
    for key in [
        "peer",
        "io",
        "rate_mbit",
        "bytes",
        "workers",
        "time_us",
        "cpu_s",
        "wire_bytes",
        "wrong",
        "bound_us",
    ] {
        assert!(json.get(key).is_some(), "{key}");
    }
    for figure in ["time_us", "time_min_us", "cpu_s", "wire_bytes", "wrong"] {
        assert!(json[figure].is_null(), "{figure} was not measured: {json}");
    }
    assert_eq!(json["lanes"], 2);
    assert_eq!((json["peer"].as_str(), json["bytes"].as_u64()), (Some("weft"), Some(4096)));
}
