//! A server's journal loses its end between kill -9 and the next start: the controller and the
//! worker end with both versions. Over UDP on loopback: needs `weft-node` and `weft-controller`
//! beside this test.

use std::fs::{self, OpenOptions};
use std::net::{IpAddr, SocketAddr};

use weft_client::push::{ControllerConfig as Called, Outcome, PushConfig, PushError, PushSession};
use weft_config::controller::{ControllerConfig, HostConfig, JobConfig};
use weft_config::node::{ControllerSection, Io, NodeConfig, PortSection, ServerSection};
use weft_tests::live::daemon::Program;
use weft_tests::live::node::own_address;
use weft_tests::live::{PATIENCE, eventually};

const JOB: u16 = 5;
const DIMENSION: usize = 3000;
const UPDATES: u64 = 20;

#[test]
fn a_journal_that_lost_its_end_ends_the_job_with_both_versions() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    let address = own_address();
    let at = |port: u16| SocketAddr::from((address, port));
    let endpoint = format!("http://{}", at(22_342));
    let text = |name: &str| directory.join(name).to_str().expect("UTF-8").to_owned();
    let job = JobConfig::new("lost", JOB, DIMENSION as u64, ["w0"], "s0");
    let _controller = Program::start(
        directory,
        "controller",
        "weft-controller",
        &ControllerConfig {
            events: Some(text("events.jsonl")),
            hosts: ["w0", "s0"].map(HostConfig::named).into(),
            jobs: vec![job],
            ..ControllerConfig::new(at(22_342))
        },
    );
    let section = PortSection::new(Io::Udp, IpAddr::from(address));
    let mut config = NodeConfig::new(PortSection { udp_port: 22_500, ..section });
    let name = Some("s0".to_owned());
    config.controller = Some(ControllerSection { endpoint: endpoint.clone(), name, tls: None });
    let section = ServerSection::new(JOB, vec![at(26_000)], DIMENSION);
    config.server = vec![ServerSection { state_dir: Some(text("state")), ..section }];
    let mut server = Program::start(directory, "server", "weft-node", &config);

    let client = PushConfig::new(at(26_000), at(22_500)).job(JOB).controller(Called::new(endpoint));
    let mut session = PushSession::connect(&client).expect("the server answers");
    let mut model = vec![0_f32; DIMENSION];
    for _ in 0..UPDATES {
        let version = session.pull(&mut model).expect("a model");
        let update = vec![1e-3; DIMENSION];
        let ticket = session.push(&update, version).expect("it is sent");
        let outcome = ticket.wait().expect("an outcome");
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
    }
    server.kill();
    let entries = fs::read_dir(directory.join("state/job-5")).expect("the server's files");
    let files = entries.map(|entry| entry.expect("an entry").path());
    let is_journal = |name: &str| name.starts_with("journal-");
    let journal = files
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_journal))
        .max_by_key(|path| fs::metadata(path).expect("a file").len())
        .expect("a journal");
    let len = fs::metadata(&journal).expect("a file").len();
    let file = OpenOptions::new().write(true).open(&journal).expect("a file");
    file.set_len(len * 2 / 5).expect("a shorter file");
    server.restart();

    // The worker goes on, and ends with the reason.
    let ended = |session: &mut PushSession, model: &mut [f32]| -> Result<(), PushError> {
        let version = session.pull(model)?;
        session.push(&vec![1e-3; DIMENSION], version)?.wait().map(drop)
    };
    let mut error = None;
    assert!(
        eventually(PATIENCE, || {
            error = ended(&mut session, &mut model).err();
            error.is_some()
        }),
        "the loss was accepted in silence"
    );
    let error = error.expect("just seen").to_string();
    assert!(error.contains("server returned with version "), "{error}");
    assert!(error.contains(&format!(", {UPDATES} were acknowledged")), "{error}");
    let events = fs::read_to_string(text("events.jsonl")).expect("events");
    let lost = events.lines().find(|line| line.contains("\"commits_lost\"")).expect("an event");
    assert!(lost.contains(&format!("\"acknowledged\":{UPDATES}")), "{lost}");
}
