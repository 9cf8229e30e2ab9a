//! From text to a [`Script`]: one line, one step. `docs/conformance.md` has the grammar.

use std::net::{Ipv4Addr, SocketAddr};

use weft_control::{BoxIndex, MemberConfig, PushConfig, RowConfig, SumOrder};
use weft_engine::table::push_slot_count;
use weft_wire::frame::Endpoint;
use weft_wire::header::{ElementType, Operation, PORT_BASE};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{GroupId, JobId, MacAddr, Nanos};

use super::fields::{kind, kinds, members, steps};
use super::lex::{Read, ScriptError, Words, number};
use super::script::{
    GroupDecl, LeaseDecl, LeaseKind, Line, Part, Peer, PeerId, Script, Sent, Step,
};

/// Reads a script; `file` is how errors name it.
///
/// # Errors
///
/// A line makes no sense.
pub fn parse(file: &str, text: &str) -> Result<Script, ScriptError> {
    let title = text.lines().find_map(|line| line.strip_prefix('#')).unwrap_or_default();
    let mut parser = Parser {
        script: Script {
            file: file.to_owned(),
            title: title.trim().to_owned(),
            leases: Vec::new(),
            lines: Vec::new(),
            only: Vec::new(),
            peers: Vec::new(),
        },
        now: Nanos(0),
    };
    for (index, line) in text.lines().enumerate() {
        parser.line(Words::new(file, index + 1, line))?;
    }
    if parser.script.leases.is_empty() {
        return Err(Words::new(file, 1, "").bad("there is no row and no push job"));
    }
    Ok(parser.script)
}

/// The box of every script.
pub(super) fn box_endpoint() -> Endpoint {
    endpoint(9, 9, PORT_BASE)
}

fn endpoint(net: u8, last: u8, port: u16) -> Endpoint {
    let addr = SocketAddr::from((Ipv4Addr::new(10, 0, net, last), port));
    Endpoint { mac: MacAddr([2, 0, 0, 0, net, last]), addr }
}

/// Where a peer is: a network for each lease.
pub(super) fn endpoint_of(peer: &Peer) -> Endpoint {
    let net = u8::try_from(peer.lease).expect("leases are few") + 16;
    match peer.part {
        Part::Member(rank) => endpoint(net, rank + 1, 7000),
        Part::Server => endpoint(net, 100, PORT_BASE),
        Part::Replica => endpoint(net, 101, PORT_BASE),
    }
}

#[derive(Debug)]
pub(super) struct Parser {
    script: Script,
    now: Nanos,
}

impl Parser {
    fn line(&mut self, mut words: Words<'_>) -> Read<()> {
        let Some(first) = words.peek() else { return Ok(()) };
        if let Some(span) = first.strip_prefix('+') {
            words.next("a time")?;
            let span =
                duration(span).ok_or_else(|| words.bad_last(format!("{first} is no time")))?;
            self.now = self.now.saturating_add(span);
        }
        let Some(first) = words.peek() else { return Ok(()) };
        if matches!(first, "row" | "push" | "only") {
            return self.declaration(&mut words);
        }
        let step = self.step(&mut words)?;
        words.finish()?;
        self.script.lines.push(Line { number: words.line, at: self.now, step });
        Ok(())
    }

    fn declaration(&mut self, words: &mut Words<'_>) -> Read<()> {
        if !self.script.lines.is_empty() {
            return Err(words.bad("what a box has is said before all else"));
        }
        let what = words.next("a declaration")?;
        if what == "only" {
            let target = words.next("a target")?.to_owned();
            let mut reason = Vec::new();
            while words.peek().is_some() {
                reason.push(words.next("a reason")?);
            }
            if reason.is_empty() {
                return Err(words.bad("a reason is missing"));
            }
            self.script.only.push((target, reason.join(" ")));
            return Ok(());
        }
        let is_name = words.peek().is_some_and(|word| word != "job");
        let name = if is_name { Some(words.next("a name")?.to_owned()) } else { None };
        if name.is_none() && self.script.leases.iter().any(|lease| lease.name.is_none()) {
            return Err(words.bad("only one row or push job has no name"));
        }
        if self.script.leases.len() >= LEASES_MAX {
            return Err(words.bad_last(format!("more than {LEASES_MAX} rows and push jobs")));
        }
        let lease = self.script.leases.len();
        let (kind, peers) = if what == "row" { row(words, lease)? } else { push(words, lease)? };
        words.finish()?;
        self.script.leases.push(LeaseDecl { name: name.clone(), kind });
        for part in peers {
            let own = match part {
                Part::Member(rank) => rank.to_string(),
                Part::Server => "server".to_owned(),
                Part::Replica => "replica".to_owned(),
            };
            let name = name.as_ref().map_or_else(|| own.clone(), |name| format!("{name}.{own}"));
            self.script.peers.push(Peer { name, lease, part });
        }
        Ok(())
    }

    fn step(&self, words: &mut Words<'_>) -> Read<Step> {
        let first = words.peek().unwrap_or_default();
        if self.script.peers.iter().any(|peer| peer.name == first) {
            return self.frame(words);
        }
        words.next("a step")?;
        Ok(match first {
            "join" => {
                let mut peers = Vec::new();
                while words.peek().is_some_and(|word| word != "holding") {
                    peers.push(self.peer(words)?);
                }
                let holding = if words.take("holding") { Some(steps(words)?) } else { None };
                Step::Join { peers, holding }
            }
            "group" => Step::Group(self.group(words)?),
            "remove" => {
                let lease = self.lease(words)?;
                let (row, generation) = (words.number("row")?, words.number("generation")?);
                let job = self.script.leases[lease].job();
                Step::Remove { job, group: GroupId::new(row, generation) }
            }
            "silent" => Step::Silent,
            "mark" => Step::Mark,
            "drops" => Step::Drops(counts(words)?),
            "transitions" => Step::Transitions(counts(words)?),
            "bank" => {
                let lease = self.lease(words)?;
                let row = words.number("row")?;
                let chunk = words.number("chunk")?;
                Step::Bank { lease, row, chunk, state: words.next("a state")?.to_owned() }
            }
            "restart" => Step::Restart,
            "forget" => Step::Forget(self.peer(words)?),
            "deaf" => Step::Deaf(self.peer(words)?),
            other => return Err(words.bad_last(format!("{other} is neither a peer nor a step"))),
        })
    }

    fn frame(&self, words: &mut Words<'_>) -> Read<Step> {
        let peer = self.peer(words)?;
        match words.next("> or <")? {
            ">" if words.take("raw") => {
                let mut bytes = Vec::new();
                while words.peek().is_some() {
                    bytes.extend(hex(words)?);
                }
                Ok(Step::Send { from: peer, what: Sent::Raw(bytes) })
            }
            ">" => {
                let word = words.next("a kind of frame")?;
                let kind = kind(words, word)?;
                let fields = Box::new(self.fields(words, peer)?);
                Ok(Step::Send { from: peer, what: Sent::Frame { kind, fields } })
            }
            "<" => {
                let kinds = kinds(words)?;
                let fields = Box::new(self.fields(words, peer)?);
                Ok(Step::Expect { to: peer, kinds, fields })
            }
            other => Err(words.bad_last(format!("{other} is neither > nor <"))),
        }
    }

    pub(super) fn peer(&self, words: &mut Words<'_>) -> Read<PeerId> {
        let name = words.next("a peer")?;
        let found = self.script.peers.iter().position(|peer| peer.name == name);
        found.ok_or_else(|| words.bad_last(format!("there is no peer {name}")))
    }

    /// The lease that is named, or the one without a name.
    fn lease(&self, words: &mut Words<'_>) -> Read<usize> {
        let leases = &self.script.leases;
        let named = |lease: &LeaseDecl| lease.name.as_deref() == words.peek();
        if words.peek().is_some()
            && let Some(found) = leases.iter().position(named)
        {
            words.next("a name")?;
            return Ok(found);
        }
        let found = leases.iter().position(|lease| lease.name.is_none());
        found.ok_or_else(|| words.bad("the name of a row or push job is missing"))
    }

    fn group(&self, words: &mut Words<'_>) -> Read<GroupDecl> {
        let lease = self.lease(words)?;
        let LeaseKind::Push(push) = &self.script.leases[lease].kind else {
            return Err(words.bad("groups are of push jobs"));
        };
        let mut decl = GroupDecl {
            lease,
            group: GroupId::new(0, 1),
            members: weft_wire::Members::first(push.workers.len()),
            chunks: push.chunks,
            exponent: push.exponent.unwrap_or(0),
            replicate: false,
            refused: false,
        };
        let (mut row, mut generation) = (0, 1);
        while words.peek().is_some() {
            match words.next("a field")? {
                "row" => row = words.number("row")?,
                "generation" => generation = words.number("generation")?,
                "members" => decl.members = members(words)?,
                "chunks" => decl.chunks = words.number("chunks")?,
                "exponent" => decl.exponent = words.number("exponent")?,
                "replicate" => decl.replicate = true,
                "refused" => decl.refused = true,
                other => return Err(words.bad_last(format!("there is no field {other}"))),
            }
        }
        decl.group = GroupId::new(row, generation);
        Ok(decl)
    }
}

fn row(words: &mut Words<'_>, lease: usize) -> Read<(LeaseKind, Vec<Part>)> {
    let mut row = RowConfig {
        row: 0,
        job: JobId(0),
        members: Vec::new(),
        element_type: ElementType::I32,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: Overflow::Wrap,
        integrity: Integrity::Checksum16,
        elements: ELEMENTS,
        window: 2,
        chunks_max: 1000,
        exponent: Some(0),
        fan_in: 0,
        parent: None,
    };
    let mut count = 2;
    while words.peek().is_some() {
        match words.next("a field")? {
            "job" => row.job = JobId(words.number("job")?),
            "row" => row.row = words.number("row")?,
            "members" => count = rank_count(words)?,
            "window" => row.window = words.number("window")?,
            "elements" => row.elements = words.number("elements")?,
            "chunks" => row.chunks_max = words.number("chunks")?,
            "type" => row.element_type = word(words, "element type")?,
            "operation" => row.operation = word(words, "operation")?,
            "integrity" => row.integrity = word(words, "integrity")?,
            "overflow" => row.overflow = word(words, "overflow")?,
            "exponent" if words.take("agreed") => row.exponent = None,
            "exponent" => row.exponent = Some(words.number("exponent")?),
            other => return Err(words.bad_last(format!("there is no field {other}"))),
        }
    }
    let parts: Vec<_> = (0..count).map(Part::Member).collect();
    let member = |part: &Part| {
        let addr = endpoint_of(&Peer { name: String::new(), lease, part: *part }).addr;
        MemberConfig { addr, weight: 1, is_box: false }
    };
    row.members = parts.iter().map(member).collect();
    row.fan_in = u32::from(count);
    Ok((LeaseKind::Row(row), parts))
}

fn push(words: &mut Words<'_>, lease: usize) -> Read<(LeaseKind, Vec<Part>)> {
    let at = |part| endpoint_of(&Peer { name: String::new(), lease, part });
    let mut push = PushConfig {
        job: JobId(0),
        box_index: BoxIndex(0),
        workers: Vec::new(),
        server: at(Part::Server),
        replica: None,
        quota_bytes: 0,
        pull_cache_bytes: 0,
        chunks: 2,
        elements: ELEMENTS,
        element_type: ElementType::I32,
        overflow: Overflow::Wrap,
        integrity: Integrity::Crc32c,
        exponent: Some(0),
        rate_bytes_per_sec: None,
        burst_bytes: 1 << 20,
    };
    let mut count = 2;
    while words.peek().is_some() {
        match words.next("a field")? {
            "job" => push.job = JobId(words.number("job")?),
            "members" => count = rank_count(words)?,
            "chunks" => push.chunks = words.number("chunks")?,
            "elements" => push.elements = words.number("elements")?,
            "exponent" => push.exponent = Some(words.number("exponent")?),
            "replica" => push.replica = Some(at(Part::Replica)),
            other => return Err(words.bad_last(format!("there is no field {other}"))),
        }
    }
    let mut parts: Vec<_> = (0..count).map(Part::Member).collect();
    push.workers = parts.iter().map(|part| at(*part).addr).collect();
    push.quota_bytes = GROUPS * u64::from(push.chunks) * (4 * u64::from(push.elements) + 128);
    push.pull_cache_bytes = 64 * (4 * u64::from(push.elements) + 128);
    debug_assert!(u64::from(push_slot_count(&push)) >= u64::from(push.chunks), "a group fits");
    parts.push(Part::Server);
    parts.extend(push.replica.map(|_| Part::Replica));
    Ok((LeaseKind::Push(push), parts))
}

fn rank_count(words: &mut Words<'_>) -> Read<u8> {
    let count = words.number("members")?;
    if (1..=64).contains(&count) { Ok(count) } else { Err(words.bad_last("1 to 64 members")) }
}

fn word<T: std::str::FromStr>(words: &mut Words<'_>, what: &str) -> Read<T> {
    let word = words.next(what)?;
    word.parse().map_err(|_| words.bad_last(format!("{word} is no {what}")))
}

fn counts(words: &mut Words<'_>) -> Read<Vec<(String, u64)>> {
    let mut all = Vec::new();
    if words.take("none") {
        return Ok(all);
    }
    while words.peek().is_some() || all.is_empty() {
        let name = words.next("a name or none")?.to_owned();
        all.push((name, words.number("count")?));
    }
    Ok(all)
}

/// `5ms`, `20us`, `1s`, `0`.
fn duration(text: &str) -> Option<Nanos> {
    let digits = text.trim_end_matches(|last: char| !last.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" if digits == "0" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    let count: u64 = digits.parse().ok()?;
    count.checked_mul(unit).map(Nanos)
}

fn hex(words: &mut Words<'_>) -> Read<Vec<u8>> {
    let word = words.next("bytes")?;
    let is_whole = word.len().is_multiple_of(2) && word.is_ascii();
    let bytes = (0..word.len() / 2).map(|at| number(&format!("0x{}", &word[2 * at..2 * at + 2])));
    let bytes: Option<Vec<u8>> = if is_whole { bytes.collect() } else { None };
    bytes.ok_or_else(|| words.bad_last(format!("{word} is no hexadecimal bytes")))
}

/// Of a chunk, unless a script says otherwise: what the smallest P4 program takes.
const ELEMENTS: u16 = 32;
/// Groups of a push job that its quota has room for.
const GROUPS: u64 = 4;
const LEASES_MAX: usize = 8;

#[cfg(test)]
mod tests;
