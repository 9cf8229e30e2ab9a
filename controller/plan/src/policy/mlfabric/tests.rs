use proptest::prelude::*;

use super::*;
use crate::case::{AggregatorChoice, Objective};
use crate::plan::check::{PlanFault, check};
use crate::sample::{Numbers, Shape, THOUSAND};
use crate::spec::CaseSpec;

fn shape() -> impl Strategy<Value = Shape> {
    let sizes = (1..50u32, 1..10u32, 1..4u32, 0..4u32, 0..30u32, 0..4u32);
    (sizes, any::<[bool; 3]>()).prop_map(|(sizes, [equal, deadlines, replicas])| {
        let (updates, workers, servers, aggregators, reservations, racks) = sizes;
        let hosts = workers + aggregators + servers * (1 + u32::from(replicas));
        Shape {
            updates,
            hosts,
            servers,
            replicas,
            aggregators,
            reservations,
            racks,
            equal,
            deadlines,
        }
    })
}

/// A sample with every switch set at random, and bounds so tight that drops happen.
fn spec(shape: Shape, seed: u64) -> CaseSpec {
    let mut numbers = Numbers::new(seed ^ 0x5eed);
    let mut spec = shape.spec(seed);
    for server in &mut spec.servers {
        let own = u64::from(shape.updates / shape.servers);
        server.tau_max = Some(1 + numbers.within(0, own + 10));
        server.in_flight = numbers.within(0, 2);
        server.in_flight_until_ns = Some(spec.now_ns + numbers.within(0, 100_000_000));
    }
    let options = &mut spec.options;
    options.no_drop = numbers.within(0, 2) == 0;
    options.no_aggregate = numbers.within(0, 4) == 0;
    options.theta = numbers.within(0, 20) as f64 / 10.0;
    options.thin_flow_share = numbers.within(0, 3) as f64 * 0.1;
    options.direct_search = 1 + u32::try_from(numbers.within(0, 64)).expect("it is small");
    if numbers.within(0, 2) == 0 {
        options.objective = Objective::Last;
    }
    if numbers.within(0, 2) == 0 {
        options.aggregator_choice = AggregatorChoice::FirstFree;
    }
    spec
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_obeys_its_case(shape in shape(), seed in any::<u64>()) {
        let case = Case::new(&spec(shape, seed)).expect("a sample case");
        let plan = Mlfabric.plan(&case).expect("a plan");
        prop_assert_eq!(check(&case, &plan), Ok(()));
        prop_assert!(plan.replicas.iter().all(|r| r.held));
    }

    #[test]
    fn the_same_case_gives_the_same_bytes(shape in shape(), seed in any::<u64>()) {
        let spec = spec(shape, seed);
        let bytes = |spec: &CaseSpec| {
            let case = Case::new(spec).expect("a sample case");
            let plan = Mlfabric.plan(&case).expect("a plan");
            serde_json::to_string(&plan.document(&case)).expect("it is JSON")
        };
        prop_assert_eq!(bytes(&spec), bytes(&spec));
        // Through JSON and back nothing changes either.
        let text = serde_json::to_string(&spec).expect("it is JSON");
        prop_assert_eq!(bytes(&CaseSpec::from_json(&text).expect("it reads back")), bytes(&spec));
    }

    #[test]
    fn grouping_never_costs_commit_time(shape in shape(), seed in any::<u64>()) {
        let mut spec = Shape { replicas: false, ..shape }.spec(seed);
        spec.options.no_drop = true;
        let mean = |spec: &CaseSpec| {
            let case = Case::new(spec).expect("a sample case");
            Mlfabric.plan(&case).expect("a plan").mean_commit_ns()
        };
        let grouped = mean(&spec);
        spec.options.no_aggregate = true;
        prop_assert!(grouped <= mean(&spec));
    }
}

#[test]
fn the_check_sees_what_is_broken() {
    let case = Case::new(&Shape { updates: 60, hosts: 32, ..THOUSAND }.spec(3)).expect("a case");
    let good = Mlfabric.plan(&case).expect("a plan");
    assert_eq!(check(&case, &good), Ok(()));
    let broken = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        check(&case, &plan).expect_err("a broken plan")
    };
    let first = good.order[0];
    let twice = broken(&|plan| plan.groups[0].members.push(first));
    assert!(matches!(twice, PlanFault::NotOnce { count: 2, .. }));
    let greedy = broken(&|plan| {
        for segment in &mut plan.transfers[first.index()].as_mut().unwrap().segments {
            segment.bytes_per_sec += 1_000_000_000;
        }
    });
    assert!(matches!(greedy, PlanFault::Capacity { .. }));
    let short = broken(&|plan| {
        plan.transfers[first.index()].as_mut().unwrap().segments[0].bytes_per_sec /= 2;
    });
    assert!(matches!(short, PlanFault::Transfer { .. }));
    let early = broken(&|plan| {
        plan.groups[0].commit_ns -= 1;
        plan.transfers[first.index()].as_mut().unwrap().commit_ns -= 1;
    });
    assert!(matches!(early, PlanFault::Member { .. }));
    let server = good.groups[0].server;
    let backwards = broken(&|plan| {
        let own = plan.groups.iter().position(|g| g.server == server).unwrap();
        let last = plan.groups.iter().rposition(|g| g.server == server).unwrap();
        plan.groups.swap(own, last);
    });
    assert!(matches!(backwards, PlanFault::Order { .. } | PlanFault::Delay { .. }));
}

#[test]
fn racks_limit_what_crosses_them() {
    let text = r#"{"now_ns": 0,
        "hosts": {
            "near": {"up_bytes_per_sec": 10, "down_bytes_per_sec": 10, "rack": "r1"},
            "far": {"up_bytes_per_sec": 10, "down_bytes_per_sec": 10, "rack": "r2"},
            "S": {"up_bytes_per_sec": 10, "down_bytes_per_sec": 10, "rack": "r1"}},
        "links": {"racks": {
            "r1": {"up_bytes_per_sec": 10, "down_bytes_per_sec": 4},
            "r2": {"up_bytes_per_sec": 2, "down_bytes_per_sec": 10}}},
        "servers": [{"name": "s", "host": "S", "version": 0}],
        "updates": [
            {"id": "a", "server": "s", "host": "far", "size_bytes": 10, "version": 0},
            {"id": "b", "server": "s", "host": "near", "size_bytes": 10, "version": 0}]}"#;
    let case = Case::from_json(text).expect("a case");
    let plan = Mlfabric.plan(&case).expect("a plan");
    let document = plan.document(&case);
    assert_eq!(document.order, ["b", "a"]);
    // b has the server's link to itself for a second; then a gets what its rack lets out.
    assert_eq!(document.updates["b"].arrival_ns, 1_000_000_000);
    assert_eq!(document.updates["a"].arrival_ns, 6_000_000_000);
    assert_eq!(document.updates["a"].segments[0].bytes_per_sec, 2);
}

#[test]
fn a_thin_flow_starts_at_once_if_asked() {
    let case = |share: f64| {
        let text = format!(
            r#"{{"now_ns": 0,
                "hosts": {{
                    "A": {{"up_bytes_per_sec": 100, "down_bytes_per_sec": 100}},
                    "B": {{"up_bytes_per_sec": 100, "down_bytes_per_sec": 100}},
                    "D": {{"up_bytes_per_sec": 5, "down_bytes_per_sec": 5}},
                    "S": {{"up_bytes_per_sec": 100, "down_bytes_per_sec": 100}}}},
                "servers": [{{"name": "s", "host": "S", "version": 0}}],
                "updates": [
                    {{"id": "a", "server": "s", "host": "A", "size_bytes": 100, "version": 0}},
                    {{"id": "b", "server": "s", "host": "B", "size_bytes": 100, "version": 0}},
                    {{"id": "d", "server": "s", "host": "D", "size_bytes": 100, "version": 0}}],
                "options": {{"thin_flow_share": {share}}}}}"#
        );
        Case::from_json(&text).expect("a case")
    };
    let arrival = |share| {
        let case = case(share);
        let plan = Mlfabric.plan(&case).expect("a plan").document(&case);
        assert_eq!(plan.order, ["a", "b", "d"]);
        plan.updates["d"].arrival_ns
    };
    assert_eq!(arrival(0.0), 22_000_000_000);
    assert_eq!(arrival(0.1), 20_000_000_000);
}

#[test]
fn a_partial_round_keeps_the_quickest_and_gives_the_rest_of_the_link_back() {
    let host = |up: u64| format!(r#"{{"up_bytes_per_sec":{up},"down_bytes_per_sec":10}}"#);
    let update = |id: &str| {
        format!(r#"{{"id":"{id}","server":"s0","host":"{id}","size_bytes":10,"version":0}}"#)
    };
    let case = Case::from_json(&format!(
        r#"{{"now_ns":0,"hosts":{{"a":{},"b":{},"c":{},"s":{}}},
        "servers":[{{"name":"s0","host":"s","version":0}}],
        "updates":[{},{},{}],"options":{{"best_of":2}}}}"#,
        host(1),
        host(10),
        host(5),
        host(10),
        update("a"),
        update("b"),
        update("c")
    ))
    .unwrap();
    let plan = Mlfabric.plan(&case).unwrap();
    let names: Vec<_> = plan.order.iter().map(|id| &case.update(*id).name).collect();
    assert_eq!(names, ["b", "c"]);
    assert_eq!(plan.dropped[0].1, DropReason::RoundClosed);
    assert_eq!(plan.makespan_ns(&case), 3_000_000_000, "c has the whole link after b");
}
