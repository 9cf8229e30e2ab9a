//! The client against a server of the same definitions that runs no program: what is carried, and
//! what each thing that can be wrong comes to.

mod server;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::switch::{Agent, Entry, Rendered, Target};
use weft_engine::table::{BoxConfig, JobConfig, Table};
use weft_io::{Burst, Frame, Port};
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::{JobId, MacAddr, Nanos};

use crate::{Link, LinkConfig, Program, SwitchError, SwitchPort, WAITING_AFTER, connect};
use server::{Behaviour, FakeServer};

fn target() -> Target {
    Target {
        elements: 32,
        banks: 2048,
        rows: 1024,
        scopes: 64,
        cpu_port: 255,
        hosts: vec![("10.0.0.1".parse().unwrap(), 1)],
        cpu_quota: Some((1_000_000, 4096)),
    }
}

/// The p4info of a program that has all that an agent writes.
fn p4info() -> String {
    let (mut text, mut id, mut tables) = (String::new(), 1, Vec::<(String, String)>::new());
    for entry in Entry::samples() {
        let entry = match entry.render() {
            Rendered::Table(entry) => entry,
            Rendered::Meter { name, .. } => {
                let preamble = format!("preamble {{ id: {id} name: \"c.{name}\" }}");
                writeln!(text, "meters {{ {preamble} size: 64 }}").unwrap();
                id += 1;
                continue;
            }
            Rendered::Group { .. } => continue,
        };
        let (action, of) = (id, id + 1);
        id += 2;
        let mut params = String::new();
        for (number, field) in (1..).zip(&entry.params) {
            let (name, bits) = (field.name, field.bits);
            write!(params, "params {{ id: {number} name: \"{name}\" bitwidth: {bits} }} ").unwrap();
        }
        let name = entry.action;
        writeln!(text, "actions {{ preamble {{ id: {action} name: \"c.{name}\" }} {params} }}")
            .unwrap();
        let refs = format!("action_refs {{ id: {action} }} ");
        if let Some((_, body)) = tables.iter_mut().find(|(name, _)| name == entry.table) {
            body.push_str(&refs);
            continue;
        }
        let mut body =
            format!("preamble {{ id: {of} name: \"c.{}\" }} size: 4096 {refs}", entry.table);
        for (number, field) in (1..).zip(&entry.keys) {
            let (name, bits) = (field.name, field.bits);
            write!(body, "match_fields {{ id: {number} name: \"{name}\" bitwidth: {bits} }} ")
                .unwrap();
        }
        tables.push((entry.table.to_owned(), body));
    }
    for (_, body) in tables {
        writeln!(text, "tables {{ {body} }}").unwrap();
    }
    for (number, name) in (900..).zip(["drops", "transitions", "progress"]) {
        writeln!(text, "counters {{ preamble {{ id: {number} name: \"{name}\" }} size: 65536 }}")
            .unwrap();
    }
    text
}

fn program(text: &str) -> Result<Program, String> {
    Program::new(Path::new("weft.p4info.txtpb"), text, b"{}".to_vec(), &target())
        .map_err(|error| error.to_string())
}

fn config(grpc: String) -> LinkConfig {
    LinkConfig {
        grpc,
        device_id: 3,
        election_id: 7,
        program: program(&p4info()).unwrap(),
        target: target(),
        mac: MacAddr([2, 0, 0, 0, 0, 9]),
        mtu: 1500,
        frame_count: 64,
        patience: Some(Duration::from_millis(300)),
        is_waiting: |why| panic!("{why}"),
    }
}

fn agent() -> Agent {
    let job = JobConfig { job: JobId(1), slots_max: 8, rate_bytes_per_sec: None, burst_bytes: 0 };
    let addr = "10.0.0.100:22341".parse().unwrap();
    let config = BoxConfig {
        local: Endpoint { mac: MacAddr([2, 0, 0, 0, 0, 9]), addr },
        shards: 1,
        mtu: 1500,
        jobs: vec![job],
        rows: Vec::new(),
        pushes: Vec::new(),
    };
    let aggregator = Aggregator::new(&Table::new(config).unwrap(), 0, 1, Kernels::detect());
    Agent::new(aggregator, target(), 1)
}

fn dial(server: &FakeServer) -> Result<(SwitchPort, Link), SwitchError> {
    connect(config(server.addr()), &Arc::new(AtomicBool::new(false)))
}

/// Carries until it is so; fails after five seconds.
fn carry(link: &mut Link, agent: &mut Agent, mut is_so: impl FnMut(&mut Agent) -> bool) {
    let start = Instant::now();
    while !is_so(agent) {
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", agent.stats());
        let now = Nanos(u64::try_from(start.elapsed().as_nanos()).unwrap());
        link.exchange(now, agent);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn entries_and_packets_reach_the_switch() {
    let server = FakeServer::start(Behaviour::default());
    let (mut port, mut link) = dial(&server).unwrap();
    let mut agent = agent();
    // The flood group, the way to the box, its address, the quota, and the job.
    carry(&mut link, &mut agent, |agent| agent.stats().writes == 5);
    let seen = server.seen();
    assert_eq!((seen.pushed, seen.device_id, seen.election_id), (1, 3, 7));
    assert_eq!(seen.updates, 5);
    // What is written to tables has the shortest octets: the port 255 is one.
    assert!(seen.values.contains(&vec![255]), "{:?}", seen.values);
    // The server sends packets back as they came.
    let mut frame = port.alloc().unwrap();
    frame.set_len(60);
    frame.as_mut().fill(7);
    let mut burst = Burst::new();
    burst.push(frame);
    assert_eq!(port.tx_burst(Nanos(0), &mut burst), 1);
    let start = Instant::now();
    while port.rx_burst(Nanos(0), &mut burst) == 0 {
        assert!(start.elapsed() < Duration::from_secs(5));
        port.wait(1_000_000);
    }
    assert_eq!(burst[0].as_ref(), [7; 60]);
    assert_eq!(link.reason(), None);
}

#[test]
fn counters_are_read() {
    use weft_engine::drops::DropReason;
    let server = FakeServer::start(Behaviour::default());
    let (_port, mut link) = dial(&server).unwrap();
    let mut agent = agent();
    carry(&mut link, &mut agent, |agent| agent.counters().drops(DropReason::Vlan) > 0);
    // The server says of each cell that it stands at its number.
    assert_eq!(agent.counters().drops(DropReason::Vlan), DropReason::Vlan as u64);
    assert_eq!(agent.counters().drops(DropReason::Token), DropReason::Token as u64);
}

#[test]
fn a_write_that_is_refused_is_told_alone_and_in_words() {
    let behaviour = Behaviour { refuses_update: Some(2), ..Behaviour::default() };
    let server = FakeServer::start(behaviour);
    let (_port, mut link) = dial(&server).unwrap();
    let mut agent = agent();
    carry(&mut link, &mut agent, |agent| agent.stats().writes_refused == 1);
    let words = agent.take_refusals().join(" ");
    assert!(words.contains("table is full") && words.contains("Resource"), "{words}");
    assert_eq!(agent.stats().writes, 4, "the others of the same call are in");
    assert_eq!(link.reason(), None);
}

#[test]
fn another_primary_is_an_error_that_says_so() {
    let server = FakeServer::start(Behaviour { has_other_primary: true, ..Behaviour::default() });
    let error = dial(&server).unwrap_err();
    assert!(matches!(error, SwitchError::OtherPrimary { .. }));
    let words = error.to_string();
    assert!(words.contains("another primary") && words.contains("switch.election_id"), "{words}");
}

#[test]
fn a_program_that_is_refused_is_an_error_that_names_it() {
    let server = FakeServer::start(Behaviour { refuses_program: true, ..Behaviour::default() });
    let words = dial(&server).unwrap_err().to_string();
    assert!(words.contains("weft.p4info.txtpb") && words.contains("bad JSON"), "{words}");
}

#[test]
fn a_switch_that_is_not_there_is_an_error_that_names_it() {
    let error = connect(config("127.0.0.1:1".to_owned()), &Arc::new(AtomicBool::new(false)));
    let words = error.unwrap_err().to_string();
    assert!(words.contains("127.0.0.1:1") && words.contains("simple_switch_grpc"), "{words}");
    let stop = Arc::new(AtomicBool::new(true));
    let patient = LinkConfig { patience: None, ..config("127.0.0.1:1".to_owned()) };
    assert!(matches!(connect(patient, &stop), Err(SwitchError::Stopped)));
}

#[test]
fn a_switch_that_never_comes_is_told_of_once_while_the_box_waits() {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let stop = Arc::new(AtomicBool::new(false));
    let patient = LinkConfig {
        patience: None,
        is_waiting: |why| TOLD.lock().unwrap().push(why.to_string()),
        ..config("127.0.0.1:1".to_owned())
    };
    let dialling = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || connect(patient, &stop).map(|_| ()))
    };
    std::thread::sleep(WAITING_AFTER / 2);
    assert_eq!(TOLD.lock().unwrap().len(), 0, "a switch that is started again takes as long");
    std::thread::sleep(WAITING_AFTER + Duration::from_secs(1));
    stop.store(true, Ordering::Relaxed);
    assert!(matches!(dialling.join().unwrap(), Err(SwitchError::Stopped)));
    let told = TOLD.lock().unwrap();
    assert!(told[0].contains("127.0.0.1:1") && told[0].contains("simple_switch_grpc"), "{told:?}");
    assert_eq!(told.len(), 1, "{told:?}");
}

/// The kernel accepts for it.
#[test]
fn a_switch_that_listens_and_says_nothing_holds_nobody_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let patient = LinkConfig { patience: None, ..config(silent.local_addr().unwrap().to_string()) };
    let stop = Arc::new(AtomicBool::new(false));
    let (ended, is_ended) = std::sync::mpsc::channel();
    let flag = Arc::clone(&stop);
    std::thread::spawn(move || ended.send(connect(patient, &flag).map(|_| ())));
    silent.accept().unwrap();
    stop.store(true, Ordering::Relaxed);
    let outcome = is_ended.recv_timeout(Duration::from_secs(4)).expect("it ends at once");
    assert!(matches!(outcome, Err(SwitchError::Stopped)));
}

#[test]
fn a_switch_that_goes_closes_the_port() {
    let server = FakeServer::start(Behaviour::default());
    let (port, link) = dial(&server).unwrap();
    assert!(port.is_open());
    drop(server);
    let start = Instant::now();
    while port.is_open() {
        assert!(start.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(1));
    }
    let reason = link.reason().unwrap();
    assert!(reason.contains("stream"), "{reason}");
}

#[test]
fn a_p4info_that_does_not_fit_names_what_is_missing() {
    assert!(program(&p4info()).is_ok());
    let cases = [
        ("c.rows", "c.lines", "it has no table `rows`"),
        ("c.windowed", "c.waxed", "table `rows` has no action `windowed`"),
        (
            "name: \"row\" bitwidth: 16",
            "name: \"row\" bitwidth: 32",
            "`row` of table `rows` has 32",
        ),
        ("name: \"cookie\" bitwidth: 32", "name: \"cake\" bitwidth: 32", "has no `cookie`"),
        ("c.job_meter", "c.metre", "it has no meter `job_meter`"),
        ("\"progress\"", "\"regress\"", "it has no counter `progress`"),
        ("size: 65536", "size: 6", "counter `transitions` has 6 places"),
    ];
    for (from, to, expected) in cases {
        let error = program(&p4info().replace(from, to)).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(error.starts_with("weft.p4info.txtpb: "), "{error}");
    }
    let error = program("tables { nonsense: 1 }").unwrap_err();
    assert!(error.contains("no p4info"), "{error}");
    let error = Program::load(Path::new("/nowhere"), &target()).unwrap_err().to_string();
    assert!(error.contains("/nowhere/weft-v1model-32.json"), "{error}");
}

#[test]
fn a_delete_of_what_is_gone_is_done() {
    let behaviour = Behaviour { lacks_deleted: true, ..Behaviour::default() };
    let server = FakeServer::start(behaviour);
    let (_port, mut link) = dial(&server).unwrap();
    let mut agent = agent();
    carry(&mut link, &mut agent, |agent| agent.stats().writes == 5);
    let job = weft_control::HoldingCommand::RemoveJob { job: JobId(1) };
    agent.handle_command(weft_control::Command::Holding(job));
    carry(&mut link, &mut agent, |agent| agent.stats().writes == 6);
    assert_eq!(agent.lost(), None);
}

/// BMv2 takes the JSON of another size without a word; JSON that is no program ends it.
#[test]
fn files_that_were_not_made_together_are_refused() {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4/build");
    let folder = tempfile::tempdir().unwrap();
    let names = |elements: u16| {
        ["json", "p4info.txtpb"].map(|end| format!("weft-v1model-{elements}.{end}"))
    };
    let take = |from: &str, to: &str| {
        std::fs::copy(built.join(from), folder.path().join(to)).unwrap();
    };
    let whole = || names(32).iter().for_each(|name| take(name, name));
    let load = || Program::load(folder.path(), &target()).map_err(|error| error.to_string());
    whole();
    let told = load().map(|_| ()).unwrap_err();
    assert!(told.contains("reading") && told.contains("SOURCES.sha256"), "{told}");
    take("SOURCES.sha256", "SOURCES.sha256");
    load().map(|_| ()).unwrap();
    for (other, mine) in names(64).iter().zip(&names(32)) {
        take(other, mine);
        let told = load().map(|_| ()).unwrap_err();
        assert!(told.contains(mine) && told.contains("not the file whose sum"), "{told}");
        whole();
    }
    std::fs::write(folder.path().join(&names(32)[0]), "{}").unwrap();
    assert!(load().is_err(), "no program at all");
}
