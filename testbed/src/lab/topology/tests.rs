use super::*;

fn refused(text: &str) -> String {
    Topology::from_json(text).unwrap_err().to_string()
}

const TUTORIAL: &str = r#"{
    "hosts": {
        "h1": {"ip": "10.0.1.1/24", "mac": "08:00:00:00:01:11", "commands": ["true"]},
        "h2": {"ip": "10.0.1.2/24"},
        "h3": {}
    },
    "switches": { "s1": {"runtime_json": "pod-topo/s1-runtime.json"}, "s2": {} },
    "links": [
        ["h1", "s1-p1"],
        [["h2", "s1-p2"], {"bw": 100, "max_queue_size": 50}],
        ["h3", "s2", {"bw": 2.5, "use_tbf": true, "delay": "0ms", "loss": 0}],
        ["s1", "s2", "0", "0.5"],
        ["h3", "s1"]
    ]
}"#;

#[test]
fn what_is_written_is_read_as_it_was() {
    let mut topology = Topology::from_json(TUTORIAL).unwrap();
    topology.set_delay("h2", Duration::from_micros(2500));
    assert_eq!(Topology::from_json(&topology.to_json()).unwrap(), topology);
    let rates = |up, down| Rates { up: Rate::from_mbit(up), down: Rate::from_mbit(down) };
    let hosts = vec![("w0".to_owned(), rates(80.0, 40.5)), ("w1".to_owned(), Rates::default())];
    let built = Topology::racks(&[Rack { hosts, uplink: Rates::default() }], 1400).unwrap();
    assert_eq!(Topology::from_json(&built.to_json()).unwrap(), built);
    // One way alone is written from the other end.
    let up = Rates { up: Rate::from_mbit(8.0), down: None };
    let hosts = vec![("w0".to_owned(), up)];
    let built = Topology::racks(&[Rack { hosts, uplink: Rates::default() }], 1400).unwrap();
    let read = Topology::from_json(&built.to_json()).unwrap();
    let ends = |link: &Link| link.ends.iter().cloned().zip(link.shapes).collect::<Vec<_>>();
    let mut turned = ends(&read.links[0]);
    turned.reverse();
    assert_eq!(turned, ends(&built.links[0]));
}

#[test]
fn a_tutorial_file_is_read_with_every_way_to_write_a_link() {
    let topology = Topology::from_json(TUTORIAL).unwrap();
    assert_eq!(topology.switches, ["s1", "s2"]);
    assert_eq!(topology.hosts[0].mac.unwrap().to_string(), "08:00:00:00:01:11");
    assert_eq!(topology.hosts[1].ip.unwrap().to_string(), "10.0.1.2/24");
    let ends: Vec<String> = topology
        .links
        .iter()
        .map(|link| format!("{}:{}", link.ends[0].interface, link.ends[1].interface))
        .collect();
    assert_eq!(ends, ["eth0:s1-p1", "eth0:s1-p2", "eth0:s2-p1", "s1-p3:s2-p2", "eth1:s1-p4"]);
    let mbit = |mbit| Rate::from_mbit(mbit).unwrap();
    let shapes: Vec<Option<Shape>> = topology.links.iter().map(|link| link.shapes[0]).collect();
    let symmetric = |link: &Link| link.shapes[0] == link.shapes[1];
    assert!(topology.links[..4].iter().all(symmetric) && topology.links[4].shapes == [None; 2]);
    assert_eq!(shapes[0], None);
    assert_eq!(shapes[1], Some(Shape { queue_packets: 50, ..Shape::new(mbit(100.0)) }));
    assert_eq!(shapes[2], Some(Shape { shaper: Shaper::Tbf, ..Shape::new(mbit(2.5)) }));
    assert_eq!(shapes[3], Some(Shape::new(mbit(0.5))));
}

#[test]
fn what_labs_do_not_do_is_refused_not_ignored() {
    let with = |option: &str| {
        refused(&format!(
            r#"{{"hosts":{{"h1":{{}},"h2":{{}}}},"links":[["h1","h2",{{"bw":1,{option}}}]]}}"#
        ))
    };
    for option in [r#""loss":1"#, r#""jitter":"1ms""#] {
        let error = with(option);
        assert!(error.starts_with("links[0]: ") && error.contains("[faults]"), "{error}");
    }
    for option in [r#""delay":"5 parsecs""#, r#""delay":"5""#, r#""delay":-1"#, r#""delay":"2s""#] {
        let error = with(option);
        assert!(error.starts_with("links[0]: `delay` is ") && error.contains("5ms"), "{error}");
    }
}

#[test]
fn a_link_may_have_a_delay() {
    let delay = |link: &str| {
        let text = format!(r#"{{"hosts":{{"h1":{{}},"h2":{{}}}},"links":[{link}]}}"#);
        Topology::from_json(&text).unwrap().links[0].delay
    };
    for (link, expected_us) in [
        (r#"["h1","h2"]"#, 0),
        (r#"["h1","h2",{"delay":"5ms"}]"#, 5_000),
        (r#"["h1","h2",{"delay":2.5}]"#, 2_500),
        (r#"["h1","h2","300us",10]"#, 300),
        (r#"["h1","h2","0",10]"#, 0),
        (r#"["h1","h2",{"delay":"1 s"}]"#, 1_000_000),
    ] {
        assert_eq!(delay(link), Duration::from_micros(expected_us), "{link}");
    }
}

#[test]
fn mistakes_are_named() {
    let hosts = r#""hosts":{"h1":{},"h2":{}},"switches":{"s1":{}}"#;
    let links = |links: &str| refused(&format!("{{{hosts},\"links\":[{links}]}}"));
    let table = [
        (links(r#"["h1","h9"]"#), "links[0]: link end `h9`"),
        (links(r#"["h1","s1-p1"],["h2","s1-p1"]"#), "links[1]: port `s1-p1` already"),
        (links(r#"["h1","s1-p1000"]"#), "`s1-p1000`"),
        (links(r#"["h1","h1"]"#), "both ends are `h1`"),
        (links(r#"["h1"]"#), "two names are missing"),
        (links(r#"["h1","h2",{"bandwidth":1}]"#), "unknown field `bandwidth`"),
        (links(r#"["h1","h2",{"bw":0}]"#), "`bw` is 0"),
        (links(r#"["h1","h2",{"max_queue_size":9}]"#), "without bw"),
        (links(r#"["h1","h2",0,1,2]"#), "too many parts"),
        (refused(r#"{"hosts":{"h1":{"ip":"10.0.0.1"}}}"#), "`10.0.0.1` is no address"),
        (refused(r#"{"hosts":{"h1":{"ip":"10.0.0.1/33"}}}"#), "`10.0.0.1/33`"),
        (refused(r#"{"hosts":{"h1":{"mac":"zz"}}}"#), "`zz` is no Ethernet"),
        (refused(r#"{"hosts":{"h1":{}},"switches":{"h1":{}}}"#), "`h1` is defined twice"),
        (refused(r#"{"hosts":{"-h":{}}}"#), "node name `-h`"),
        (refused(r#"{"hosts":{"elevenchars":{}}}"#), "15 bytes"),
        (refused(r#"{"hosts":{"a b":{}}}"#), "node name `a b`"),
        (refused(r#"{"hosts":{}}"#), "at least one host"),
        (refused(r#"{"hosts":{"h1":{}},"mtu":100}"#), "mtu is 100"),
        (refused("{\n\"hosts\": {\"h1\": {\"up\": 1}}}"), "line 2"),
    ];
    for (error, expected) in table {
        assert!(error.contains(expected), "{error:?} lacks {expected:?}");
    }
    let twin = r#"{"hosts":{"h1":{"ip":"10.0.0.1/24"},"h2":{"ip":"10.0.0.1/16"}}}"#;
    assert!(refused(twin).contains("`h1` and `h2` have the same"));
}

#[test]
fn a_star_gives_every_box_an_address_and_a_port() {
    let star = Star { workers: 4, aggregators: 1, rate: Rate::from_mbit(1000.0), mtu: 9000 };
    let mut topology = Topology::star(&star).unwrap();
    assert_eq!(topology.links.len(), 5);
    assert_eq!(topology.host("w3").unwrap().ip.unwrap().to_string(), "10.87.0.4/24");
    assert_eq!(topology.host("a0").unwrap().ip.unwrap().to_string(), "10.87.0.254/24");
    assert!(topology.leave_address_to_port("a0"));
    assert!(!topology.host("a0").unwrap().kernel_address);
    assert!(!topology.leave_address_to_port("a1"));
    let largest = Star { workers: 200, aggregators: 50, ..star };
    assert_eq!(Topology::star(&largest).unwrap().hosts.len(), 250);
    assert!(Topology::star(&Star { workers: 201, ..star }).is_err());
}

#[test]
fn a_links_directions_may_have_rates_of_their_own() {
    let links = |options: &str| {
        let text =
            format!(r#"{{"hosts":{{"h1":{{}},"h2":{{}}}},"links":[["h1","h2",{options}]]}}"#);
        Topology::from_json(&text).unwrap().links[0].shapes
    };
    let shape = |mbit| Some(Shape::new(Rate::from_mbit(mbit).unwrap()));
    assert_eq!(links(r#"{"bw":10,"bw_reverse":50}"#), [shape(10.0), shape(50.0)]);
    assert_eq!(links(r#"{"bw_reverse":50}"#), [None, shape(50.0)]);
    assert!(
        refused(r#"{"hosts":{"h1":{},"h2":{}},"links":[["h1","h2",{"bw":1,"bw_reverse":0}]]}"#)
            .contains("`bw_reverse` is 0")
    );
}

#[test]
fn racks_share_their_uplinks() {
    let mbit = |mbit| Rate::from_mbit(mbit);
    let rates = |up, down| Rates { up: mbit(up), down: mbit(down) };
    let host = |name: &str, up| (name.to_owned(), rates(up, 100.0));
    let rack = |names: [&str; 2], uplink| Rack {
        hosts: names.iter().map(|name| host(name, 40.0)).collect(),
        uplink,
    };
    let racks = [rack(["w0", "w1"], rates(60.0, 80.0)), rack(["w2", "w3"], Rates::default())];
    let topology = Topology::racks(&racks, 1500).unwrap();
    assert_eq!(topology.switches, ["r0", "r1", "s0"]);
    let link = |end: &str| {
        let link = topology.links.iter().find(|link| link.ends[0].interface == end).unwrap();
        (link.ends[1].interface.as_str(), link.shapes.map(|s| s.map(|s| s.rate)))
    };
    assert_eq!(link("r0-p1"), ("s0-p1", [mbit(60.0), mbit(80.0)]));
    assert_eq!(link("r1-p1"), ("s0-p2", [None, None]));
    let w3 = topology.links.iter().find(|link| link.ends[0].node == "w3").unwrap();
    assert_eq!(w3.ends[1].interface, "r1-p3");
    assert_eq!(topology.host("w3").unwrap().ip.unwrap().to_string(), "10.87.0.4/24");
    let one = Rack { uplink: Rates::default(), ..racks[0].clone() };
    assert_eq!(Topology::racks(&[one], 1500).unwrap().switches, ["s0"]);
    let many = (0..201).map(|n| (format!("h{n}"), Rates::default())).collect();
    let many = Rack { hosts: many, uplink: Rates::default() };
    assert!(matches!(Topology::racks(&[many], 1500), Err(TopologyError::StarSize { .. })));
}
