//! The short way of a contribution against the long way, which every frame may go.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::header::{ElementType, Flags, Header};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{GroupId, Nanos};

use super::super::PushConfig;
use super::rig::*;
use crate::role::Verdict;
use crate::role::aggregator::tests::quick::mend;

/// What is left of a frame, and everything that the aggregator has counted and holds.
type Outcome = (Verdict, Vec<u8>, Vec<u64>, alloc::string::String);

fn outcome(rig: &mut Rig, frame: &[u8], is_short: bool) -> Outcome {
    let mut buffer = frame.to_vec();
    buffer.resize(1514, 0xee);
    let (now, len) = (rig.now, frame.len());
    let verdict = if is_short {
        rig.aggregator.handle_frame(now, &mut buffer, len)
    } else {
        rig.aggregator.handle_frame_the_long_way(now, &mut buffer, len)
    };
    let drops = rig.aggregator.stats().drops.iter().map(|(_, count)| count).collect();
    let report = rig.report(0);
    let slots = [0, 1].map(|chunk| report.slot_and_credit(open(), chunk));
    let said = rig.aggregator.gather().may_be_in_train();
    (verdict, buffer, drops, alloc::format!("{:?} {slots:?} {said}", report.stats()))
}

fn open() -> GroupId {
    group(5, 1)
}

fn rig(config: &PushConfig) -> Rig {
    let mut rig = Rig::new(vec![config.clone()]);
    rig.install(weft_control::GroupDescriptor {
        replicate: true,
        train_chunks: 1,
        ..descriptor(1, open(), &[0, 1])
    });
    rig
}

/// The same box twice: one may go the short way, the other goes the long way.
struct Pair(Rig, Rig);

impl Pair {
    fn new(config: &PushConfig) -> Self {
        Self(rig(config), rig(config))
    }

    fn agree_on(&mut self, frame: &[u8]) {
        let fates = (outcome(&mut self.0, frame, true), outcome(&mut self.1, frame, false));
        assert_eq!(fates.0, fates.1, "{frame:02x?}");
    }
}

fn configs() -> Vec<PushConfig> {
    let limited = PushConfig { rate_bytes_per_sec: Some(90_000), burst_bytes: 2048, ..push(1, 2) };
    vec![
        push(1, 2),
        PushConfig { integrity: Integrity::None, ..push(1, 2) },
        PushConfig { overflow: Overflow::Clamp, ..push(1, 2) },
        limited,
    ]
}

#[test]
fn an_ordinary_contribution_goes_the_short_way_once() {
    let mut rig = rig(&push(1, 2));
    let mut frame = rig.contribution(0, open(), 0, 5);
    let len = frame.len();
    let gather = rig.aggregator.gather_mut();
    assert!(gather.take_quickly(Nanos(1), &mut frame.clone(), len).is_some());
    assert!(gather.take_quickly(Nanos(1), &mut frame.clone(), len).is_none(), "a repeat");
    frame[42 + 7] ^= 1; // cookie
    assert!(gather.take_quickly(Nanos(1), &mut frame, len).is_none());
}

#[test]
fn both_ways_agree_on_whole_transfers() {
    for config in configs() {
        let mut pair = Pair::new(&config);
        for round in 0..8 {
            for chunk in 0..CHUNKS {
                let credit = pair.0.credit(open(), chunk, 0b11);
                // Half of the credits come before the last contribution.
                let is_early = (round + chunk) % 2 == 0;
                for rank in [0, 1] {
                    pair.agree_on(&pair.0.contribution(rank, open(), chunk, 7));
                    let flags = Flags::RETRANSMIT.union(Flags::CLAMPED);
                    let header = data_header(open(), chunk, ElementType::I32);
                    let marked = Header { flags, ..header };
                    pair.agree_on(&pair.0.worker_frame(0, rank, &marked, &[0x7f; 16]));
                    if is_early {
                        pair.agree_on(&credit);
                    }
                }
                pair.agree_on(&credit);
            }
        }
        assert_eq!(pair.0.poll().len(), pair.1.poll().len());
        while let Some(event) = pair.0.event() {
            assert_eq!(Some(event), pair.1.event());
        }
        assert_eq!(pair.1.event(), None);
    }
}

#[test]
fn both_ways_agree_on_every_flipped_bit() {
    for config in &configs()[..2] {
        let mut pair = Pair::new(config);
        let whole = pair.0.contribution(1, open(), 1, 5);
        let mut others: Vec<_> =
            [0, 41, 73, 74, whole.len() - 1].map(|len| whole[..len].to_vec()).into();
        // Of the payload the first byte stands for all.
        for bit in 0..(whole.len() - 15) * 8 {
            for mended in [false, true] {
                let mut frame = whole.clone();
                frame[bit / 8] ^= 1 << (bit % 8);
                mend(&mut frame, mended, mended && config.integrity == Integrity::Crc32c);
                others.push(frame);
            }
        }
        for frame in others {
            pair.agree_on(&frame);
            // Nobody is short of bytes, and no slot is taken.
            pair.0.now = Nanos(pair.0.now.0 + 1_000_000_000);
            pair.1.now = pair.0.now;
            if pair.0.report(0).stats().contributions_added > 0 {
                pair = Pair::new(config);
            }
        }
    }
}
