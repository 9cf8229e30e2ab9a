//! Frames about keys: what processes and the box of table 3 say to each other.
//!
//! A body is put together from words here, so that the index does not come from `weft_wire::keys`.

use weft_wire::header::{ElementType, Flags, Header, Kind, Outcome};
use weft_wire::rows::ROW_KEYS;
use weft_wire::{ChunkIndex, GroupId, Members};

use super::{COOKIE_DOWN, COOKIE_UP, Ipv4, Ipv6, bare, valid};
use crate::vectors::{KeysFields, Vector};

const NUMBER: u64 = 0x0002_0000_0000_0007;
const LOW: u64 = 0x0002_0000_0000_0005;
const EPOCH: u64 = 0x0001_0000_0000_0003;
const HERE: u32 = u32::MAX;
const THIS: u32 = u32::MAX - 1;

/// What a head says.
#[derive(Clone, Copy)]
struct Head {
    what: &'static str,
    entries: u16,
    floors: u16,
    hops: u8,
    peer: u8,
    number: u64,
    low: u64,
    keys: &'static [u64],
}

const HEAD: Head = Head {
    what: "",
    entries: 1,
    floors: 0,
    hops: 0,
    peer: 0,
    number: NUMBER,
    low: 0,
    keys: &[70_000],
};

/// A body of words, behind a head of rows of two elements.
fn body(head: Head, words: &[u32]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(2_u16.to_be_bytes());
    body.extend(head.entries.to_be_bytes());
    body.extend(head.floors.to_be_bytes());
    body.extend([head.hops, head.peer]);
    body.extend(head.number.to_be_bytes());
    body.extend(head.low.to_be_bytes());
    body.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    body
}

fn vector(name: &str, what: &str, header: Header, head: Head, words: &[u32]) -> Vector {
    let body = body(head, words);
    let header = Header {
        group: GroupId::new(ROW_KEYS + 3, 2),
        chunk: ChunkIndex(0),
        element_type: ElementType::I32,
        count: u16::try_from(body.len() / 4).expect("short"),
        ..header
    };
    let family = if head.hops > 0 { Ipv6 } else { Ipv4 };
    let keys = KeysFields {
        what: head.what.to_owned(),
        row_len: 2,
        entries: head.entries,
        floors: head.floors,
        hops: head.hops,
        peer: head.peer,
        number: format!("{:#018x}", head.number),
        low: format!("{:#018x}", head.low),
        keys: head.keys.to_vec(),
    };
    Vector { keys: Some(keys), ..valid(name, what, family, &header, &body) }
}

/// The words of a key, an epoch or a number.
const fn wide(value: u64) -> [u32; 2] {
    [(value >> 32) as u32, (value & 0xffff_ffff) as u32]
}

fn words(parts: &[&[u32]]) -> Vec<u32> {
    parts.concat()
}

/// All of them.
pub(super) fn keys_frames() -> Vec<Vector> {
    [accesses(), moves(), words_of_the_box()].concat()
}

fn up(kind: Kind, outcome: Outcome) -> Header {
    Header { cookie: COOKIE_UP, ..bare(kind, outcome) }
}

fn accesses() -> Vec<Vector> {
    let key = wide(70_000);
    let next = wide(70_001);
    let (one, two) = (1.5_f32.to_bits(), (-2.0_f32).to_bits());
    let two_keys = Head { entries: 2, keys: &[70_000, 70_001], ..HEAD };
    let access = Head { what: "access", low: LOW, ..two_keys };
    let all = words(&[&key, &[7 << 24, one, two, two, one], &next, &[4 << 24]]);
    let sent_on = Head { hops: 1, low: LOW, what: "access", ..HEAD };
    let add = words(&[&key, &[2 << 24, one, two]]);
    let answer = words(&[&key, &[4 << 24, one, two], &next, &[0]]);
    let done = words(&[&key, &[0]]);
    let again = Header { flags: Flags::RETRANSMIT, ..bare(Kind::Contrib, Outcome::None) };
    let localize = Head { what: "localize", low: LOW, ..two_keys };
    let stale = Head { what: "stale", ..HEAD };
    let wait = Head { what: "wait", ..HEAD };
    let contrib = up(Kind::Contrib, Outcome::None);
    vec![
        vector("keys-access", "set, add, pull; pull of another key", contrib, access, &all),
        vector("keys-access-on", "an add that the box sends on again", again, sent_on, &add),
        vector(
            "keys-answer",
            "a row, and a push that was done",
            bare(Kind::Answer, Outcome::None),
            Head { what: "answer", ..two_keys },
            &answer,
        ),
        vector(
            "keys-done",
            "a push that was done",
            bare(Kind::Ack, Outcome::None),
            Head { what: "done", ..HEAD },
            &done,
        ),
        vector(
            "keys-localize",
            "asks for two rows",
            up(Kind::Pull, Outcome::None),
            localize,
            &words(&[&key, &next]),
        ),
        vector("keys-wait", "not now", bare(Kind::State, Outcome::Wait), wait, &key),
        vector("keys-stale", "of an old life", bare(Kind::State, Outcome::Stale), stale, &key),
    ]
}

fn moves() -> Vec<Vector> {
    let key = wide(70_000);
    let epoch = wide(EPOCH);
    let (one, two) = (1.5_f32.to_bits(), (-2.0_f32).to_bits());
    let direct =
        |kind, cookie| Header { flags: Flags::DIRECT, cookie, ..bare(kind, Outcome::None) };
    let row = Head { what: "row", floors: 1, peer: 4, ..HEAD };
    let lasts = words(&[&[0], &wide(LOW), &[5], &wide(NUMBER)]);
    let floor = words(&[&[1], &wide(LOW)]);
    let moving = words(&[&floor, &key, &epoch, &[2 << 16], &lasts, &[one, two]]);
    let ack =
        Head { what: "row_ack", peer: 2, number: 9, entries: 2, keys: &[70_000, 70_000], ..HEAD };
    let arrived = words(&[&key, &epoch, &[THIS], &key, &epoch, &[HERE]]);
    let told = Head { what: "row_ack", peer: 2, number: 9, ..HEAD };
    let claim = Head {
        what: "claim",
        number: 10,
        low: 69_984,
        peer: 16,
        entries: 2,
        keys: &[69_990, 69_999],
        ..HEAD
    };
    let claimed = words(&[&wide(69_990), &epoch, &[HERE], &wide(69_999), &epoch, &[4]]);
    let settled =
        Head { what: "claim", number: 10, low: 69_984, peer: 1, entries: 0, keys: &[], ..HEAD };
    vec![
        vector(
            "keys-row",
            "process 2 gives a row",
            direct(Kind::Answer, COOKIE_DOWN),
            row,
            &moving,
        ),
        vector(
            "keys-row-ack",
            "the row is here",
            Header { members: Members(1 << 4), ..direct(Kind::Ack, COOKIE_UP) },
            ack,
            &arrived,
        ),
        vector(
            "keys-row-acked",
            "the box tells the giver",
            Header { members: Members(1 << 4), ..direct(Kind::Ack, COOKIE_DOWN) },
            told,
            &words(&[&key, &epoch, &[THIS]]),
        ),
        vector(
            "keys-claim",
            "of 16 keys, one is here, a copy of one is kept",
            up(Kind::State, Outcome::Have),
            claim,
            &claimed,
        ),
        vector(
            "keys-claimed",
            "these keys need no claim any more",
            bare(Kind::State, Outcome::Have),
            settled,
            &[],
        ),
    ]
}

fn words_of_the_box() -> Vec<Vector> {
    let entry = words(&[&wide(70_000), &wide(EPOCH), &[THIS]]);
    let head = |what| Head { what, number: 0, ..HEAD };
    let state = |outcome| bare(Kind::State, outcome);
    let beat = Head { what: "beat", number: 0, entries: 0, low: LOW, keys: &[], ..HEAD };
    vec![
        vector("keys-void", "the copy is void", state(Outcome::Void), head("void"), &entry),
        vector(
            "keys-take-back",
            "the copy is the row now",
            state(Outcome::Committed),
            head("take_back"),
            &entry,
        ),
        vector(
            "keys-restore",
            "nobody has the row",
            state(Outcome::Dropped),
            head("restore"),
            &words(&[&wide(70_000), &wide(0), &[THIS]]),
        ),
        vector("keys-beat", "a process is there", up(Kind::Status, Outcome::None), beat, &[]),
    ]
}
