//! A lab of two network namespaces joined by a veth pair, and what a node without a kernel behind
//! its port must do in it.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Output};
use std::time::Instant;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::Signal;
use weft_config::node::{Io, JobSection, NodeConfig, PortSection, RowSection};

use crate::common::{ConfigFile, PATIENCE, Running, run_to_end, weft_node};
use crate::member::{Member, join_all};

/// Two namespaces and the pair between them; removed when dropped.
pub(crate) struct Lab {
    pub(crate) node: String,
    pub(crate) peer: String,
}

impl Lab {
    /// `None` where namespaces cannot be made.
    pub(crate) fn up() -> Option<Self> {
        let pid = std::process::id();
        let lab = Self { node: format!("wnd{pid}n"), peer: format!("wnd{pid}p") };
        for name in [&lab.node, &lab.peer] {
            if !ip(&["netns", "add", name]).status.success() {
                // Not eprintln!, which the test harness swallows.
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED: `ip netns add` failed; run as root to test ports on veth"
                );
                return None;
            }
        }
        let (node, peer) = (lab.node.as_str(), lab.peer.as_str());
        let steps: [&[&str]; 4] = [
            &["link", "add", "vn0", "netns", node, "type", "veth", "peer", "vp0", "netns", peer],
            &["-n", node, "link", "set", "vn0", "up"],
            &["-n", peer, "link", "set", "vp0", "up"],
            &["-n", peer, "addr", "add", "10.77.0.2/24", "dev", "vp0"],
        ];
        for step in steps {
            let output = ip(step);
            assert!(output.status.success(), "ip {step:?}: {output:?}");
        }
        Some(lab)
    }

    /// `weft-node` in the node's namespace.
    pub(crate) fn weft_node(&self, config: &ConfigFile, args: &[&str]) -> Command {
        let program = weft_node(config, args);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.node]).arg(program.get_program());
        command.args(program.get_args());
        command
    }

    pub(crate) fn refusal(&self, config: &ConfigFile, words: &str) {
        let started = Instant::now();
        let output = run_to_end(&mut self.weft_node(config, &[]));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        let last = stderr.lines().last().unwrap_or_default();
        assert!(last.contains("weft-node: ") && last.contains(words), "`{words}` in: {stderr}");
        assert!(started.elapsed() < PATIENCE, "took {:?}", started.elapsed());
    }
}

impl Lab {
    /// A node refuses to answer beside a kernel that does.
    pub(crate) fn refusal_while_the_kernel_answers(&self, config: &ConfigFile) {
        let node = self.node.as_str();
        let add = ip(&["-n", node, "addr", "add", "10.77.0.1/24", "dev", "vn0"]);
        assert!(add.status.success(), "{add:?}");
        self.refusal(config, "the kernel has 10.77.0.1 on vn0");
        assert!(ip(&["-n", node, "addr", "flush", "dev", "vn0"]).status.success());
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in [&self.node, &self.peer] {
            ip(&["netns", "del", name]);
        }
    }
}

pub(crate) fn ip(args: &[&str]) -> Output {
    Command::new("ip").args(args).output().expect("iproute2 is installed")
}

pub(crate) const LANES: u16 = 2;

/// A node of [`LANES`] lanes and two members.
pub(crate) fn config(io: Io, mtu: u16) -> NodeConfig {
    let members = [4000, 4100].map(|port| SocketAddr::from(([10, 77, 0, 2], port)).into());
    let row = RowSection {
        elements: 8.into(),
        window: 16,
        exponent: Some(0),
        ..RowSection::new(0, 1, members.into())
    };
    let port = PortSection { mtu, ..PortSection::new(io, IpAddr::from([10, 77, 0, 1])) };
    let mut config =
        NodeConfig { job: vec![JobSection::new(1)], row: vec![row], ..NodeConfig::new(port) };
    config.lcores.shards = LANES;
    config
}

/// Starts a node, pings it, sums on every lane, ends it. `one_queue`: only lane 0 receives.
pub(crate) fn serves(lab: &Lab, config: &ConfigFile, driver: &str, one_queue: bool) {
    let node = Running::start(&mut lab.weft_node(config, &["--format", "json"]));
    let ready: serde_json::Value = serde_json::from_str(&node.ready).expect("JSON");
    assert_eq!(ready["driver"], driver);

    let ping = ip(&["netns", "exec", &lab.peer, "ping", "-c1", "-W5", "10.77.0.1"]);
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stdout));
    let neighbours = ip(&["-n", &lab.peer, "neigh", "show", "10.77.0.1"]);
    let neighbours = String::from_utf8_lossy(&neighbours.stdout).into_owned();
    assert!(neighbours.contains(ready["mac"].as_str().expect("a MAC")), "{neighbours}");

    sum_on_every_lane(lab);

    let ended = node.end(Signal::SIGINT);
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    assert!(ended.took < PATIENCE, "ended after {:?}", ended.took);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
    assert_eq!(report["jobs"][0]["chunks_completed"], LANES);
    assert!(report["host"]["answered"].as_u64() >= Some(2), "ARP and ping: {}", report["host"]);
    let handed_over = report["steering"]["handed_over"].as_u64().expect("a count");
    assert!(!one_queue || handed_over >= 6, "lane 1 lives on lane 0's frames: {handed_over}");
    assert_eq!(report["drops"]["wrong_shard"], 0);
    assert!(ended.stderr.iter().all(|line| !line.contains("weft-node:")), "{:?}", ended.stderr);
}

fn sum_on_every_lane(lab: &Lab) {
    let namespace = std::fs::File::open(format!("/run/netns/{}", lab.peer)).expect("it is there");
    let members = move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).expect("root may enter");
        let target = SocketAddr::from(([10, 77, 0, 1], 22341));
        let mut members = Vec::new();
        for lane in 0..LANES {
            for (rank, port) in [(0, 4000), (1, 4100)] {
                let local = SocketAddr::from(([10, 77, 0, 2], port + lane));
                members.push(Member::new(local, target, rank, lane));
            }
        }
        join_all(&mut members);
        for (chunk, pair) in (0..).zip(members.chunks(2)) {
            pair[0].contribute(chunk, &[1, -2, i32::MAX, 4, 5, 6, 7, 8]);
            pair[1].contribute(chunk, &[10, 20, 1, 40, 50, 60, 70, 80]);
            for member in pair {
                let (sum, contributors) = member.answer(chunk);
                assert_eq!(sum, [11, 18, i32::MIN, 44, 55, 66, 77, 88], "lane {chunk}");
                assert_eq!(contributors.0, 0b11);
            }
        }
    };
    std::thread::spawn(members).join().expect("the members got their sums");
}
