//! Golden pairs, and simple_switch with captures for ports.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use weft_p4_interpreter::Switch;

use crate::golden::p4;

/// Frames by port.
pub(crate) type Ports = BTreeMap<u16, Vec<Vec<u8>>>;

/// A scenario that the real switch has gone through.
#[derive(Debug)]
pub(crate) struct Golden {
    pub(crate) name: String,
    program: String,
    /// For simple_switch's command line.
    config: String,
    /// In order of time.
    pub(crate) frames: Vec<(u16, Vec<u8>)>,
    pub(crate) out: Ports,
    /// Cells that are not 0, by counter array.
    pub(crate) counts: BTreeMap<&'static str, BTreeMap<usize, u64>>,
}

impl Golden {
    pub(crate) fn all() -> Vec<Self> {
        let codes = codes();
        let folders = fs::read_dir(p4().join("golden")).expect("the pairs are there");
        let mut folders: Vec<_> = folders.map(|entry| entry.expect("listed").path()).collect();
        folders.sort();
        let folders = folders.into_iter().filter(|path| path.is_dir());
        folders.map(|folder| Self::read(&folder, &codes)).collect()
    }

    fn read(folder: &Path, codes: &BTreeMap<String, usize>) -> Self {
        let read = |name: &str| fs::read_to_string(folder.join(name)).expect("a text");
        let about: toml::Table = read("about.toml").parse().expect("TOML");
        let elements = about["elements"].as_integer().expect("a number");
        let table =
            |name: &str| about.get(name).and_then(toml::Value::as_table).into_iter().flatten();
        let number =
            |value: &toml::Value| u64::try_from(value.as_integer().expect("a count")).unwrap();
        let drops = table("drops").map(|(name, count)| {
            (codes[&format!("REASON_{}", name.to_uppercase())], number(count))
        });
        let transitions = table("transitions").map(|(name, count)| {
            let (scope, name) = name.split_once('.').expect("scope and name");
            let scope: usize = scope.parse().expect("a scope");
            let name = name.to_uppercase();
            let name = if name.starts_with("WHOLE_") { name } else { format!("TRANSITION_{name}") };
            let code = codes.get(&name);
            (scope * 32 + code.expect("the program has it"), number(count))
        });
        let counts = BTreeMap::from([
            ("drops", drops.collect::<BTreeMap<_, _>>()),
            ("transitions", transitions.collect()),
        ]);
        let (mut frames, mut out) = (Vec::new(), Ports::new());
        for entry in fs::read_dir(folder).expect("listed") {
            let path = entry.expect("listed").path();
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            let Some((port, way)) = name.strip_prefix('p').and_then(|rest| rest.split_once('_'))
            else {
                continue;
            };
            let port: u16 = port.parse().expect("a port");
            let records = records(&fs::read(&path).expect("a capture"));
            if way == "in.pcap" {
                frames.extend(records.into_iter().map(|(at, frame)| (at, port, frame)));
            } else {
                out.insert(port, records.into_iter().map(|(_, frame)| frame).collect());
            }
        }
        frames.sort_by_key(|(at, ..)| *at);
        let program = p4().join(format!("build/weft-v1model-{elements}.json"));
        Self {
            name: folder.file_name().expect("a name").to_string_lossy().into_owned(),
            program: program.to_string_lossy().into_owned(),
            config: read("config.txt"),
            frames: frames.into_iter().map(|(_, port, frame)| (port, frame)).collect(),
            out,
            counts,
        }
    }

    /// The program with the scenario's tables and groups.
    pub(crate) fn switch(&self) -> Switch {
        let json = fs::read_to_string(&self.program).expect("the program is there");
        let mut switch = Switch::load(&json).unwrap_or_else(|error| panic!("{error}"));
        let mut nodes: Vec<(u16, u16)> = Vec::new();
        let mut groups: BTreeMap<u16, Vec<(u16, u16)>> = BTreeMap::new();
        for line in self.config.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |word: &str| u16::try_from(value(word)).expect("a small number");
            match words[..] {
                ["table_add", table, action, ref rest @ ..] => {
                    insert(&mut switch, table, action, rest)
                }
                ["mc_mgrp_create", _] => {}
                ["mc_node_create", id, port] => nodes.push((number(port), number(id))),
                ["mc_node_associate", group, node] => {
                    let members = groups.entry(number(group)).or_default();
                    members.push(nodes[usize::from(number(node))]);
                }
                _ => panic!("{}: {line}", self.name),
            }
        }
        groups.iter().for_each(|(group, nodes)| switch.group(*group, nodes));
        switch
    }

    pub(crate) fn play(&self, switch: &mut Switch, frames: &[(u16, Vec<u8>)]) -> Ports {
        let mut out = Ports::new();
        for (port, frame) in frames {
            let sent = switch.process(*port, frame);
            for (port, frame) in sent.unwrap_or_else(|fault| panic!("{}: {fault}", self.name)) {
                out.entry(port).or_default().push(frame);
            }
        }
        out
    }
}

fn insert(switch: &mut Switch, table: &str, action: &str, rest: &[&str]) {
    let info = switch.tables().find(|info| info.name == table).expect("the program has it");
    let (keys, params) = rest.split_at(rest.iter().position(|word| *word == "=>").expect("=>"));
    let wanted = &info.actions.iter().find(|(name, _)| name == action).expect("an action").1;
    let named = |names: &[(String, usize)], words: &[&str]| -> Vec<(String, u128)> {
        names.iter().zip(words).map(|((name, _), word)| (name.clone(), value(word))).collect()
    };
    let (keys, params) = (named(&info.keys, keys), named(wanted, &params[1..]));
    let keys: Vec<(&str, u128)> = keys.iter().map(|(name, value)| (&name[..], *value)).collect();
    let params: Vec<(&str, u128)> =
        params.iter().map(|(name, value)| (&name[..], *value)).collect();
    switch.insert(table, &keys, action, &params).unwrap_or_else(|error| panic!("{error}"));
}

fn value(word: &str) -> u128 {
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("{word} is no number"))
}

/// The numbers that the program counts under.
fn codes() -> BTreeMap<String, usize> {
    let text = fs::read_to_string(p4().join("reasons.p4")).expect("it is there");
    let lines = text.lines().filter_map(|line| line.strip_prefix("#define "));
    let pairs = lines.filter_map(|line| line.split_once(' '));
    pairs.filter_map(|(name, code)| Some((name.to_owned(), code.trim().parse().ok()?))).collect()
}

/// Times in microseconds and frames of a capture as simple_switch writes it: little-endian, with
/// microseconds.
fn records(data: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes"));
    let (mut all, mut at) = (Vec::new(), 24);
    while at + 16 <= data.len() {
        let len = word(at + 8) as usize;
        let Some(frame) = data.get(at + 16..at + 16 + len) else { break };
        all.push((u64::from(word(at)) * 1_000_000 + u64::from(word(at + 4)), frame.to_vec()));
        at += 16 + len;
    }
    all
}

/// Frames with bytes changed, cut, or padded.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((word ^ (word >> 31)) % bound as u64).expect("below a small number")
    }

    /// The frame, or one that is like it; few are so broken that nothing is left to look at.
    pub(crate) fn damaged(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        if frame.is_empty() {
            return frame;
        }
        match self.below(8) {
            0 => frame.truncate(15.max(self.below(frame.len()))),
            1 => frame.extend(std::iter::repeat_n(0xa5, self.below(64))),
            2..5 => {
                for _ in 0..=self.below(3) {
                    let at = self.below(frame.len().min(120));
                    frame[at] = [0, 0xff, 1, 0x80, frame[at] ^ 1][self.below(5)];
                }
            }
            _ => {}
        }
        frame
    }
}

pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Runs frames through simple_switch, without root: captures for ports. It is done when as much has
/// come as is expected, and nothing more comes; one that is given no processor for a while is not.
pub(crate) fn run_switch(golden: &Golden, frames: &[(u16, Vec<u8>)], expected: &Ports) -> Ports {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: String| folder.path().join(name);
    let mut ports: Vec<u16> = golden.out.keys().copied().chain([0, 1, 2, 3, 8, 9, 255]).collect();
    ports.sort_unstable();
    ports.dedup();
    let mut held = Vec::new();
    for port in &ports {
        let mut file = CAPTURE_HEADER.to_vec();
        for (index, (from, frame)) in frames.iter().enumerate() {
            if from == port {
                let time = u32::try_from(index + 1).expect("frames are few");
                let len = u32::try_from(frame.len()).expect("frames are short");
                for word in [time / 1000, time % 1000 * 1000, len, len] {
                    file.extend(word.to_le_bytes());
                }
                file.extend(frame);
            }
        }
        if *port == CPU_PORT {
            held = file;
        } else {
            fs::write(at(format!("p{port}_in.pcap")), file).expect("written");
        }
    }
    let may_begin = hold(at(format!("p{CPU_PORT}_in.pcap")), held);
    let probe = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let thrift = probe.local_addr().expect("bound").port().to_string();
    drop(probe);
    let mut command = Command::new("simple_switch");
    command.args(["--use-files", "0", "--thrift-port", &thrift, "-L", "off"]);
    // The default is a socket in /tmp, which the switches of a machine would share.
    command.args(["--notifications-addr", "inproc://notifications"]);
    for port in &ports {
        command.args(["-i", &format!("{port}@{}", at(format!("p{port}")).display())]);
    }
    command.arg(&golden.program).current_dir(folder.path());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let until = Instant::now() + PATIENCE;
    while std::net::TcpStream::connect(format!("127.0.0.1:{thrift}")).is_err() {
        assert!(Instant::now() < until, "simple_switch does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut cli = Command::new("simple_switch_CLI");
    cli.args(["--thrift-port", &thrift]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut cli = cli.stderr(Stdio::null()).spawn().expect("it starts");
    let mut input = cli.stdin.take().expect("a pipe");
    // A frame that finds 64 others at its port is dropped: that is the switch's, not the program's.
    let depth = format!("set_queue_depth {QUEUE_DEPTH}\n");
    input.write_all(depth.as_bytes()).expect("it reads");
    input.write_all(golden.config.as_bytes()).expect("it reads");
    drop(input);
    assert!(cli.wait().expect("it ends").success(), "simple_switch_CLI");
    may_begin.send(()).expect("the pipe's thread waits");
    let size = || -> usize {
        let size = |port: &u16| fs::metadata(at(format!("p{port}_out.pcap"))).map(|it| it.len());
        ports.iter().map(|port| size(port).map_or(0, |len| usize::try_from(len).unwrap())).sum()
    };
    // A capture is empty until its first frame.
    let len = |frames: &Vec<Vec<u8>>| -> usize {
        let frames = frames.iter().map(|frame| RECORD_HEADER_LEN + frame.len());
        CAPTURE_HEADER.len() + frames.sum::<usize>()
    };
    let attached = ports.iter().filter_map(|port| expected.get(port));
    let expected: usize = attached.map(len).sum();
    let (mut seen, mut since) = (0, Instant::now());
    while since.elapsed() < if seen < expected { PATIENCE } else { IDLE } {
        if size() != seen {
            (seen, since) = (size(), Instant::now());
        }
        assert!(child.try_wait().expect("a child").is_none(), "simple_switch has died");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    let read = |port: &u16| {
        let data = fs::read(at(format!("p{port}_out.pcap"))).unwrap_or_default();
        (*port, records(&data).into_iter().map(|(_, frame)| frame).collect())
    };
    ports.iter().map(read).collect()
}

/// Has a port's frames come through a pipe, once the sender says so. The switch takes no frame of
/// any port before it has seen the first one of each, so all wait until the tables are written.
fn hold(pipe: PathBuf, capture: Vec<u8>) -> Sender<()> {
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success(), "mkfifo {}", pipe.display());
    let (may_begin, wait) = channel();
    std::thread::spawn(move || {
        let mut file = fs::OpenOptions::new().write(true).open(pipe).expect("the switch opens it");
        let (header, records) = capture.split_at(CAPTURE_HEADER.len());
        file.write_all(header).expect("the switch reads it");
        // Nobody is there to be told where the test has failed meanwhile.
        if wait.recv().is_ok() {
            let _ = file.write_all(records);
        }
    });
    may_begin
}

const CAPTURE_HEADER: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
const CPU_PORT: u16 = 255;
const RECORD_HEADER_LEN: usize = 16;
const QUEUE_DEPTH: usize = 100_000;
const PATIENCE: Duration = Duration::from_secs(30);
const IDLE: Duration = Duration::from_millis(500);
