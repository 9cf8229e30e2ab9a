//! Files that are cut, damaged, or another job's.

use alloc::vec;
use alloc::vec::Vec;

use weft_control::{Event, OrderNumber, Version};
use weft_kernel::Kernels;
use weft_wire::header::{ElementType, Outcome};
use weft_wire::{GroupId, JobId, Members, Rank};

use super::journal::*;
use super::{DecidedUpdate, ModelState, Replay, WorkerOutcomes};
use crate::role::model::ModelConfig;

fn model() -> ModelConfig {
    ModelConfig { elements: 2, momentum: 0.5, ..ModelConfig::new(JobId(4), 3) }
}

fn state() -> ModelState {
    let decided = DecidedUpdate {
        group: GroupId::new(7, 1),
        outcome: Outcome::Dropped,
        version: Version(1 << 40),
    };
    ModelState {
        version: Version(1 << 40),
        next_order: OrderNumber(9),
        weights: vec![1.5, -0.0, 3.0],
        momentum: vec![0.25, f32::MIN_POSITIVE, -7.0],
        workers: vec![
            WorkerOutcomes { life: 77, decided: vec![decided] },
            WorkerOutcomes::default(),
        ],
    }
}

fn decision(order: u64, sum: &[u8]) -> DecisionRecord<'_> {
    DecisionRecord {
        order: OrderNumber(order),
        group: GroupId::new(3, 2),
        outcome: Outcome::Committed,
        element_type: ElementType::I32,
        exponent: -1,
        scale: 0.5,
        version: Version((1 << 40) + order - 8),
        members: Members(0b01),
        audience: Members(0b11),
        old: Members(0b10),
        lives: Lives::Numbers(&[5, 6]),
        sum,
    }
}

/// A journal without records.
fn begun() -> Vec<u8> {
    let mut bytes = Vec::new();
    JournalHeader::new(&model(), 2).begin_journal(7, &mut bytes);
    bytes
}

/// Says that all so far is durable.
fn mark(bytes: &mut Vec<u8>, next: Option<u64>) {
    Mark { offset: bytes.len() as u64, next }.write(bytes);
}

/// Three records, and where each ends.
fn journal() -> (Vec<u8>, Vec<usize>) {
    let mut bytes = begun();
    let sum: Vec<u8> = [1i32, 2, 3, 0].iter().flat_map(|v| v.to_be_bytes()).collect();
    let withdrawn = Record::Withdrawn {
        rank: Rank::new(1).unwrap(),
        life: 6,
        group: GroupId::new(8, 8),
        version: Version(1),
    };
    let mut ends = vec![bytes.len()];
    for record in
        [Record::Decision(decision(9, &sum)), withdrawn, Record::Decision(decision(10, &sum))]
    {
        record.write(&mut bytes);
        ends.push(bytes.len());
    }
    (bytes, ends)
}

/// The records that can be read and how they end, or where the damage is.
fn read(bytes: &[u8]) -> Result<(usize, End), u64> {
    let (_, mut records) = Records::new(bytes).map_err(|damage| damage.offset)?;
    let mut count = 0;
    while records.next_record().map_err(|damage| damage.offset)?.is_some() {
        count += 1;
    }
    Ok((count, records.end().expect("it was read to its end")))
}

#[test]
fn a_journal_that_is_cut_anywhere_gives_what_is_whole() {
    let (bytes, ends) = journal();
    for len in 0..=bytes.len() {
        let cut = &bytes[..len];
        if len < ends[0] {
            assert_eq!(read(cut), Err(0), "a journal is never without its header");
            continue;
        }
        let whole = ends.iter().filter(|end| **end <= len).count() - 1;
        let end = if ends.contains(&len) { End::Open } else { End::Torn };
        assert_eq!(read(cut), Ok((whole, end)), "cut at {len}");
        // What a file system has promised but not written.
        let mut grown = cut.to_vec();
        grown.resize(len + 64, 0);
        if ends.contains(&len) {
            assert_eq!(read(&grown), Ok((whole, End::Torn)), "grown at {len}");
        }
        // What nobody could take for the remains of a crash.
        let mut damaged = cut.to_vec();
        damaged.resize(len + 64, 0xee);
        mark(&mut damaged, None);
        assert_eq!(read(&damaged), Err(ends[whole] as u64), "cut at {len}, and durable");
    }
}

/// The last record too: all of it is there, so its file was not cut.
#[test]
fn a_changed_octet_is_found_where_it_is() {
    let (bytes, ends) = journal();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        let record = ends.iter().filter(|end| **end <= at).count();
        let start = record.checked_sub(1).map_or(0, |before| ends[before]);
        assert_eq!(read(&damaged), Err(start as u64), "byte {at}");
    }
}

/// Three sectors of a sum, none of them zeros, behind a first record.
fn long() -> (Vec<u8>, usize) {
    let mut bytes = begun();
    Record::Decision(decision(9, &[1; 16])).write(&mut bytes);
    let start = bytes.len();
    Record::Decision(decision(10, &[3; 1500])).write(&mut bytes);
    (bytes, start)
}

/// The head of a record may be what was never written.
#[test]
fn zeros_behind_a_whole_sector_are_what_a_crash_leaves() {
    let mut bytes = begun();
    let len = |sum: &[u8]| {
        let mut record = Vec::new();
        Record::Decision(decision(9, sum)).write(&mut record);
        record.len()
    };
    let sum = vec![1; 1024 - bytes.len() - len(&[])];
    Record::Decision(decision(9, &sum)).write(&mut bytes);
    assert_eq!(bytes.len(), 1024);
    bytes.resize(1024 + 64, 0);
    assert_eq!(read(&bytes), Ok((1, End::Torn)));
}

#[test]
fn a_sector_that_was_never_written_is_what_a_crash_leaves() {
    let (bytes, start) = long();
    let sectors = start / 512..bytes.len().div_ceil(512);
    assert!(sectors.len() >= 3);
    for sector in sectors {
        let lost = (sector * 512).max(start)..(sector * 512 + 512).min(bytes.len());
        let mut torn = bytes.clone();
        torn[lost.clone()].fill(0);
        assert_eq!(read(&torn), Ok((1, End::Torn)), "sector {sector}");
        // The disk had it once.
        mark(&mut torn, None);
        assert_eq!(read(&torn), Err(start as u64), "sector {sector}");
        let mut damaged = bytes.clone();
        damaged[lost.start + 1..lost.end].fill(0);
        if damaged[lost.start] != 0 {
            assert_eq!(read(&damaged), Err(start as u64), "sector {sector}, but for an octet");
        }
    }
}

/// A sum may be all zeros, so only a mark can say that such a record is not the remains of a crash.
#[test]
fn what_is_before_a_mark_was_durable() {
    let mut bytes = begun();
    Record::Decision(decision(9, &[0; 1500])).write(&mut bytes);
    let end = bytes.len();
    mark(&mut bytes, None);
    let whole = bytes.len();
    assert_eq!(read(&bytes), Ok((1, End::Open)));
    for at in 40..end {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert_eq!(read(&damaged), Err(40), "byte {at}");
    }
    for at in end..whole {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert_eq!(read(&damaged), Err(end as u64), "byte {at} of the mark");
        assert_eq!(read(&bytes[..at]), Ok((1, if at == end { End::Open } else { End::Torn })));
    }
    // Nor does a mark that is damaged, behind a record that may be the remains of a crash.
    for at in end..whole {
        let mut torn = bytes.clone();
        torn[40..end].fill(0);
        assert_eq!(read(&torn), Err(40), "it is whole");
        torn[at] ^= 1;
        assert_eq!(read(&torn), Ok((0, End::Torn)), "byte {at} of the mark");
    }
    // The mark of another place marks nothing.
    let mut moved = bytes[..end - 7].to_vec();
    moved.extend(&bytes[end..]);
    assert_eq!(read(&moved), Ok((0, End::Torn)));
    let mut stray = bytes.clone();
    stray.extend(&bytes[end..]);
    assert_eq!(read(&stray), Err(whole as u64));
}

#[test]
fn the_last_mark_names_the_next_journal_and_nothing_follows_it() {
    let (mut bytes, ends) = journal();
    mark(&mut bytes, Some(8));
    let (_, records) = Records::new(&bytes).unwrap();
    assert_eq!(records.number(), Some(7));
    assert_eq!(read(&bytes), Ok((3, End::Finished(8))));
    bytes.push(0);
    assert_eq!(read(&bytes), Err(ends[3] as u64));
}

#[test]
fn records_come_back_as_they_were_written() {
    let (bytes, _) = journal();
    let (header, mut records) = Records::new(&bytes).unwrap();
    assert_eq!(header, JournalHeader::new(&model(), 2));
    let Some(Record::Decision(read)) = records.next_record().unwrap() else { panic!("a decision") };
    let sum: Vec<u8> = [1i32, 2, 3, 0].iter().flat_map(|v| v.to_be_bytes()).collect();
    assert_eq!((read.lives.get(0), read.lives.get(1), read.lives.get(2)), (5, 6, 0));
    assert_eq!(DecisionRecord { lives: Lives::Numbers(&[5, 6]), ..read }, decision(9, &sum));
    assert_eq!(read.outcome_of(Rank::new(0).unwrap()), Outcome::Committed);
    assert_eq!(read.outcome_of(Rank::new(1).unwrap()), Outcome::Dropped);
    assert!(bytes.len() < 40 + 3 * record_len_max(&model()));
}

#[test]
fn a_checkpoint_is_whole_or_none() {
    let header = JournalHeader::new(&model(), 2);
    let mut bytes = Vec::new();
    write_checkpoint(&header, 12, &state(), &mut bytes);
    let read = read_checkpoint(&bytes).unwrap();
    assert_eq!(read, Checkpoint { header, journal: Some(12), state: state() });
    assert_eq!(read.state.weights[1].to_bits(), (-0.0f32).to_bits());
    for len in 0..bytes.len() {
        assert!(read_checkpoint(&bytes[..len]).is_err(), "cut at {len}");
        let mut damaged = bytes.clone();
        damaged[len] ^= 0x10;
        assert!(read_checkpoint(&damaged).is_err(), "byte {len}");
    }
}

#[test]
fn a_replay_takes_each_decision_once_and_refuses_a_gap() {
    let (bytes, _) = journal();
    let mut replay = Replay::new(&model(), 2, &state(), Kernels::detect()).unwrap();
    let (_, mut records) = Records::new(&bytes).unwrap();
    let mut all = Vec::new();
    while let Some(record) = records.next_record().unwrap() {
        all.push(record);
    }
    let gap = replay.apply(&all[2]).unwrap_err();
    assert!(alloc::format!("{gap}").contains("one is missing"), "{gap}");
    for record in &all {
        replay.apply(record).unwrap();
        // A checkpoint may hold what the journal repeats.
        assert_eq!(replay.apply(record).unwrap(), None);
    }
    let end = replay.state();
    assert_eq!((end.version.0, end.next_order.0), ((1 << 40) + 2, 11));
    // h = 0.5 h + 0.25 u, twice; the unit of u is 2^-1, its scale 0.5.
    assert_eq!(end.momentum[0], 0.5 * (0.5 * 0.25 + 0.25) + 0.25);
    // Two decisions of it, and the withdrawn group; its former life's were another's.
    assert_eq!((end.workers[1].life, end.workers[1].decided.len()), (6, 3));
    assert_eq!((end.workers[0].life, end.workers[0].decided.len()), (5, 2));
    let other = ModelConfig::new(JobId(4), 4);
    assert!(Replay::new(&other, 2, &state(), Kernels::detect()).is_err());
}

#[test]
fn a_run_of_unused_numbers_is_one_record() {
    let mut replay = Replay::new(&model(), 2, &state(), Kernels::detect()).unwrap();
    let next = replay.state().next_order.0;
    let version = replay.state().version;
    let run = |order, end| {
        Record::Decision(DecisionRecord {
            outcome: Outcome::Void,
            version,
            members: Members(end),
            audience: Members::EMPTY,
            old: Members::EMPTY,
            lives: Lives::Numbers(&[]),
            ..decision(order, &[])
        })
    };
    let told = replay.apply(&run(next, next + 5_000_000)).unwrap();
    let Some(Event::Decided { order, members, .. }) = told else { panic!("{told:?}") };
    assert_eq!((order.0, members), (next + 4_999_999, Members::EMPTY));
    assert_eq!(replay.state().next_order.0, next + 5_000_000);
    let backwards = replay.apply(&run(next + 5_000_000, next));
    assert!(backwards.is_err(), "it ends before it begins");
}

#[test]
fn the_longest_record_has_the_whole_sum_and_the_lives_of_all() {
    let model = ModelConfig { elements: 4, ..ModelConfig::new(JobId(4), 10) };
    let sum = [1; 3 * 4 * 4];
    let mut bytes = Vec::new();
    let all = DecisionRecord {
        audience: Members(u64::MAX),
        lives: Lives::Numbers(&[7; 64]),
        ..decision(9, &sum)
    };
    Record::Decision(all).write(&mut bytes);
    assert_eq!(bytes.len(), record_len_max(&model));
}

#[test]
fn a_record_of_every_element_type_comes_back_and_says_where_it_ends() {
    for element_type in [ElementType::None, ElementType::I32, ElementType::F32] {
        let mut bytes = begun();
        let written = DecisionRecord { element_type, ..decision(9, &[]) };
        Record::Decision(written).write(&mut bytes);
        let end = bytes.len() as u64;
        Record::Decision(written).write(&mut bytes);
        let (_, mut records) = Records::new(&bytes).unwrap();
        assert_eq!(records.offset(), 40);
        let read = records.next_record().unwrap();
        assert!(matches!(read, Some(Record::Decision(read)) if read.element_type == element_type));
        assert_eq!(records.offset(), end);
    }
}

/// Files are known by what they begin with, in every version.
#[test]
fn a_file_of_another_kind_or_version_is_refused_by_name() {
    let mut checkpoint = Vec::new();
    write_checkpoint(&JournalHeader::new(&model(), 2), 12, &state(), &mut checkpoint);
    assert_eq!((&begun()[..8], &checkpoint[..8]), (&b"WEFTJNL2"[..], &b"WEFTCKP2"[..]));
    let other = "it is no such file of Weft's";
    assert_eq!(Records::new(&checkpoint).unwrap_err().problem, other);
    assert_eq!(read_checkpoint(&begun()).unwrap_err().problem, other);
    let mut later = begun();
    later[7] = b'3';
    assert_eq!(Records::new(&later).unwrap_err().problem, "it is of another version of Weft");
    // Version 1 has no number.
    let mut older = begun()[..28].to_vec();
    older[7] = b'1';
    older.extend(weft_kernel::crc32c(&older).to_le_bytes());
    let (header, records) = Records::new(&older).unwrap();
    assert_eq!((header, records.number()), (JournalHeader::new(&model(), 2), None));
    assert_eq!(records.offset(), 32);
}
