//! A host that is gone while bands change: its node is stopped, its cable is pulled, or it is dead
//! and comes back empty. The controller answers its operators all the same, the other host has its
//! bands in time, `weft top` shows who does not answer, and the host that comes back has the
//! present bands and not those that it was told before.
//!
//! Needs `weft`, `weft-node` and `weft-controller` beside this test, and root for namespaces and
//! HTB; without them each test says so and passes.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use weft_config::controller::{BandsConfig, ControllerConfig, HostConfig, JobConfig};
use weft_config::node::{
    BandsSection, ControllerSection, Io, NodeConfig, PortSection, ServerSection,
};
use weft_config::{StatsFormat, to_toml};
use weft_control::BandPolicy;
use weft_testbed::operator::Operator;
use weft_tests::live::controller::Controller;
use weft_tests::live::durable::Server;
use weft_tests::live::{PATIENCE, eventually};

/// One lab at a time: its names are the process's.
static ALONE: Mutex<()> = Mutex::new(());
const RATE_BYTES_PER_SEC: u64 = 1_250_000;
/// Time between two turns.
const TURN: Duration = Duration::from_secs(1);
/// How long an operator's word, and a turn at a host that is there, may take on a busy machine.
const SOON: Duration = Duration::from_secs(3);
/// A controller asks a silent box after 2 s, and waits 2 s for an answer.
const SILENCE_MAX: Duration = Duration::from_secs(8);

/// A namespace of a controller and one for each of two hosts, with a cable to each.
struct Lab {
    hub: String,
    hosts: [String; 2],
    _alone: MutexGuard<'static, ()>,
}

impl Lab {
    /// None where there can be none.
    fn up() -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let name = |part: &str| format!("wfg{}{part}", std::process::id());
        let lab = Self { hub: name("c"), hosts: ["0", "1"].map(name), _alone: alone };
        let made = ip(&["netns", "add", &lab.hub]);
        if !made.status.success() {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: live_hosts: `ip netns add` failed; run as root to take hosts away"
            );
            return None;
        }
        done(&["-n", &lab.hub, "link", "set", "lo", "up"]);
        (0..2).for_each(|at| lab.add_host(at));
        Some(lab)
    }

    /// A host that has never run anything.
    fn add_host(&self, at: usize) {
        let (hub, host) = (self.hub.as_str(), self.hosts[at].as_str());
        let (cable, at) = (format!("c{at}"), at.to_string());
        let addr = |end: &str| format!("10.78.{at}.{end}/24");
        done(&["netns", "add", host]);
        done(&["link", "add", &cable, "netns", hub, "type", "veth", "peer", "h0", "netns", host]);
        done(&["-n", hub, "addr", "add", &addr("1"), "dev", &cable]);
        done(&["-n", host, "addr", "add", &addr("2"), "dev", "h0"]);
        done(&["-n", hub, "link", "set", &cable, "up"]);
        done(&["-n", host, "link", "set", "h0", "up"]);
    }

    fn set_cable(&self, at: usize, state: &str) {
        done(&["-n", &self.hub, "link", "set", &format!("c{at}"), state]);
    }

    /// The classes of a host's jobs, by the kernel's filters for IPv4.
    fn classes(&self, at: usize) -> Vec<String> {
        let host = &self.hosts[at];
        let words = ["netns", "exec", host, "tc", "filter", "show", "dev", "h0", "parent", "5745:"];
        let output = ip(&words);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().filter(|line| line.contains(" pref 22341 "));
        let class = |line: &str| line.split("flowid ").nth(1)?.split(' ').next().map(str::to_owned);
        let mut classes: Vec<String> = lines.filter_map(class).collect();
        classes.sort();
        classes
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.hosts.iter().chain([&self.hub]).for_each(|name| drop(ip(&["netns", "del", name])));
    }
}

fn ip(words: &[&str]) -> Output {
    Command::new("ip").args(words).output().expect("iproute2 is installed")
}

fn done(words: &[&str]) {
    let output = ip(words);
    assert!(output.status.success(), "ip {words:?}: {output:?}");
}

struct Rig {
    lab: Lab,
    controller: Controller,
    directories: [TempDir; 2],
}

impl Rig {
    /// Two jobs on each host, which take turns.
    fn up() -> Option<Self> {
        let lab = Lab::up()?;
        let mut config = ControllerConfig::new(SocketAddr::from(([0, 0, 0, 0], 0)));
        config.insecure = true;
        config.hosts = ["s0", "s1", "w0"].map(HostConfig::named).into();
        let job = |index: u16| {
            JobConfig::new(&format!("j{index}"), index, 1000, ["w0"], &format!("s{}", index / 2))
        };
        config.jobs = (0..4).map(job).collect();
        let policy = BandPolicy::RoundRobin;
        config.bands = Some(BandsConfig { policy, interval_s: TURN.as_secs() });
        let controller = Controller::start(Some(&lab.hub), &config);
        let directory = || tempfile::tempdir().expect("a temporary directory");
        Some(Self { lab, controller, directories: [directory(), directory()] })
    }

    fn node(&self, at: usize) -> Server {
        let host = u8::try_from(at).expect("two hosts");
        let ip = IpAddr::from([10, 78, host, 2]);
        let mut config = NodeConfig::new(PortSection::new(Io::Udp, ip));
        config.node.name = format!("s{at}");
        config.node.stats_format = StatsFormat::Json;
        let port = self.controller.port();
        let endpoint = format!("http://10.78.{at}.1:{port}");
        config.controller = Some(ControllerSection { endpoint, name: None, tls: None });
        let worker = |job: u16| vec![SocketAddr::from(([10, 78, host, 1], 4000 + job))];
        let jobs = [0, 1].map(|job| 2 * u16::from(host) + job);
        config.server = jobs.map(|job| ServerSection::new(job, worker(job), 1000)).into();
        config.bands = Some(BandsSection::host("h0".to_owned(), Some(RATE_BYTES_PER_SEC)));
        let directory = self.directories[at].path();
        let path = directory.join("node.toml");
        fs::write(&path, to_toml(&config)).expect("a file in a temporary directory");
        let node = Server::start_in(Some(&self.lab.hosts[at]), &path, directory);
        node.unwrap_or_else(|ended| panic!("{ended:?}"))
    }

    /// An operator's word, and how long its answer took.
    fn says(&self, policy: BandPolicy) -> Duration {
        let hub = File::open(format!("/run/netns/{}", self.lab.hub)).expect("it is there");
        let endpoint = format!("http://127.0.0.1:{}", self.controller.port());
        let said = std::thread::spawn(move || {
            setns(hub, CloneFlags::CLONE_NEWNET).expect("root may enter");
            let begun = Instant::now();
            let operator = Operator::dial(&endpoint, None, PATIENCE).expect("it listens");
            operator.set_bands(policy, 0).expect("it is heeded");
            begun.elapsed()
        });
        said.join().expect("the word came back")
    }
}

/// Bands of the two jobs of a host, if its box has given them, and those alone.
fn bands(top: &Value, at: usize) -> Option<[u64; 2]> {
    let job = |job: usize| {
        let row = &top["jobs"][2 * at + job];
        let is_given = row["band_boxes_done"] == 1 && row["band_boxes_awaited"] == 0;
        row["band"].as_u64().filter(|_| is_given)
    };
    Some([job(0)?, job(1)?])
}

fn is_awaited(top: &Value, at: usize) -> bool {
    (0..2).any(|job| top["jobs"][2 * at + job]["band_boxes_awaited"].as_u64() > Some(0))
}

fn is_attached(top: &Value, at: usize) -> bool {
    top["nodes"][at]["is_attached"] == true
}

/// The classes of a host's labels in these bands.
fn classes_of(at: usize, bands: [u64; 2]) -> Vec<String> {
    const LABELS: [u64; 4] = [3, 7, 11, 15];
    let class = |job: usize| format!("5745:{:x}", (bands[job] + 1) << 8 | LABELS[2 * at + job]);
    let mut classes = [0, 1].map(class).to_vec();
    classes.sort();
    classes
}

/// What is done to a host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Away {
    /// Its node is stopped, as when the machine stands still; the operator says a word at once.
    Stopped,
    /// Its cable is pulled.
    Unplugged,
    /// Its power is cut, and it comes back with nothing.
    Dead,
}

fn a_host_that_is_gone(away: Away) {
    let Some(rig) = Rig::up() else { return };
    let controller = &rig.controller;
    let mut nodes = [0, 1].map(|at| Some(rig.node(at)));
    // In the middle of a turn: what it has then is not what it is to have in the end.
    let flipped = |top: &Value| [0, 1].iter().all(|at| bands(top, *at) == Some([1, 0]));
    controller.top_until("both hosts have had a turn", flipped);
    let begun = Instant::now();
    match away {
        Away::Stopped => nodes[0].as_ref().expect("it runs").signal(Signal::SIGSTOP),
        Away::Unplugged => rig.lab.set_cable(0, "down"),
        Away::Dead => {
            rig.lab.set_cable(0, "down");
            let dead = nodes[0].take().expect("it runs");
            assert_eq!(dead.end(Signal::SIGKILL).status, None);
            // Its end of the cable goes with it, and the kernel takes its time for that.
            done(&["-n", &rig.lab.hub, "link", "del", "c0"]);
            done(&["netns", "del", &rig.lab.hosts[0]]);
        }
    }
    let say = |rig: &Rig| {
        let took = rig.says(BandPolicy::One);
        assert!(took < SOON, "{away:?}: an operator waited {took:?}");
        took
    };
    // A host that stands still: the word comes before anybody knows.
    let mut word = (away == Away::Stopped).then(|| say(&rig));
    let (mut turns, mut was_awaited) = (Vec::new(), false);
    let mut longest = Duration::ZERO;
    let mut unsettled: Option<Instant> = None;
    let gone = loop {
        let top = controller.top();
        was_awaited |= is_awaited(&top, 0);
        // The other host: how long it is between two turns that it has not.
        match bands(&top, 1) {
            Some(has) => {
                unsettled = None;
                if turns.last() != Some(&has) {
                    turns.push(has);
                }
            }
            None => {
                let since = *unsettled.get_or_insert_with(Instant::now);
                longest = longest.max(since.elapsed());
            }
        }
        if !is_attached(&top, 0) {
            break begun.elapsed();
        }
        assert!(begun.elapsed() < PATIENCE, "{away:?}: it is not missed: {top:#}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(gone < SILENCE_MAX, "{away:?}: it was missed after {gone:?}");
    assert!(was_awaited, "{away:?}: nothing showed that it does not answer");
    assert!(longest < SOON, "{away:?}: the other host waited {longest:?}");
    if word.is_none() {
        // Turns went on at the other host.
        assert!(turns.len() > 2, "{away:?}: {turns:?} in {gone:?}");
        word = Some(say(&rig));
    }
    let given = |top: &Value| bands(top, 1) == Some([0, 1]);
    controller.top_until("the other host has the word", given);
    assert_eq!(rig.lab.classes(1), classes_of(1, [0, 1]), "{away:?}");

    // It comes back.
    let back = Instant::now();
    match away {
        Away::Stopped => nodes[0].as_ref().expect("it runs").signal(Signal::SIGCONT),
        Away::Unplugged => rig.lab.set_cable(0, "up"),
        Away::Dead => {
            rig.lab.add_host(0);
            nodes[0] = Some(rig.node(0));
        }
    }
    let is_back = |top: &Value| is_attached(top, 0) && bands(top, 0) == Some([0, 1]);
    controller.top_until("it has the present bands", is_back);
    let took = back.elapsed();
    let wanted = classes_of(0, [0, 1]);
    let are_right = || rig.lab.classes(0) == wanted;
    assert!(eventually(PATIENCE, are_right), "{away:?}: {:?}", rig.lab.classes(0));
    // What it was told before does not come after it.
    let until = Instant::now() + 2 * TURN;
    while Instant::now() < until {
        assert_eq!(rig.lab.classes(0), wanted, "{away:?}: it went back");
        std::thread::sleep(Duration::from_millis(50));
    }
    println!(
        "{away:?}: missed after {gone:?}; the word took {word:?}; the other host waited at most \
         {longest:?} for its bands, {} turns; back after {took:?}",
        turns.len()
    );
    for node in nodes.into_iter().flatten() {
        let ended = node.end(Signal::SIGINT);
        assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    }
    assert!((0..2).all(|at| rig.lab.classes(at).is_empty()), "nothing is left");
}

#[test]
fn a_node_that_is_stopped_in_mid_change_has_the_present_bands_when_it_goes_on() {
    a_host_that_is_gone(Away::Stopped);
}

#[test]
fn a_host_whose_cable_is_pulled_in_mid_change_has_the_present_bands_when_it_is_back() {
    a_host_that_is_gone(Away::Unplugged);
}

#[test]
fn a_host_that_dies_in_mid_change_and_comes_back_empty_has_the_present_bands() {
    a_host_that_is_gone(Away::Dead);
}
