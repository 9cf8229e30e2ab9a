//! Recordings of hand-made frames: what hostile hosts send, and what defects that were fixed needed
//! to be seen. Made in virtual time, so they are the same each time they are made.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use weft_config::ConfigFile;
use weft_engine::random::Seed;
use weft_engine::role::aggregator::Aggregator;
use weft_io::memory::{self, MemoryPort};
use weft_io::record::Recording;
use weft_io::{Burst, Frame as _, Port as _};
use weft_kernel::Kernels;
use weft_lane::{DrawTape, LanePort, RoleLane, Settings, Wrapped};
use weft_node::durable::Stored;
use weft_node::host::Host;
use weft_node::record::{self, Beginning};
use weft_testbed::replay::Member;
use weft_wire::frame::Endpoint;
use weft_wire::header::{ElementType, Header, Kind};
use weft_wire::{JobId, MacAddr, Nanos, Rank};

use crate::vectors;
use boxes::{MEMORY, MULTICAST, ONE_MEMBER, TWO_JOBS, TWO_MEMBERS};

mod boxes;
mod hearing;

/// A recording that can be made.
#[derive(Debug)]
pub struct Made {
    name: &'static str,
    config: &'static str,
    what: &'static str,
    guards: &'static str,
    script: fn(&mut Rig),
}

/// All of them.
pub const ALL: &[Made] = &[
    Made {
        name: "hostile",
        config: TWO_MEMBERS,
        what: "Every golden frame, every prefix of a contribution, every bit of its headers \
               flipped, between two rounds.",
        guards: "no frame changes a slot that it has no right to; each refusal (I7).",
        script: hostile,
    },
    Made {
        name: "two-jobs",
        config: TWO_JOBS,
        what: "Two jobs; the members of one send without end, beyond its quota.",
        guards: "no frame of one job is felt by the other (I6).",
        script: two_jobs,
    },
    Made {
        name: "late-join",
        config: TWO_MEMBERS,
        what: "A JOIN of a life that has ended comes after the next life, and again in a later \
               session.",
        guards: "the repair of: a late JOIN of a life that had ended filled its rank's place in a \
                 later session.",
        script: late_join,
    },
    Made {
        name: "one-member",
        config: ONE_MEMBER,
        what: "f32 in rank order with one member, over more steps than the window.",
        guards: "the repair of: f32 in rank order with one member gave zeros or an old sum.",
        script: one_member,
    },
    Made {
        name: "unknown-row",
        config: TWO_MEMBERS,
        what: "HELLOs for a row and for a job that are not served.",
        guards: "the repair of: a wrong row or job was met with silence.",
        script: unknown_row,
    },
    Made {
        name: "strangers",
        config: TWO_MEMBERS,
        what: "A flood of forged frames from a member's address and from elsewhere; the members \
               go on.",
        guards: "the repair of: a job's token bucket paid for what shows nobody's cookie, or \
                 nobody did.",
        script: strangers,
    },
    Made {
        name: "hearing",
        config: MULTICAST,
        what: "Two members LISTEN, one says DEAF and LISTENs again; then both in a next life.",
        guards: "sums leave once while all hear them; the repair of: replayed as if nobody heard.",
        script: hearing::multicast,
    },
    Made {
        name: "memory",
        config: MEMORY,
        what: "Two members in memory LISTEN; in the next life one of them is on a wire.",
        guards: "no CRC in memory, nor in sums while all are there; the repair of: replayed as on a wire.",
        script: hearing::memory,
    },
];

impl Made {
    /// Makes it in its folder of `root`, anew.
    ///
    /// # Errors
    /// What the disk says.
    ///
    /// # Panics
    /// If the node cannot be made: a mistake in this file.
    pub fn make(&self, root: &Path) -> io::Result<()> {
        let path = root.join(self.name);
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        let mut rig = Rig::new(self.config, &path);
        (self.script)(&mut rig);
        rig.finish();
        let Self { name, what, guards, .. } = self;
        let origin = format!(
            "# {name}\n\n{what}\n\nGuards: {guards}\n\nMade in virtual time by `cargo run -p \
             weft-tests --example make_recordings`.\n"
        );
        fs::write(path.join("ORIGIN.md"), origin)
    }
}

/// A node's lane in virtual time, and who sends to it.
#[derive(Debug)]
struct Rig {
    lane: RoleLane<LanePort<MemoryPort>, Aggregator>,
    host: Host,
    far: MemoryPort,
    recording: Recording,
    now: Nanos,
    local: Endpoint,
    settings: Settings,
}

impl Rig {
    fn new(config: &str, path: &Path) -> Self {
        let file = ConfigFile::new("node.toml".to_owned(), config.to_owned());
        let mut settings = weft_node::config::parse(&file).expect("it is good");
        record::override_by(&mut settings.config, Some(path), None).expect("it can be named");
        let (near, far) = memory::link(4096, 1500, ["near", "far"]);
        let port = Wrapped::without_capture(near, None);
        let (mut port, mut others) = settings.steer_receiving(port, Vec::new(), false);
        let mac = settings.config.port.mac.expect("the file has one");
        let beginning = Beginning {
            settings: &settings,
            stored: &Stored::default(),
            clock_origin: Nanos(0),
            host_seed: Some(1),
            has_controller: false,
        };
        let section = settings.config.record.clone().expect("it was given");
        let recording = record::start(&section, &beginning, &mut port, &mut others);
        let recording = recording.expect("the directory is empty");
        // The path is of no use to anybody else.
        let mut kept = settings.config.clone();
        kept.record = None;
        fs::write(path.join(record::CONFIG_NAME), weft_config::to_toml(&kept))
            .expect("it is there");
        let draws = port.recorder().expect("it was begun").draws();
        let seed = Seed::from(7).with_tape(Arc::new(DrawTape::new(draws)));
        let table = settings.table_at(mac);
        let engine = settings.aggregator(&table, 0, seed, Kernels::detect());
        let section = &settings.config.port;
        Self {
            host: Host::answering(section.ip, mac, section.mtu, 1),
            lane: RoleLane::new(port, engine),
            far,
            recording,
            now: Nanos(1_000_000),
            local: table.config().local,
            settings,
        }
    }

    fn finish(self) {
        let Self { lane, recording, .. } = self;
        drop(lane);
        assert_eq!(recording.finish().ended, 0, "it is whole");
    }

    /// A member of a row of the file, with this life.
    fn member(&self, row: usize, rank: u8, life: u64) -> Member {
        let config = &self.settings.table.rows[row];
        let mac = MacAddr([2, 0, 0, 0, 1, rank]);
        let addr = config.members[usize::from(rank)].addr;
        let rank = Rank::new(rank).expect("below 64");
        let ends = (Endpoint { mac, addr }, self.local);
        Member::new(ends, config.job, config.row, rank, life).expect("one family")
    }

    /// Sends a frame, and returns what the lane answers.
    fn send(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut frame = self.far.alloc().expect("the lane takes what comes");
        let len = bytes.len().min(frame.buffer_mut().len());
        frame.set_len(len);
        frame.as_mut().copy_from_slice(&bytes[..len]);
        let mut burst = Burst::new();
        burst.push(frame);
        self.far.tx_burst(self.now, &mut burst);
        self.now = Nanos(self.now.0 + 10_000);
        self.lane.breathe(self.now, &mut self.host);
        let mut answers = Burst::new();
        self.far.rx_burst(self.now, &mut answers);
        answers.iter().map(|answer| answer.as_ref().to_vec()).collect()
    }

    fn tell(&mut self, member: &mut Member, bytes: &[u8]) -> Vec<Vec<u8>> {
        let answers = self.send(bytes);
        for answer in &answers {
            member.handle(answer);
        }
        answers
    }

    /// Forms a row's lease with members of these lives.
    fn form(&mut self, row: usize, lives: &[u64]) -> Vec<Member> {
        let members = (0..).zip(lives).map(|(rank, life)| self.member(row, rank, *life));
        let members = members.collect();
        self.form_of(members)
    }

    /// Forms the lease of these members.
    fn form_of(&mut self, mut members: Vec<Member>) -> Vec<Member> {
        for member in &mut members {
            let hello = member.hello();
            self.tell(member, &hello);
        }
        for _ in 0..2 {
            for member in &mut members {
                let join = member.join();
                self.tell(member, &join);
            }
        }
        assert!(members.iter().all(|member| member.terms().is_some()), "the lease is open");
        members
    }

    /// A chunk of every member, which the last answers.
    fn round(&mut self, members: &[Member], chunk: u32) {
        let answers = self.sum(members, chunk);
        assert_eq!(answers.len(), members.len(), "the sum went to all");
    }

    /// A chunk of every member, and what came of the last contribution.
    fn sum(&mut self, members: &[Member], chunk: u32) -> Vec<Vec<u8>> {
        let mut answers = Vec::new();
        for (member, rank) in members.iter().zip(1..) {
            answers = self.send(&contribution(member, chunk, rank));
        }
        answers
    }
}

fn contribution(member: &Member, chunk: u32, value: i32) -> Vec<u8> {
    let words: Vec<u8> = (0..8).flat_map(|word: i32| (word * value).to_be_bytes()).collect();
    member.contribution(chunk, -8, ElementType::I32, &words)
}

fn hostile(rig: &mut Rig) {
    let members = rig.form(0, &[1, 2]);
    rig.round(&members, 0);
    for (_, content) in vectors::files().into_iter().filter(|(name, _)| name.ends_with(".bin")) {
        rig.send(&content);
    }
    let whole = contribution(&members[0], 1, 3);
    for len in 0..whole.len() {
        rig.send(&whole[..len]);
    }
    for bit in 0..(42 + 32) * 8 {
        let mut other = whole.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        rig.send(&other);
    }
    rig.round(&members, 1);
}

fn two_jobs(rig: &mut Rig) {
    let greedy = rig.form(0, &[1, 2]);
    let other = rig.form(1, &[3, 4]);
    for chunk in 0..6 {
        for _ in 0..100 {
            rig.send(&contribution(&greedy[0], chunk, 1));
        }
        rig.round(&other, chunk);
    }
}

fn late_join(rig: &mut Rig) {
    let first = rig.form(0, &[1, 2]);
    let late = first[0].join();
    let members = rig.form(0, &[3, 4]);
    rig.send(&late);
    rig.round(&members, 0);
    for member in &members {
        rig.send(&member.close());
    }
    rig.send(&late);
    let members = rig.form(0, &[5, 6]);
    rig.send(&late);
    rig.round(&members, 0);
}

fn one_member(rig: &mut Rig) {
    let members = rig.form(0, &[1]);
    for chunk in 0..12_u8 {
        let words: Vec<u8> = (0..8_u8)
            .flat_map(|word| (f32::from(word) + f32::from(chunk) / 4.0).to_be_bytes())
            .collect();
        let frame = members[0].contribution(chunk.into(), 0, ElementType::F32, &words);
        let answers = rig.send(&frame);
        assert_eq!(answers.len(), 1);
        assert!(answers[0].ends_with(&words), "the sum of one is what it gave");
    }
}

fn unknown_row(rig: &mut Rig) {
    let known = rig.member(0, 0, 9);
    let mac = MacAddr([2, 0, 0, 0, 1, 0]);
    let addr = rig.settings.table.rows[0].members[0].addr;
    let ends = (Endpoint { mac, addr }, rig.local);
    for (job, row) in [(0, 77), (200, 0), (200, 77)] {
        let rank = Rank::new(0).expect("below 64");
        let member = Member::new(ends, JobId(job), row, rank, 9).expect("one family");
        assert_eq!(rig.send(&member.hello()).len(), 1, "it is refused, not ignored");
        rig.send(&member.join());
    }
    rig.send(&known.hello());
}

fn strangers(rig: &mut Rig) {
    let members = rig.form(0, &[1, 2]);
    let stranger = {
        let mac = MacAddr([2, 0, 0, 0, 9, 9]);
        let addr = "10.0.0.66:7000".parse().expect("an address");
        let rank = Rank::new(0).expect("below 64");
        Member::new((Endpoint { mac, addr }, rig.local), JobId(0), 0, rank, 66)
    };
    let stranger = stranger.expect("one family");
    let (_, group) = members[0].terms().expect("it is welcome");
    for chunk in 0..4 {
        for _ in 0..50 {
            let status = Header { group, ..stranger.header(Kind::Status) };
            rig.send(&stranger.frame(&status, &[]));
            rig.send(&stranger.hello());
            // From a member's address, with no cookie of its.
            let forged =
                Header { group, cookie: Default::default(), ..members[1].header(Kind::Status) };
            rig.send(&members[1].frame(&forged, &[]));
        }
        rig.round(&members, chunk);
    }
}
