//! The short way of a contribution against the long way, which every frame may go.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;
use weft_wire::Nanos;
use weft_wire::header::Kind;

use super::super::Aggregator;
use super::rig::*;
use crate::role::Verdict;

/// What is left of a frame, and what the aggregator has counted.
#[derive(Debug, PartialEq)]
struct Outcome {
    verdict: Verdict,
    buffer: Vec<u8>,
    drops: Vec<u64>,
    transitions: Vec<u64>,
    added: u64,
}

fn outcome(aggregator: &Aggregator, verdict: Verdict, buffer: Vec<u8>) -> Outcome {
    let stats = aggregator.stats();
    Outcome {
        verdict,
        buffer,
        drops: stats.drops.iter().map(|(_, count)| count).collect(),
        transitions: stats.transitions.iter().map(|(_, count)| count).collect(),
        added: aggregator.jobs().map(|(_, job)| job.contributions_added).sum(),
    }
}

fn padded(frame: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; MAX_FRAME];
    buffer[..frame.len()].copy_from_slice(frame);
    buffer
}

fn long_way(aggregator: &mut Aggregator, frame: &[u8]) -> Outcome {
    let mut buffer = padded(frame);
    let verdict = aggregator.handle_frame_the_long_way(Nanos(7), &mut buffer, frame.len());
    outcome(aggregator, verdict, buffer)
}

fn either_way(aggregator: &mut Aggregator, frame: &[u8]) -> Outcome {
    let mut buffer = padded(frame);
    let verdict = aggregator.handle_frame(Nanos(7), &mut buffer, frame.len());
    outcome(aggregator, verdict, buffer)
}

#[test]
fn an_ordinary_contribution_goes_the_short_way() {
    let (mut aggregator, group, _) = open(3);
    let frame = group[0].contribution(0, 5);
    assert!(aggregator.is_ordinary(&frame));
    let mut other = frame.clone();
    other[42 + 5] ^= 1; // cookie
    assert!(!aggregator.is_ordinary(&other));
    either_way(&mut aggregator, &frame);
    assert!(!aggregator.is_ordinary(&frame), "a repeat is not ordinary");
}

/// What routers change, and what a sender puts into some of its frames.
#[test]
fn what_differs_from_frame_to_frame_leaves_it_ordinary() {
    let (aggregator, group, _) = open(3);
    let free = [
        (0, 0xff, "target MAC"),
        (11, 0xff, "source MAC"),
        (15, 0xff, "type of service"),
        (18, 0xff, "identification"),
        (19, 0xff, "identification"),
        (20, 0xc0, "don't fragment"),
        (22, 0xff, "hop limit"),
        (40, 0xff, "UDP checksum"),
        (41, 0xff, "UDP checksum"),
        (43, 0xf8, "flags"),
        (57, 1, "chunk"),
        (74, 0xff, "payload, and so the CRC"),
    ];
    for (at, bits, what) in free {
        let mut frame = group[1].contribution(0, 5);
        frame[at] ^= bits;
        mend(&mut frame, true, true);
        assert!(aggregator.is_ordinary(&frame), "{what}");
    }
}

#[test]
fn nothing_is_ordinary_before_the_lease_is_open() {
    let (open, group, row) = open(2);
    let frame = group[0].contribution(0, 5);
    let forming = aggregator(config(vec![row]), 1);
    assert!(open.is_ordinary(&frame));
    assert!(!forming.is_ordinary(&frame));
}

#[test]
fn both_ways_agree_on_every_flipped_bit() {
    let (_, group, _) = open(3);
    let whole = group[1].contribution(0, 5);
    for bit in 0..whole.len() * 8 {
        for mended in [false, true] {
            let (mut short, ..) = open(3);
            let (mut long, ..) = open(3);
            let mut frame = whole.clone();
            frame[bit / 8] ^= 1 << (bit % 8);
            mend(&mut frame, mended, mended);
            let outcomes = (either_way(&mut short, &frame), long_way(&mut long, &frame));
            assert_eq!(outcomes.0, outcomes.1, "bit {bit}, mended {mended}");
        }
    }
}

proptest! {
    /// Bits are flipped in the headers; the IP and CRC checksums may be put right again, so that
    /// the flip reaches the checks behind them.
    #[test]
    fn both_ways_agree_on_any_frame(
        flips in proptest::collection::vec((0..90_usize, 0..8_u32), 0..4),
        mend_ip in any::<bool>(),
        mend_crc in any::<bool>(),
        cut in proptest::option::of(0..90_usize),
        order in proptest::collection::vec((0..3_usize, 0..4_u32), 1..12),
    ) {
        let (mut short, group, _) = open(3);
        let (mut long, _, _) = open(3);
        for (index, (rank, step)) in order.iter().enumerate() {
            let mut frame = group[*rank].contribution(*step, 5);
            if index == order.len() - 1 {
                for (at, bit) in &flips {
                    frame[*at] ^= 1 << bit;
                }
                mend(&mut frame, mend_ip, mend_crc);
                frame.truncate(cut.unwrap_or(frame.len()));
            }
            prop_assert_eq!(either_way(&mut short, &frame), long_way(&mut long, &frame));
        }
    }
}

pub(crate) fn mend(frame: &mut [u8], ip: bool, crc: bool) {
    if crc {
        weft_wire::header::Packet::new_unchecked(&mut frame[42..]).seal(weft_kernel::crc32c);
    }
    if ip {
        frame[24..26].fill(0);
        let sum: u32 =
            frame[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        frame[24..26].copy_from_slice(&(!sum).to_be_bytes());
    }
}

#[test]
fn a_status_is_not_ordinary() {
    let (aggregator, group, _) = open(2);
    let header = group[0].header(Kind::Status, 0);
    assert!(!aggregator.is_ordinary(&group[0].frame(&header, &[])));
}
