//! Bands on a host's link that somebody else changes: what was removed by hand comes back, a
//! foreign root is refused by name until it is gone, an interface that goes comes back with its
//! bands; what an earlier life installed elsewhere is removed, and what is a stranger's stays. With
//! a controller that begins anew without bands nothing is left of them, and what the kernel counts
//! is in Status.
//!
//! Needs namespaces, `tc` and HTB; without them each test says so and passes.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::common::{Ended, PATIENCE, Running};
use crate::rig::{RATE_BYTES_PER_SEC, Rig, enter, namespace};
use nix::sys::signal::Signal;
use serde_json::Value;
use weft_config::controller::BandsConfig;
use weft_config::node::{BandsBy, BandsSection};
use weft_rpc::v1;

fn on(device: &str) -> BandsSection {
    BandsSection::host(device.into(), Some(RATE_BYTES_PER_SEC))
}

fn under(class: &str) -> BandsSection {
    BandsSection { under: Some(class.to_owned()), ..BandsSection::host("vn0".into(), None) }
}

impl Rig {
    fn begin(&self, name: &str, section: BandsSection) -> Running {
        self.start(&self.config(name, Some(section)))
    }

    /// Kills a node, and waits until the controller has missed it.
    fn kill(&self, node: Running) {
        node.end(Signal::SIGKILL);
        let is_attached = |node: &v1::NodeStatus| node.name == "s0" && node.is_attached;
        self.status_until("it is missed", |status| !status.nodes.iter().any(is_attached));
    }

    fn classes(&self, device: &str) -> String {
        self.tc(&format!("class show dev {device}"))
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            let now = self.tc("qdisc show");
            assert!(Instant::now() < deadline, "{what}: {now}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// An interface beside the node's.
    fn add_cable(&self, device: &str) {
        self.ip(&format!("link add {device} type veth peer name {device}p"));
        self.ip(&format!("link set {device} up"));
    }

    fn is_bare(&self, device: &str) -> bool {
        !self.tc(&format!("qdisc show dev {device}")).contains("htb")
    }
}

/// How a node ended, its last report, and what it told people.
fn ended(node: Running) -> (Value, String) {
    let ended: Ended = node.end(Signal::SIGINT);
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    let text = ended.stdout.lines().last().unwrap_or_default();
    let report = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (report, ended.stderr.join("\n"))
}

const BOTH: [&str; 2] = ["5745:103", "5745:207"];

#[test]
fn what_is_removed_by_hand_comes_back_by_itself() {
    let Some(rig) = Rig::up("one") else { return };
    let node = rig.begin("bands-kept", on("vn0"));
    rig.settled([Some(0), Some(1)]);
    let filters = || rig.tc("filter show dev vn0 parent 5745:");
    let is_whole = || {
        let text = filters();
        BOTH.iter().all(|class| text.matches(&format!("flowid {class} ")).count() == 2)
    };
    // All of it, a part of the filters, and all of them with a class.
    for lines in [
        &["qdisc del dev vn0 root"][..],
        &["filter del dev vn0 parent 5745: protocol ip pref 22341"],
        &[
            "filter del dev vn0 parent 5745: protocol ip pref 22341",
            "filter del dev vn0 parent 5745: protocol ipv6 pref 22342",
            "class del dev vn0 classid 5745:207",
        ],
    ] {
        rig.until("it is whole", is_whole);
        lines.iter().for_each(|line| drop(rig.tc(line)));
        let begun = Instant::now();
        rig.until("it comes back", is_whole);
        println!("{lines:?}: back after {:?}", begun.elapsed());
        assert_eq!(rig.classes_of_labels("5745:"), BOTH);
    }
    rig.settled([Some(0), Some(1)]);
    let (report, log) = ended(node);
    // More where a look falls between two lines. The kernel has the last one before it is counted.
    assert!(log.matches("bands on vn0: somebody had removed or changed").count() >= 3, "{log}");
    assert!(report["host_bands"]["repairs"].as_u64() >= Some(2), "{report}");
    assert!(rig.is_clean());
}

#[test]
fn what_is_changed_by_hand_is_put_right_and_a_filter_before_wefts_is_told() {
    let Some(rig) = Rig::up("one") else { return };
    let node = rig.begin("bands-changed", on("vn0"));
    rig.settled([Some(0), Some(1)]);
    let listed = || {
        let filters = rig.tc("filter show dev vn0 parent 5745:");
        let mut lines: Vec<String> = filters.lines().map(str::to_owned).collect();
        // Bursts are not looked at: the kernel rounds them.
        let classes = rig.classes("vn0");
        lines.extend(classes.lines().map(|line| line.split(" burst").next().unwrap().to_owned()));
        lines.sort();
        lines
    };
    let before = listed();
    let cable = "class change dev vn0 parent 5745: classid 5745:2 htb";
    for lines in [
        &[format!("{cable} rate 1mbit ceil 1mbit quantum 1514")][..],
        &["class change dev vn0 parent 5745:2 classid 5745:103 htb rate 100kbit ceil 200kbit prio \
           0 quantum 1514"
            .to_owned()],
        &["filter del dev vn0 parent 5745: protocol ip pref 22341 handle 802::3 u32".to_owned(),
            "filter add dev vn0 parent 5745: protocol ip pref 22341 handle 802::3 u32 match ip \
             dsfield 0xa0 0xfc flowid 5745:103"
                .to_owned()],
    ] {
        lines.iter().for_each(|line| drop(rig.tc(line)));
        rig.until("it is put right", || listed() == before);
        // The node looks again before it takes that for done.
        std::thread::sleep(Duration::from_millis(300));
    }
    rig.settled([Some(0), Some(1)]);
    // One of somebody else that takes all frames first.
    rig.tc("filter add dev vn0 parent 5745: protocol ip pref 7 u32 match u32 0 0 flowid 5745:1");
    rig.refused("s0: the interface has a queueing discipline of somebody else");
    rig.tc("filter del dev vn0 parent 5745: protocol ip pref 7");
    rig.settled([Some(0), Some(1)]);
    let (report, log) = ended(node);
    assert!(report["host_bands"]["repairs"].as_u64() >= Some(3), "{report}");
    assert!(log.contains("there is a filter of preference 7 to class 5745:1"), "{log}");
    assert!(rig.is_clean(), "{}", rig.classes("vn0"));
}

#[test]
fn a_foreign_root_that_took_the_place_is_refused_by_name_until_it_is_gone() {
    let Some(rig) = Rig::up("one") else { return };
    let node = rig.begin("bands-taken", on("vn0"));
    rig.settled([Some(0), Some(1)]);
    rig.tc("qdisc del dev vn0 root");
    rig.tc("qdisc add dev vn0 root handle 77: pfifo limit 100");
    let status = rig.refused("s0: the interface has a queueing discipline of somebody else");
    assert!(status.jobs.iter().all(|job| job.band_boxes_done == 0), "{:?}", status.jobs);
    // It stays, and other words do not change that: the job that is to have none has none.
    rig.set(v1::BandPolicy::Fifo, 0);
    let none = |job: &v1::JobStatus| {
        job.band.is_none() && job.band_refused.is_empty() && job.band_boxes_awaited == 0
    };
    rig.status_until("nothing is wanted", |status| status.jobs.iter().all(none));
    rig.set(v1::BandPolicy::One, 0);
    rig.refused("s0: the interface has a queueing discipline of somebody else");
    assert!(rig.tc("qdisc show dev vn0").contains("pfifo 77:"));
    rig.tc("qdisc del dev vn0 root");
    rig.settled([Some(0), Some(1)]);
    assert_eq!(rig.classes_of_labels("5745:"), BOTH);
    let (_, log) = ended(node);
    assert!(log.contains("there is qdisc pfifo 77: at the root"), "{log}");
}

#[test]
fn an_interface_that_goes_comes_back_with_its_bands() {
    let Some(rig) = Rig::up("one") else { return };
    rig.add_cable("vx0");
    let node = rig.begin("bands-gone", on("vx0"));
    rig.settled([Some(0), Some(1)]);
    rig.ip("link del vx0");
    rig.refused("the interface that [bands] names is not there");
    rig.add_cable("vx0");
    rig.settled([Some(0), Some(1)]);
    assert!(rig.classes("vx0").contains("5745:207"), "{}", rig.classes("vx0"));
    // Gone for good.
    rig.ip("link del vx0");
    rig.refused("the interface that [bands] names is not there");
    ended(node);
}

#[test]
fn what_an_earlier_life_left_elsewhere_is_removed_and_nothing_of_others() {
    let Some(rig) = Rig::up("one") else { return };
    for device in ["vx0", "vy0", "vz0"] {
        rig.add_cable(device);
    }
    // A stranger's root with the handle of Weft's.
    rig.tc("qdisc add dev vy0 root handle 5745: htb default 1");
    let strangers = rig.tc("qdisc show dev vy0");
    let former = rig.begin("bands-x", on("vx0"));
    rig.settled([Some(0), Some(1)]);
    rig.kill(former);
    // Another one: as long as somebody looks after it there, it stays.
    let at = namespace(&rig.lab.node);
    let name = SocketAddr::from_abstract_name("weft-bands-vx0").unwrap();
    let held = std::thread::spawn(move || {
        enter(&at);
        UnixListener::bind_addr(&name).expect("nobody has it")
    });
    let held = held.join().unwrap();
    let node = rig.begin("bands-z", on("vz0"));
    rig.settled([Some(0), Some(1)]);
    assert!(!rig.is_bare("vx0") && !rig.is_bare("vz0"));
    rig.kill(node);
    drop(held);

    rig.shape_as_a_lab();
    rig.tc("class add dev vn0 parent 1: classid 1:2 htb rate 10mbit ceil 10mbit burst 15k");
    rig.tc("class add dev vn0 parent 1:2 classid 1:20 htb rate 100kbit ceil 10mbit prio 7");
    let before = rig.listed();
    let node = rig.begin("bands-under", under("1:1"));
    rig.settled([Some(0), Some(1)]);
    assert!(rig.is_bare("vx0") && rig.is_bare("vz0"), "{}", rig.tc("qdisc show"));
    assert!(rig.classes("vn0").contains("1:103 parent 1:1"));
    rig.kill(node);
    // Under another class of the same interface.
    let node = rig.begin("bands-under-2", under("1:2"));
    rig.settled([Some(0), Some(1)]);
    let classes = rig.classes("vn0");
    assert!(classes.contains("1:103 parent 1:2") && !classes.contains("1:103 parent 1:1"));
    rig.kill(node);
    // And on another one, at a root of its own.
    let node = rig.begin("bands-x", on("vx0"));
    rig.settled([Some(0), Some(1)]);
    assert_eq!(rig.listed(), before, "the lab's is as it was");
    assert!(rig.classes("vx0").contains("5745:103"));
    assert_eq!(rig.tc("qdisc show dev vy0"), strangers);
    ended(node);
    assert!(rig.is_bare("vx0"));
}

/// A node whose file has no [bands] any more, or another one, removes what its earlier life left.
#[test]
fn what_an_earlier_life_left_is_removed_without_bands_in_the_file() {
    let Some(rig) = Rig::up("one") else { return };
    rig.add_cable("vx0");
    let port = BandsSection {
        by: BandsBy::Port,
        device: None,
        ..BandsSection::host(String::new(), Some(RATE_BYTES_PER_SEC))
    };
    for (name, section) in [("bands-out", None), ("bands-port", Some(port))] {
        let former = rig.begin(name, on("vx0"));
        rig.settled([Some(0), Some(1)]);
        rig.kill(former);
        assert!(!rig.is_bare("vx0"));
        let node = rig.start(&rig.config(name, section));
        rig.until("it is removed", || rig.is_bare("vx0"));
        let (_, log) = ended(node);
        assert!(log.contains("bands on vx0: removed what an earlier life"), "{log}");
    }
    // Where there is nothing, nothing is said.
    let node = rig.start(&rig.config("bands-nothing", None));
    std::thread::sleep(Duration::from_millis(200));
    let (_, log) = ended(node);
    assert!(!log.contains("earlier life"), "{log}");
}

#[test]
fn what_a_stranger_put_into_wefts_tree_is_not_removed_with_it() {
    let Some(rig) = Rig::up("one") else { return };
    let node = rig.begin("bands-stranger", on("vn0"));
    rig.settled([Some(0), Some(1)]);
    rig.tc("class add dev vn0 parent 5745:2 classid 5745:9999 htb rate 1mbit quantum 1514");
    rig.tc("qdisc add dev vn0 parent 5745:9999 handle 9: pfifo limit 7");
    // Turns go on.
    rig.set(v1::BandPolicy::RoundRobin, 1);
    rig.settled([Some(1), Some(0)]);
    rig.set(v1::BandPolicy::Fifo, 0);
    rig.settled([None, None]);
    rig.until("the jobs' classes go", || !rig.classes("vn0").contains(":103"));
    let stays = || {
        let qdiscs = rig.tc("qdisc show dev vn0");
        rig.classes("vn0").contains("5745:9999") && qdiscs.contains("pfifo 9:")
    };
    assert!(stays());
    rig.set(v1::BandPolicy::One, 0);
    rig.settled([Some(0), Some(1)]);
    let (_, log) = ended(node);
    assert!(stays(), "{}", rig.classes("vn0"));
    assert!(log.contains("class 5745:9999 under 5745:2 is somebody else's"), "{log}");
    // The next life may use the tree, and removes it when the stranger has gone.
    let node = rig.begin("bands-stranger", on("vn0"));
    rig.settled([Some(0), Some(1)]);
    assert!(stays());
    rig.tc("class del dev vn0 classid 5745:9999");
    ended(node);
    assert!(rig.is_clean(), "{}", rig.tc("qdisc show dev vn0"));
}

/// A class under a job's takes the job's frames from it, and stays with it.
#[test]
fn what_a_stranger_put_under_a_jobs_class_is_told_and_keeps_that_class_alone() {
    let Some(rig) = Rig::up("one") else { return };
    let node = rig.begin("bands-under-a-job", on("vn0"));
    rig.settled([Some(0), Some(1)]);
    rig.tc("class add dev vn0 parent 5745:103 classid 5745:900 htb rate 1mbit quantum 1514");
    rig.refused("s0: the interface has a queueing discipline of somebody else");
    // What is taken away is.
    rig.set(v1::BandPolicy::Fifo, 0);
    rig.settled([None, None]);
    rig.until("the others' classes go", || !rig.classes("vn0").contains(":207"));
    let left = |id: &str| rig.classes("vn0").contains(&format!("class htb 5745:{id} "));
    assert!(["1", "2", "103", "900"].into_iter().all(left) && !left("100"));
    assert!(!rig.tc("filter show dev vn0 parent 5745:").contains("flowid"));
    let (_, log) = ended(node);
    assert!(log.contains("class 5745:900 under 5745:103 is somebody else's"), "{log}");
    assert!(left("900"));
    rig.set(v1::BandPolicy::One, 0);
    let node = rig.begin("bands-under-a-job", on("vn0"));
    rig.refused("s0: the interface has a queueing discipline of somebody else");
    rig.tc("class del dev vn0 classid 5745:900");
    rig.settled([Some(0), Some(1)]);
    ended(node);
    assert!(rig.is_clean(), "{}", rig.classes("vn0"));
}

#[test]
fn a_class_to_live_under_that_is_not_there_is_one_clear_answer() {
    let Some(rig) = Rig::up("one") else { return };
    for (name, shape) in [("bands-no-root", false), ("bands-no-class", true)] {
        if shape {
            rig.shape_as_a_lab();
        }
        let node = rig.begin(name, under("1:7"));
        rig.refused("the class that bands.under names is not there");
        let (_, log) = ended(node);
        assert!(log.contains("under 1:7: there is no"), "{log}");
    }
}

/// A controller whose file has no [bands] any more takes them from the hosts that have them.
#[test]
fn a_controller_that_begins_anew_without_bands_takes_them_away() {
    let Some(mut rig) = Rig::up("one") else { return };
    let node = rig.begin("bands-anew", on("vn0"));
    rig.settled([Some(0), Some(1)]);
    rig.begins_anew(|config| config.bands = None);
    rig.wait_until_clean();
    let status = rig.status_until("nothing is awaited", |status| {
        status.jobs.iter().all(|job| job.band_boxes_awaited == 0)
    });
    let facts = |job: &v1::JobStatus| (job.band, job.band_boxes_done, job.band_refused.clone());
    assert!(status.jobs.iter().all(|job| facts(job) == (None, 0, String::new())), "{status:?}");
    let bands = BandsConfig { policy: "one".parse().unwrap(), interval_s: 60 };
    rig.begins_anew(|config| config.bands = Some(bands));
    rig.settled([Some(0), Some(1)]);
    assert_eq!(rig.classes_of_labels("5745:"), BOTH);
    ended(node);
}

/// What left by each band, by the kernel's classes, is what the controller tells.
#[test]
fn what_the_kernel_counts_by_band_is_in_status_and_in_the_nodes_report() {
    let Some(rig) = Rig::up_with("one", DIMENSION) else { return };
    let file = rig.config_of("bands-counts", Some(on("vn0")), DIMENSION, |_| {});
    let node = rig.start(&file);
    rig.settled([Some(0), Some(1)]);
    let stop = Arc::new(AtomicBool::new(false));
    let times = rig.puller(1, 3, &stop).join().expect("it pulls");
    assert_eq!(times.len(), 3);
    let class = |id: &str| {
        let text = rig.tc(&format!("-s class show dev vn0 classid {id}"));
        let line = text.lines().find(|line| line.contains("Sent")).expect("counts").to_owned();
        let words: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        (words[0], words[1])
    };
    let queue = |status: &v1::StatusReply, queue: u32| {
        let node = status.nodes.iter().find(|node| node.name == "s0").expect("the node");
        let band = node.bands.iter().find(|band| band.queue == queue);
        band.map(|band| (band.sent_bytes, band.sent)).unwrap_or_default()
    };
    let told = rig.status_until("what the kernel counted", |status| {
        queue(status, 1).0 > 3 * 4 * DIMENSION as u64 && queue(status, 1) == class("5745:207")
    });
    assert_eq!(queue(&told, 0), (0, 0), "nobody pulls in band 0");
    let bare = queue(&told, 8);
    assert!(bare.1 > 0, "frames without elements");
    // What has left is counted on when its class is gone.
    let before = queue(&told, 1);
    rig.set(v1::BandPolicy::Fifo, 0);
    rig.wait_until_clean();
    rig.set(v1::BandPolicy::One, 0);
    rig.settled([Some(0), Some(1)]);
    let after = rig.status();
    assert!(queue(&after, 1) >= before, "{:?} after {before:?}", queue(&after, 1));
    let (report, _) = ended(node);
    let of_band = &report["bands"][1];
    assert_eq!(of_band["band"], "1");
    assert!(of_band["sent_bytes"].as_u64() >= Some(before.0), "{of_band}");
}

/// A model of 40 KB.
const DIMENSION: usize = 10_000;
