use alloc::vec::Vec;

use proptest::prelude::*;

mod reference;

use super::*;
use crate::case::{Case, UpdateId};
use crate::net::ledger::Ledger;
use crate::net::topology::LinkId;
use crate::sample::{Numbers, Shape};
use crate::spec::CaseSpec;

fn ordered(spec: &CaseSpec) -> (Case, Ordered) {
    let case = Case::new(spec).expect("a sample case");
    let mut ledger = Ledger::new(&case);
    let ordered = order(&case, &mut ledger);
    (case, ordered)
}

/// Compares everything that is decided, and what is left of every link.
fn same_as_reference(spec: &CaseSpec) -> Ordered {
    let case = Case::new(spec).expect("a sample case");
    let (mut mine, mut theirs) = (Ledger::new(&case), Ledger::new(&case));
    let ordered = order(&case, &mut mine);
    assert_eq!(ordered, reference::order(&case, &mut theirs));
    for link in 0..mine.topology().link_count() {
        let link = LinkId(u32::try_from(link).expect("few links"));
        assert_eq!(mine.link(link), theirs.link(link));
    }
    ordered
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
        if numbers.index(50) == 0 {
            update.size_bytes = 1 << 50; // it would end beyond any plan
        }
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

/// Links that carry many bytes in a nanosecond, so that different sizes end in the same one.
fn hasten(spec: &mut CaseSpec, seed: u64) {
    let mut numbers = Numbers::new(seed);
    for host in spec.hosts.values_mut() {
        host.up_bytes_per_sec = numbers.within(5, 40) * 1_000_000_000;
        host.down_bytes_per_sec = 20_000_000_000;
    }
    for update in &mut spec.updates {
        update.size_bytes = 1_000_000 + numbers.within(0, 60);
    }
    for reservation in &mut spec.reservations {
        reservation.bytes_per_sec = numbers.within(1, 10) * 1_000_000_000;
        reservation.from_ns = spec.now_ns + numbers.within(0, 200_000);
        reservation.to_ns = reservation.from_ns + numbers.within(1, 200_000);
    }
}

/// Drop rule on and off, easy and strict; thin flows; workers that lost the previous update.
fn set_options(spec: &mut CaseSpec, seed: u64) {
    let mut numbers = Numbers::new(seed);
    let options = &mut spec.options;
    options.no_drop = numbers.index(3) == 0;
    options.theta = [0.0, 0.3, 1.0][numbers.index(3)];
    options.drop_limit = [0.05, 0.3, 1.0][numbers.index(3)];
    options.drop_window = [1, 20, 100][numbers.index(3)];
    options.recent_drops = [0, 0, 1, 3][numbers.index(4)];
    options.thin_flow_share = [0.0, 0.0, 0.3][numbers.index(3)];
    for update in &mut spec.updates {
        update.dropped_before = numbers.index(4) == 0;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn picks_what_asking_every_update_would_pick(shape in shape(), seed in any::<u64>()) {
        let mut spec = shape.spec(seed);
        set_options(&mut spec, seed);
        same_as_reference(&spec);
    }

    #[test]
    fn picks_the_same_where_finishes_tie_and_deadlines_bite(
        shape in shape(),
        seed in any::<u64>(),
    ) {
        let mut spec = shape.spec(seed);
        set_options(&mut spec, seed);
        squeeze(&mut spec, seed);
        same_as_reference(&spec);
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
fn plans_thousands_of_small_cases_and_some_large_like_the_reference() {
    let mut numbers = Numbers::new(3);
    let mut drops = Vec::new();
    for seed in 0..3_000 {
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
        set_options(&mut spec, seed);
        match numbers.index(4) {
            0 => hasten(&mut spec, seed),
            1 | 2 => squeeze(&mut spec, seed),
            _ => {}
        }
        drops.extend(same_as_reference(&spec).dropped.into_iter().map(|(_, reason)| reason));
    }
    use DropReason::{DeadlineCluster, DelaysOthers, NoBandwidth, TooOld};
    for reason in [TooOld, DeadlineCluster, DelaysOthers, NoBandwidth] {
        let count = drops.iter().filter(|drop| **drop == reason).count();
        assert!(count > 300, "{reason:?}: {count}");
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
        let mut spec = shape.spec(seed);
        if seed % 3 == 1 {
            hasten(&mut spec, seed);
        }
        same_as_reference(&spec);
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
