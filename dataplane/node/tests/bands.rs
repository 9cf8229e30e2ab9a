//! TensorLights on a host: a real controller gives jobs their bands, a real node in a namespace of
//! its own brings the kernel to them, and the kernel's own counters say what left first.
//!
//! Needs namespaces, `tc` and HTB; without them each test says so and passes. What the lines are,
//! and what becomes of a tree that was half begun, is decided in `bands/tree.rs` and tested there.

use crate::lab;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::capture::Capture;
use crate::common::{PATIENCE, Running};
use crate::rig::{LABELS, NODE, PEER, RATE_BYTES_PER_SEC, Rig, enter, mean, namespace};
use nix::sys::signal::Signal;
use weft_config::node::BandsSection;
use weft_rpc::v1;

/// What a class has of its own, and may send at once.
const FLOOR_BYTES_PER_SEC: f64 = 12_500.0;
const BURST_BYTES: f64 = 2.0 * 1514.0;

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
    rig.shape_as_a_lab();
    let listed = || rig.listed();
    let before = listed();
    // Without leave it is somebody else's, and refused with a reason that reaches the operator.
    let refusing = rig.start(&rig.config("bands-foreign", own()));
    rig.refused("s0: the interface has a queueing discipline of somebody");
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
    // A box that has no [bands] is not asked, and nobody is said to have a band.
    let node = rig.start(&rig.config("bands-none", None));
    while !rig.status().nodes.iter().any(|node| node.name == "s0" && node.is_attached) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let jobs = rig.refused("no box of its server's host applies bands").jobs;
    assert!(jobs.iter().all(|job| job.band.is_none() && job.band_boxes_awaited == 0), "{jobs:?}");
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
    /// All that left, whoever's it was.
    link_bytes: u64,
}

/// What left in windows in which band 0 always had something to send.
#[derive(Clone, Copy, Debug, Default)]
struct Windows {
    count: u32,
    seconds: f64,
    first_bytes: f64,
    link_bytes: f64,
}

impl Windows {
    /// Band 0's share of all that left.
    fn share(self) -> f64 {
        self.first_bytes / self.link_bytes.max(1.0)
    }

    /// Bytes of band 0 per second.
    fn rate(self) -> f64 {
        self.first_bytes / self.seconds.max(1e-9)
    }
}

impl Rig {
    fn sample(&self) -> Sample {
        let from = Instant::now();
        let text = self.tc("-s class show dev vn0");
        let to = Instant::now();
        let mut bands = [Counters::default(); 2];
        let mut link_bytes = 0;
        let (mut band, mut is_link) = (None, false);
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |word: &str| -> u64 {
                let digits: String = word.chars().filter(char::is_ascii_digit).collect();
                digits.parse().unwrap_or_else(|_| panic!("{line}"))
            };
            match words.as_slice() {
                ["class", "htb", id, ..] => {
                    let minor = id.split(':').nth(1).expect("a class id");
                    is_link = minor == "2";
                    band = match minor.len() {
                        3 if minor != "100" => minor[..1].parse::<usize>().ok().map(|at| at - 1),
                        _ => None,
                    };
                }
                ["Sent", sent, ..] if is_link => link_bytes = number(sent),
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
        Sample { from, to, bands, link_bytes }
    }

    /// These labels each send more than the link carries, until the flag is set.
    fn load(&self, labels: &[u8], stop: &Arc<AtomicBool>) -> Vec<std::thread::JoinHandle<u64>> {
        let sender = |label: u8| {
            let (namespace, stop) = (namespace(&self.lab.node), Arc::clone(stop));
            std::thread::spawn(move || {
                enter(&namespace);
                let socket = UdpSocket::bind(SocketAddr::from((NODE, 0))).expect("a socket");
                let options = socket2::SockRef::from(&socket);
                options.set_tos_v4(u32::from(label) << 2).expect("a DSCP");
                // Keeps its class full, waits for the link, and never overflows the class.
                options.set_send_buffer_size(SEND_BUFFER_BYTES).expect("a buffer");
                let target = SocketAddr::from((PEER, 9));
                let mut sent = 0;
                while !stop.load(Ordering::Relaxed) {
                    sent += u64::from(socket.send_to(&[0; 1400], target).is_ok());
                }
                sent
            })
        };
        labels.iter().copied().map(sender).collect()
    }

    /// Looks at windows in which band 0 had something to send all the time: band 1 has sent what it
    /// has of its own in each, and a burst.
    fn windows(&self, span: Duration) -> Windows {
        let until = Instant::now() + span;
        let mut windows = Windows::default();
        let mut before = self.sample();
        while Instant::now() < until || windows.count < WINDOWS_MIN {
            assert!(Instant::now() < until + PATIENCE, "{windows:?}");
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
                windows.first_bytes += sent[0];
                windows.link_bytes += (now.link_bytes - before.link_bytes) as f64;
                windows.seconds += (now.from - before.from).as_secs_f64();
                windows.count += 1;
            }
            before = now;
        }
        windows
    }

    /// How band 0 fares when nobody else sends.
    fn alone(&self) -> Windows {
        let stop = Arc::new(AtomicBool::new(false));
        let senders = self.load(&LABELS[..1], &stop);
        let windows = self.windows(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
        senders.into_iter().for_each(|sender| drop(sender.join()));
        while self.sample().bands[0].backlog_packets > 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        windows
    }
}

/// While band 0 has something to send, band 1 sends what it has of its own and one burst; and after
/// the filters flip the other way round, with no packet dropped.
#[test]
fn nightly_no_packet_of_band_0_waits_behind_band_1_beyond_a_burst() {
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
    let before = rig.alone();
    let stop = Arc::new(AtomicBool::new(false));
    let senders = rig.load(&LABELS, &stop);
    let one = rig.windows(Duration::from_secs(2));
    // The other one goes first from the next turn on, in ten seconds, for as long.
    rig.set(v1::BandPolicy::RoundRobin, 10);
    rig.settled([Some(1), Some(0)]);
    // What waited at the flip leaves in its old place first, and its sender has no room before: few
    // windows count in the first seconds, and too few measure nothing. The next turn is after ten.
    let flipped = rig.windows(Duration::from_secs(8));
    let last = rig.sample();
    stop.store(true, Ordering::Relaxed);
    senders.into_iter().for_each(|sender| assert!(sender.join().unwrap() > 0));
    let again = rig.alone();
    // What the link gives on this machine, busy as it is.
    let alone = f64::min(before.rate(), again.rate());
    for windows in [one, flipped] {
        let (share, part) = (windows.share(), windows.rate() / alone);
        println!("band 0 had {share:.3} of the link, {part:.3} of alone: {windows:?}");
        assert!(share > 0.95, "band 0 had {share} of all that left");
        assert!(part > 0.95, "band 0 had {part} of what it has alone: {windows:?}");
    }
    assert_eq!(last.bands.map(|band| band.dropped), [0, 0], "a rotation drops nothing");
    node.end(Signal::SIGINT);
}

impl Rig {
    /// Packets that left through a class, by its number.
    fn packets(&self, class: &str) -> u64 {
        let text = self.tc("-s class show dev vn0");
        let mut lines =
            text.lines().skip_while(|line| !line.starts_with(&format!("class htb {class} ")));
        let sent = lines.find(|line| line.trim_start().starts_with("Sent ")).expect("its counters");
        let words: Vec<&str> = sent.split_whitespace().collect();
        words[3].parse().expect("a count of packets")
    }
}

/// Models of jobs that real sessions pull: band 0 takes the time that it takes alone, and while the
/// kernel has something of it to send, band 1 sends what it has of its own and one burst.
#[test]
fn nightly_a_real_job_in_band_0_takes_the_time_that_it_takes_alone() {
    let Some(rig) = Rig::up_with("one", DIMENSION) else { return };
    let node = rig.start(&rig.config_of("bands-real", own(), DIMENSION, |_| {}));
    rig.settled([Some(0), Some(1)]);
    let never = Arc::new(AtomicBool::new(false));
    let alone = || mean(&rig.puller(0, 4, &never).join().expect("it pulls"));
    let before = alone();
    let stop = Arc::new(AtomicBool::new(false));
    let other = rig.puller(1, usize::MAX, &stop);
    let deadline = Instant::now() + PATIENCE;
    while rig.sample().bands[1].backlog_packets == 0 {
        assert!(Instant::now() < deadline, "nothing of band 1 waits");
    }
    let capture = Capture::start(namespace(&rig.lab.peer));
    let is_over = AtomicBool::new(false);
    let (beside, samples) = std::thread::scope(|scope| {
        let watched = scope.spawn(|| {
            let mut samples = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                samples.push(rig.sample());
            }
            samples
        });
        let beside = mean(&rig.puller(0, 6, &never).join().expect("it pulls"));
        is_over.store(true, Ordering::Relaxed);
        (beside, watched.join().expect("it looks"))
    });
    let frames = capture.end();
    stop.store(true, Ordering::Relaxed);
    let others = other.join().expect("it pulls").len();
    let after = alone();

    // By the kernel's own counters: windows in which what waited of band 0 takes longer to leave
    // than the window lasts.
    let (mut windows, mut longest, mut most) = (0u32, Duration::ZERO, 0u64);
    for pair in samples.windows(2) {
        let [from, to] = pair else { continue };
        let lasts = to.to - from.from;
        let waits =
            from.bands[0].backlog_packets as f64 * MODEL_FRAME_BYTES / RATE_BYTES_PER_SEC as f64;
        if lasts.as_secs_f64() >= waits {
            continue;
        }
        (windows, longest) = (windows + 1, longest.max(lasts));
        let sent = to.bands[1].sent_bytes - from.bands[1].sent_bytes;
        most = most.max(sent);
        let may = FLOOR_BYTES_PER_SEC * lasts.as_secs_f64() + BURST_BYTES + MODEL_FRAME_BYTES;
        assert!(sent as f64 <= may, "band 1 sent {sent} of {may} in {lasts:?}");
    }
    let last = samples.last().expect("it looked");
    let of_jobs = frames.iter().filter(|(_, frame)| frame.get(26..30) == Some(&NODE[..]));
    let len_max = of_jobs.map(|(_, frame)| frame.len()).max().unwrap_or(0);
    println!(
        "band 0: {before:.3} and {after:.3} s alone, {beside:.3} s beside band 1 ({others} pulls); \
         in {windows} windows of at most {longest:?} band 1 sent at most {most} bytes; the longest \
         packet has {len_max}; {last:?}"
    );
    assert!((1000..=1514).contains(&len_max), "a packet of {len_max} bytes is ordered as one");
    assert!(windows >= WINDOWS_MIN, "band 0 seldom waited: {windows} of {}", samples.len());
    assert_eq!(last.bands.map(|band| band.dropped), [0, 0]);
    assert!(beside <= f64::max(before, after) * 1.05, "{beside} instead of {before}");
    node.end(Signal::SIGINT);
}

/// A chunk of a model.
const MODEL_FRAME_BYTES: f64 = 1098.0;
/// A model of 800 KB: two thirds of a second of the link, beside which the round trip that a pull
/// begins with is short.
const DIMENSION: usize = 200_000;

/// By label and length, over IPv4 and IPv6.
#[test]
fn each_frame_goes_to_the_class_of_its_label_and_one_without_elements_to_theirs() {
    let Some(rig) = Rig::up("one") else { return };
    for (namespace, device, addr) in
        [(&rig.lab.node, "vn0", "fd77::1/64"), (&rig.lab.peer, "vp0", "fd77::2/64")]
    {
        let add = ["-n", namespace, "-6", "addr", "add", addr, "dev", device, "nodad"];
        let done = lab::ip(&add);
        assert!(done.status.success(), "{done:?}");
    }
    let node = rig.start(&rig.config("bands-classes", own()));
    rig.settled([Some(0), Some(1)]);
    let classes = ["5745:103", "5745:207", "5745:100"];
    let before = classes.map(|class| rig.packets(class));
    let at = namespace(&rig.lab.node);
    let sent = std::thread::spawn(move || {
        enter(&at);
        for (from, to) in [("10.77.0.1:0", "10.77.0.2:9"), ("[fd77::1]:0", "[fd77::2]:9")] {
            for (label, whole, bare) in [(LABELS[0], 20, 3), (LABELS[1], 10, 5)] {
                let socket = UdpSocket::bind(from).expect("a socket");
                let options = socket2::SockRef::from(&socket);
                let class = u32::from(label) << 2;
                match from.starts_with('[') {
                    true => options.set_tclass_v6(class).expect("a DSCP"),
                    false => options.set_tos_v4(class).expect("a DSCP"),
                }
                // A header, and a header with eight elements.
                let lengths = std::iter::repeat_n(64, whole).chain(std::iter::repeat_n(32, bare));
                for len in lengths {
                    // Nobody listens, which the next call may be told.
                    while socket.send_to(&vec![0; len], to).is_err() {}
                }
            }
        }
    });
    sent.join().expect("they are sent");
    let expected = [40, 20, 16];
    let is_right = || {
        let now = classes.map(|class| rig.packets(class));
        (0..3).all(|at| now[at] - before[at] == expected[at])
    };
    let deadline = Instant::now() + PATIENCE;
    while !is_right() {
        let now = classes.map(|class| rig.packets(class));
        assert!(Instant::now() < deadline, "{before:?} {now:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    node.end(Signal::SIGINT);
}

/// Packets that count as a full band: they take longer to leave than `tc` takes to list them.
const FULL: u64 = 250;
/// What a sender keeps in its class: more than these, and less than a class takes.
const SEND_BUFFER_BYTES: usize = 512 << 10;
/// Windows in which it is looked.
const WINDOWS_MIN: u32 = 20;
const FRAME_BYTES: f64 = 1442.0;
