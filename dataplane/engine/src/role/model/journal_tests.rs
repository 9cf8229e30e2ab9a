//! Files that are cut, damaged, or another job's.

use alloc::vec;
use alloc::vec::Vec;

use weft_kernel::Kernels;
use weft_wire::header::{ElementType, Outcome};
use weft_wire::{GroupId, JobId, Members, Rank};

use super::journal::*;
use super::{DecidedUpdate, ModelState, Replay, WorkerOutcomes};
use crate::push::{Event, OrderNumber, Version};
use crate::role::server::ModelConfig;

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

/// Three records, and where each ends.
fn journal() -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::new();
    JournalHeader::new(&model(), 2).begin_journal(&mut bytes);
    let sum: Vec<u8> = [1i32, 2, 3, 0].iter().flat_map(|v| v.to_be_bytes()).collect();
    let forsworn = Record::Forsworn {
        rank: Rank::new(1).unwrap(),
        life: 6,
        group: GroupId::new(8, 8),
        version: Version(1),
    };
    let mut ends = vec![bytes.len()];
    for record in
        [Record::Decision(decision(9, &sum)), forsworn, Record::Decision(decision(10, &sum))]
    {
        record.write(&mut bytes);
        ends.push(bytes.len());
    }
    (bytes, ends)
}

/// The records that can be read, or where the damage is.
fn read(bytes: &[u8]) -> Result<(usize, bool), u64> {
    let (_, mut records) = Records::new(bytes).map_err(|damage| damage.offset)?;
    let mut count = 0;
    while records.next_record().map_err(|damage| damage.offset)?.is_some() {
        count += 1;
    }
    Ok((count, records.is_cut()))
}

#[test]
fn a_journal_that_is_cut_anywhere_gives_what_is_whole() {
    let (bytes, ends) = journal();
    for len in 0..=bytes.len() {
        let cut = &bytes[..len];
        if len < ends[0] {
            assert!(Records::is_unused(cut) && read(cut).is_err());
            continue;
        }
        let whole = ends.iter().filter(|end| **end <= len).count() - 1;
        assert_eq!(read(cut), Ok((whole, !ends.contains(&len))), "cut at {len}");
        // What a file system has promised but not written.
        let mut grown = cut.to_vec();
        grown.resize(len + 64, 0);
        if ends.contains(&len) {
            assert_eq!(read(&grown), Ok((whole, true)), "grown at {len}");
        }
    }
}

#[test]
fn damage_before_the_end_is_found_where_it_is() {
    let (bytes, ends) = journal();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        let record = ends.iter().filter(|end| **end <= at).count();
        match record {
            0 => assert_eq!(read(&damaged), Err(0), "byte {at}"),
            1 | 2 => assert_eq!(read(&damaged), Err(ends[record - 1] as u64), "byte {at}"),
            // The last record may be one that was never whole, unless its head is.
            _ => {
                let is_head = at < ends[2] + 12;
                let expected = if is_head { Err(ends[2] as u64) } else { Ok((2, true)) };
                assert_eq!(read(&damaged), expected, "byte {at}");
            }
        }
    }
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
    assert!(bytes.len() < 32 + 3 * record_len_max(&model()));
}

#[test]
fn a_checkpoint_is_whole_or_none() {
    let header = JournalHeader::new(&model(), 2);
    let mut bytes = Vec::new();
    write_checkpoint(&header, &state(), &mut bytes);
    let (read_header, read_state) = read_checkpoint(&bytes).unwrap();
    assert_eq!((read_header, &read_state), (header, &state()));
    assert_eq!(read_state.weights[1].to_bits(), (-0.0f32).to_bits());
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
    // Two decisions of it, and the forsworn group; its former life's were another's.
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
