use std::process::Command;
use std::time::Duration;

use super::row::bound_us;
use super::*;
use crate::bench::process::Running;

const PLACE: Place =
    Place { rate_mbit: Some(1000), mtu: 1500, workers: 4, lanes: 2, one_host: false };

fn case(peer: Peer, bytes: u64) -> Case {
    Case { bytes, peer, box_link: Some(BoxLink::Unshaped), algorithm: None }
}

fn run_of(members: Vec<MemberResult>) -> Run {
    Run { members, ..Run::default() }
}

fn member(times_ns: &[u64], cpu_ns: u64) -> MemberResult {
    let times_ns = times_ns.to_vec();
    MemberResult { times_ns, cpu_ns, wire_bytes: 600, wrong: 1, ..MemberResult::default() }
}

#[test]
fn a_row_is_the_median_of_the_slowest_ranks_and_the_cpu_of_all() {
    let members = vec![member(&[1_000_000, 9_000_000], 2_000_000), member(&[3_000_000, 1], 0)];
    let other = run_of(vec![member(&[5_000_000], 4_000_000)]);
    let row = Row::new(PLACE, case(Peer::Gloo, 4 << 20), &[run_of(members), other], "g++ -O3");
    assert_eq!((row.peer_build.as_str(), row.disturbed), ("g++ -O3", None), "nobody looked");
    assert_eq!((row.peer, row.io, row.sums, row.wrong), ("gloo", "tcp", 3, Some(3)));
    assert!((row.time_us.unwrap() - 5000.0).abs() < 1e-6, "of 3, 9 and 5 ms");
    assert!((row.cpu_s.unwrap() - 0.002).abs() < 1e-9, "6 ms over three sums");
    assert_eq!((row.wire_bytes, row.lanes), (Some(600), None), "Gloo has no box");
    assert!(!row.is_valid());
}

#[test]
fn a_vector_of_the_box_crosses_a_link_once_and_a_rings_three_halves_of_it() {
    let weft = bound_us(PLACE, case(Peer::Weft, 4 << 20), Some(256), 1000);
    assert!((weft - 4096.0 * 1098.0 * 8.0 / 1000.0).abs() < 1e-6);
    let ring = bound_us(PLACE, case(Peer::Gloo, 4 << 20), None, 1000);
    let expected = 1.5 * (4 << 20) as f64 * (1.0 + 66.0 / 1448.0) * 8.0 / 1000.0;
    assert!((ring - expected).abs() < 1e-6);
    let padded = bound_us(PLACE, case(Peer::Weft, 4), Some(256), 1000);
    assert!((padded - 1098.0 * 8.0 / 1000.0).abs() < 1e-9, "a chunk is sent whole");
}

#[test]
fn a_box_with_the_workers_link_takes_in_as_many_vectors_as_there_are_workers() {
    let same = |peer| Case { box_link: Some(BoxLink::Same), ..case(peer, 4 << 20) };
    let weft = bound_us(PLACE, same(Peer::WeftMulticast), Some(256), 1000);
    assert!((weft - 4.0 * 4096.0 * 1098.0 * 8.0 / 1000.0).abs() < 1e-6, "4 x 36 ms");
    let ring = bound_us(PLACE, same(Peer::Gloo), None, 1000);
    let apart = bound_us(PLACE, case(Peer::Gloo, 4 << 20), None, 1000);
    assert!((ring - apart).abs() < 1e-9, "Gloo has no box");
}

#[test]
fn boxes_have_each_link_that_is_asked_for_and_peers_without_one_the_first_lab() {
    let both = [BoxLink::Unshaped, BoxLink::Same];
    let of = |place, box_links: &[BoxLink]| -> Vec<(Peer, Option<BoxLink>)> {
        let cases = cases(place, 4096, &[Peer::Weft, Peer::OpenMpi], box_links);
        cases.iter().map(|case| (case.peer, case.box_link)).collect()
    };
    let (unshaped, same) = (Some(BoxLink::Unshaped), Some(BoxLink::Same));
    assert_eq!(
        of(PLACE, &both),
        [(Peer::Weft, unshaped), (Peer::Weft, same), (Peer::OpenMpi, unshaped)]
    );
    assert_eq!(of(PLACE, &both[1..]), [(Peer::Weft, same), (Peer::OpenMpi, same)]);
    let no_rate = Place { rate_mbit: None, ..PLACE };
    assert_eq!(of(no_rate, &both[1..]), [(Peer::Weft, unshaped), (Peer::OpenMpi, unshaped)]);
    let here = Place { one_host: true, ..no_rate };
    assert_eq!(of(here, &both), [(Peer::Weft, None), (Peer::OpenMpi, None)]);
}

/// A signal in the third of three rounds: what was measured until then makes rows.
#[test]
fn a_run_that_is_broken_off_leaves_rows_of_what_it_measured() {
    let cases = [case(Peer::Weft, 4096), case(Peer::OpenMpi, 4096)];
    let (mut runs, mut turn) = (vec![Vec::new(); 2], 0);
    let ended = take_turns(&cases, 3, &mut runs, |_| {
        turn += 1;
        if turn == 4 { Err(BenchError::Interrupted) } else { Ok(vec![member(&[turn], 0)]) }
    });
    assert!(matches!(ended, Err(BenchError::Interrupted)));
    let rows = rows(PLACE, &cases, &runs, |_| Some("built"));
    assert_eq!(rows.iter().map(|row| row.sums).collect::<Vec<_>>(), [2, 1]);
    assert!(super::rows(PLACE, &cases, &[vec![], vec![]], |_| None).is_empty());
}

#[test]
fn a_peer_that_stands_still_is_a_row_with_a_failure_and_the_others_go_on() {
    let cases = [case(Peer::OpenMpi, 4096), case(Peer::Weft, 4096)];
    let (mut runs, mut turns) = (vec![Vec::new(); 2], Vec::new());
    let ended = take_turns(&cases, 2, &mut runs, |case| {
        turns.push(case.peer);
        if case.peer == Peer::OpenMpi {
            let sleeping = Running::start("mpirun", Command::new("sleep").arg("600"))?;
            sleeping.within(Duration::from_millis(100)).finish()?;
        }
        Ok(vec![member(&[1000], 0)])
    });
    ended.unwrap();
    assert_eq!(turns, [Peer::OpenMpi, Peer::Weft, Peer::Weft], "it has no second turn");
    let rows = rows(PLACE, &cases, &runs, |_| Some("built"));
    assert!(rows[0].failure.as_ref().unwrap().contains("mpirun did not end within"));
    assert_eq!((rows[0].time_us, rows[1].sums), (None, 2));
}

#[test]
fn a_run_may_take_a_minute_and_ten_times_what_its_links_need() {
    let of = |case| limit(PLACE, case, 1).as_secs_f64();
    assert!((of(case(Peer::Gloo, 4096)) - 60.0).abs() < 0.01);
    // 64 MiB in chunks of 1,098 bytes, warm-up and one sum: 2 x 0.576 s.
    let weft = case(Peer::Weft, 64 << 20);
    assert!((of(weft) - 71.5).abs() < 0.1, "{}", of(weft));
    let same = Case { box_link: Some(BoxLink::Same), ..weft };
    assert!((of(same) - 106.0).abs() < 0.5, "{}", of(same));
}

#[test]
fn gloos_row_is_that_of_its_fastest_algorithm_that_worked() {
    let cases = cases(PLACE, 4096, &[Peer::Gloo], &[BoxLink::Unshaped]);
    let right = |ns| vec![run_of(vec![MemberResult { wrong: 0, ..member(&[ns], 0) }])];
    let failed = vec![Run { failure: Some("lost".to_owned()), ..Run::default() }];
    let best = |runs: &[Vec<Run>]| {
        let [row] = &rows(PLACE, &cases, runs, |_| Some("built"))[..] else { panic!("one row") };
        (row.algorithm, row.failure.clone())
    };
    let (ring, bcube) = (Some(Algorithm::Ring), Some(Algorithm::Bcube));
    assert_eq!(best(&[right(3), right(2), right(4)]), (bcube, None));
    assert_eq!(best(&[right(2), right(3), failed.clone()]), (ring, None));
    assert_eq!(best(&[failed.clone(), right(9), failed.clone()]), (bcube, None));
    assert_eq!(best(&[failed.clone(), failed.clone(), failed]).1, Some("lost".to_owned()));
}

#[test]
fn a_peer_that_failed_is_a_row_that_says_so() {
    let run = Run { failure: Some("w2 ended early".to_owned()), ..Run::default() };
    let row = Row::new(PLACE, case(Peer::Weft, 4096), &[run], "release");
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
        "box_link",
        "algorithm",
        "disturbed",
        "peer_build",
    ] {
        assert!(json.get(key).is_some(), "{key}");
    }
    for figure in ["time_us", "time_min_us", "cpu_s", "wire_bytes", "wrong"] {
        assert!(json[figure].is_null(), "{figure} was not measured: {json}");
    }
    assert_eq!((&json["lanes"], &json["box_link"]), (&2.into(), &"unshaped".into()));
    assert_eq!((json["peer"].as_str(), json["bytes"].as_u64()), (Some("weft"), Some(4096)));
}
