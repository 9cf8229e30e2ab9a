//! TensorLights in a node's own port (`by = "port"`): a real controller gives jobs their bands, a
//! real node sends their models through strict-priority queues behind a pacer, and real sessions in
//! another namespace pull them.
//!
//! Needs namespaces; without them each test says so and passes. The queues themselves are tested in
//! virtual time, in `dataplane/io/tests/bands.rs`.

use crate::common;
use std::fmt::Debug;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::PATIENCE;
use crate::rig::{NODE, RATE_BYTES_PER_SEC, Rig, enter, mean, namespace};
use nix::sys::signal::Signal;
use weft_config::node::{BandsBy, BandsSection};

/// A model of 400 KB: a third of a second of the link.
const DIMENSION: usize = 100_000;
const METRICS_PORT: u16 = 9_400;

fn by_port(age_max_ms: u64) -> BandsSection {
    BandsSection {
        by: BandsBy::Port,
        device: None,
        age_max_ms: Some(age_max_ms),
        ..BandsSection::host(String::new(), Some(RATE_BYTES_PER_SEC))
    }
}

impl Rig {
    /// A figure of a band, by its name in `/metrics`.
    fn figure<T: FromStr<Err: Debug>>(&self, name: &str, band: &str) -> T {
        // From outside: nothing is up in the node's namespace but its end of the pair.
        let at = namespace(&self.lab.peer);
        let page = std::thread::spawn(move || {
            enter(&at);
            let mut stream = TcpStream::connect((std::net::Ipv4Addr::from(NODE), METRICS_PORT))
                .expect("it serves figures");
            write!(stream, "GET /metrics HTTP/1.1\r\n\r\n").expect("a request");
            let mut page = String::new();
            stream.read_to_string(&mut page).expect("an answer");
            page
        });
        let page = page.join().expect("a page");
        let wanted = format!("weft_band_{name}{{band=\"{band}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&wanted));
        line.unwrap_or_else(|| panic!("no {wanted} in {page}")).parse().expect("a number")
    }

    /// A node with these bands in its port, whose jobs have bands 0 and 1.
    fn node(&self, name: &str, bands: BandsSection) -> common::Running {
        let file = self.config_of(name, Some(bands), DIMENSION, |config| {
            config.node.metrics = Some(SocketAddr::from((NODE, METRICS_PORT)));
        });
        let node = self.start(&file);
        self.settled([Some(0), Some(1)]);
        node
    }
}

/// Looks at the most that waited in band 1, and at what the kernel held of it, until told to stop.
fn watch(rig: &Rig, is_over: &AtomicBool) -> (u64, u64) {
    let (mut waited, mut below) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        waited = waited.max(rig.figure("waiting", "1"));
        let text = rig.tc("-s qdisc show dev vn0");
        let backlog = text.split("backlog ").nth(1).and_then(|rest| rest.split('b').next());
        below = below.max(backlog.and_then(|digits| digits.parse().ok()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(20));
    }
    (waited, below)
}

#[test]
fn nightly_band_0_takes_the_time_that_it_takes_alone_and_band_1_waits_in_the_node() {
    let Some(rig) = Rig::up_with("one", DIMENSION) else { return };
    // Nobody grows old here.
    let node = rig.node("port-bands", by_port(60_000));
    let never = Arc::new(AtomicBool::new(false));
    let alone = || mean(&rig.puller(0, 5, &never).join().expect("it pulls"));
    let before = alone();
    let stop = Arc::new(AtomicBool::new(false));
    let other = rig.puller(1, usize::MAX, &stop);
    let is_over = AtomicBool::new(false);
    let begun = Instant::now();
    let (beside, (waited, below)) = std::thread::scope(|scope| {
        let watched = scope.spawn(|| watch(&rig, &is_over));
        let beside = mean(&rig.puller(0, 10, &never).join().expect("it pulls"));
        is_over.store(true, Ordering::Relaxed);
        (beside, watched.join().expect("it looks"))
    });
    let span = begun.elapsed();
    stop.store(true, Ordering::Relaxed);
    let others = other.join().expect("it pulls").len();
    let after = alone();
    println!(
        "band 0: {before:.3} and {after:.3} s alone, {beside:.3} s beside band 1, of which \
         {waited} frames waited; {others} pulls of band 1 in {span:?}"
    );
    assert!(beside <= f64::max(before, after) * 1.05, "{beside} instead of {before}");
    assert!(waited > 0, "nothing of band 1 waited in the node");
    assert_eq!(below, 0, "the kernel held bytes, where nobody knows bands");
    for (name, least) in [("sent_total", 1), ("sent_bytes_total", DIMENSION as u64 * 4)] {
        assert!(["0", "1"].iter().all(|band| rig.figure::<u64>(name, band) >= least), "{name}");
    }
    assert!(rig.figure::<u64>("sent_total", "bare") > 0);
    assert_eq!(rig.figure::<u64>("full_total", "0"), 0);
    let ended = node.end(Signal::SIGINT);
    assert!(ended.stdout.contains("band 1") || ended.stdout.contains("\"bands\""));
}

/// Two sessions of band 0 keep the link full; band 1 moves all the same.
#[test]
fn nobody_in_the_last_band_waits_much_longer_than_the_age_limit() {
    let Some(rig) = Rig::up_with("one", DIMENSION) else { return };
    let age_ms = 50;
    let node = rig.node("port-bands-age", by_port(age_ms));
    let stop = Arc::new(AtomicBool::new(false));
    let first = rig.puller(0, usize::MAX, &stop);
    let took = rig.puller(1, 3, &Arc::new(AtomicBool::new(false))).join().expect("it pulls");
    stop.store(true, Ordering::Relaxed);
    let firsts = first.join().expect("it pulls").len();
    let aged: u64 = rig.figure("aged_total", "1");
    let longest_s: f64 = rig.figure("wait_max_seconds", "1");
    println!("{took:?} beside {firsts} pulls of band 0; {aged} aged, {longest_s} s at most");
    assert!(aged > 0, "band 1 was never held up for so long: {took:?}");
    // Frames that are as old go first, those of one window of band 0 among them.
    assert!(longest_s * 1e3 < 4.0 * age_ms as f64, "one waited {longest_s} s");
    assert!(took.iter().all(|took| *took < PATIENCE / 2), "{took:?}");
    node.end(Signal::SIGINT);
}
