//! The shipped scenarios, and the mistakes that a scenario may have.

use std::time::Duration;

use super::*;
use crate::workload::digits::TrainerConfig;

const DIGITS: &str = include_str!("../../scenarios/digits.toml");

#[test]
fn the_shipped_scenario_is_read() {
    let scenario = Scenario::parse("digits.toml", DIGITS).unwrap();
    assert_eq!((scenario.job.workers, scenario.job.rounds), (4, 150));
    assert_eq!(scenario.job.scale_exponent, ScaleExponent::Fixed(-20));
    assert_eq!(scenario.job.trainer(), TrainerConfig::default());
    let topology = scenario.topology().unwrap();
    assert_eq!(topology.hosts.len(), 5);
    assert_eq!(topology.links[0].shapes[0].unwrap().rate.bits_per_sec(), 1_000_000_000);
    let auto = DIGITS.replace("scale_exponent = -20", "scale_exponent = \"auto\"");
    let scenario = Scenario::parse("x", &auto).unwrap();
    assert_eq!(scenario.job.scale_exponent, ScaleExponent::Auto);
}

#[test]
fn mistakes_name_file_line_and_field() {
    let line = |needle: &str| {
        1 + DIGITS.lines().position(|line| line.starts_with(needle)).expect("a line")
    };
    let table = [
        ("workers = 4", "workers = 65", "job.workers", "1 to 64"),
        ("workers = 4", "workers = \"four\"", "job.workers", "invalid type"),
        ("workers = 4", "worker = 4", "job.worker", "unknown field `worker`"),
        ("rounds = 150", "rounds = 0", "job.rounds", "at least 1"),
        ("rounds = 150", "member_timeout_s = 0\nrounds = 150", "job.member_timeout_s", "1 to 3600"),
        ("batch = 32", "batch = 3200", "job.batch", "359 training images"),
        ("hidden = [256, 320]", "hidden = []", "job.hidden", "at least one layer"),
        ("momentum = 0.9", "momentum = 1.5", "job.momentum", "below 1"),
        (
            "element_type = \"i32\"",
            "element_type = \"i8\"",
            "job.element_type",
            "unknown element type",
        ),
        ("scale_exponent = -20", "scale_exponent = 200", "job.scale_exponent", "\"auto\""),
        ("rate_mbit = 1000", "rate_mbit = 0", "lab.rate_mbit", "0.01"),
        ("mtu = 1500", "mtu = 64", "lab.mtu", "1280"),
        ("batch = 32", "elements = 100\nbatch = 32", "job.elements", "multiple of 64"),
        ("batch = 32", "elements = 384\nbatch = 32", "job.elements", "at most the 360"),
        ("loss = 0.0", "loss = 1.0", "faults.loss", "below 1"),
        ("corrupt = 0.0", "corrupt = nan", "faults.corrupt", "probability"),
        ("corrupt = 0.0", "corrupted = 0.0", "faults.corrupted", "unknown field"),
    ];
    for (from, to, field, reason) in table {
        let error = Scenario::parse("d.toml", &DIGITS.replace(from, to)).unwrap_err();
        assert_eq!(error.line, line(from), "{error}");
        assert_eq!(error.field, field, "{error}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("d.toml:{}: {field}: ", error.line)), "{text}");
        assert!(text.contains(reason), "{text:?} lacks {reason:?}");
    }
}

#[test]
fn lanes_and_restarts_fit_their_run() {
    let parse = |more: &str| Scenario::parse("d.toml", &format!("{DIGITS}{more}"));
    let scenario = parse("[aggregation]\nlanes = 4\nleaves = 2\n").unwrap();
    assert_eq!(scenario.aggregation.lanes, 4);
    for (more, words) in [
        ("[aggregation]\nlanes = 3\n", "aggregation.lanes: is 3; expected a power of two"),
        ("[aggregation]\nlanes = 32\n", "at most 16"),
        ("[aggregation]\nlanes = 4\nwindow = 2\n", "and the window"),
        ("[[restart]]\nbox = \"a0\"\nafter_round = 150\n", "the last round is 149"),
        ("[[restart]]\nbox = \"a1\"\nafter_round = 1\n", "names no box: a1"),
    ] {
        let text = parse(more).unwrap_err().to_string();
        assert!(text.contains(words), "{text:?} lacks {words:?}");
    }
}

#[test]
fn a_missing_field_points_at_its_section() {
    let text = DIGITS.replace("batch = 32 ", "# ");
    let error = Scenario::parse("d.toml", &text).unwrap_err();
    assert!(error.problem.contains("`batch`"), "{error}");
    assert_eq!(error.field, "job", "{error}");
    let error = Scenario::parse("d.toml", "name = \"x\"\n[job\n").unwrap_err();
    assert_eq!(error.line, 2, "{error}");
}

const PUSH: [(&str, &str); 4] = [
    ("async.toml", include_str!("../../scenarios/async.toml")),
    ("async_replica.toml", include_str!("../../scenarios/async_replica.toml")),
    ("sync.toml", include_str!("../../scenarios/sync.toml")),
    ("partial.toml", include_str!("../../scenarios/partial.toml")),
];

#[test]
fn the_busy_server_is_sent_to_directly_by_workers_that_do_not_compute() {
    let text = include_str!("../../scenarios/busy_server.toml");
    let scenario = Scenario::parse("busy_server.toml", text).unwrap();
    let push = scenario.push.as_ref().expect("a [push] section");
    assert_eq!((push.aggregators, push.compute_ms, push.has_replica()), (0, [0, 0], false));
    let bits = |host: &str| scenario.lab.rates(host).map(|rate| rate.unwrap().bits_per_sec());
    let [up, down] = bits("server");
    // Models must not be what limits, and one worker must be able to fill the link.
    assert!(up > down && bits("w7")[0] >= down);
}

#[test]
fn the_push_scenarios_have_eight_workers_on_unequal_links() {
    for (name, text) in PUSH {
        let scenario = Scenario::parse(name, text).unwrap();
        let push = scenario.push.as_ref().expect("a [push] section");
        assert_eq!(scenario.name, name.trim_end_matches(".toml"));
        let rates: std::collections::BTreeSet<u64> = (0..8)
            .map(|rank| scenario.lab.rates(&format!("w{rank}"))[0].unwrap().bits_per_sec())
            .collect();
        assert!(rates.len() > 2, "{name}: {rates:?}");
        let topology = scenario.topology().unwrap();
        assert!(topology.host("server").is_some() && topology.host("a1").is_some());
        assert_eq!(topology.host("replica").is_some(), push.has_replica());
    }
    let partial = Scenario::parse(PUSH[3].0, PUSH[3].1).unwrap();
    let push = partial.push.unwrap();
    assert_eq!((push.updates_per_round(&partial.job), push.tau_max(&partial.job)), (6, 5));
}

#[test]
fn mistakes_in_a_push_name_their_field() {
    let (name, text) = PUSH[0];
    for (from, to, field, reason) in [
        ("mode = \"async\"", "mode = \"partial\"", "push.best", "is missing"),
        ("mode = \"async\"", "mode = \"async\"\nbest = 3", "push.best", "alone"),
        ("tau_max = 16", "tau_max = 6", "push.tau_max", "at least the workers less one"),
        ("tau_max = 16", "tau_maximum = 16", "push.tau_maximum", "unknown field"),
        ("aggregators = 2", "aggregators = 17", "push.aggregators", "at most 16"),
        ("aggregators = 2", "controller = false", "push.aggregators", "0 without a controller"),
        ("compute_ms = [50, 250]", "compute_ms = [9, 1]", "push.compute_ms", "[from, to]"),
        ("target_loss = 0.5", "target_loss = -1.0", "push.target_loss", "positive"),
        ("target_loss = 0.5", "until_loss = true", "push.until_loss", "a target_loss with it"),
        ("target_loss = 0.5", "div_max = 3.0", "push.div_max", "and a replica"),
        ("target_loss = 0.5", "lateness_ms = 5", "push.lateness_ms", "100 to"),
        ("scale_exponent = -24", "scale_exponent = \"auto\"", "job.scale_exponent", "the job"),
        ("w6 = 10", "w8 = 10", "lab.links.w8", "names no host"),
        ("w6 = 10", "w6 = 0", "lab.links.w6", "0.01"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = Scenario::parse(name, &text.replacen(from, to, 1)).unwrap_err();
        assert_eq!(error.field, field, "{error}");
        assert!(error.problem.contains(reason), "{error}");
    }
}

#[test]
fn a_crash_names_a_box_and_an_ack_of_the_replica_needs_one() {
    let failover = include_str!("../../scenarios/failover.toml");
    let scenario = Scenario::parse("failover.toml", failover).unwrap();
    assert_eq!((scenario.crash[0].name.as_str(), scenario.crash[0].after_round), ("server", 6));
    assert_eq!(scenario.push.unwrap().ack, weft_control::AckMode::Replica);
    for (from, to, field) in [
        ("box = \"server\"", "box = \"w1\"", "crash[0].box"),
        ("after_round = 6", "after_round = 16", "crash[0].after_round"),
        ("replication = \"network\"", "replication = \"none\"", "push.ack"),
        ("replication = \"network\"", "replication = \"chain\"", "push.ack"),
    ] {
        assert!(failover.contains(from), "{from}");
        let error = Scenario::parse("failover.toml", &failover.replace(from, to)).unwrap_err();
        assert_eq!(error.field, field, "{error}");
    }
    assert_eq!(Scenario::restart("--crash", "server@4").unwrap().after_round, 4);
    assert_eq!(Scenario::restart("--crash", "server").unwrap_err().field, "--crash");
}

const ASYNC: &str = include_str!("../../scenarios/async.toml");

#[test]
fn hosts_of_a_push_lie_in_racks_that_share_an_uplink() {
    let parse = |more: &str| Scenario::parse("a.toml", &format!("{ASYNC}{more}"));
    let racked = parse("[[lab.rack]]\nhosts = [\"w0\", \"w1\"]\nup = 30\n").unwrap();
    let topology = racked.topology().unwrap();
    let link = |from: &str, to: &str| {
        let ends = |link: &&crate::lab::topology::Link| {
            (link.ends[0].node.as_str(), link.ends[1].node.as_str()) == (from, to)
        };
        topology.links.iter().find(ends).map(|link| link.shapes.map(|shape| shape.map(|s| s.rate)))
    };
    let [up, down] = link("r0", "s0").expect("the rack's uplink");
    assert_eq!((up.map(|rate| rate.bits_per_sec()), down), (Some(30_000_000), None));
    assert!(link("w1", "r0").is_some() && link("w2", "r1").is_some() && link("w2", "s0").is_none());
    let addresses: std::collections::BTreeSet<_> =
        topology.hosts.iter().filter_map(|host| host.ip).map(|ip| ip.address).collect();
    assert_eq!(addresses.len(), topology.hosts.len());
    for (more, words) in [
        ("[[lab.rack]]\nhosts = [\"w99\"]\n", "lab.rack[0].hosts: has w99"),
        ("[[lab.rack]]\nhosts = [\"w0\", \"w0\"]\n", "lab.rack[0].hosts: has w0"),
        ("[[lab.rack]]\nhosts = [\"w0\"]\ndown = 0\n", "lab.rack[0].down: is 0"),
    ] {
        let error = parse(more).unwrap_err().to_string();
        assert!(error.contains(words), "{words} in {error}");
    }
    let error = Scenario::parse("d.toml", &format!("{DIGITS}[[lab.rack]]\nhosts = [\"w0\"]\n"));
    assert!(error.unwrap_err().to_string().contains("are for a scenario with [push]"));
}

#[test]
fn background_flows_name_hosts_rates_and_times_that_make_sense() {
    let good = "[[background]]\nfrom = \"w0\"\nto = \"a0\"\nrate_mbit = 20\n";
    let scenario = Scenario::parse("d.toml", &format!("{DIGITS}{good}")).unwrap();
    let [flow] = &scenario.background[..] else { panic!("one flow") };
    assert_eq!((flow.rate().bits_per_sec(), flow.times()), (20_000_000, (Duration::ZERO, None)));
    let before = DIGITS.lines().count();
    // The second flow is at fault, and its line is told.
    for (from, to, line, words) in [
        ("w0", "w9", 1, "from: names no host: w9; there are w0, w1, w2, w3, a0"),
        ("a0", "x", 2, "to: names no host: x"),
        ("a0", "w0", 2, "to: is w0, which is the sender itself"),
        ("20", "0", 3, "rate_mbit: is 0; expected 0.01"),
        ("20", "nan", 3, "rate_mbit: is NaN"),
        ("20", "20\nbegin_s = -1", 4, "begin_s: is -1; expected 0 to 86400"),
        ("20", "20\nbegin_s = inf", 4, "begin_s: is inf"),
        ("20", "20\nbegin_s = 3\nend_s = 3", 5, "end_s: is 3; expected above 3 (begin_s)"),
        ("20", "20\nend_s = nan", 4, "end_s: is NaN"),
        ("20", "20\nuntil = 3", 4, "unknown field `until`"),
    ] {
        let quoted = |text: &str| match text.starts_with(|c: char| c.is_ascii_digit()) {
            true => text.to_owned(),
            false => format!("\"{text}\""),
        };
        let (from, to) =
            if from == "20" { (from.into(), to.into()) } else { (quoted(from), quoted(to)) };
        let bad = good.replace(&from, &to);
        let error = Scenario::parse("d.toml", &format!("{DIGITS}{good}{bad}")).unwrap_err();
        assert_eq!(error.line, before + 5 + line, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("background[1].") && text.contains(words),
            "{text:?} lacks {words:?}"
        );
    }
    let many = good.repeat(33);
    let error = Scenario::parse("d.toml", &format!("{DIGITS}{many}")).unwrap_err();
    assert!(error.problem.contains("at most 32"), "{error}");
    assert_eq!(error.line, before + 32 * 4 + 2, "{error}");
}

#[test]
fn the_section_at_fault_among_several_is_told() {
    let good = "[[restart]]\nbox = \"a0\"\nafter_round = 1\n";
    let bad = good.replace("a0", "a7");
    let error = Scenario::parse("d.toml", &format!("{DIGITS}{good}{bad}")).unwrap_err();
    assert_eq!(error.line, DIGITS.lines().count() + 5, "{error}");
}

#[test]
fn links_may_have_delays() {
    let parse = |lab: &str| Scenario::parse("d.toml", &DIGITS.replace("mtu = 1500", lab));
    let scenario = parse("mtu = 1500\ndelay_ms = 2.5\ndelays_ms = { w1 = 0, a0 = 10 }").unwrap();
    let delays: Vec<(String, u128)> =
        scenario.delays().into_iter().map(|(host, delay)| (host, delay.as_micros())).collect();
    let expected = [("a0", 10_000), ("w0", 2_500), ("w2", 2_500), ("w3", 2_500)];
    assert_eq!(delays, expected.map(|(host, delay_us)| (host.to_owned(), delay_us)));
    let topology = scenario.topology().unwrap();
    let of = |host: &str| topology.links.iter().find(|l| l.ends[0].node == host).unwrap().delay;
    assert_eq!((of("a0"), of("w1")), (Duration::from_millis(10), Duration::ZERO));
    for (lab, words) in [
        ("mtu = 1500\ndelay_ms = -1", "lab.delay_ms: is -1; expected 0 to 1000 ms"),
        ("mtu = 1500\ndelay_ms = nan", "lab.delay_ms: is NaN"),
        ("mtu = 1500\ndelay_ms = 1001", "lab.delay_ms: is 1001"),
        ("mtu = 1500\n[lab.delays_ms]\nw9 = 1", "lab.delays_ms.w9: names no host; there are w0"),
        ("mtu = 1500\n[lab.delays_ms]\nw0 = 1e9", "lab.delays_ms.w0: is 1000000000"),
    ] {
        let text = parse(lab).unwrap_err().to_string();
        assert!(text.contains(words), "{text:?} lacks {words:?}");
    }
    assert_eq!(Scenario::parse("d.toml", DIGITS).unwrap().delays().len(), 0);
}
