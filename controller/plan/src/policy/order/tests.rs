use proptest::prelude::*;

use super::*;
use crate::case::{Case, UpdateId};
use crate::net::ledger::Ledger;
use crate::sample::{Numbers, Shape};
use crate::spec::CaseSpec;

/// The rules as they are written down, asking every update every time.
fn reference(case: &Case, ledger: &mut Ledger) -> (Vec<Vec<UpdateId>>, Vec<UpdateId>) {
    let rank = |id: &UpdateId| case.ranks[id.index()];
    let finish = |ledger: &Ledger, id: &UpdateId| {
        let update = case.update(*id);
        let path = direct_path(case, ledger, update);
        ledger.probe(&path, case.now_ns, update.size_bytes).unwrap_or(u64::MAX)
    };
    let mut dropped = Vec::new();
    let mut waiting = vec![Vec::new(); case.servers.len()];
    for id in case.update_ids() {
        if case.deadline(id) < 0 {
            dropped.push(id);
        } else {
            waiting[case.update(id).server.index()].push(id);
        }
    }
    for ids in &mut waiting {
        ids.sort_by_key(|id| (case.deadline(*id), rank(id)));
        while let Some(n) = (0..ids.len()).find(|n| case.deadline(ids[*n]) < *n as i64) {
            let (at, _) = (0..=n)
                .map(|at| (at, (finish(ledger, &ids[at]), rank(&ids[at]))))
                .max_by_key(|x| x.1)
                .unwrap();
            dropped.push(ids.remove(at));
        }
    }
    let mut out: Vec<Vec<UpdateId>> = vec![Vec::new(); case.servers.len()];
    loop {
        let mut best = None;
        for (server, ids) in waiting.iter().enumerate() {
            let slot = out[server].len() as i64;
            let tight = (0..ids.len()).find(|n| case.deadline(ids[*n]) - slot == *n as i64);
            for id in &ids[..tight.map_or(ids.len(), |n| n + 1)] {
                let key = (finish(ledger, id), rank(id), *id);
                if best.is_none_or(|best| key < best) {
                    best = Some(key);
                }
            }
        }
        let Some((_, _, id)) = best else { return (out, dropped) };
        let update = case.update(id);
        let path = direct_path(case, ledger, update);
        let mut segments = Vec::new();
        ledger.probe_segments(&path, case.now_ns, update.size_bytes, &mut segments).unwrap();
        ledger.reserve(&path, &segments);
        out[update.server.index()].push(id);
        waiting[update.server.index()].retain(|other| *other != id);
    }
}

fn ordered(spec: &CaseSpec) -> (Case, Ordered) {
    let case = Case::new(spec).expect("a sample case");
    let mut ledger = Ledger::new(&case);
    let ordered = order(&case, &mut ledger);
    (case, ordered)
}

fn same_as_reference(spec: &mut CaseSpec) {
    spec.options.no_drop = true;
    let (case, ordered) = ordered(spec);
    let (sequences, dropped) = reference(&case, &mut Ledger::new(&case));
    let mut mine: Vec<_> = ordered.dropped.iter().map(|(id, _)| *id).collect();
    let mut theirs = dropped;
    mine.sort();
    theirs.sort();
    assert_eq!(mine, theirs);
    assert_eq!(ordered.sequences, sequences);
}

fn shape() -> impl Strategy<Value = Shape> {
    let sizes = (1..60u32, 1..12u32, 1..4u32, 0..20u32, 0..4u32);
    (sizes, any::<bool>(), any::<bool>()).prop_map(|(sizes, equal, deadlines)| {
        let (updates, workers, servers, reservations, racks) = sizes;
        Shape {
            updates,
            hosts: workers + servers,
            servers,
            replicas: false,
            aggregators: 0,
            reservations,
            racks,
            equal,
            deadlines,
        }
    })
}

/// Small whole numbers, so that finishes tie; tight bounds, so that deadlines and clusters bite.
fn squeeze(spec: &mut CaseSpec, seed: u64) {
    let mut numbers = Numbers::new(seed);
    for host in spec.hosts.values_mut() {
        host.up_bytes_per_sec = [1, 2, 5, 10][numbers.index(4)];
        host.down_bytes_per_sec = 10;
    }
    let tau_max = numbers.within(1, 2 * spec.updates.len() as u64 + 2);
    for server in &mut spec.servers {
        server.version = 1_000;
        server.tau_max = Some(tau_max);
    }
    for update in &mut spec.updates {
        update.size_bytes = [5, 10, 10, 20][numbers.index(4)];
        update.version = 1_000 - numbers.within(0, tau_max + 2);
    }
    for reservation in &mut spec.reservations {
        reservation.bytes_per_sec = numbers.within(1, 4);
        reservation.from_ns = spec.now_ns + numbers.within(0, 5_000_000_000);
        reservation.to_ns = reservation.from_ns + numbers.within(1, 5_000_000_000);
    }
    for rack in spec.links.racks.values_mut() {
        rack.up_bytes_per_sec = 7;
        rack.down_bytes_per_sec = 12;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn picks_what_asking_every_update_would_pick(shape in shape(), seed in any::<u64>()) {
        same_as_reference(&mut shape.spec(seed));
    }

    #[test]
    fn picks_the_same_where_finishes_tie_and_deadlines_bite(
        shape in shape(),
        seed in any::<u64>(),
    ) {
        let mut spec = shape.spec(seed);
        squeeze(&mut spec, seed);
        same_as_reference(&mut spec);
    }

    #[test]
    fn arrives_in_commit_order_without_deadlines(shape in shape(), seed in any::<u64>()) {
        let mut spec = Shape { deadlines: false, ..shape }.spec(seed);
        for server in &mut spec.servers {
            server.tau_max = Some(1_000_000);
        }
        let (_, ordered) = ordered(&spec);
        for sequence in &ordered.sequences {
            let arrivals: Vec<u64> =
                sequence.iter().map(|id| ordered.transfers[id.index()].as_ref().unwrap().arrival_ns).collect();
            prop_assert!(arrivals.is_sorted(), "{arrivals:?}");
        }
    }

    #[test]
    fn no_delay_is_over_the_bound(shape in shape(), seed in any::<u64>(), no_drop in any::<bool>()) {
        let mut spec = shape.spec(seed);
        squeeze(&mut spec, seed);
        spec.options.no_drop = no_drop;
        let (case, ordered) = ordered(&spec);
        for sequence in &ordered.sequences {
            for (slot, id) in sequence.iter().enumerate() {
                let update = case.update(*id);
                let server = case.server(update.server);
                let delay = server.version + slot as u64 - update.version;
                prop_assert!(delay <= server.tau_max, "{delay} > {}", server.tau_max);
            }
        }
    }
}

/// Thousands of small cases, and some as large as asking every update every time allows.
#[test]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
fn picks_the_same_in_thousands_of_small_cases_and_some_large() {
    let mut numbers = Numbers::new(3);
    for seed in 0..2_000 {
        let (workers, servers) = (1 + numbers.index(16) as u32, 1 + numbers.index(4) as u32);
        let shape = Shape {
            updates: 1 + numbers.index(40) as u32,
            hosts: workers + servers,
            servers,
            replicas: false,
            aggregators: 0,
            reservations: numbers.index(30) as u32,
            racks: numbers.index(3) as u32,
            equal: numbers.index(3) == 0,
            deadlines: numbers.index(2) == 0,
        };
        let mut spec = shape.spec(seed);
        if numbers.index(2) == 0 {
            squeeze(&mut spec, seed);
        }
        same_as_reference(&mut spec);
    }
    for seed in 0..6 {
        let shape = Shape {
            updates: 700,
            hosts: 120,
            replicas: false,
            aggregators: 0,
            reservations: 400,
            racks: if seed < 3 { 0 } else { 5 },
            equal: seed % 3 == 2,
            ..crate::sample::THOUSAND
        };
        same_as_reference(&mut shape.spec(seed));
    }
}

/// Server downlink 10; uplinks A = B = 10, C = 5, D = 1; sizes 10; versions 5, 4, 3, 1 of 5.
fn golden(tau_max: u64, no_drop: bool) -> Case {
    let text = format!(
        r#"{{"now_ns": 0,
            "hosts": {{
                "A": {{"up_bytes_per_sec": 10, "down_bytes_per_sec": 10}},
                "B": {{"up_bytes_per_sec": 10, "down_bytes_per_sec": 10}},
                "C": {{"up_bytes_per_sec": 5, "down_bytes_per_sec": 5}},
                "D": {{"up_bytes_per_sec": 1, "down_bytes_per_sec": 1}},
                "S": {{"up_bytes_per_sec": 10, "down_bytes_per_sec": 10}}}},
            "servers": [{{"name": "s", "host": "S", "version": 5, "tau_max": {tau_max}}}],
            "updates": [
                {{"id": "a", "server": "s", "host": "A", "size_bytes": 10, "version": 5}},
                {{"id": "b", "server": "s", "host": "B", "size_bytes": 10, "version": 4}},
                {{"id": "c", "server": "s", "host": "C", "size_bytes": 10, "version": 3}},
                {{"id": "d", "server": "s", "host": "D", "size_bytes": 10, "version": 1}}],
            "options": {{"no_drop": {no_drop}}}}}"#
    );
    Case::from_json(&text).expect("the golden case")
}

type GoldenEntry = (&'static str, f64, f64);

fn assert_golden(case: &Case, entries: &[GoldenEntry], dropped: &[(&str, DropReason)]) {
    let plan = order(case, &mut Ledger::new(case)).into_plan("order", case);
    let ids: Vec<&str> = plan.order.iter().map(|id| case.update(*id).name.as_str()).collect();
    assert_eq!(ids, entries.iter().map(|e| e.0).collect::<Vec<_>>());
    for (id, (name, arrival_s, commit_s)) in plan.order.iter().zip(entries) {
        let transfer = plan.transfers[id.index()].as_ref().expect("it is sent");
        for (ns, s) in [(transfer.arrival_ns, arrival_s), (transfer.commit_ns, commit_s)] {
            assert!((ns as f64 - s * 1e9).abs() <= 2.0, "{name}: {ns} ns, not {s} s");
        }
    }
    let drops: Vec<_> =
        plan.dropped.iter().map(|(id, r)| (case.update(*id).name.as_str(), r.clone())).collect();
    assert_eq!(drops, dropped);
}

#[test]
fn orders_like_the_golden_table() {
    let rows: [(u64, [GoldenEntry; 4]); 5] = [
        (8, [("a", 1.0, 1.0), ("b", 2.0, 2.0), ("c", 4.0, 4.0), ("d", 12.0, 12.0)]),
        (7, [("a", 1.0, 1.0), ("b", 2.0, 2.0), ("c", 4.0, 4.0), ("d", 12.0, 12.0)]),
        (6, [("a", 1.0, 1.0), ("b", 2.0, 2.0), ("d", 12.0, 12.0), ("c", 4.0, 12.0)]),
        (
            5,
            [
                ("a", 1.0, 1.0),
                ("d", 11.0, 11.0),
                ("b", 2.0 + 1.0 / 9.0, 11.0),
                ("c", 4.0 + 1.0 / 9.0, 11.0),
            ],
        ),
        (
            4,
            [
                ("d", 10.0, 10.0),
                ("a", 10.0 / 9.0, 10.0),
                ("c", 28.0 / 9.0, 10.0),
                ("b", 10.0 / 3.0, 10.0),
            ],
        ),
    ];
    for (tau_max, entries) in rows {
        assert_golden(&golden(tau_max, true), &entries, &[]);
    }
    let late = [("a", 1.0, 1.0), ("c", 3.0, 3.0), ("b", 3.0, 3.0)];
    assert_golden(&golden(3, true), &late, &[("d", DropReason::TooOld)]);
}

#[test]
fn drops_what_holds_the_others_up_in_the_golden_case() {
    let without = [("a", 1.0, 1.0), ("b", 2.0, 2.0), ("c", 4.0, 4.0)];
    for tau_max in [4, 5, 6] {
        let case = golden(tau_max, false);
        let plan = order(&case, &mut Ledger::new(&case)).into_plan("order", &case);
        assert_eq!(plan.dropped, [(UpdateId(3), DropReason::DelaysOthers)], "tau_max {tau_max}");
        assert_eq!(plan.mean_commit_ns(), Some(2_333_333_333), "tau_max {tau_max}");
        if tau_max > 4 {
            assert_golden(&case, &without, &[("d", DropReason::DelaysOthers)]);
        }
    }
    let case = golden(7, false);
    assert!(order(&case, &mut Ledger::new(&case)).dropped.is_empty());
}
