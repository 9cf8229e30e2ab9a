//! Labs on the kernel that is really there: up, forward, shape, down, and nothing left behind.
//!
//! Needs root or unprivileged user namespaces; says SKIPPED with the reason where there is neither.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use weft_testbed::lab::tc::{Rate, Shaper};
use weft_testbed::lab::{self, LabError, LabName, Topology, live, netns, rootless};
use weft_testbed::run::{Io, Place, Plan};
use weft_testbed::scenario::{Scenario, has_factorisation, has_jobs};

const TOPOLOGY: &str = r#"{
    "hosts": {
        "h1": {"ip": "10.9.0.1/24", "mac": "02:00:00:00:00:11"},
        "h2": {"ip": "10.9.0.2/24"},
        "h3": {"ip": "fd09::3/64", "commands": ["ip addr add 10.9.0.3/24 dev eth0"]}
    },
    "switches": {"s1": {}},
    "links": [
        [["h1", "s1-p1"], {"bw": 50}],
        ["h2", "s1", {"bw": 20.5, "use_tbf": true}],
        ["h3", "s1"]
    ],
    "mtu": 3000
}"#;

/// A lab of this test process, taken down when the test ends however it ends.
struct Guard(LabName);

impl Guard {
    fn new(letter: char) -> Self {
        Self(format!("t{}{letter}", std::process::id()).parse().expect("a lab name"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = lab::down(&self.0);
    }
}

fn skip_without_rights(test: &str) -> bool {
    let skip = !rootless::is_privileged();
    if skip {
        eprintln!("SKIPPED {test}: needs CAP_NET_ADMIN and CAP_SYS_ADMIN; run as root");
    }
    skip
}

fn in_node(name: &LabName, node: &str, program: &str, arguments: &str) -> Output {
    let mut command = netns::command(&name.namespace(node), program);
    command.args(arguments.split_whitespace()).output().expect("ip netns exec")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn own_links() -> String {
    stdout(&Command::new("ip").args(["-br", "link"]).output().expect("ip link"))
}

#[test]
fn a_lab_forwards_at_its_rates_and_goes_without_a_trace() {
    if skip_without_rights("a_lab_forwards_at_its_rates_and_goes_without_a_trace") {
        return;
    }
    let (lab_a, lab_b) = (Guard::new('a'), Guard::new('b'));
    let (a, b) = (&lab_a.0, &lab_b.0);
    let topology = Topology::from_json(TOPOLOGY).unwrap();
    let up = lab::up(a, &topology).unwrap();
    assert_eq!((up.nodes, up.warnings), (4, vec![]));
    lab::up(b, &topology).unwrap();
    assert!(matches!(lab::up(a, &topology), Err(LabError::AlreadyUp { .. })));
    assert!(!own_links().contains("s1-p"), "a link of the lab is outside it");

    for (from, to) in [("h1", "10.9.0.2"), ("h3", "10.9.0.1")] {
        // 2972 + 28 bytes: the MTU of the file reaches every interface on the path.
        let ping = in_node(a, from, "ping", &format!("-c1 -w5 -Mdo -s2972 {to}"));
        assert!(ping.status.success(), "{from} to {to}: {}", stdout(&ping));
    }
    let class = stdout(&in_node(a, "h1", "tc", "class show dev eth0"));
    assert!(class.contains("rate 50Mbit ceil 50Mbit"), "{class}");
    let qdisc = stdout(&in_node(a, "s1", "tc", "-j qdisc show dev s1-p2"));
    assert!(qdisc.contains("\"rate\":2562500"), "{qdisc}");
    rates_can_be_read_and_changed(a);
    let mac = stdout(&in_node(a, "h1", "cat", "/sys/class/net/eth0/address"));
    assert_eq!(mac.trim(), "02:00:00:00:00:11");
    let offloads = stdout(&in_node(a, "h1", "ethtool", "-k eth0"));
    assert!(offloads.contains("generic-segmentation-offload: off"), "{offloads}");
    // Only the address of the file: no link-local one, from which stray packets would come.
    let ipv6 = stdout(&in_node(a, "h3", "ip", "-6 -br addr show dev eth0"));
    assert!(ipv6.contains("fd09::3/64") && !ipv6.contains("fe80"), "{ipv6}");

    let mut straggler = netns::command(&a.namespace("h2"), "sleep").arg("20").spawn().unwrap();
    assert_eq!(lab::down(a).unwrap(), 4);
    assert!(!straggler.wait().unwrap().success(), "a process of the lab outlived it");
    assert_eq!(lab::down(a).unwrap(), 0);
    assert_eq!(lab::nodes_of(a).unwrap(), [""; 0]);
    assert_eq!(lab::nodes_of(b).unwrap(), ["h1", "h2", "h3", "s1"]);
    assert!(in_node(b, "h1", "ping", "-c1 -w5 10.9.0.2").status.success());
    assert_eq!(lab::down(b).unwrap(), 4);
}

/// What the kernel says of links `h1` (50 Mbit/s HTB), `h2` (20.5 Mbit/s TBF) and `h3` (none).
fn rates_can_be_read_and_changed(name: &LabName) {
    let direction = |from: &str| {
        let ends = live::directions(name).unwrap();
        assert_eq!(ends.len(), 6);
        ends.into_iter().find(|end| end.from.interface == from || end.from.node == from).unwrap()
    };
    let mbit = |mbit| Rate::from_mbit(mbit).unwrap();
    let [h1, h2, h3, port] = ["h1", "h2", "h3", "s1-p2"].map(direction);
    assert_eq!((h1.to.interface.as_str(), h1.mtu), ("s1-p1", 3000));
    assert_eq!(
        (h1.address.as_deref(), h1.shaped),
        (Some("10.9.0.1"), Some((Shaper::Htb, mbit(50.0))))
    );
    assert_eq!((h2.shaped, port.to.node.as_str()), (Some((Shaper::Tbf, mbit(20.5))), "h2"));
    assert_eq!(h3.shaped, None);
    for (end, rate) in [(&h1, 25.0), (&port, 10.0)] {
        live::set_rate(name, end, mbit(rate)).unwrap();
    }
    assert_eq!(direction("h1").shaped, Some((Shaper::Htb, mbit(25.0))));
    assert_eq!(direction("s1-p2").shaped, Some((Shaper::Tbf, mbit(10.0))));
    assert_eq!(direction("s1-p1").shaped, Some((Shaper::Htb, mbit(50.0))), "the other direction");
    assert!(matches!(live::set_rate(name, &h3, mbit(1.0)), Err(LabError::Unshaped { .. })));
}

#[test]
fn a_half_failed_up_leaves_nothing() {
    if skip_without_rights("a_half_failed_up_leaves_nothing") {
        return;
    }
    let lab = Guard::new('c');
    // A multicast address is no interface's.
    let text = TOPOLOGY.replace("02:00:00:00:00:11", "03:00:00:00:00:11");
    let error = lab::up(&lab.0, &Topology::from_json(&text).unwrap()).unwrap_err();
    assert!(error.to_string().contains("03:00:00:00:00:11"), "{error}");
    assert_eq!(lab::nodes_of(&lab.0).unwrap(), [""; 0]);
}

/// One switch too many links for a tree, and a host's command that fails.
#[test]
fn a_circle_carries_a_broadcast_once_and_a_command_that_fails_is_a_warning() {
    if skip_without_rights(
        "a_circle_carries_a_broadcast_once_and_a_command_that_fails_is_a_warning",
    ) {
        return;
    }
    let lab = Guard::new('d');
    let text = r#"{
        "hosts": {"h1": {"ip": "10.9.0.1/24", "commands": ["exit 5", "touch $TOUCHED"]},
                  "h2": {"ip": "10.9.0.2/24"}, "h3": {"ip": "10.9.0.3/24"}},
        "switches": {"s1": {}, "s2": {}, "s3": {}},
        "links": [["h1", "s1-p1"], ["h2", "s2-p1"], ["h3", "s3-p1"],
                  ["s1-p2", "s2-p2"], ["s2-p3", "s3-p2"], ["s3-p3", "s1-p3"]]
    }"#;
    let directory = tempfile::tempdir().unwrap();
    let touched = directory.path().join("touched");
    let text = text.replace("$TOUCHED", touched.to_str().unwrap());
    let up = lab::up(&lab.0, &Topology::from_json(&text).unwrap()).unwrap();
    let [circle, command] = &up.warnings[..] else { panic!("{:?}", up.warnings) };
    assert!(circle.starts_with("s3-p3 to s1-p3 closes a circle"), "{circle}");
    assert!(command.contains("`exit 5` of node `h1` failed: exit status: 5"), "{command}");
    assert!(touched.exists(), "the next command ran");

    let received = || -> u64 {
        let counter = "/sys/class/net/eth0/statistics/rx_packets";
        stdout(&in_node(&lab.0, "h3", "cat", counter)).trim().parse().unwrap()
    };
    assert!(in_node(&lab.0, "h1", "ping", "-c1 -w5 10.9.0.3").status.success());
    let before = received();
    // No host has this address, so all that comes is the question.
    in_node(&lab.0, "h1", "ping", "-c1 -W1 10.9.0.99");
    let count = received() - before;
    assert!((1..20).contains(&count), "{count} frames came of few broadcasts");
}

/// Why this machine cannot run the rootless test, as found by other means than Weft's.
fn rootless_obstacle(user: Option<u32>) -> Option<String> {
    let mut probe = Command::new("unshare");
    probe.args(["-Urnm", "sh", "-c", "mount -t tmpfs x /run && mount -t sysfs x /sys"]);
    if let Some(user) = user {
        probe.uid(user).gid(user);
    }
    match probe.output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("cannot run `unshare`: {error}")),
    }
}

#[test]
fn without_root_a_lab_lives_in_a_user_namespace() {
    const NOBODY: u32 = 65534;
    let user = nix::unistd::geteuid().is_root().then_some(NOBODY);
    if let Some(reason) = rootless_obstacle(user) {
        eprintln!("SKIPPED without_root_a_lab_lives_in_a_user_namespace: {reason}");
        return;
    }
    // A copy, since the build directory need not be open to another user.
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    open(directory.path());
    let weft = directory.path().join("weft");
    // By a program of its own: a file that this one has open to write cannot be run as long as a
    // program that another test starts meanwhile has not let go of it.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_weft")).arg(&weft).status();
    assert!(copied.unwrap().success());
    let file = directory.path().join("rootless.json");
    fs::write(&file, TOPOLOGY).unwrap();
    open(&weft);
    open(&file);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&weft);
        command.args(["lab", "up"]).arg(&file).args(arguments).current_dir("/");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command.output().unwrap()
    };
    let script = format!(
        "{0} lab list --format csv && {0} lab exec $WEFT_LAB h1 -- ping -c1 -w5 10.9.0.2 && \
         {0} lab exec $WEFT_LAB h1 -- tc class show dev eth0 && exit 7",
        weft.display()
    );
    let output = run(&["--", "sh", "-c", &script]);
    let (out, err) = (stdout(&output), String::from_utf8_lossy(&output.stderr).into_owned());
    assert_eq!(output.status.code(), Some(7), "{out}{err}");
    assert!(out.contains("rootless,h3") && out.contains("rate 50Mbit"), "{out}");
    assert!(err.contains("user namespace"), "{err}");
    let name: LabName = "rootless".parse().unwrap();
    assert_eq!(lab::nodes_of(&name).unwrap(), [""; 0], "it must not exist outside");

    let refused = run(&[]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("-- COMMAND"));
}

#[test]
fn exit_statuses_tell_usage_from_failure() {
    let weft = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_weft")).args(arguments).output().unwrap()
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.toml");
    fs::write(&file, "name = \"x\"\n[job]\nworkers = true\n").unwrap();
    let bad = weft(&["lab", "up", file.to_str().unwrap()]);
    assert_eq!(bad.status.code(), Some(2));
    let message = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(message.contains("bad.toml:3: job.workers: "), "{message}");
    assert_eq!(weft(&["lab", "down", "No/Name"]).status.code(), Some(2));
    assert_eq!(weft(&["lab", "exec", "nosuchlab0", "h1", "--", "true"]).status.code(), Some(1));
    assert_eq!(weft(&["lab", "down", "nosuchlab0"]).status.code(), Some(0));
}

#[test]
fn a_lab_is_the_network_that_a_run_of_its_scenario_builds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut pushes = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        if has_jobs("x", &text).unwrap() || has_factorisation("x", &text).unwrap() {
            continue;
        }
        let scenario = Scenario::parse("x", &text).unwrap();
        pushes += u32::from(scenario.push.is_some());
        let run = Plan::new(&scenario, Io::Udp, Place::Lab, 1, Path::new("/tmp"), None).unwrap();
        assert!(Some(scenario.topology().unwrap()) == run.topology, "{}", path.display());
        assert!(LabName::from_stem(&scenario.name).is_some());
    }
    assert!(pushes > 3);
}

#[test]
fn the_leaves_of_a_scenario_are_in_its_lab() {
    let text = include_str!("../scenarios/digits.toml");
    let mut scenario = Scenario::parse("x", text).unwrap();
    scenario.aggregation.leaves = 2;
    let topology = scenario.topology().unwrap();
    assert!(topology.host("a2").is_some() && topology.host("a3").is_none());
}
