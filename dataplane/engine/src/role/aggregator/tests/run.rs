//! Runs against the same frames one by one.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;
use weft_control::SumOrder;
use weft_wire::Nanos;
use weft_wire::frame::Udp;
use weft_wire::header::{CRC_AT, ElementType, Flags, HEADER_LEN, Kind, Operation, Outcome};
use weft_wire::hello::{Hello, Integrity, Overflow, Phase as Step};

use super::super::Aggregator;
use super::quick::mend;
use super::rig::*;
use crate::role::Verdict;
use crate::role::{RunIndex, Taken};
use crate::table::{BoxConfig, RowConfig};

/// A frame in a buffer with room behind it.
#[derive(Clone, Debug)]
struct Buffer {
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    fn new(frame: &[u8]) -> Self {
        let mut bytes = vec![0xee; MAX_FRAME];
        bytes[..frame.len()].copy_from_slice(frame);
        Self { bytes, len: frame.len() }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

/// What became of a frame: the verdict, and the bytes that leave.
pub(super) type Fate = (Verdict, Vec<u8>);

pub(super) fn one_by_one(aggregator: &mut Aggregator, now: Nanos, burst: &[Vec<u8>]) -> Vec<Fate> {
    burst.iter().map(|frame| decide(aggregator, now, &mut Buffer::new(frame))).collect()
}

fn decide(aggregator: &mut Aggregator, now: Nanos, frame: &mut Buffer) -> Fate {
    let verdict = aggregator.handle_frame(now, &mut frame.bytes, frame.len);
    (verdict, leaving(verdict, frame))
}

fn leaving(verdict: Verdict, frame: &Buffer) -> Vec<u8> {
    match verdict {
        Verdict::Send { len } | Verdict::Multicast { len, .. } => frame.bytes[..len].to_vec(),
        _ => Vec::new(),
    }
}

/// As a lane does it.
pub(super) fn in_runs(aggregator: &mut Aggregator, now: Nanos, burst: &[Vec<u8>]) -> Vec<Fate> {
    let mut lane = Lane::default();
    let fates = burst.iter().map(|frame| lane.handle(aggregator, now, frame).0).collect();
    lane.sum_all(aggregator);
    fates
}

/// What leaves, for of what a message brings only that is told: the rest is in the counters.
fn leave(mut fates: Vec<Fate>) -> Vec<Fate> {
    for (verdict, _) in &mut fates {
        if matches!(verdict, Verdict::Drop(_)) {
            *verdict = Verdict::Hold;
        }
    }
    fates
}

/// As a lane does it where the port joins what a message brings, and how many were taken so: frames
/// after each other that differ in their datagrams alone.
fn joined(aggregator: &mut Aggregator, now: Nanos, burst: &[Vec<u8>]) -> (Vec<Fate>, usize) {
    let (mut fates, mut taken) = (Vec::new(), 0);
    let is_like = |one: &Vec<u8>, other: &Vec<u8>| {
        one.len() == other.len() && one.get(..42) == other.get(..42)
    };
    for message in burst.chunk_by(is_like) {
        let whole = |udp: &Udp| udp.payload_range().end == message[0].len();
        let udp = Udp::parse(&message[0]).ok().filter(whole);
        let mut frames = message;
        while let Some(first) = frames.first() {
            let mut count = 0;
            if let Some(udp) = &udp {
                let datagrams = frames.iter().flat_map(|frame| frame[42..].to_vec());
                let mut datagrams: Vec<u8> = datagrams.collect();
                count = aggregator.handle_run(now, udp, &mut datagrams, udp.payload_len);
            }
            fates.extend((0..count).map(|_| (Verdict::Hold, Vec::new())));
            if count == 0 {
                fates.push(decide(aggregator, now, &mut Buffer::new(first)));
            }
            taken += count;
            frames = &frames[count.max(1)..];
        }
    }
    (leave(fates), taken)
}

/// The frames that wait to be summed, by run.
#[derive(Default)]
struct Lane {
    runs: BTreeMap<usize, Vec<Buffer>>,
}

impl Lane {
    /// What becomes of a frame, and how many were summed with it.
    fn handle(&mut self, aggregator: &mut Aggregator, now: Nanos, frame: &[u8]) -> (Fate, usize) {
        let mut frame = Buffer::new(frame);
        match aggregator.take(now, frame.as_ref()) {
            Taken::Wait(run) => {
                self.runs.entry(run.index()).or_default().push(frame);
                ((Verdict::Hold, Vec::new()), 0)
            }
            Taken::Drop(reason) => ((Verdict::Drop(reason), Vec::new()), 0),
            Taken::Sum(run) => {
                self.runs.entry(run.index()).or_default().push(frame);
                self.sum(aggregator, run)
            }
            Taken::Else => {
                self.sum_all(aggregator);
                (decide(aggregator, now, &mut frame), 0)
            }
        }
    }

    /// Sums a run, and holds its copies against the answer.
    fn sum(&mut self, aggregator: &mut Aggregator, run: RunIndex) -> (Fate, usize) {
        let mut frames = self.runs.remove(&run.index()).unwrap();
        let verdict = aggregator.sum_run(run, &mut frames);
        let (last, others) = frames.split_last().unwrap();
        let answer = leaving(verdict, last);
        if let Verdict::Multicast { len, lease } = verdict {
            for (member, frame) in (1..).zip(others.iter().rev()) {
                let mut copy = answer.clone();
                aggregator.readdress(lease, member, &mut copy, len);
                assert_eq!(frame.bytes[..len], copy, "the copy to member {member}");
            }
        }
        ((verdict, answer), frames.len())
    }

    fn sum_all(&mut self, aggregator: &mut Aggregator) {
        while let Some(run) = aggregator.waiting_run() {
            assert_eq!(self.sum(aggregator, run).0, (Verdict::Hold, Vec::new()));
        }
        assert!(self.runs.is_empty());
    }
}

/// Everything that a lane reports, and what its slots hold.
fn state(aggregator: &Aggregator) -> Vec<String> {
    let mut lines = vec![format!("{:?}", aggregator.stats())];
    lines.extend(aggregator.jobs().map(|job| format!("{job:?}")));
    for lease in aggregator.leases() {
        lines.push(format!("{:?} {:?}", lease.phase(), lease.present()));
        lines.extend(lease.members().map(|member| format!("{member:?}")));
        for bank in lease.slots().occupied() {
            let mut data = vec![0; usize::from(ELEMENTS) * lease.row().element_type.len_bytes()];
            if bank.has_data() {
                lease.slots().store().emit(lease.slots().locate(bank.step()), &mut data);
            }
            lines.push(format!("{bank:?} {data:?}"));
        }
    }
    lines
}

fn formed(config: &BoxConfig, members: u8) -> (Aggregator, Vec<Member>) {
    let mut aggregator = aggregator(config.clone(), 1);
    let mut group: Vec<Member> =
        (0..members).map(|rank| Member::new(&config.rows[0], rank, 100)).collect();
    form(&mut aggregator, &mut group);
    (aggregator, group)
}

/// A JOIN with which member 0 begins a new life, and the lease a new epoch.
fn rejoin(aggregator: &mut Aggregator, row: &RowConfig) -> Vec<u8> {
    let reborn = Member::new(row, 0, 200);
    let hello = reborn.hello(Hello::new(Step::Hello), &[]);
    let challenge = send(aggregator, hello).unwrap().hello.unwrap();
    let mut body = Hello::new(Step::Join);
    body.token = challenge.token;
    reborn.hello(body, &[])
}

/// What is odd about a frame.
#[derive(Clone, Copy, Debug)]
enum Twist {
    None,
    FlippedBit(usize),
    WrongCrc,
    Status,
    Marked,
    Flagged,
    OtherExponent,
    Rejoin,
    Cut,
    Padded,
}

fn twists() -> impl Strategy<Value = Twist> {
    prop_oneof![
        20 => Just(Twist::None),
        2 => (0..(42 + HEADER_LEN) * 8).prop_map(Twist::FlippedBit),
        1 => Just(Twist::WrongCrc),
        1 => Just(Twist::Status),
        1 => Just(Twist::Marked),
        1 => Just(Twist::Flagged),
        1 => Just(Twist::OtherExponent),
        1 => Just(Twist::Rejoin),
        1 => Just(Twist::Cut),
        1 => Just(Twist::Padded),
    ]
}

/// As a member sends it that was told of no CRC.
fn unsealed(mut frame: Vec<u8>) -> Vec<u8> {
    frame[42 + CRC_AT..][..4].fill(0);
    frame
}

fn twisted(member: &Member, row: &RowConfig, step: u32, bits: u32, twist: Twist) -> Vec<u8> {
    let mut header = member.header(Kind::Contrib, step);
    (header.element_type, header.operation) = (row.element_type, row.operation);
    header.exponent = i8::from(matches!(twist, Twist::OtherExponent));
    if matches!(twist, Twist::Flagged) {
        header.flags = Flags::CLAMPED;
    }
    let words: Vec<u8> = (0..u32::from(ELEMENTS))
        .flat_map(|at| bits.wrapping_mul(at * 2 + 1).to_be_bytes())
        .take(header.payload_len())
        .collect();
    let mut frame = member.frame(&header, &words);
    if row.integrity == Integrity::None && bits.is_multiple_of(2) {
        frame = unsealed(frame);
    }
    match twist {
        Twist::Status => return member.status(step),
        Twist::FlippedBit(bit) => {
            frame[bit / 8] ^= 1 << (bit % 8);
            mend(&mut frame, true, true);
        }
        Twist::WrongCrc => *frame.last_mut().unwrap() ^= 1,
        Twist::Marked => {
            frame[15] |= 0b11;
            mend(&mut frame, true, false);
        }
        Twist::Cut => frame.truncate(frame.len() - 1),
        Twist::Padded => frame.extend([0x55; 7]),
        Twist::None | Twist::Flagged | Twist::OtherExponent | Twist::Rejoin => (),
    }
    frame
}

/// Kinds of rows: those whose contributions are summed in runs, and some whose are not.
fn rows() -> impl Strategy<Value = (RowConfig, Option<u64>)> {
    let sums = prop_oneof![
        3 => Just((ElementType::I32, Operation::Sum, SumOrder::Arrival)),
        3 => Just((ElementType::F32, Operation::Sum, SumOrder::Arrival)),
        1 => Just((ElementType::F32, Operation::Sum, SumOrder::Rank)),
        1 => Just((ElementType::I32, Operation::Max, SumOrder::Arrival)),
        1 => Just((ElementType::Bf16, Operation::Sum, SumOrder::Arrival)),
    ];
    let overflows = prop_oneof![4 => Just(Overflow::Wrap), 1 => Just(Overflow::Clamp)];
    let integrities = prop_oneof![
        4 => Just(Integrity::Crc32c),
        4 => Just(Integrity::None),
        1 => Just(Integrity::Checksum16),
    ];
    let exponents = prop_oneof![Just(Some(0)), Just(None)];
    // Enough for about ten frames: pays for a formation in a second, and next to nothing between
    // two bursts.
    let rates = prop_oneof![6 => Just(None), 1 => Just(Some(200_000_u64))];
    (2..7_u8, sums, overflows, integrities, exponents, rates).prop_map(
        |(members, (element_type, operation, sum_order), overflow, integrity, exponent, rate)| {
            let is_float = element_type != ElementType::I32;
            let overflow = if is_float { Overflow::Wrap } else { overflow };
            let exponent = if is_float { Some(0) } else { exponent };
            let numbers = RowConfig { element_type, operation, sum_order, ..row(0, 0, members) };
            (RowConfig { overflow, integrity, exponent, ..numbers }, rate)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// However frames fall into bursts, answers, drops, counters and slots are those of the same
    /// frames one by one.
    #[test]
    fn any_split_into_bursts_is_as_one_by_one(
        (row, rate) in rows(),
        clumps in proptest::collection::vec(
            (0..2_u32, 0..3_u8, proptest::collection::vec((0..6_u8, any::<u32>(), twists()), 1..3)),
            1..14,
        ),
        order in 1..5_usize,
        cuts in proptest::collection::vec(1..33_usize, 1..8),
    ) {
        let mut config = config(vec![row.clone()]);
        if let Some(rate) = rate {
            config.jobs[0].rate_bytes_per_sec = Some(rate);
            config.jobs[0].burst_bytes = 2048;
        }
        let members = u8::try_from(row.members.len()).unwrap();
        let ((mut single, group), (mut bursts, _)) = (formed(&config, members), formed(&config, members));
        let (mut messages, _) = formed(&config, members);
        let join = rejoin(&mut single, &row);
        prop_assert_eq!(&join, &rejoin(&mut bursts, &row));
        prop_assert_eq!(&join, &rejoin(&mut messages, &row));
        // Steps advance slowly; all members contribute to so many in turn, with odd frames between.
        let mut frames = Vec::new();
        let mut block = Vec::new();
        for (index, (ahead, from, odd)) in clumps.iter().enumerate() {
            let step = u32::try_from(index / 2).unwrap() + ahead;
            block.push((step, from));
            for rank in (0..members).filter(|_| block.len() == order || index + 1 == clumps.len()) {
                for (step, from) in &block {
                    let rank = (rank + *from) % members;
                    let bits = (step + 7).wrapping_mul(0x9e37_79b9) ^ u32::from(rank) << 23;
                    frames.push(twisted(&group[usize::from(rank)], &row, *step, bits, Twist::None));
                }
            }
            block.truncate(if block.len() == order { 0 } else { order });
            for (rank, bits, twist) in odd {
                let member = &group[usize::from(rank % members)];
                let at = frames.len().saturating_sub(usize::from(*rank % members));
                if matches!(twist, Twist::Rejoin) && index > 6 {
                    frames.insert(at, join.clone());
                } else {
                    frames.insert(at, twisted(member, &row, step, *bits, *twist));
                }
            }
        }
        let (mut rest, mut cuts) = (&frames[..], cuts.iter().cycle());
        let mut time = 1;
        while !rest.is_empty() {
            let (burst, behind) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
            let now = Nanos(time);
            let fates = one_by_one(&mut single, now, burst);
            prop_assert_eq!(in_runs(&mut bursts, now, burst), &fates[..]);
            prop_assert_eq!(joined(&mut messages, now, burst).0, leave(fates));
            prop_assert_eq!(state(&bursts), state(&single));
            prop_assert_eq!(state(&messages), state(&single));
            (rest, time) = (behind, time + 1000);
        }
    }
}

/// All but those that complete their steps, which become answers.
#[test]
fn a_members_message_is_taken_at_once() {
    let (mut aggregator, group, _) = open(2);
    let message = |rank: usize| -> Vec<Vec<u8>> {
        (0..2).map(|step| group[rank].contribution(step, 1)).collect()
    };
    assert_eq!(joined(&mut aggregator, Nanos(0), &message(0)).1, 2);
    let (fates, taken) = joined(&mut aggregator, Nanos(0), &message(1));
    assert_eq!(taken, 0);
    assert!(fates.iter().all(|(verdict, _)| matches!(verdict, Verdict::Multicast { .. })));
    assert!(aggregator.takes_joined());
}

/// A message ends with what is left of a run; nothing but whole chunks is summed.
#[test]
fn a_datagram_that_is_no_whole_chunk_is_left() {
    let row = RowConfig { integrity: Integrity::None, ..row(0, 0, 2) };
    let (mut aggregator, group) = formed(&config(vec![row]), 2);
    let frames = [0, 1].map(|step| unsealed(group[0].contribution(step, 1)));
    let udp = Udp::parse(&frames[0]).unwrap();
    let len = udp.payload_len;
    let whole = frames.map(|frame| frame[42..].to_vec());
    let mut longer = [&whole[0][..], &[0; 4]].concat();
    assert_eq!(aggregator.handle_run(Nanos(0), &udp, &mut longer, len + 4), 0);
    let mut cut = whole.concat();
    cut.truncate(2 * len - 4);
    assert_eq!(aggregator.handle_run(Nanos(0), &udp, &mut cut, len), 1);
}

/// How many contributions are summed at once, whenever some are, for (rank, step) after another;
/// at the end of the burst all others are.
fn runs_of(aggregator: &mut Aggregator, group: &[Member], burst: &[(usize, u32)]) -> Vec<usize> {
    let mut lane = Lane::default();
    let mut handle = |(rank, step): &(usize, u32)| {
        lane.handle(aggregator, Nanos(0), &group[*rank].contribution(*step, 1)).1
    };
    let counts: Vec<usize> = burst.iter().map(&mut handle).filter(|count| *count > 0).collect();
    lane.sum_all(aggregator);
    counts
}

#[test]
fn a_run_ends_with_its_step_and_at_four() {
    let (mut aggregator, group, _) = open(6);
    let burst = [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (0, 1), (1, 1)];
    assert_eq!(runs_of(&mut aggregator, &group, &burst), [4, 2]);
    assert_eq!(aggregator.jobs().next().unwrap().1.chunks_completed, 1);
    assert_eq!(aggregator.jobs().next().unwrap().1.contributions_added, 8);
}

#[test]
fn contributions_to_a_step_need_not_stand_one_behind_another() {
    let (mut aggregator, group, _) = open(3);
    let burst = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1), (2, 0), (0, 2), (1, 2)];
    assert_eq!(runs_of(&mut aggregator, &group, &burst), [3, 3]);
    let answer = send(&mut aggregator, group[2].contribution(2, 1)).unwrap();
    assert_eq!(answer.values, vec![3; 4], "what waited when the burst ended was added");
}

#[test]
fn what_waits_is_added_before_anything_else_is_handled() {
    let (mut aggregator, group, _) = open(3);
    // The fourth is a repeat.
    let burst = [(0, 0), (1, 0), (0, 1), (0, 0), (1, 1), (2, 0), (2, 1)];
    assert_eq!(runs_of(&mut aggregator, &group, &burst), [1, 2]);
    assert_eq!(aggregator.jobs().next().unwrap().1.duplicates, 1);
    assert_eq!(send(&mut aggregator, group[0].status(1)).unwrap().values, vec![3; 4]);
}

#[test]
fn a_run_takes_no_contribution_of_another_length() {
    let (mut aggregator, group, _) = open(3);
    let mut lane = Lane::default();
    lane.handle(&mut aggregator, Nanos(0), &group[0].contribution(0, 1));
    let ((_, told), _) = lane.handle(&mut aggregator, Nanos(0), &group[1].last(0, 4, 4));
    assert_eq!(read(&told).header.outcome, Outcome::MISMATCH);
}

#[test]
fn a_job_with_a_quota_has_runs() {
    let mut config = config(vec![row(0, 0, 3)]);
    (config.jobs[0].rate_bytes_per_sec, config.jobs[0].burst_bytes) = (Some(1_000_000), 60_000);
    let (mut aggregator, group) = formed(&config, 3);
    assert_eq!(runs_of(&mut aggregator, &group, &[(0, 0), (1, 0), (2, 0)]), [3]);
}

#[test]
fn a_burst_of_more_steps_than_may_wait_is_summed_all_the_same() {
    let mut wide = row(0, 0, 2);
    wide.window = 128;
    let mut config = config(vec![wide]);
    config.jobs[0].slots_max = 128;
    let (mut aggregator, group) = formed(&config, 2);
    let burst: Vec<(usize, u32)> = (0..100).map(|step| (0, step)).collect();
    assert!(runs_of(&mut aggregator, &group, &burst).is_empty());
    for step in [0, 63, 64, 65, 99] {
        let answer = send(&mut aggregator, group[1].contribution(step, 1)).unwrap();
        assert_eq!(answer.values, vec![2; 4], "step {step}");
    }
}
