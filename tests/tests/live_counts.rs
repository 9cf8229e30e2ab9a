//! What boxes count, as `weft top` shows it: a node that is sent damaged frames and whose port has
//! queues for bands, a controller that hears of both, and a reader that finds every count again.
//! Over UDP on loopback: needs `weft`, `weft-node` and `weft-controller` beside this test.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use weft_client::push::{PushConfig, PushSession};
use weft_config::controller::{BandsConfig, ControllerConfig, HostConfig, JobConfig};
use weft_config::node::{
    BandsBy, BandsSection, ControllerSection, Io, NodeConfig, PortSection, ServerSection,
};
use weft_config::{StatsFormat, to_toml};
use weft_tests::live::controller::Controller;
use weft_tests::live::durable::Server;
use weft_tests::live::node::{NODE_PORT, own_address};

/// A model of 200 KB, which the port of the node sends in a second.
const DIMENSION: usize = 50_000;
const RATE_BYTES_PER_SEC: u64 = 200_000;
/// Less than what a session asks for at once.
const QUEUE_FRAMES: usize = 32;
/// A node notes its figures every 100 ms, and tells them as often.
const TOLD_WITHIN: Duration = Duration::from_millis(600);

struct Rig {
    ip: Ipv4Addr,
    controller: Controller,
    directory: TempDir,
}

impl Rig {
    /// A controller of two push jobs, whose servers share a node.
    fn up() -> Self {
        let mut config = ControllerConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.hosts = ["s0", "w0"].map(HostConfig::named).into();
        let size = u64::try_from(DIMENSION).expect("few parameters");
        let job = |index: u16| JobConfig::new(&format!("j{index}"), index, size, ["w0"], "s0");
        config.jobs = vec![job(0), job(1)];
        let policy = "one".parse().expect("a policy");
        config.bands = Some(BandsConfig { policy, interval_s: 3600 });
        let controller = Controller::start(None, &config);
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { ip: own_address(), controller, directory }
    }

    fn config(&self) -> PathBuf {
        let mut config = NodeConfig::new(PortSection::new(Io::Udp, IpAddr::from(self.ip)));
        config.node.name = "s0".to_owned();
        config.node.stats_format = StatsFormat::Json;
        let endpoint = self.controller.endpoint();
        config.controller = Some(ControllerSection { endpoint, name: None, tls: None });
        let worker = |job| vec![SocketAddr::from((self.ip, 4000 + job))];
        config.server = [0, 1].map(|job| ServerSection::new(job, worker(job), DIMENSION)).into();
        config.bands = Some(BandsSection {
            by: BandsBy::Port,
            device: None,
            queue_frames: Some(QUEUE_FRAMES),
            age_max_ms: Some(60_000),
            ..BandsSection::host(String::new(), Some(RATE_BYTES_PER_SEC))
        });
        let path = self.directory.path().join("node.toml");
        fs::write(&path, to_toml(&config)).expect("a file in a temporary directory");
        path
    }

    fn node(&self) -> Server {
        let node = Server::start(&self.config(), self.directory.path());
        node.unwrap_or_else(|ended| panic!("{ended:?}"))
    }

    /// Sends datagrams that nobody may take: too short for a header, and of another version.
    fn abuse(&self, short: usize, of_another_version: usize) {
        let socket = UdpSocket::bind((self.ip, 0)).expect("a socket");
        let target = SocketAddr::from((self.ip, NODE_PORT));
        let mut other = [0u8; 64];
        other[0] = 0xff;
        let send = |bytes: &[u8]| socket.send_to(bytes, target).expect("it is sent");
        (0..short).for_each(|_| assert_eq!(send(&[0; 5]), 5));
        (0..of_another_version).for_each(|_| assert_eq!(send(&other), other.len()));
    }
}

fn count(top: &Value, what: &str) -> u64 {
    let rows = top["drops"].as_array().expect("rows").iter();
    let of_box = rows.filter(|row| row["node"] == "s0" && row["job"] == "" && row["what"] == what);
    let counts: Vec<u64> = of_box.map(|row| row["count"].as_u64().expect("a count")).collect();
    assert!(counts.len() <= 1, "{what} is there more than once: {top:#}");
    counts.into_iter().sum()
}

fn queue(top: &Value, band: &str, figure: &str) -> u64 {
    let mut rows = top["queues"].as_array().expect("rows").iter();
    let row = rows.find(|row| row["node"] == "s0" && row["band"] == band);
    row.map_or(0, |row| row[figure].as_u64().unwrap_or_else(|| panic!("{figure}: {row}")))
}

#[test]
fn what_a_box_refuses_and_what_waits_in_its_port_is_on_top_of_its_controller() {
    let rig = Rig::up();
    let node = rig.node();
    let bands = |top: &Value| {
        let jobs = top["jobs"].as_array().expect("rows");
        jobs.iter().all(|job| job["band_boxes_done"] == 1 && job["band_boxes_awaited"] == 0)
    };
    let before = rig.controller.top_until("the node has its bands", bands);
    assert_eq!((count(&before, "length"), count(&before, "version")), (0, 0), "{before:#}");
    rig.abuse(7, 3);
    let all = |top: &Value| count(top, "length") >= 7 && count(top, "version") >= 3;
    let top = rig.controller.top_until("the drops", all);
    assert_eq!((count(&top, "length"), count(&top, "version")), (7, 3), "{top:#}");

    // A worker pulls the model of the job in band 1: what it asks for waits in the node's port.
    let is_over = AtomicBool::new(false);
    let (waited, pulled) = std::thread::scope(|scope| {
        let puller = scope.spawn(|| {
            let addr = |port| SocketAddr::from((rig.ip, port));
            let config = PushConfig::new(addr(4001), addr(NODE_PORT)).job(1);
            let mut session = PushSession::connect(&config).expect("the server answers");
            let mut model = vec![0f32; DIMENSION];
            while !is_over.load(Ordering::Relaxed) {
                session.pull(&mut model).expect("a model");
            }
            session.close().expect("a close");
        });
        let waits = |top: &Value| {
            queue(top, "1", "waiting") > 0
                && queue(top, "1", "full") > 0
                && queue(top, "1", "sent") > 100
        };
        let waited = rig.controller.top_until("frames that wait", waits);
        is_over.store(true, Ordering::Relaxed);
        (waited, puller.join())
    });
    pulled.expect("it pulls");
    let (waiting, bytes) = (queue(&waited, "1", "waiting"), queue(&waited, "1", "waiting_bytes"));
    assert!(waiting <= QUEUE_FRAMES as u64 && bytes > waiting * 100, "{waited:#}");
    assert!(queue(&waited, "1", "sent_bytes") > 100_000, "{waited:#}");
    assert_eq!(count(&waited, "band_1_full"), queue(&waited, "1", "full"), "{waited:#}");
    assert_eq!(queue(&waited, "0", "sent"), 0, "nobody pulls in band 0: {waited:#}");
    let text = rig.controller.top_as("text");
    for words in [["s0", "length", "7"], ["s0", "version", "3"], ["s0", "band_1_full", ""]] {
        let has = |line: &str| words.iter().all(|word| line.contains(word));
        assert!(text.lines().any(has), "{words:?}: {text}");
    }

    // What the node says of itself at its end is what the controller was told.
    let empty = |top: &Value| queue(top, "1", "waiting") == 0 && queue(top, "bare", "waiting") == 0;
    let stands = |top: &Value| {
        std::thread::sleep(TOLD_WITHIN);
        empty(top) && rig.controller.top()["queues"] == top["queues"]
    };
    let last = rig.controller.top_until("empty queues", stands);
    let report = node.end(Signal::SIGINT).report;
    let of_report = &report["bands"][1];
    for figure in ["sent", "sent_bytes", "full"] {
        assert_eq!(of_report[figure], queue(&last, "1", figure), "{figure}: {of_report} {last:#}");
    }
    assert_eq!(report["drops"]["length"], 7);

    // Its next life begins at 0; the controller goes on where it was.
    let gone = |top: &Value| top["nodes"][0]["is_attached"] == false;
    let top = rig.controller.top_until("the node is gone", gone);
    assert_eq!((count(&top, "length"), count(&top, "version")), (7, 3), "{top:#}");
    let again = rig.node();
    rig.abuse(2, 0);
    let more = |top: &Value| count(top, "length") >= 9;
    let top = rig.controller.top_until("the drops of both lives", more);
    assert_eq!((count(&top, "length"), count(&top, "version")), (9, 3), "{top:#}");
    assert_eq!(again.end(Signal::SIGINT).report["drops"]["length"], 2);
}
