//! A table of rows and a job of updates share a host's link: which class the kernel counts the
//! table's frames in, and what they carry. Prints how long remote pulls took beside a job that
//! fills the link, with labels and without; no figure is judged. `WEFT_BAND_PULLS=2000` for
//! figures to report.
//!
//! Needs namespaces, `tc` and HTB; without them each test says so and passes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::capture::Capture;
use crate::common::{ConfigFile, PATIENCE, Running};
use crate::rig::{NODE, PEER, Rig, enter, namespace};
use nix::sys::signal::Signal;
use serde_json::Value;
use weft_client::keys::{KeyConfig, KeySession};
use weft_config::node::{BandsSection, FixedBand, Io, KeysSection, NodeConfig, PortSection};
use weft_wire::frame::label::SMALL_LEN;

/// Of the table's frames, and of those in bulk; no controller gives them to a job.
const DSCP: u8 = 46;
const BULK_DSCP: u8 = 14;
/// Their bands; the job's is 1.
const BAND: u8 = 0;
const BULK_BAND: u8 = 2;
const JOB: u16 = 2;
const ROW_LEN: u16 = 100;
const KEYS: u32 = 200;
const HOME_PORT: u16 = 22_400;
const PROCESS_PORT: u16 = 4500;
/// Between two pulls.
const PAUSE: Duration = Duration::from_millis(2);
/// Parameters of the job's model: a pull keeps the link busy for 160 ms.
const DIMENSION: usize = 100_000;

fn fixed() -> Vec<FixedBand> {
    [(DSCP, BAND), (BULK_DSCP, BULK_BAND)].map(|(dscp, band)| FixedBand { dscp, band }).into()
}

/// Under the class of a lab's link.
fn under() -> BandsSection {
    let under = Some("1:1".to_owned());
    BandsSection { under, fixed: fixed(), ..BandsSection::host("vn0".into(), None) }
}

/// A table whose home and first process are on the node's host, and the second one on the peer's.
struct Table {
    home: Running,
    sessions: [KeySession; 2],
}

impl Table {
    fn up(rig: &Rig, name: &str, has_label: bool) -> Self {
        // The home and the first process are on one host.
        rig.ip("link set lo up");
        let (dscp, bulk_dscp) = if has_label { (DSCP, Some(BULK_DSCP)) } else { (0, None) };
        let processes = [NODE, PEER].map(|ip| SocketAddr::from((ip, PROCESS_PORT)));
        let mut port = PortSection::new(Io::Udp, IpAddr::from(NODE));
        port.udp_port = HOME_PORT;
        let mut config = NodeConfig::new(port);
        let section = KeysSection::new(JOB, ROW_LEN, KEYS, processes.into());
        config.keys.push(KeysSection { dscp, bulk_dscp, ..section });
        let file = ConfigFile::new(name, &config);
        let home = Running::start(&mut rig.lab.weft_node(&file, &["--format", "json"]));
        let connect = |me: u8| {
            let at = namespace([&rig.lab.node, &rig.lab.peer][usize::from(me)]);
            let home = SocketAddr::from((NODE, HOME_PORT));
            let config = KeyConfig::new(home, processes.into(), me, ROW_LEN, KEYS)
                .job(JOB)
                .dscp(dscp)
                .bulk_dscp(bulk_dscp);
            move || {
                enter(&at);
                KeySession::connect(&config).expect("the home is there")
            }
        };
        let both = [0, 1].map(|me| thread::spawn(connect(me)));
        let sessions = both.map(|it| it.join().expect("no panic"));
        Self { home, sessions }
    }

    /// How long it took the second process to pull a row of the first, so often, and all of it with
    /// pauses: several models of the job leave meanwhile.
    fn pulls(&self, count: usize) -> (Vec<Duration>, Duration) {
        let begun = Instant::now();
        let mut row = vec![0.0; ROW_LEN.into()];
        let pull = |at: usize| {
            thread::sleep(PAUSE);
            let begun = Instant::now();
            // The first half is the first process's.
            let key = at as u64 % u64::from(KEYS / 2);
            self.sessions[1].pull(&[key], &mut row).expect("it is there");
            begun.elapsed()
        };
        let took = (0..count).map(pull).collect();
        (took, begun.elapsed())
    }

    /// One call for all rows of the first process.
    fn pull_in_bulk(&self) {
        let keys: Vec<u64> = (0..u64::from(KEYS / 2)).collect();
        let mut rows = vec![0.0; keys.len() * usize::from(ROW_LEN)];
        self.sessions[1].pull(&keys, &mut rows).expect("all are there");
    }

    fn end(self) {
        drop(self.sessions);
        let ended = self.home.end(Signal::SIGINT);
        assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    }
}

impl Rig {
    /// Frames and bytes that have left by a class.
    fn sent(&self, root: &str, minor: u16) -> [u64; 2] {
        let text = self.tc("-s class show dev vn0");
        let handle = format!("class htb {root}{minor:x} ");
        let of_class = text.split_once(&handle).unwrap_or_else(|| panic!("no {handle}in {text}")).1;
        let line = of_class.lines().find(|line| line.trim_start().starts_with("Sent "));
        let words: Vec<&str> = line.expect("a count").split_whitespace().collect();
        // `Sent N bytes M pkt`
        [3, 1].map(|at: usize| words[at].parse().expect("a number"))
    }

    fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: {}", self.tc("class show dev vn0"));
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A class's number, as docs/cluster.md has it: from 100 on, by band and label.
const fn minor(band: u8, label: u8) -> u16 {
    ((band as u16 + 1) << 8) | label as u16
}

fn pulls_wanted(few: usize) -> usize {
    std::env::var("WEFT_BAND_PULLS").ok().and_then(|count| count.parse().ok()).unwrap_or(few)
}

/// `job_bytes` left meanwhile.
fn say(what: &str, (mut took, all): (Vec<Duration>, Duration), job_bytes: u64) {
    took.sort_unstable();
    let us = |share: usize| took[(took.len() - 1) * share / 100].as_micros();
    println!(
        "{what}: {} pulls, median {} us, p99 {} us; the job's frames took {:.1} Mb/s",
        took.len(),
        us(50),
        us(99),
        job_bytes as f64 * 8e-6 / all.as_secs_f64()
    );
}

/// Source port, DSCP and length in the IP header of what left the node's host over IPv4 and UDP.
fn seen(frame: &[u8]) -> Option<(u16, u8, u16)> {
    let is_udp = frame.len() >= 42 && frame[12..14] == [8, 0] && frame[23] == 17;
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    (is_udp && frame[26..30] == NODE).then(|| (word(34), frame[15] >> 2, word(16)))
}

#[test]
fn a_tables_frames_are_counted_in_its_bands_beside_a_job_that_fills_the_link() {
    let Some(rig) = Rig::up_with("one", DIMENSION) else { return };
    rig.shape_as_a_lab();
    let node = rig.start(&rig.config_of("bands-table", Some(under()), DIMENSION, |_| {}));
    rig.settled([Some(0), Some(1)]);
    let capture = Capture::start(namespace(&rig.lab.peer));
    let table = Table::up(&rig, "home-labelled", true);
    let stop = Arc::new(AtomicBool::new(false));
    let job = rig.puller(1, usize::MAX, &stop);
    rig.wait_for("the job's models leave", || rig.sent("1:", minor(1, 7))[1] > 400_000);
    let classes = [minor(BAND, DSCP), minor(BULK_BAND, BULK_DSCP), minor(1, 7)];
    let before = classes.map(|minor| rig.sent("1:", minor));
    let count = pulls_wanted(40);
    let took = table.pulls(count);
    let of_job = rig.sent("1:", classes[2])[1] - before[2][1];
    table.pull_in_bulk();
    let after = classes.map(|minor| rig.sent("1:", minor));
    stop.store(true, Ordering::Relaxed);
    job.join().expect("it pulled");
    let frames = capture.end();

    let [small, bulk, _] =
        std::array::from_fn(|at| [0, 1].map(|it| after[at][it] - before[at][it]));
    // Each answer has a row of 400 bytes; a hundred of them are at least thirty frames. Where an
    // access was sent again, both answers may leave in one frame, which is in bulk then.
    let all = small[0] + bulk[0];
    assert!(all >= count as u64 + 30 && small[0] >= count as u64 / 2, "{small:?}, {bulk:?}");
    assert!(bulk[0] >= 30 && bulk[1] >= 40_000, "{bulk:?}");
    assert!(of_job > 0, "the job goes on meanwhile");
    // Whoever of the table sent it, home or process, it has the label that its length says.
    let mut senders = [0; 2];
    for (port, dscp, len) in frames.iter().filter_map(|(_, frame)| seen(frame)) {
        let Some(sender) = [HOME_PORT, PROCESS_PORT].iter().position(|it| *it == port) else {
            continue;
        };
        senders[sender] += 1;
        let expected = if len > SMALL_LEN { BULK_DSCP } else { DSCP };
        assert_eq!(dscp, expected, "{len} bytes from {port}");
    }
    assert!(senders[0] > 0 && senders[1] >= count, "{senders:?}");
    say("a table's label in band 0, the job in band 1", took, of_job);
    table.end();
    // The bands that labels have for good stay when no job has one any more.
    rig.set(weft_rpc::v1::BandPolicy::Fifo, 0);
    rig.settled([None, None]);
    let filters = rig.tc("filter show dev vn0 parent 1:");
    assert!(filters.contains(&format!("flowid 1:{:x}", classes[0])), "{filters}");
    let ended = node.end(Signal::SIGINT);
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    let json: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(json["host_bands"]["repairs"], 0, "{:?}", ended.stderr);
    assert!(!rig.tc("class show dev vn0").contains(&format!("1:{:x}", classes[0])));
}

/// The same without a label, and on a link without bands: what a label gains.
#[test]
fn a_tables_frames_without_a_label_are_with_the_rest() {
    for (policy, bands, what) in
        [("one", Some(under()), "no label, the job in band 1"), ("fifo", None, "no bands")]
    {
        let Some(rig) = Rig::up_with(policy, DIMENSION) else { return };
        rig.shape_as_a_lab();
        let has_bands = bands.is_some();
        let node = rig.start(&rig.config_of("bands-bare", bands, DIMENSION, |_| {}));
        rig.settled(if has_bands { [Some(0), Some(1)] } else { [None, None] });
        let table = Table::up(&rig, "home-bare", false);
        let stop = Arc::new(AtomicBool::new(false));
        let job = rig.puller(1, usize::MAX, &stop);
        let of_job = if has_bands { minor(1, 7) } else { 0x10 };
        rig.wait_for("the job's models leave", || rig.sent("1:", of_job)[1] > 400_000);
        let (before, job_before) = (rig.sent("1:", 0x10), rig.sent("1:", of_job)[1]);
        let count = pulls_wanted(20);
        let took = table.pulls(count);
        let (after, job_after) = (rig.sent("1:", 0x10), rig.sent("1:", of_job)[1]);
        stop.store(true, Ordering::Relaxed);
        job.join().expect("it pulled");
        assert!(after[0] - before[0] >= count as u64, "{before:?}, {after:?}");
        if has_bands {
            assert_eq!(rig.sent("1:", minor(BAND, DSCP))[0], 0, "nobody has that label");
        }
        say(what, took, job_after - job_before);
        table.end();
        node.end(Signal::SIGINT);
    }
}

/// Labels have their bands from the start on, told by the file alone, and again when somebody has
/// taken them away.
#[test]
fn bands_of_a_file_need_no_controller() {
    let Some(rig) = Rig::up("one") else { return };
    let own = BandsSection { fixed: fixed(), ..BandsSection::host("vn0".into(), Some(2_500_000)) };
    let file = rig.config_of("bands-alone", Some(own), 1000, |config| config.controller = None);
    let node = rig.start(&file);
    let classes = [minor(BAND, DSCP), minor(BULK_BAND, BULK_DSCP)];
    let is_there = || {
        let text = rig.tc("filter show dev vn0");
        classes.iter().all(|minor| text.contains(&format!("flowid 5745:{minor:x}")))
    };
    rig.wait_for("the file's bands", is_there);
    let table = Table::up(&rig, "home-alone", true);
    table.pulls(5);
    table.pull_in_bulk();
    assert!(rig.sent("5745:", classes[0])[0] >= 5 && rig.sent("5745:", classes[1])[0] >= 30);
    table.end();
    rig.tc("qdisc del dev vn0 root");
    rig.wait_for("what somebody took away", is_there);
    let ended = node.end(Signal::SIGINT);
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    let is_told = ended.stderr.iter().any(|line| line.contains("they are as they were again"));
    assert!(is_told, "{:?}", ended.stderr);
    assert!(rig.is_clean(), "{}", rig.tc("qdisc show dev vn0"));
}
