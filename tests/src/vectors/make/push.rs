//! Frames of channels, pushes, pulls and replication, with the rows that have a meaning of their
//! own.

use weft_wire::header::{ElementType, Flags, Header, Kind, Operation, Outcome};
use weft_wire::hello::{Hello, Phase};
use weft_wire::rows::{ROW_BOX_CHANNEL, ROW_DIRECT, ROW_LOG, ROW_MODEL, ROW_WORKER_CHANNEL};
use weft_wire::{ChunkIndex, Cookie, GroupId, Members};

use super::{COOKIE_UP, Ipv4, Ipv6, bare, contrib, f32_payload, i32_payload, valid, welcome};
use crate::vectors::{HelloFields, Vector};

/// What a server, an aggregator, a replica and a worker say to each other.
pub(super) fn push_frames() -> Vec<Vector> {
    [credits_and_sums(), models(), decisions(), channels()].concat()
}

fn credits_and_sums() -> Vec<Vector> {
    let credit = Header {
        members: Members(0b1011),
        group: GroupId::new(1023, 4),
        ..bare(Kind::Pull, Outcome::None)
    };
    let direct = Header { flags: Flags::DIRECT, members: Members(0b100), ..credit };
    let sum = Header { members: Members(0b1011), group: credit.group, ..contrib() };
    let copy = Header { flags: Flags::REPLICA.union(Flags::CONGESTION), ..sum };
    let holds = Header {
        members: Members(0b1111),
        group: credit.group,
        ..bare(Kind::State, Outcome::Stale)
    };
    let repair = Header {
        flags: Flags::REPLICA,
        cookie: COOKIE_UP,
        members: Members(0x1_0000_0007),
        ..credit
    };
    let payload = i32_payload();
    let padding = vec![0; payload.len()];
    vec![
        valid("pull-credit", "releases one sum of ranks 0, 1 and 3", Ipv4, &credit, &[]),
        valid("pull-padded", "a credit as long as its sum, to a switch", Ipv4, &credit, &padding),
        valid("pull-direct", "asks a member itself", Ipv6, &direct, &[]),
        valid("pull-repair", "a replica asks the server's log", Ipv4, &repair, &[]),
        valid("sum", "of three members, to the server", Ipv4, &sum, &payload),
        valid("sum-replica", "its copy for the replica", Ipv4, &copy, &payload),
        valid("state-stale-sum", "a slot holds a rank outside the mask", Ipv4, &holds, &[]),
    ]
}

fn models() -> Vec<Vector> {
    let group = GroupId::new(ROW_MODEL, 0xfffe);
    let request = Header { cookie: COOKIE_UP, group, ..bare(Kind::Contrib, Outcome::None) };
    let relayed = Header {
        flags: Flags::REPLICA,
        members: Members(1 << 40),
        chunk: ChunkIndex(9),
        ..request
    };
    let answer = Header {
        group,
        element_type: ElementType::F32,
        operation: Operation::None,
        count: 4,
        members: Members(0b101),
        ..bare(Kind::Answer, Outcome::None)
    };
    let version = Header { group: GroupId::new(ROW_MODEL, 0), ..bare(Kind::Status, Outcome::None) };
    let newest = Header { group, chunk: ChunkIndex(0x0003_fffe), ..bare(Kind::Ack, Outcome::None) };
    vec![
        valid("model-version", "which version is the newest", Ipv4, &version, &[]),
        valid("model-newest", "version 262,142", Ipv4, &newest, &[]),
        valid(
            "model-request",
            "an empty contribution: rank 2 asks for a chunk",
            Ipv4,
            &request,
            &[],
        ),
        valid("model-relayed", "box 40 asks for it", Ipv6, &relayed, &[]),
        valid("model-answer", "to ranks 0 and 2", Ipv4, &answer, &f32_payload()),
    ]
}

fn decisions() -> Vec<Vector> {
    let direct = GroupId::new(ROW_DIRECT + 2, 17);
    let status = Header {
        group: direct,
        element_type: ElementType::F32,
        count: 256,
        ..bare(Kind::Status, Outcome::None)
    };
    let committed = Header {
        group: direct,
        chunk: ChunkIndex(41),
        members: Members(0b100),
        ..bare(Kind::Ack, Outcome::Committed)
    };
    let logged = Header {
        flags: Flags::REPLICA,
        element_type: ElementType::I32,
        exponent: -12,
        count: 3,
        ..committed
    };
    let wanted = Header {
        group: GroupId::new(ROW_LOG, 0),
        chunk: ChunkIndex(42),
        ..bare(Kind::Status, Outcome::None)
    };
    vec![
        valid("status-direct", "rank 2 offers its update 17", Ipv4, &status, &[]),
        valid("ack-direct", "it made version 41", Ipv4, &committed, &[]),
        valid("ack-log", "the decision, for the replica", Ipv4, &logged, &[]),
        valid("status-log", "the replica wants order 42 next", Ipv4, &wanted, &[]),
    ]
}

fn channels() -> Vec<Vector> {
    let join = Hello { life: welcome().life, token: welcome().token, ..Hello::new(Phase::Join) };
    let opened = Hello { window: 0, shards: 1, session: 0, step_bits: 0, ..welcome() };
    [
        ("channel-worker-join", "rank 2 opens a channel", ROW_WORKER_CHANNEL, join),
        ("channel-worker-welcome", "it is open", ROW_WORKER_CHANNEL, opened),
        ("channel-box-join", "box 2 opens a channel", ROW_BOX_CHANNEL, join),
    ]
    .into_iter()
    .map(|(name, what, row, hello)| {
        let mut body = vec![0; hello.body_len()];
        hello.emit(&[], &mut body);
        let header = Header {
            cookie: Cookie(0),
            group: GroupId::new(row, 0),
            chunk: ChunkIndex(0),
            members: Members(0b100),
            ..bare(Kind::Hello, Outcome::None)
        };
        let made = valid(name, what, Ipv4, &header, &body);
        Vector { hello: Some(HelloFields::new(&hello, &[])), ..made }
    })
    .collect()
}
