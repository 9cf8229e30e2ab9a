//! A real process on UDP loopback, with members that are plain sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{ConfigFile, PATIENCE, Running, run_to_end, weft_node};
use crate::member::{Member, join_all};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use weft_config::node::{
    ControllerSection, FaultsSection, Io, JobSection, MemberSection, NodeConfig, ParentSection,
    PortSection, RowSection, TraceSection,
};
use weft_io::shm::{ShmConfig, ShmPort};

const ELEMENTS: usize = 8;

/// UDP ports that were free a moment ago: `count` in a row.
fn free_ports(count: u16) -> u16 {
    for _ in 0..100 {
        let first = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let port = first.local_addr().expect("bound").port();
        let Some(last) = port.checked_add(count) else { continue };
        let rest: Result<Vec<_>, _> =
            (port + 1..last).map(|port| UdpSocket::bind(("127.0.0.1", port))).collect();
        if rest.is_ok() {
            return port;
        }
    }
    panic!("no {count} free UDP ports in a row");
}

/// A node with `shards` lanes and two members, each with as many ports.
struct Setup {
    file: ConfigFile,
    node: SocketAddr,
    members: [u16; 2],
}

/// `change` has the last word on the node's configuration.
fn setup(name: &str, shards: u16, change: impl FnOnce(&mut NodeConfig)) -> Setup {
    setup_at(name, free_ports(3 * shards), shards, change)
}

/// The same from UDP port `first` on.
fn setup_at(name: &str, first: u16, shards: u16, change: impl FnOnce(&mut NodeConfig)) -> Setup {
    let (node, members) = (first, [first + shards, first + 2 * shards]);
    let mut config = config(node, shards, row(members.map(|port| loopback(port).into()).into()));
    config.job[0].name = Some("j".to_owned());
    change(&mut config);
    let file = ConfigFile::new(name, &config);
    Setup { file, node: loopback(node), members }
}

fn row(members: Vec<MemberSection>) -> RowSection {
    let elements = u16::try_from(ELEMENTS).expect("few");
    RowSection {
        elements: elements.into(),
        window: 16,
        exponent: Some(0),
        ..RowSection::new(0, 1, members)
    }
}

fn config(port: u16, shards: u16, row: RowSection) -> NodeConfig {
    let mut config = NodeConfig::new(PortSection {
        udp_port: port,
        ..PortSection::new(Io::Udp, IpAddr::from([127, 0, 0, 1]))
    });
    config.lcores.shards = shards;
    config.job.push(JobSection::new(1));
    config.row.push(row);
    config
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn values(rank: i32) -> Vec<i32> {
    (0..8).map(|index| (rank + 1) * 1_000_003 * (index - 3)).collect()
}

#[test]
fn two_members_get_the_sum_and_the_statistics_match() {
    let setup = setup("sum", 1, |_| ());
    let node = Running::start(&mut weft_node(&setup.file, &["--format", "json"]));
    let ready: serde_json::Value = serde_json::from_str(&node.ready).expect("JSON");
    assert_eq!(ready["ready"], true);
    assert_eq!(ready["addr"], setup.node.to_string());
    assert_eq!(ready["driver"], "udp");

    let mut members = [0, 1].map(|rank: u8| {
        let port = setup.members[usize::from(rank)];
        Member::new(loopback(port), setup.node, rank, 0)
    });
    join_all(&mut members);
    members[0].contribute(0, &values(0));
    members[1].contribute(0, &values(1));
    let expected: Vec<i32> =
        values(0).iter().zip(values(1)).map(|(a, b)| a.wrapping_add(b)).collect();
    for member in &members {
        let (sum, contributors) = member.answer(0);
        assert_eq!(sum, expected);
        assert_eq!(contributors.0, 0b11);
    }
    // A repeat is answered from the slot, and counted.
    members[0].contribute(0, &values(0));
    assert_eq!(members[0].answer(0).0, expected);

    let ended = node.end(Signal::SIGINT);
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    assert!(ended.took < PATIENCE, "ended after {:?}", ended.took);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
    let job = &report["jobs"][0];
    assert_eq!(job["name"], "j");
    assert_eq!(job["contributions_added"], 2);
    assert_eq!(job["chunks_completed"], 1);
    assert_eq!(job["answers_sent"], 1, "one multicast");
    assert_eq!(job["answers_repeated"], 1);
    assert_eq!(report["formations"], 1);
    assert_eq!(report["transitions"]["claim"], 1);
    assert_eq!(report["transitions"]["complete_root"], 1);
    assert_eq!(report["rows"][0]["phases"][0], "open");
    assert_eq!(report["rows"][0]["members"][1]["present"], true);
    let sent = report["port"]["tx_packets"].as_u64().expect("a count");
    let received = report["port"]["rx_packets"].as_u64().expect("a count");
    // The first contribution is held, the second answered twice, all else once.
    assert!(received >= 7 && sent == received, "{sent} sent, {received} received");
}

#[test]
fn a_terminated_node_prints_testpmds_block() {
    let setup = setup("text", 1, |_| ());
    let node = Running::start(&mut weft_node(&setup.file, &["--stats-period", "1"]));
    assert!(node.ready.starts_with("weft-node ready: "), "{}", node.ready);
    std::thread::sleep(Duration::from_millis(2300));
    let ended = node.end(Signal::SIGTERM);
    assert_eq!(ended.code, Some(0));
    for words in [
        "Forward statistics for port",
        "RX-packets: 0",
        "RX-missed:",
        "RX-errors:",
        "RX-nombuf:",
        "TX-packets:",
        "TX-errors:",
        "job 1 (j):",
        "drops: none",
    ] {
        assert!(ended.stdout.contains(words), "{words} in {}", ended.stdout);
    }
    let periodic = ended.stderr.join("\n");
    assert!(periodic.contains("Rx-pps:") && periodic.contains("Rx-bps:"), "{periodic}");
}

/// The report of a node of four lanes after a sum in each.
fn report_of_four_lanes(setup: &Setup) -> serde_json::Value {
    let node = Running::start(&mut weft_node(&setup.file, &["--format", "json"]));
    let mut members = Vec::new();
    for lane in 0..LANES {
        for rank in [0, 1] {
            let port = setup.members[usize::from(rank)] + lane;
            members.push(Member::new(loopback(port), setup.node, rank, lane));
        }
    }
    join_all(&mut members);
    for (chunk, pair) in members.chunks(2).enumerate() {
        let chunk = u32::try_from(chunk).expect("few");
        pair[0].contribute(chunk, &values(0));
        pair[1].contribute(chunk, &values(1));
        let expected: Vec<i32> =
            values(0).iter().zip(values(1)).map(|(a, b)| a.wrapping_add(b)).collect();
        assert_eq!(pair[0].answer(chunk).0, expected, "lane {chunk}");
        assert_eq!(pair[1].answer(chunk).0, expected, "lane {chunk}");
    }
    let ended = node.end(Signal::SIGINT);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
    assert_eq!(report["jobs"][0]["chunks_completed"], 4);
    assert_eq!(report["formations"], 4);
    assert_eq!(report["drops"]["wrong_shard"], 0);
    assert_eq!(report["steering"]["ring_full"], 0);
    let lanes = report["lanes"].as_array().expect("lanes");
    assert!(lanes.iter().all(|lane| lane["frames"].as_u64() >= Some(4)), "{lanes:?}");
    report
}

/// Frames of lanes from `first` on.
fn frames_from(report: &serde_json::Value, first: usize) -> u64 {
    let lanes = report["lanes"].as_array().expect("lanes");
    lanes[first..].iter().filter_map(|lane| lane["frames"].as_u64()).sum()
}

const LANES: u16 = 4;

#[test]
fn four_lanes_share_one_udp_port_and_each_receives_its_part() {
    let ports = || std::iter::repeat_with(|| free_ports(3 * LANES));
    let first = ports().find(|port| port % LANES == 0).expect("one in four");
    let report = report_of_four_lanes(&setup_at("lanes", first, LANES, |_| ()));
    assert_eq!(report["steering"]["handed_over"], 0, "the kernel knows whose a frame is");
    // Where members have other ports it is wrong, and lanes hand frames to each other.
    let first = ports().find(|port| port % LANES == 1).expect("one in four");
    let report = report_of_four_lanes(&setup_at("crossed", first, LANES, |_| ()));
    assert_eq!(report["steering"]["handed_over"], frames_from(&report, 0));
}

#[test]
fn lane_0_moves_all_frames_where_they_are_captured() {
    let pcap = std::env::temp_dir().join(format!("weft-lanes-{}.pcap", std::process::id()));
    let setup = setup("captured", LANES, |config| {
        config.trace = Some(TraceSection::new(pcap.display().to_string()));
    });
    let report = report_of_four_lanes(&setup);
    assert_eq!(report["steering"]["handed_over"], frames_from(&report, 1));
    std::fs::remove_file(pcap).expect("it was written");
}

#[test]
fn a_leaf_sends_its_sum_up_and_brings_the_roots_answer_down() {
    const LANES: u16 = 2;
    let first = free_ports(4 * LANES);
    let [root, leaf, one, other] = [0, 1, 2, 3].map(|index| first + index * LANES);
    let leaf_at_root = MemberSection { addr: loopback(leaf), weight: 2, is_box: true };
    let at_root = RowSection { fan_in: Some(2), ..row(vec![leaf_at_root]) };
    let parent =
        ParentSection { addr: loopback(root), row: 0, rank: 0, source_port: None, mac: None };
    let at_leaf = RowSection {
        fan_in: Some(2),
        parent: Some(parent),
        ..row([one, other].map(|port| loopback(port).into()).into())
    };
    let root_config = ConfigFile::new("root", &config(root, LANES, at_root));
    let leaf_config = ConfigFile::new("leaf", &config(leaf, LANES, at_leaf));
    let root_node = Running::start(&mut weft_node(&root_config, &["--format", "json"]));
    let leaf_node = Running::start(&mut weft_node(&leaf_config, &["--format", "json"]));

    let lane = 1;
    let mut members = [(0, one), (1, other)]
        .map(|(rank, port)| Member::new(loopback(port + lane), loopback(leaf), rank, lane));
    join_all(&mut members);
    for (member, rank) in members.iter().zip(0..) {
        member.contribute(1, &values(rank));
    }
    let expected: Vec<i32> =
        values(0).iter().zip(values(1)).map(|(a, b)| a.wrapping_add(b)).collect();
    for member in &members {
        assert_eq!(member.answer(1).0, expected);
    }
    let report = |node: Running| -> serde_json::Value {
        serde_json::from_str(&node.end(Signal::SIGINT).stdout).expect("one JSON object")
    };
    let (root, leaf) = (report(root_node), report(leaf_node));
    assert_eq!(leaf["transitions"]["complete_leaf"], 1);
    assert_eq!(leaf["transitions"]["answer_from_root"], 1);
    assert_eq!(root["transitions"]["complete_root"], 1);
    assert_eq!(root["jobs"][0]["contributions_added"], 1);
    assert_eq!(root["rows"][0]["phases"][1], "open");
}

#[test]
fn an_idle_node_leaves_the_cpu_alone() {
    let setup = setup("idle", 2, |_| ());
    let node = Running::start(&mut weft_node(&setup.file, &[]));
    let before = cpu_ticks(node.pid());
    std::thread::sleep(Duration::from_secs(2));
    let ticks = cpu_ticks(node.pid()) - before;
    // 100 ticks a second: 2 s are 200; a lane that polls would take them all.
    assert!(ticks < 40, "{ticks} ticks of CPU in 2 s");
    assert_eq!(node.end(Signal::SIGINT).code, Some(0));
}

#[test]
fn a_node_told_never_to_sleep_polls() {
    let setup = setup("poll", 1, |config| config.idle.breaths = Some(0));
    let node = Running::start(&mut weft_node(&setup.file, &[]));
    let before = cpu_ticks(node.pid());
    let deadline = Instant::now() + PATIENCE;
    while cpu_ticks(node.pid()) - before < 10 {
        assert!(Instant::now() < deadline, "it sleeps");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// User and system time of a process.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let after_name = stat.rsplit_once(')').expect("a name in parentheses").1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<u64>().expect("a number");
    ticks(11) + ticks(12)
}

/// Runs a node that must refuse to start, and does so soon.
fn refused(config: &ConfigFile, args: &[&str]) -> Output {
    let started = Instant::now();
    let output = run_to_end(&mut weft_node(config, args));
    assert!(started.elapsed() < Duration::from_secs(5), "took {:?}", started.elapsed());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.lines().count(), 1, "one line: {stderr}");
    output
}

fn assert_refusal(output: &Output, code: i32, words: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(words), "`{words}` in: {stderr}");
}

#[test]
fn what_this_machine_lacks_is_one_line_and_status_3() {
    let taken = setup("taken", 1, |_| ());
    let _holder = UdpSocket::bind(taken.node).expect("the port is free");
    assert_refusal(&refused(&taken.file, &[]), 3, "is in use");

    let elsewhere = setup("elsewhere", 1, |config| {
        let at = IpAddr::from([192, 0, 2, 7]);
        config.port.ip = at.into();
        config.row[0].members.iter_mut().for_each(|member| member.addr.set_ip(at));
    });
    assert_refusal(&refused(&elsewhere.file, &[]), 3, "no interface of this host has the address");

    let pinned = setup("pinned", 1, |config| config.lcores.cpus = vec![1000]);
    assert_refusal(&refused(&pinned.file, &[]), 3, "pinning a lane to CPU 1000");
    let pinned = setup("pinned-side", 2, |config| config.lcores.cpus = vec![0, 1000]);
    assert_refusal(&refused(&pinned.file, &[]), 3, "pinning a lane to CPU 1000");

    let capture = setup("capture", 1, |config| {
        config.trace = Some(TraceSection::new("/nonexistent/a.pcap"));
    });
    assert_refusal(&refused(&capture.file, &[]), 3, "writing the capture /nonexistent/a.pcap");

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("bound");
    let metrics = setup("metrics-taken", 1, |config| config.node.metrics = Some(addr));
    assert_refusal(&refused(&metrics.file, &[]), 3, "for /metrics");

    let eal = weft_node(&setup("eal", 1, |_| ()).file, &[]).get_program().to_owned();
    let setup = setup("eal-args", 1, |_| ());
    let output = Command::new(eal)
        .args(["-l", "0", "--", "--config"])
        .arg(setup.file.path())
        .output()
        .expect("weft-node runs");
    assert_refusal(&output, 2, "EAL arguments came before `--`");
}

#[cfg(not(feature = "dpdk"))]
#[test]
fn a_build_without_dpdk_says_so() {
    let setup = setup("nodpdk", 1, |config| config.port.io = Io::Dpdk);
    assert_refusal(&refused(&setup.file, &[]), 3, "built without DPDK");
}

#[test]
fn metrics_are_served_and_nothing_else() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("bound");
    drop(listener);
    let setup = setup("metrics", 1, |config| {
        config.node.name = "a \"b\"".to_owned();
        config.node.metrics = Some(addr);
    });
    let node = Running::start(&mut weft_node(&setup.file, &[]));
    let body = get(addr, "/metrics");
    assert!(body.starts_with("HTTP/1.1 200 OK"), "{body}");
    for line in [
        "weft_node_info{node=\"a \\\"b\\\"\",version=",
        "weft_drops_total{reason=\"length\"} 0",
        "weft_job_contributions_added_total{job=\"j\"} 0",
        "weft_member_present{row=\"0\",rank=\"1\"} 0",
        "# TYPE weft_port_rx_packets_total counter",
    ] {
        assert!(body.contains(line), "{line} in {body}");
    }
    assert!(get(addr, "/").starts_with("HTTP/1.1 404"), "only /metrics is served");
    // Idle clients must not keep others waiting, nor the node from ending.
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(addr).expect("it listens")).collect();
    let asked = Instant::now();
    assert!(get(addr, "/metrics").starts_with("HTTP/1.1 200 OK"));
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    let ended = node.end(Signal::SIGINT);
    assert!(ended.took < PATIENCE, "ended after {:?}", ended.took);
    drop(silent);
}

fn get(addr: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
    let mut body = String::new();
    stream.read_to_string(&mut body).expect("it answers");
    body
}

#[test]
fn faults_and_trace_wrap_the_port() {
    let pcap = std::env::temp_dir().join(format!("weft-node-{}.pcap", std::process::id()));
    let setup = setup("faults", 1, |config| {
        config.faults = Some(FaultsSection { loss: 1.0, ..FaultsSection::default() });
        config.trace = Some(TraceSection::new(pcap.display().to_string()));
    });
    let node = Running::start(&mut weft_node(&setup.file, &["--format", "json"]));
    let mut member = Member::new(loopback(setup.members[0]), setup.node, 0, 0);
    for _ in 0..3 {
        assert!(!member.join(), "every datagram is lost");
    }
    let ended = node.end(Signal::SIGINT);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
    assert_eq!(report["faults"]["lost"], 3);
    assert_eq!(report["lanes"][0]["frames"], 0);
    assert_eq!((&report["trace"]["frames"], &report["trace"]["cut"]), (&3.into(), &0.into()));
    let capture = std::fs::read(&pcap).expect("the capture is there");
    let _ = std::fs::remove_file(&pcap);
    assert_eq!(&capture[..4], &[0x4d, 0x3c, 0xb2, 0xa1], "nanoseconds, little-endian");
    // Three HELLOs of 14 + 20 + 8 + 32 + 72 bytes, each behind a record header of 16.
    assert_eq!(capture.len(), 24 + 3 * (16 + 146));
}

/// A file that may not grow is a disk that is full.
#[test]
fn a_capture_whose_disk_is_full_is_said_once_and_ends_with_a_whole_frame() {
    let directory = tempfile::tempdir().expect("a directory");
    let pcap = directory.path().join("full.pcap");
    let metrics = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
    let setup = setup("full", 1, |config| {
        config.trace = Some(TraceSection::new(pcap.display().to_string()));
        config.node.metrics = Some(metrics);
    });
    let node = weft_node(&setup.file, &["--format", "json"]);
    let limited = "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", limited]).arg(node.get_program()).args(node.get_args());
    let node = Running::start(&mut shell);
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let begun = Instant::now();
    let missing = |body: &str| {
        let line = body.lines().find_map(|line| line.strip_prefix("weft_capture_errors_total "));
        line.and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)
    };
    while missing(&get(metrics, "/metrics")) < 5 {
        assert!(begun.elapsed() < PATIENCE, "{}", get(metrics, "/metrics"));
        stranger.send_to(&[0; 100], setup.node).expect("it is sent");
    }
    let ended = node.end(Signal::SIGINT);
    let said: Vec<_> = ended.stderr.iter().filter(|line| line.contains("full.pcap")).collect();
    assert_eq!(said.len(), 1, "{:?}", ended.stderr);
    assert!(said[0].contains("ends here") && said[0].contains("trace.pcap"), "{said:?}");
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
    let frames = report["trace"]["frames"].as_u64().expect("a number");
    let capture = std::fs::read(&pcap).expect("the capture is there");
    assert!(frames > 0, "the first have room");
    assert_eq!(capture.len() as u64, 24 + frames * (16 + 142), "whole frames, all of them counted");
    assert_eq!(report["trace"]["bytes"], capture.len());
}

#[test]
fn memory_shared_with_workers_is_in_the_report_and_the_metrics() {
    let metrics = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
    let setup = setup("shared", 1, |config| {
        config.port.shm = true;
        config.node.metrics = Some(metrics);
    });
    let node = Running::start(&mut weft_node(&setup.file, &["--format", "json"]));
    let port = ShmPort::open(&ShmConfig::new(loopback(setup.members[0]), setup.node));
    let port = port.expect("the node shares memory");
    let is_seen = |line: &str| line == "weft_shm_links 1";
    let begun = Instant::now();
    while !get(metrics, "/metrics").lines().any(is_seen) {
        assert!(begun.elapsed() < PATIENCE, "{}", get(metrics, "/metrics"));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(get(metrics, "/metrics").contains("weft_shm_joined_total 1\n"));
    let ended = node.end(Signal::SIGINT);
    drop(port);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
    assert_eq!((&report["shm"]["joined"], &report["shm"]["ring_full"]), (&1.into(), &0.into()));
}

#[test]
fn a_service_manager_hears_that_the_node_serves() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let setup = setup("notified", 1, |_| ());
    let node = Running::start(weft_node(&setup.file, &[]).env("NOTIFY_SOCKET", &socket));
    let mut state = [0; 16];
    let len = manager.recv(&mut state).expect("the node says it");
    assert_eq!(&state[..len], b"READY=1");
    assert_eq!(node.end(Signal::SIGTERM).code, Some(0));
}

/// Lines for people go to whoever reads them; when nobody does, the node goes on.
#[test]
fn a_node_goes_on_when_nobody_reads_its_stderr() {
    let setup = setup("unread", 1, |_| ());
    let mut command = weft_node(&setup.file, &["--stats-period", "1"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut node = command.spawn().expect("the node starts");
    let mut lines = BufReader::new(node.stderr.take().expect("piped")).lines();
    assert!(lines.next().is_some_and(|line| line.is_ok()), "it says that it is ready");
    drop(lines);
    // Statistics are written twice meanwhile.
    std::thread::sleep(Duration::from_millis(2500));
    assert!(node.try_wait().expect("a child").is_none(), "it ended");
    let pid = Pid::from_raw(i32::try_from(node.id()).expect("a process number"));
    nix::sys::signal::kill(pid, Signal::SIGINT).expect("it runs");
    assert_eq!(node.wait().expect("a child").code(), Some(0));
}

fn free_tcp() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound")
}

/// `/healthz` and `/readyz`; SIGHUP is a line of the log; lines have the time, unless the journal
/// has it.
#[test]
fn a_node_says_whether_it_is_ready_and_outlives_sighup() {
    for (name, is_journal) in [("ready", false), ("unready", true)] {
        let (metrics, nobody) = (free_tcp(), free_tcp());
        let setup = setup(name, 1, |config| {
            config.node.metrics = Some(metrics);
            config.node.metrics_period_ms = 10;
            config.controller = is_journal.then(|| ControllerSection {
                endpoint: format!("http://{nobody}"),
                name: None,
                tls: None,
            });
        });
        let mut command = weft_node(&setup.file, &[]);
        command.env_remove("JOURNAL_STREAM");
        if is_journal {
            command.env("JOURNAL_STREAM", "8:1");
        }
        let node = Running::start(&mut command);
        assert!(get(metrics, "/healthz").starts_with("HTTP/1.1 200 "));
        assert!(get(metrics, "/nothing").starts_with("HTTP/1.1 404 "));
        let wanted = match is_journal {
            true => ("HTTP/1.1 503 ", "no stream to its controller"),
            false => ("HTTP/1.1 200 ", "ready"),
        };
        let is_so = |page: &str| page.starts_with(wanted.0) && page.contains(wanted.1);
        let begun = Instant::now();
        while !is_so(&get(metrics, "/readyz")) {
            assert!(begun.elapsed() < PATIENCE, "{}", get(metrics, "/readyz"));
            std::thread::sleep(Duration::from_millis(20));
        }
        node.signal(Signal::SIGHUP);
        let heard = node.line_with("weft-node: SIGHUP is not used: ");
        assert_eq!(heard.starts_with("weft-node: "), is_journal, "{heard}");
        let stamp: String = heard.chars().take(25).collect();
        let form = stamp.replace(|c: char| c.is_ascii_digit(), "0");
        assert!(is_journal || form == "0000-00-00T00:00:00.000Z ", "{heard}");
        assert!(get(metrics, "/healthz").starts_with("HTTP/1.1 200 "), "it went on");
        assert_eq!(node.end(Signal::SIGTERM).code, Some(0));
    }
}
