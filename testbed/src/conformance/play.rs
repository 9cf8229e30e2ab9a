//! Plays a script to a target, in virtual time.

mod counts;
mod frames;
mod handshake;
mod observed;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use weft_control::{Command, Event, GroupDescriptor, GroupMember, OrderNumber, Version};
use weft_engine::send::datagram::plain_header;
use weft_wire::frame::Datagram;
use weft_wire::header::{Header, Kind};
use weft_wire::hello::{Integrity, Phase};
use weft_wire::{Cookie, GroupId, JobId, Members, Nanos, Rank};

use super::ends::End;
use super::expect::{Arrived, Wanted, compare, is_hello, name_of};
use super::frame::{Elements, build, flag_names, header_of, hello_payload, moved, payload};
use super::member::Member;
use super::parse::{box_endpoint, endpoint_of};
use super::script::{
    CookieOf, Fields, Generation, GroupDecl, LeaseKind, Part, PeerId, Script, Sent, Source, Step,
    Word,
};
use super::target::{Counts, Kind as TargetKind, Refused, Setup, Target};

/// How a script ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ended {
    /// Everything was as it says.
    Passed,
    /// Something was not.
    Failed(Vec<Difference>),
    /// The target does not play it, for this reason.
    Skipped(String),
}

/// Something was not as a line says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Difference {
    /// The script and its line.
    pub at: String,
    /// What differs.
    pub field: String,
    /// What the line says.
    pub expected: String,
    /// What came.
    pub got: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, field, expected, got } = self;
        write!(f, "{at}: {field}: expected {expected}, got {got}")
    }
}

/// Plays a script to a kind of target; `programs` is where compiled P4 programs are.
#[must_use]
pub fn play(script: &Script, kind: TargetKind, programs: &Path) -> Ended {
    if let Some(reason) = script.left_out(kind) {
        return Ended::Skipped(reason.to_owned());
    }
    let setup = setup(script, programs);
    let target = match kind.start(&setup) {
        Ok(target) => target,
        Err(Refused::Skipped(reason)) => return Ended::Skipped(reason),
        Err(Refused::Failed(reason)) => {
            let at = script.file.clone();
            return Ended::Failed(vec![difference(at, "start", "a box", reason)]);
        }
    };
    let mut play = Play::new(script, target);
    match play.all() {
        Ok(()) => Ended::Passed,
        Err(differences) => Ended::Failed(differences),
    }
}

/// Plays a script without judging what comes: every frame that left, and every count of a refusal,
/// by line and in words that do not depend on what the target drew. Steps that expect something are
/// left out.
///
/// # Errors
///
/// The target does not play it, or did what no box may do.
pub fn observe(script: &Script, kind: TargetKind, programs: &Path) -> Result<Vec<String>, Refused> {
    observe_on(script, programs, |setup| kind.start(setup))
}

/// The same with a target of the caller's.
///
/// # Errors
///
/// As for [`observe`].
pub fn observe_on(
    script: &Script,
    programs: &Path,
    start: impl FnOnce(&Setup) -> Result<Box<dyn Target>, Refused>,
) -> Result<Vec<String>, Refused> {
    let target = start(&setup(script, programs))?;
    Play::new(script, target).observed().map_err(|differences| {
        let lines: Vec<String> = differences.iter().map(ToString::to_string).collect();
        Refused::Failed(lines.join("\n"))
    })
}

fn setup(script: &Script, programs: &Path) -> Setup {
    let rows = script.leases.iter().filter_map(|lease| match &lease.kind {
        LeaseKind::Row(row) => Some(row.clone()),
        LeaseKind::Push(_) => None,
    });
    let pushes = script.leases.iter().filter_map(|lease| match &lease.kind {
        LeaseKind::Push(push) => Some(push.clone()),
        LeaseKind::Row(_) => None,
    });
    Setup {
        local: box_endpoint(),
        rows: rows.collect(),
        pushes: pushes.collect(),
        peers: script.peers.iter().map(endpoint_of).collect(),
        programs: programs.to_owned(),
    }
}

fn difference(
    at: String,
    field: &str,
    expected: impl Into<String>,
    got: impl Into<String>,
) -> Difference {
    Difference { at, field: field.to_owned(), expected: expected.into(), got: got.into() }
}

/// What a peer knows.
#[derive(Debug)]
enum Mind {
    Member(Member),
    End(End),
}

struct Play<'a> {
    script: &'a Script,
    target: Box<dyn Target>,
    minds: Vec<Mind>,
    inboxes: Vec<VecDeque<Vec<u8>>>,
    /// Of the last frame that each sent, and that each was sent.
    carried: Vec<Cookie>,
    received: Vec<Option<Arrived>>,
    deaf: Vec<bool>,
    /// What each contributed to a chunk last.
    values: BTreeMap<(PeerId, u32), Vec<i32>>,
    groups: Vec<Option<GroupDecl>>,
    marked: (Counts, Vec<Option<Counts>>),
    now: Nanos,
    /// What handshakes took that the script does not time.
    late: Nanos,
    line: usize,
    lives: u64,
    orders: u64,
}

type Played<T = ()> = Result<T, Vec<Difference>>;

impl<'a> Play<'a> {
    fn new(script: &'a Script, target: Box<dyn Target>) -> Self {
        let integrity = target.push_integrity();
        let minds = script.peers.iter().zip(100..).map(|(peer, life)| {
            match (&script.leases[peer.lease].kind, peer.part) {
                (LeaseKind::Row(row), Part::Member(_)) => Mind::Member(Member::new(row.row, life)),
                (LeaseKind::Push(push), part) => {
                    Mind::End(End::new(push, part, integrity, life, Nanos(0)))
                }
                _ => unreachable!("a row has members only"),
            }
        });
        let mut play = Self {
            script,
            target,
            minds: minds.collect(),
            inboxes: vec![VecDeque::new(); script.peers.len()],
            carried: vec![Cookie::default(); script.peers.len()],
            received: vec![None; script.peers.len()],
            deaf: vec![false; script.peers.len()],
            values: BTreeMap::new(),
            groups: vec![None; script.leases.len()],
            marked: (Vec::new(), Vec::new()),
            now: Nanos(1),
            late: Nanos(1),
            line: 0,
            lives: 0,
            orders: 0,
        };
        play.mark();
        play
    }

    fn all(&mut self) -> Played {
        let script = self.script;
        for line in &script.lines {
            self.line = line.number;
            let now = line.at.saturating_add(self.late);
            if now > self.now {
                self.now = now;
                self.poll()?;
            }
            self.step(&line.step)?;
        }
        self.silent()
    }

    fn step(&mut self, step: &Step) -> Played {
        match step {
            Step::Expect { to, kinds, fields } => return self.expect(*to, kinds, fields),
            Step::Bank { lease, row, chunk, state } => {
                return self.bank(*lease, *row, *chunk, state);
            }
            _ => self.silent()?,
        }
        match step {
            Step::Join { peers, holding } => self.join(peers, holding.as_ref()),
            Step::Group(decl) => self.group(decl),
            Step::Remove { job, group } => {
                let command = Command::Remove { job: *job, group: *group };
                let done = self.target.command(self.now, command);
                self.carried_out(done)
            }
            Step::Send { from, what: Sent::Raw(bytes) } => self.give(*from, bytes),
            Step::Send { from, what: Sent::Frame { kind, fields } } => {
                let frame = self.frame(*from, *kind, fields)?;
                self.give(*from, &frame)
            }
            Step::Mark => {
                self.mark();
                Ok(())
            }
            Step::Drops(wanted) => {
                let before = self.marked.0.clone();
                let after = self.target.drops();
                self.counts("drops", wanted, &before, &after)
            }
            Step::Transitions(wanted) => self.transitions(wanted),
            Step::Restart => {
                let done = self.target.restart(self.now);
                self.groups.fill(None);
                self.carried_out(done)?;
                self.mark();
                Ok(())
            }
            Step::Forget(peer) => self.forget(*peer),
            Step::Deaf(peer) => {
                self.deaf[*peer] = true;
                Ok(())
            }
            Step::Silent | Step::Expect { .. } | Step::Bank { .. } => Ok(()),
        }
    }

    fn fail<T>(
        &self,
        field: &str,
        expected: impl Into<String>,
        got: impl Into<String>,
    ) -> Played<T> {
        Err(vec![difference(self.place(), field, expected, got)])
    }

    fn place(&self) -> String {
        format!("{}:{}", self.script.file, self.line)
    }

    fn carried_out(&mut self, done: Result<(), String>) -> Played {
        if let Err(problem) = done {
            return self.fail("target", "no fault", problem);
        }
        self.poll()
    }

    fn give(&mut self, from: PeerId, frame: &[u8]) -> Played {
        let done = self.target.handle(self.now, from, frame);
        self.carried_out(done)
    }

    /// Lets the target do what is due, and brings what left it to whom it is for.
    fn poll(&mut self) -> Played {
        for _ in 0..ROUNDS_MAX {
            if let Err(problem) = self.target.poll(self.now) {
                return self.fail("target", "no fault", problem);
            }
            let frames = self.target.take();
            if frames.is_empty() {
                return Ok(());
            }
            for (port, frame) in frames {
                self.deliver(port, frame)?;
            }
        }
        self.fail("target", "rest", "frames without end")
    }

    fn deliver(&mut self, port: usize, frame: Vec<u8>) -> Played {
        if is_hello(&frame) {
            // A switch floods what is for a host that it does not know; the others take no notice.
            let is_own = frame[..6] == endpoint_of(&self.script.peers[port]).mac.0;
            if !is_own || self.deaf[port] {
                return Ok(());
            }
            match &mut self.minds[port] {
                Mind::End(end) => {
                    let Some(reply) = end.handle_hello(self.now, &frame) else { return Ok(()) };
                    let done = self.target.handle(self.now, port, &reply);
                    return done.or_else(|problem| self.fail("target", "no fault", problem));
                }
                Mind::Member(member) => {
                    if let Ok(Arrived { header, hello: Some((body, _)), .. }) =
                        Arrived::read(&frame)
                    {
                        member.learn(&header, &body);
                    }
                }
            }
        }
        self.inboxes[port].push_back(frame);
        Ok(())
    }

    fn silent(&mut self) -> Played {
        let found = self.inboxes.iter().position(|inbox| !inbox.is_empty());
        let Some(peer) = found else { return Ok(()) };
        let frame = self.inboxes[peer].front().expect("it is not empty");
        let text = Arrived::read(frame).map_or_else(|error| error, |arrived| arrived.text());
        let name = &self.script.peers[peer].name;
        self.fail("frame", "nothing more", format!("{name} < {text}"))
    }

    fn expect(&mut self, to: PeerId, words: &[Word], fields: &Fields) -> Played {
        let name = self.script.peers[to].name.clone();
        let word = words[0];
        let Some(frame) = self.inboxes[to].pop_front() else {
            return self.fail("frame", format!("{name} < {}", name_of(word)), "nothing");
        };
        let got = match Arrived::read(&frame) {
            Ok(got) => got,
            Err(problem) => return self.fail("frame", name_of(word), problem),
        };
        self.received[to] = Some(got.clone());
        let word = words.iter().copied().find(|word| *word == got.word()).unwrap_or(word);
        let wanted = self.wanted(to, word, fields);
        let mut differs = compare(&wanted, &got);
        if differs.is_empty() && !self.knows(to, &frame, &got.header, fields) {
            differs.push((
                "cookie",
                "the channel's".to_owned(),
                format!("{:#x}", got.header.cookie.0),
            ));
        }
        let differs = differs.into_iter();
        let all: Vec<_> = differs
            .map(|(field, wanted, got)| difference(self.place(), field, wanted, got))
            .collect();
        if all.is_empty() { Ok(()) } else { Err(all) }
    }
}

/// Frames that call for frames.
const ROUNDS_MAX: usize = 64;
