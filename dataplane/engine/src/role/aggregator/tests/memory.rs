//! Members in memory that they share with the box: what goes there has no CRC (SPEC#handshake).

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::frame::Encap;
use weft_wire::header::CRC_AT;
use weft_wire::hello::Integrity;
use weft_wire::{MacAddr, Nanos};

use super::super::Aggregator;
use super::rig::*;
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::table::RowConfig;

/// A box with an open lease of two members, of which these are in memory; and what each was told
/// of its integrity.
fn open_with(row: &RowConfig, in_memory: [bool; 2]) -> (Aggregator, Vec<Member>, [Integrity; 2]) {
    open_at(aggregator(config(vec![row.clone()]), 1).with_memory(true), row, in_memory)
}

/// The same of this box.
fn open_at(
    mut aggregator: Aggregator,
    row: &RowConfig,
    in_memory: [bool; 2],
) -> (Aggregator, Vec<Member>, [Integrity; 2]) {
    let mut group = vec![Member::new(row, 0, 1), Member::new(row, 1, 2)];
    for (member, in_memory) in group.iter_mut().zip(in_memory) {
        if in_memory {
            move_to(member, MacAddr::MEMORY);
        }
    }
    form(&mut aggregator, &mut group);
    let told = [0, 1].map(|rank| {
        let answer = group[rank].join_at(&mut aggregator, None, Nanos(2_000_000_000));
        answer.hello.expect("a WELCOME").integrity
    });
    (aggregator, group, told)
}

fn move_to(member: &mut Member, mac: MacAddr) {
    let mut local = member.encap.source();
    local.mac = mac;
    member.encap = Encap::new(local, box_endpoint()).expect("the same addresses");
}

/// A contribution without a CRC.
fn bare(member: &Member, chunk: u32, value: i32) -> Vec<u8> {
    let mut frame = member.contribution(chunk, value);
    frame[DATAGRAM + CRC_AT..][..4].fill(0);
    frame
}

/// The CRC of the answer that completes a step.
fn crc_of_answer(aggregator: &mut Aggregator, mut frame: Vec<u8>) -> u32 {
    let len = frame.len();
    let verdict = aggregator.handle_frame(Nanos(0), &mut frame, len);
    assert!(matches!(verdict, Verdict::Multicast { .. }), "{verdict:?}");
    u32::from_be_bytes(*frame[DATAGRAM + CRC_AT..].first_chunk().expect("a header"))
}

#[test]
fn frames_between_a_box_and_members_in_memory_have_no_crc() {
    let (mut aggregator, group, told) = open_with(&row(0, 0, 2), [true, true]);
    assert_eq!(told, [Integrity::None; 2]);
    let first = bare(&group[0], 0, 1);
    assert!(aggregator.is_ordinary(&first));
    absorb(&mut aggregator, first);
    assert_eq!(crc_of_answer(&mut aggregator, bare(&group[1], 0, 2)), 0);
    let kept = send(&mut aggregator, group[1].status(0)).expect("the kept answer");
    assert_eq!(kept.values, [3; 4]);
    // A CRC that is carried counts.
    absorb(&mut aggregator, group[0].contribution(1, 1));
    let mut wrong = group[1].contribution(1, 2);
    wrong[DATAGRAM + CRC_AT] ^= 1;
    assert_eq!(send(&mut aggregator, wrong).unwrap_err(), DropReason::Integrity);
}

#[test]
fn one_member_elsewhere_has_answers_sealed_and_seals_its_own() {
    let (mut aggregator, group, told) = open_with(&row(0, 0, 2), [true, false]);
    assert_eq!(told, [Integrity::None, Integrity::Crc32c]);
    absorb(&mut aggregator, bare(&group[0], 0, 1));
    let refused = send(&mut aggregator, bare(&group[1], 0, 2)).unwrap_err();
    assert_eq!(refused, DropReason::Integrity, "on the short way");
    let len = bare(&group[1], 0, 2).len();
    let verdict = aggregator.handle_frame_the_long_way(Nanos(0), &mut bare(&group[1], 0, 2), len);
    assert_eq!(verdict, Verdict::Drop(DropReason::Integrity), "on the long way");
    assert_ne!(crc_of_answer(&mut aggregator, group[1].contribution(0, 2)), 0);
}

#[test]
fn a_member_that_comes_from_elsewhere_later_seals_again() {
    let (mut aggregator, mut group, _) = open_with(&row(0, 0, 2), [true, true]);
    move_to(&mut group[1], MacAddr([2, 0, 0, 0, 1, 1]));
    let answer = group[1].join_at(&mut aggregator, None, Nanos(3_000_000_000));
    assert_eq!(answer.hello.expect("a WELCOME").integrity, Integrity::Crc32c);
    absorb(&mut aggregator, bare(&group[0], 0, 1));
    let refused = send(&mut aggregator, bare(&group[1], 0, 2)).unwrap_err();
    assert_eq!(refused, DropReason::Integrity);
    assert_ne!(crc_of_answer(&mut aggregator, group[1].contribution(0, 2)), 0);
}

/// Whoever is on a wire may put any address into a frame.
#[test]
fn a_box_that_shares_no_memory_believes_nobody_to_be_there() {
    let row = row(0, 0, 2);
    let boxed = aggregator(config(vec![row.clone()]), 1);
    let (mut aggregator, group, told) = open_at(boxed, &row, [true, true]);
    assert_eq!(told, [Integrity::Crc32c; 2]);
    let refused = send(&mut aggregator, bare(&group[0], 0, 1)).unwrap_err();
    assert_eq!(refused, DropReason::Integrity);
    absorb(&mut aggregator, group[0].contribution(0, 1));
    assert_ne!(crc_of_answer(&mut aggregator, group[1].contribution(0, 2)), 0);
}

/// Only a CRC is left out: a switch asks for checksums whatever the way, and a job that asks for
/// nothing gets nothing.
#[test]
fn other_integrities_stay_as_they_are() {
    for integrity in [Integrity::Checksum16, Integrity::None] {
        let row = RowConfig { integrity, ..row(0, 0, 2) };
        let (_, _, told) = open_with(&row, [true, true]);
        assert_eq!(told, [integrity; 2]);
    }
}

/// Where the datagram begins.
const DATAGRAM: usize = 42;
