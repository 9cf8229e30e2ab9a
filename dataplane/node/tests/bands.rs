//! TensorLights on a host: a real controller gives jobs their bands, a real node in a namespace of
//! its own brings the kernel to them, and the kernel's own counters say what left first.
//!
//! Needs namespaces, `tc` and HTB; without them each test says so and passes. What the lines are,
//! and what becomes of a tree that was half begun, is decided in `bands/tree.rs` and tested there.

#[allow(dead_code, reason = "each of these test programs uses a part of it")]
mod common;
#[allow(dead_code, reason = "each of these test programs uses a part of it")]
#[path = "common/lab.rs"]
mod lab;
#[allow(dead_code, reason = "each of these test programs uses a part of it")]
#[path = "common/member.rs"]
mod member;

use std::fs::File;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as channel;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use common::{ConfigFile, PATIENCE, Running};
use lab::{Lab, ip};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::Signal;
use tokio::runtime::Runtime;
use tonic::transport::Channel;
use weft_config::controller::{BandsConfig, ControllerConfig, HostConfig, JobConfig};
use weft_config::node::{
    BandsSection, ControllerSection, Io, NodeConfig, PortSection, ServerSection,
};
use weft_controller::daemon::Daemon;
use weft_rpc::v1;
use weft_rpc::v1::status_client::StatusClient;
use weft_rpc::v1::workers_client::WorkersClient;

/// One lab at a time: its names are the process's.
static ALONE: Mutex<()> = Mutex::new(());
const NODE: [u8; 4] = [10, 77, 0, 1];
const PEER: [u8; 4] = [10, 77, 0, 2];
/// The link of the node's host.
const RATE_BYTES_PER_SEC: u64 = 1_250_000;
/// The labels that a controller gives first.
const LABELS: [u8; 2] = [3, 7];
/// What a class has of its own, and may send at once.
const FLOOR_BYTES_PER_SEC: f64 = 12_500.0;
const BURST_BYTES: f64 = 2.0 * 1514.0;

struct Rig {
    lab: Lab,
    controller: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    _alone: MutexGuard<'static, ()>,
}

impl Rig {
    /// A lab with a controller of two push jobs in the peer's namespace; `None` where there can be
    /// none.
    fn up(policy: &str) -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let lab = Lab::up()?;
        let add = ["-n", &lab.node, "addr", "add", "10.77.0.1/24", "dev", "vn0"];
        // The operator calls from where the controller is.
        let lo = ["-n", &lab.peer, "link", "set", "lo", "up"];
        for step in [&add[..], &lo[..]] {
            let done = ip(step);
            assert!(done.status.success(), "{step:?}: {done:?}");
        }
        let mut config = ControllerConfig::new(SocketAddr::from((PEER, 0)));
        config.insecure = true;
        config.hosts = ["s0", "w0"].map(HostConfig::named).into();
        let job = |index: u16| JobConfig::new(&format!("j{index}"), index, 1000, ["w0"], "s0");
        config.jobs = vec![job(0), job(1)];
        config.bands = Some(BandsConfig { policy: policy.parse().unwrap(), interval_s: 3600 });
        let (told, ready) = channel::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let namespace = namespace(&lab.peer);
        std::thread::spawn(move || {
            enter(&namespace);
            runtime().block_on(async {
                let daemon = Daemon::bind(config).await.expect("a controller");
                told.send(daemon.addr).expect("the test waits");
                let stopped = async { drop(stopped.await) };
                daemon.run(stopped).await.expect("it serves");
            });
        });
        let controller = ready.recv_timeout(PATIENCE).expect("it listens");
        Some(Self { lab, controller, stop: Some(stop), _alone: alone })
    }

    fn config(&self, name: &str, bands: Option<BandsSection>) -> ConfigFile {
        let port = PortSection::new(Io::Udp, IpAddr::from(NODE));
        let mut config = NodeConfig::new(port);
        config.node.name = "s0".to_owned();
        let endpoint = format!("http://{}", self.controller);
        config.controller = Some(ControllerSection { endpoint, name: None, tls: None });
        let worker = |port| vec![SocketAddr::from((PEER, port))];
        config.server = [(0, 4000), (1, 4001)]
            .map(|(job, port)| ServerSection::new(job, worker(port), 1000))
            .into();
        config.bands = bands;
        ConfigFile::new(name, &config)
    }

    fn start(&self, config: &ConfigFile) -> Running {
        Running::start(&mut self.lab.weft_node(config, &["--format", "json"]))
    }

    /// Calls the controller from the peer's namespace.
    fn call<T: Send>(&self, call: impl AsyncFnOnce(Channel) -> T + Send) -> T {
        let (namespace, uri) = (namespace(&self.lab.peer), format!("http://{}", self.controller));
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| {
                enter(&namespace);
                runtime().block_on(async {
                    let channel = Channel::from_shared(uri).unwrap().connect().await.unwrap();
                    call(channel).await
                })
            });
            caller.join().expect("the call came back")
        })
    }

    fn status(&self) -> v1::StatusReply {
        self.call(async |channel| {
            StatusClient::new(channel).read(v1::StatusRequest {}).await.unwrap().into_inner()
        })
    }

    fn set(&self, policy: v1::BandPolicy, interval_s: u64) -> v1::SetBandPolicyReply {
        self.call(async |channel| {
            let request =
                v1::SetBandPolicyRequest { policy: policy.into(), interval_s, seen_change: None };
            WorkersClient::new(channel).set_band_policy(request).await.unwrap().into_inner()
        })
    }

    /// Waits until the node has given every job the band that it is to have.
    fn settled(&self, bands: [Option<u32>; 2]) -> v1::StatusReply {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            let is_settled = status.jobs.iter().zip(bands).all(|(job, band)| {
                let done = u32::from(band.is_some());
                job.band == band && job.band_boxes_done == done && job.band_boxes_awaited == 0
            });
            if is_settled {
                return status;
            }
            assert!(Instant::now() < deadline, "not {bands:?}: {:?}", status.jobs);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn tc(&self, line: &str) -> String {
        let words = line.split_whitespace();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.lab.node, "tc"]).args(words);
        let output = command.output().expect("iproute2 is installed");
        assert!(output.status.success(), "tc {line}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The class of each label, by the kernel's filters for IPv4 under a root.
    fn classes_of_labels(&self, root: &str) -> [String; 2] {
        let text = self.tc(&format!("filter show dev vn0 parent {root}"));
        LABELS.map(|label| {
            let handle = format!("::{label:x} order");
            let line = text.lines().find(|l| l.contains("protocol ip ") && l.contains(&handle));
            let line = line.unwrap_or_else(|| panic!("no filter for {label} in {text}"));
            let class = line.split("flowid ").nth(1).expect("a class");
            class.split_whitespace().next().expect("a class").to_owned()
        })
    }

    fn is_clean(&self) -> bool {
        let text = self.tc("-j qdisc show dev vn0");
        text.contains("\"noqueue\"") && !text.contains("htb")
    }

    fn wait_until_clean(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.is_clean() {
            assert!(Instant::now() < deadline, "{}", self.tc("qdisc show dev vn0"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn namespace(name: &str) -> File {
    File::open(format!("/run/netns/{name}")).expect("it is there")
}

fn enter(namespace: &File) {
    setns(namespace, CloneFlags::CLONE_NEWNET).expect("root may enter");
}

fn own() -> Option<BandsSection> {
    Some(BandsSection::host("vn0".into(), Some(RATE_BYTES_PER_SEC)))
}

#[test]
fn a_controllers_bands_are_the_kernels_and_an_operator_turns_them() {
    let Some(rig) = Rig::up("one") else { return };
    let file = rig.config("bands", own());
    let node = rig.start(&file);
    let status = rig.settled([Some(0), Some(1)]);
    assert_eq!(status.jobs.iter().map(|job| job.label).collect::<Vec<_>>(), [3, 7]);
    assert_eq!(rig.classes_of_labels("5745:"), ["5745:103", "5745:207"]);
    // Another node of the host may not do it too.
    let other = rig.config("bands-other", own());
    rig.lab.refusal(&other, "of all nodes of a host only one has [bands]");

    // Turns of a second: the filters flip, and nothing else changes.
    let tree = || {
        let text = rig.tc("class show dev vn0");
        let mut classes: Vec<String> =
            text.lines().map(|line| line.split(" rate").next().unwrap().to_owned()).collect();
        classes.sort();
        classes
    };
    let before = tree();
    assert_eq!(rig.set(v1::BandPolicy::RoundRobin, 1).jobs_changed, 0);
    rig.settled([Some(1), Some(0)]);
    let flipped = rig.classes_of_labels("5745:");
    let both = [["5745:203", "5745:107"], ["5745:103", "5745:207"]].map(|c| c.map(String::from));
    assert!(both.contains(&flipped), "{flipped:?}");
    rig.set(v1::BandPolicy::One, 20);
    rig.settled([Some(0), Some(1)]);
    assert!(before.iter().all(|class| tree().contains(class)), "{before:?}, {:?}", tree());

    // Without bands all is as it was; with them again, too.
    assert_eq!(rig.set(v1::BandPolicy::Fifo, 0).jobs_changed, 2);
    rig.settled([None, None]);
    rig.wait_until_clean();
    rig.set(v1::BandPolicy::One, 0);
    rig.settled([Some(0), Some(1)]);

    // A node that is killed leaves its tree, which the next one removes before it is told anything.
    node.end(Signal::SIGKILL);
    assert_eq!(rig.classes_of_labels("5745:"), ["5745:103", "5745:207"]);
    rig.set(v1::BandPolicy::Fifo, 0);
    let again = rig.start(&file);
    rig.wait_until_clean();
    rig.set(v1::BandPolicy::One, 0);
    rig.settled([Some(0), Some(1)]);
    let ended = again.end(Signal::SIGINT);
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    assert!(rig.is_clean(), "{}", rig.tc("qdisc show dev vn0"));
}

/// In a lab the link's rate is a class of the lab's; what is the lab's stays as it was.
#[test]
fn bands_live_under_a_labs_own_class_and_leave_it_as_it_was() {
    let Some(rig) = Rig::up("one") else { return };
    for line in [
        "qdisc add dev vn0 root handle 1: htb default 10",
        "class add dev vn0 parent 1: classid 1:1 htb rate 20mbit ceil 20mbit burst 15k",
        "class add dev vn0 parent 1:1 classid 1:10 htb rate 100kbit ceil 20mbit prio 7",
        "qdisc add dev vn0 parent 1:10 handle 10: pfifo limit 100",
    ] {
        rig.tc(line);
    }
    // In any order: the kernel's tables are hashed.
    let listed = || {
        ["qdisc", "class", "filter"].map(|what| {
            let text = rig.tc(&format!("{what} show dev vn0"));
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        })
    };
    let before = listed();
    // Without leave it is somebody else's, and refused with a reason that reaches the operator.
    let refusing = rig.start(&rig.config("bands-foreign", own()));
    let deadline = Instant::now() + PATIENCE;
    while rig.status().jobs.iter().any(|job| job.band_refused.is_empty()) {
        assert!(Instant::now() < deadline, "{:?}", rig.status().jobs);
        std::thread::sleep(Duration::from_millis(10));
    }
    let refused = &rig.status().jobs[0].band_refused;
    assert!(
        refused.contains("s0: the interface has a queueing discipline of somebody"),
        "{refused}"
    );
    assert_eq!(listed(), before);
    refusing.end(Signal::SIGINT);
    assert_eq!(listed(), before);

    let under = Some("1:1".to_owned());
    let section = BandsSection { under, ..BandsSection::host("vn0".into(), None) };
    let node = rig.start(&rig.config("bands-lab", Some(section)));
    rig.settled([Some(0), Some(1)]);
    assert_eq!(rig.classes_of_labels("1:"), ["1:103", "1:207"]);
    let class = rig.tc("class show dev vn0 classid 1:103");
    assert!(class.contains("parent 1:1") && class.contains("ceil 20Mbit"), "{class}");
    node.end(Signal::SIGINT);
    assert_eq!(listed(), before, "exactly what was installed is removed");
}

/// A node without what it takes answers with one reason each, and serves.
#[test]
fn what_a_node_lacks_is_one_clear_answer() {
    let Some(rig) = Rig::up("one") else { return };
    let device = BandsSection { device: Some("nope0".into()), ..own().unwrap() };
    let empty = tempfile::tempdir().unwrap();
    let setpriv = ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"];
    let cases: [(&str, Option<BandsSection>, &[&str], &str); 3] = [
        ("device", Some(device), &[], "the interface that [bands] names is not there"),
        ("tool", own(), &["env", "-i"], "there is no `tc` on its PATH"),
        ("rights", own(), &setpriv, "it may not change queues"),
    ];
    for (name, bands, prefix, reason) in cases {
        let file = rig.config(&format!("bands-{name}"), bands);
        let program = rig.lab.weft_node(&file, &["--format", "json"]);
        let arguments: Vec<_> = program.get_args().collect();
        let mut command = Command::new("ip");
        // `netns exec NAME`, the prefix, the node.
        command.args(&arguments[..3]).args(prefix);
        if name == "tool" {
            command.arg(format!("PATH={}", empty.path().display()));
        }
        command.args(&arguments[3..]);
        let node = Running::start(&mut command);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let jobs = rig.status().jobs;
            if jobs.iter().all(|job| job.band_refused.contains(reason)) {
                break;
            }
            assert!(Instant::now() < deadline, "{name}: {jobs:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let ended = node.end(Signal::SIGINT);
        assert_eq!(ended.code, Some(0), "{name}: {:?}", ended.stderr);
        assert!(rig.is_clean(), "{name}: nothing is half-installed");
        while rig.status().nodes.iter().any(|node| node.name == "s0" && node.is_attached) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // A box that has no [bands] is not asked.
    let node = rig.start(&rig.config("bands-none", None));
    while !rig.status().nodes.iter().any(|node| node.name == "s0" && node.is_attached) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let jobs = rig.status().jobs;
    assert!(jobs.iter().all(|job| job.band.is_some() && job.band_boxes_awaited == 0), "{jobs:?}");
    node.end(Signal::SIGINT);
}

/// What the kernel says of all classes of a band.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    sent_bytes: u64,
    dropped: u64,
    backlog_packets: u64,
}

/// All bands at a time, which lies between two instants.
#[derive(Clone, Copy, Debug)]
struct Sample {
    from: Instant,
    to: Instant,
    bands: [Counters; 2],
}

impl Rig {
    fn sample(&self) -> Sample {
        let from = Instant::now();
        let text = self.tc("-s class show dev vn0");
        let to = Instant::now();
        let mut bands = [Counters::default(); 2];
        let mut band = None;
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |word: &str| -> u64 {
                let digits: String = word.chars().filter(char::is_ascii_digit).collect();
                digits.parse().unwrap_or_else(|_| panic!("{line}"))
            };
            match words.as_slice() {
                ["class", "htb", id, ..] => {
                    let minor = id.split(':').nth(1).expect("a class id");
                    band = match minor.len() {
                        3 => minor[..1].parse::<usize>().ok().map(|band| band - 1),
                        _ => None,
                    };
                }
                ["Sent", sent, _, _, _, "(dropped", dropped, ..] => {
                    if let Some(band) = band {
                        bands[band].sent_bytes += number(sent);
                        bands[band].dropped += number(dropped);
                    }
                }
                ["backlog", _, packets, ..] => {
                    if let Some(band) = band {
                        bands[band].backlog_packets += number(packets);
                    }
                }
                _ => {}
            }
        }
        Sample { from, to, bands }
    }

    /// Both labels send more than the link carries, until the flag is set.
    fn load(&self, stop: &Arc<AtomicBool>) -> Vec<std::thread::JoinHandle<u64>> {
        let sender = |label: u8| {
            let (namespace, stop) = (namespace(&self.lab.node), Arc::clone(stop));
            std::thread::spawn(move || {
                enter(&namespace);
                let socket = UdpSocket::bind(SocketAddr::from((NODE, 0))).expect("a socket");
                let options = socket2::SockRef::from(&socket);
                options.set_tos_v4(u32::from(label) << 2).expect("a DSCP");
                // Keeps its class full, waits for the link, and never overflows the class.
                options.set_send_buffer_size(200 << 10).expect("a buffer");
                let target = SocketAddr::from((PEER, 9));
                let mut sent = 0;
                while !stop.load(Ordering::Relaxed) {
                    sent += u64::from(socket.send_to(&[0; 1400], target).is_ok());
                }
                sent
            })
        };
        LABELS.into_iter().map(sender).collect()
    }

    /// Looks at windows in which band 0 had something to send all the time: band 1 has sent what it
    /// has of its own in each, and a burst. Returns band 0's share of what left, and how many there
    /// were.
    fn windows(&self, span: Duration) -> (f64, u32) {
        let until = Instant::now() + span;
        let (mut first, mut both, mut count) = (0.0, 0.0, 0);
        let mut before = self.sample();
        while Instant::now() < until {
            let now = self.sample();
            let most = (now.to - before.from).as_secs_f64();
            let is_busy = [before, now].iter().all(|at| at.bands[0].backlog_packets >= FULL);
            // What waited at either end takes longer than this to leave.
            if is_busy && most < FULL as f64 * FRAME_BYTES / RATE_BYTES_PER_SEC as f64 {
                let sent = [0, 1].map(|band: usize| {
                    (now.bands[band].sent_bytes - before.bands[band].sent_bytes) as f64
                });
                let may = FLOOR_BYTES_PER_SEC * most + BURST_BYTES + FRAME_BYTES;
                assert!(sent[1] <= may, "band 1 sent {} of {may} in {most} s", sent[1]);
                first += sent[0];
                both += sent[0] + sent[1];
                count += 1;
            }
            before = now;
        }
        (first / f64::max(both, 1.0), count)
    }
}

/// While band 0 has something to send, band 1 sends what it has of its own and one burst; and after
/// the filters flip the other way round, with no packet dropped.
#[test]
fn no_packet_of_band_0_waits_behind_band_1_beyond_a_burst() {
    let Some(rig) = Rig::up("one") else { return };
    let at = namespace(&rig.lab.peer);
    // A sink, so that the peer answers nothing.
    let sink = std::thread::spawn(move || {
        enter(&at);
        UdpSocket::bind(SocketAddr::from((PEER, 9))).expect("a socket")
    });
    let _sink = sink.join().expect("a sink");
    let node = rig.start(&rig.config("bands-load", own()));
    rig.settled([Some(0), Some(1)]);
    let stop = Arc::new(AtomicBool::new(false));
    let senders = rig.load(&stop);
    let one = rig.windows(Duration::from_secs(2));
    // The other one goes first from the next turn on, in six seconds, for as long.
    rig.set(v1::BandPolicy::RoundRobin, 6);
    rig.settled([Some(1), Some(0)]);
    let flipped = rig.windows(Duration::from_secs(2));
    let last = rig.sample();
    stop.store(true, Ordering::Relaxed);
    senders.into_iter().for_each(|sender| assert!(sender.join().unwrap() > 0));
    println!(
        "band 0 had {:.3} of what left in {} windows, {:.3} in {} after the flip",
        one.0, one.1, flipped.0, flipped.1
    );
    for (share, count) in [one, flipped] {
        assert!(count >= 10, "{count} windows");
        assert!(share > 0.9, "band 0 had {share} of what left");
    }
    assert_eq!(last.bands.map(|band| band.dropped), [0, 0], "a rotation drops nothing");
    node.end(Signal::SIGINT);
}

/// Packets that count as a full band.
const FULL: u64 = 60;
const FRAME_BYTES: f64 = 1442.0;
