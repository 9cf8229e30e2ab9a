//! What surrounds the job of `weft run`: flows of others, captures of boxes, delays of links, the
//! run's name; what is refused, what `--dry-run` shows, what an interruption leaves.
//!
//! Needs `weft`, `weft-node` and `weft-controller` beside this test (`.ci/test` builds them), and
//! namespaces; a part tshark.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use weft_testbed::run::{LOOPBACK_FIRST, LOOPBACK_STRIDE};
use weft_tests::live::run::{Ended, Run, changed, digits, ended};
use weft_tests::live::{PATIENCE, eventually, has_dpdk, has_lab, program, skip};
use weft_wire::frame::Udp;
use weft_wire::header::{Kind, Packet};

/// Three workers without a controller, on links of 20 Mbit/s.
const PUSH: &str = r#"
name = "surrounded"
[job]
workers = 3
rounds = 8
batch = 16
hidden = [64]
learning_rate = 0.02
momentum = 0.5
element_type = "i32"
scale_exponent = -24
[push]
mode = "async"
aggregators = 0
controller = false
[lab]
rate_mbit = 20
"#;

const FLOWS: &str = r#"
[[background]]
from = "w0"
to = "w1"
rate_mbit = 6
[[background]]
from = "w2"
to = "server"
rate_mbit = 200
end_s = 0.3
[[background]]
from = "server"
to = "w2"
rate_mbit = 1
begin_s = 3600
"#;

fn file(directory: &Path, text: &str) -> PathBuf {
    changed(text, directory, &[])
}

/// The shipped scenario with more to it.
fn more(directory: &Path, changes: &[(&str, &str)], sections: &str) -> PathBuf {
    let text = fs::read_to_string(digits()).expect("the shipped scenario") + sections;
    changed(&text, directory, changes)
}

fn good(ended: &Ended) -> &Value {
    let json = ended.json.as_ref().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!(json["verdict"], "ok", "{} {}", json["reasons"], ended.stderr);
    assert_eq!((ended.code, &json["model_identical"]), (Some(0), &true.into()));
    json
}

fn refused(scenario: &Path, arguments: &[&str], code: i32, words: &[&str]) {
    let mut command = Command::new(program("weft"));
    let ended = ended(command.arg("run").arg(scenario).args(arguments), PATIENCE);
    assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "{:?} lacks {word:?}", ended.stderr);
    }
}

fn scratch() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[test]
fn background_flows_cross_the_links_of_a_run_and_end_with_it() {
    let directory = scratch();
    let scenario = file(directory.path(), &format!("{PUSH}{FLOWS}"));
    let none = ["[[background]]", "links of a lab"];
    refused(&scenario, &["--io=memory"], 2, &[none[0], none[1], "--io memory"]);
    refused(&scenario, &["--no-lab"], 2, &[none[0], none[1], "--no-lab"]);
    if !has_lab("background_flows_cross_the_links_of_a_run_and_end_with_it") {
        return;
    }
    // A machine that has no time for a sender lets it send less.
    let mut missed = Vec::new();
    for _ in 0..3 {
        let (ended, run) = Run::start(&scenario, &["--io=udp"]).end(PATIENCE);
        let json = good(&ended);
        let rows = json["background"].as_array().expect("a row for each flow");
        let rate = |row: usize, key: &str| rows[row][key].as_f64().expect("a number");
        assert_eq!((rows.len(), &rows[0]["from"], &rows[0]["to"]), (3, &"w0".into(), &"w1".into()));
        assert!(rate(0, "sent_mbit") <= 6.1 && rate(1, "received_mbit") <= 26.0, "{rows:?}");
        // The third would have begun in an hour.
        assert_eq!((&rows[2]["begin_s"], rate(2, "sent_mbit")), (&Value::Null, 0.0));
        assert!((0.3..0.5).contains(&rate(1, "end_s")), "{rows:?}");
        let events = fs::read_to_string(run.path().join("run/events.jsonl")).expect("events");
        assert_eq!(events.matches("background_began").count(), 2, "{events}");
        let csv = Command::new(program("weft"))
            .args(["report", "--format=csv"])
            .arg(run.path().join("run"))
            .output()
            .expect("weft starts");
        let csv = String::from_utf8_lossy(&csv.stdout).into_owned();
        assert!(csv.contains("background.0.received_mbit,"), "{csv}");
        // The second has what the job leaves it of a link of 20 Mbit/s, not what it asked for; and
        // what its socket held at its end comes 0.05 s later.
        let arrived = [rate(0, "received_mbit"), rate(1, "received_mbit")];
        if (5.5..=6.1).contains(&arrived[0]) && (5.0..=26.0).contains(&arrived[1]) {
            return;
        }
        missed.push(arrived);
    }
    panic!("rates were not kept in any run: {missed:?}");
}

/// Frames of a capture that ends where a frame ends, each with its time in nanoseconds.
fn read(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let bytes = fs::read(path).expect("a capture");
    assert_eq!(&bytes[..4], &[0x4d, 0x3c, 0xb2, 0xa1], "nanoseconds, little-endian");
    let (mut frames, mut at) = (Vec::new(), 24);
    while at < bytes.len() {
        let word = |index: usize| {
            let at = at + 4 * index;
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
        };
        let frame = &bytes[at + 16..at + 16 + word(2) as usize];
        frames.push((u64::from(word(0)) * 1_000_000_000 + u64::from(word(1)), frame.to_vec()));
        at += 16 + frame.len();
    }
    assert_eq!(at, bytes.len(), "the last frame is whole");
    frames
}

fn frames(path: &Path) -> u64 {
    read(path).len() as u64
}

/// What tshark makes of a capture with the dissector: frames, and those with a job of ours.
fn dissected(path: &Path) -> Option<(u64, u64)> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/wireshark/weft.lua");
    let output = Command::new("tshark")
        .arg("-X")
        .arg(format!("lua_script:{}", script.display()))
        .arg("-r")
        .arg(path)
        .args(["-T", "fields", "-e", "frame.number", "-e", "weft.job"])
        .output()
        .ok()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "tshark failed: {errors}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let ours = text.lines().filter(|line| line.ends_with("\t0")).count();
    Some((text.lines().count() as u64, ours as u64))
}

/// One run in five had a worker at a port that Wireshark takes for another protocol's.
#[test]
fn ports_on_loopback_are_no_other_protocols() {
    let Ok(output) = Command::new("tshark").args(["-G", "decodes"]).output() else {
        return skip("ports_on_loopback_are_no_other_protocols", "tshark is not installed");
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let ports = text.lines().filter_map(|line| {
        let (table, rest) = line.split_once('\t')?;
        let (port, protocol) = rest.split_once('\t')?;
        Some((port.parse::<u16>().ok().filter(|_| table == "udp.port")?, protocol.to_owned()))
    });
    let ours =
        |port: u16| (LOOPBACK_FIRST..32_768).step_by(LOOPBACK_STRIDE.into()).any(|p| p == port);
    let taken: Vec<_> = ports.filter(|(port, _)| ours(*port)).collect();
    assert_eq!(taken, []);
}

#[test]
fn the_captures_of_boxes_are_read_back() {
    let test = "the_captures_of_boxes_are_read_back";
    refused(&digits(), &["--pcap", "--io=memory"], 2, &["--pcap", "--io memory"]);
    refused(&digits(), &["--pcap-size=7"], 2, &["--pcap"]);
    let directory = scratch();
    let lanes = more(directory.path(), &[], "[aggregation]\nlanes = 2\n");
    refused(&lanes, &["--pcap", "--io=af_packet", "--dry-run"], 2, &["2 lanes", "--io udp"]);
    let mut ios = vec![vec!["--io=udp", "--no-lab"]];
    if has_lab(test) {
        ios.extend([vec!["--io=udp", "--leaves=2"], vec!["--io=af_packet"]]);
        if has_dpdk(test) {
            ios.push(vec!["--io=dpdk"]);
        }
    }
    for io in ios {
        let arguments = [&io[..], &["--pcap", "--rounds=2", "--seed=3"]].concat();
        let (ended, run) = Run::start(&digits(), &arguments).end(PATIENCE);
        let json = good(&ended);
        let rows = json["captures"].as_array().expect("a row for each capture");
        assert_eq!(rows.len(), if io.contains(&"--leaves=2") { 3 } else { 1 }, "{rows:?}");
        for row in rows {
            let path = run.path().join("run").join(row["file"].as_str().expect("a name"));
            let there = frames(&path);
            assert_eq!((&row["frames"], &row["cut_frames"]), (&there.into(), &0.into()), "{io:?}");
            // 399 chunks of the gradient in each round, from and to each member.
            let members = if rows.len() == 3 { 2 } else { 4 };
            assert!(there >= 2 * 2 * members * 399, "{io:?}: {there} frames");
            match dissected(&path) {
                // Others than Weft's ask for addresses on a port without a kernel.
                Some((all, ours)) => {
                    assert_eq!(all, there, "{io:?}");
                    assert!(ours >= 2 * 2 * members * 399, "{io:?}: {ours} of {all}");
                }
                None => skip(test, "tshark is not installed"),
            }
        }
    }
}

#[test]
fn a_capture_is_bounded_and_a_restarted_box_keeps_its_first() {
    if !has_lab("a_capture_is_bounded_and_a_restarted_box_keeps_its_first") {
        return;
    }
    let arguments = ["--io=udp", "--rounds=6", "--pcap", "--pcap-size=1", "--restart=a0@2"];
    let (ended, run) = Run::start(&digits(), &arguments).end(PATIENCE);
    let rows = good(&ended)["captures"].as_array().expect("rows").clone();
    let names: Vec<&str> = rows.iter().filter_map(|row| row["file"].as_str()).collect();
    assert_eq!(names, ["a0.life0.pcap", "a0.pcap"]);
    assert_eq!(rows[0]["frames"], Value::Null, "a killed box took its counters along");
    for row in &rows {
        let bytes = row["bytes"].as_u64().expect("a size");
        assert!((1 << 19..=1 << 20).contains(&bytes), "{row}");
    }
    let there = frames(&run.path().join("run/a0.pcap"));
    assert_eq!(rows[1]["frames"], there);
    // Three rounds of 399 chunks, from and to four members, are 9,576 frames at least.
    let cut = rows[1]["cut_frames"].as_u64().expect("a count");
    assert!(there + cut >= 9576, "{there} and {cut} cut off");
    let text = Command::new(program("weft")).arg("report").arg(run.path().join("run")).output();
    let text = String::from_utf8_lossy(&text.expect("weft starts").stdout).into_owned();
    assert!(text.contains("captures in the run directory") && text.contains(&cut.to_string()));
}

#[test]
fn a_run_has_the_name_that_it_was_given() {
    let directory = scratch();
    let run = |name: &str| {
        let mut command = Command::new(program("weft"));
        command.current_dir(directory.path()).arg("run").arg(digits().canonicalize().expect("it"));
        let run = ["--io=memory", "--rounds=1", "--format=json", "--name", name];
        ended(command.args(run), PATIENCE)
    };
    let first = run("try_2-b");
    assert_eq!(good(&first)["name"], "try_2-b");
    let made: Vec<String> = fs::read_dir(directory.path().join("out"))
        .expect("the default folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    assert!(made.len() == 1 && made[0].starts_with("try_2-b-"), "{made:?}");
    let record = fs::read_to_string(directory.path().join("out").join(&made[0]).join("run.json"));
    let record: Value = serde_json::from_str(&record.expect("a record")).expect("JSON");
    let name = &record["configuration"]["name"];
    assert_eq!((&record["name"], name), (&"try_2-b".into(), &"digits".into()));
    for name in ["", "a/b", "..", "ä", "a b", &"x".repeat(65)] {
        let ended = run(name);
        assert_eq!(ended.code, Some(2), "{name:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("letters, digits"), "{}", ended.stderr);
    }
}

/// What a box's capture shows of Weft's: when, who sent, to whom, and the packet's kind and chunk.
fn packets(path: &Path) -> Vec<(u64, SocketAddr, SocketAddr, Kind, u32)> {
    let packet = |(at_ns, frame): (u64, Vec<u8>)| {
        let udp = Udp::parse(&frame).ok()?;
        let packet = Packet::new_checked(frame.get(udp.payload_range())?).ok()?;
        Some((at_ns, udp.source, udp.target, packet.kind()?, packet.chunk().0))
    };
    read(path).into_iter().filter_map(packet).collect()
}

/// The shortest times, in milliseconds, that the capture of a box beside its link shows: from the
/// last member's contribution to a chunk to the sum of it, and from the sum to a member to its
/// contribution to the next chunk of the slot.
fn shortest_ms(path: &Path, window: u32) -> [f64; 2] {
    let mut contributed: HashMap<(SocketAddr, u32), u64> = HashMap::new();
    let mut answered: HashMap<(SocketAddr, u32), u64> = HashMap::new();
    let mut last: HashMap<u32, u64> = HashMap::new();
    let mut shortest_ns = [u64::MAX; 2];
    for (at_ns, from, to, kind, chunk) in packets(path) {
        match kind {
            // Repeats say nothing of the way.
            Kind::Contrib if !contributed.contains_key(&(from, chunk)) => {
                contributed.insert((from, chunk), at_ns);
                last.insert(chunk, at_ns);
                let before = chunk.checked_sub(window).and_then(|c| answered.get(&(from, c)));
                if let Some(sent_ns) = before {
                    shortest_ns[1] = shortest_ns[1].min(at_ns - sent_ns);
                }
            }
            Kind::Answer if !answered.contains_key(&(to, chunk)) => {
                answered.insert((to, chunk), at_ns);
                shortest_ns[0] = shortest_ns[0].min(at_ns - last[&chunk]);
            }
            _ => {}
        }
    }
    shortest_ns.map(|ns| ns as f64 / 1e6)
}

#[test]
fn delays_of_links_are_in_every_round_trip() {
    let test = "delays_of_links_are_in_every_round_trip";
    let directory = scratch();
    let changes = [("mtu = 1500", "mtu = 1500\ndelay_ms = 4\ndelays_ms = { a0 = 6 }")];
    let scenario = more(directory.path(), &changes, "");
    refused(&scenario, &["--io=memory"], 2, &["delays are of links"]);
    let mut ios = vec![vec!["--io=udp", "--no-lab"]];
    if has_lab(test) {
        ios.extend([vec!["--io=udp"], vec!["--io=af_packet"]]);
        if has_dpdk(test) {
            ios.push(vec!["--io=dpdk"]);
        }
    }
    let mut models = Vec::new();
    for io in ios {
        let faults = ["--loss=0.01", "--reorder=0.02", "--corrupt=0.01"];
        for faults in [&[][..], &faults] {
            let arguments = [&io[..], faults, &["--rounds=3", "--seed=9", "--pcap"]].concat();
            let (ended, run) = Run::start(&scenario, &arguments).end(PATIENCE);
            let json = good(&ended);
            models.push(json["model_sha256"].clone());
            let delay = &json["link_delay"];
            let by = delay["by"].as_str().expect("a word");
            assert!(by == "fault_ports" || (by == "netem" && !io.contains(&"--no-lab")), "{delay}");
            assert_eq!(
                (&delay["hosts_ms"]["w0"], &delay["hosts_ms"]["a0"]),
                (&4.0.into(), &6.0.into())
            );
            if by == "netem" || !faults.is_empty() {
                // The capture is behind the delay, or something was lost behind the capture.
                continue;
            }
            // The box's link both ways, then a worker's.
            let [of_box, of_worker] = shortest_ms(&run.path().join("run/a0.pcap"), 128);
            assert!((12.0..1000.0).contains(&of_box), "{io:?}: {of_box} ms");
            assert!((8.0..1000.0).contains(&of_worker), "{io:?}: {of_worker} ms");
        }
    }
    assert!(models.iter().all(|model| *model == models[0]), "{models:?}");
    if has_lab(test) {
        // The server's and the workers' links of a push.
        let text = PUSH.replace("rate_mbit = 20", "rate_mbit = 20\ndelay_ms = 5");
        let scenario = file(directory.path(), &text);
        let (ended, run) = Run::start(&scenario, &["--io=udp", "--pcap"]).end(PATIENCE);
        let delay = &good(&ended)["link_delay"];
        assert_eq!(delay["hosts_ms"]["server"], 5.0);
        let seen = packets(&run.path().join("run/server.pcap"));
        let ip = |last: u8| IpAddr::from([10, 87, 0, last]);
        for worker in 1..=3 {
            let first = |from: u8, to: u8| {
                let between = |packet: &&(u64, SocketAddr, SocketAddr, Kind, u32)| {
                    (packet.1.ip(), packet.2.ip()) == (ip(from), ip(to))
                };
                seen.iter().find(between).expect("a packet").0
            };
            let answer_ns = first(4, worker) - first(worker, 4);
            assert!(answer_ns >= 10_000_000 || delay["by"] == "netem", "w{worker}: {answer_ns} ns");
        }
    }
}

#[test]
fn a_dry_run_shows_all_that_surrounds_the_job() {
    let directory = scratch();
    let text = PUSH.replace("rate_mbit = 20", "rate_mbit = 20\ndelay_ms = 5") + FLOWS;
    let output = Command::new(program("weft"))
        .arg("run")
        .arg(file(directory.path(), &text))
        .args(["--dry-run", "--pcap", "--pcap-size=9", "--name=all", "--io=udp"])
        .current_dir(directory.path())
        .output()
        .expect("weft starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in [
        "/all-",
        "server.pcap",
        "size_max_mib = 9",
        "background: UDP from w2 (10.87.0.3) to server (10.87.0.4:22501), 200 Mbit/s, from 0 s to 0.3 s",
        "link delay in each direction, by ",
        "server 5 ms",
    ] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    assert!(!directory.path().join("out").exists(), "nothing is made");
}

#[test]
fn an_interrupted_run_leaves_nothing_of_its_surroundings() {
    if !has_lab("an_interrupted_run_leaves_nothing_of_its_surroundings") {
        return;
    }
    let directory = scratch();
    let text = PUSH
        .replace("rate_mbit = 20", "rate_mbit = 20\ndelay_ms = 5")
        .replace("rounds = 8", "rounds = 5000")
        + FLOWS;
    let arguments = ["--io=udp", "--pcap", "--name=cut"];
    let run = Run::start(&file(directory.path(), &text), &arguments);
    assert!(eventually(PATIENCE, || run.workers().len() == 3), "the workers do not begin");
    thread::sleep(Duration::from_secs(1));
    run.signal(Signal::SIGINT);
    // It looks for namespaces and processes that were left.
    let (ended, _) = run.end(PATIENCE);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
}
