//! Pulls through the relay: one request up, one answer down to all who asked.

use weft_wire::header::{ElementType, Flags, Header, Kind, Outcome};
use weft_wire::rows::ROW_MODEL;
use weft_wire::{ChunkIndex, GroupId, JobId, Members};

use super::super::{PushConfig, Transition};
use super::rig::*;
use crate::drops::DropReason;
use crate::send::datagram::plain_header;

fn request(rig: &Rig, rank: usize, generation: u16, chunk: u32) -> alloc::vec::Vec<u8> {
    let header =
        plain_header(Kind::Contrib, JobId(1), GroupId::new(ROW_MODEL, generation), Members::EMPTY);
    rig.worker_frame(0, rank, &Header { chunk: ChunkIndex(chunk), ..header }, &[])
}

fn answer(rig: &Rig, generation: u16, chunk: u32, value: f32) -> alloc::vec::Vec<u8> {
    let header = Header {
        chunk: ChunkIndex(chunk),
        element_type: ElementType::F32,
        count: ELEMENTS,
        ..plain_header(Kind::Answer, JobId(1), GroupId::new(ROW_MODEL, generation), Members(1 << 2))
    };
    rig.server_frame(0, &header, &value.to_be_bytes().repeat(4))
}

#[test]
fn the_server_is_asked_once_and_its_answer_goes_to_all() {
    let mut rig = Rig::new(alloc::vec![push(1, 3)]);
    let up = rig.ask(&request(&rig, 0, 7, 1));
    assert_eq!((up.header.kind, up.target), (Kind::Contrib, rig.jobs[0].config.server.addr));
    assert_eq!((up.header.group, up.header.chunk.0), (GroupId::new(ROW_MODEL, 7), 1));
    assert_eq!((up.header.flags, up.header.members), (Flags::REPLICA, Members(1 << 2)));
    assert!(rig.send(&request(&rig, 2, 7, 1)).unwrap().is_empty(), "it has been asked for");
    let down = rig.send(&answer(&rig, 7, 1, 2.5)).unwrap();
    assert_eq!(down.len(), 2);
    for (out, rank) in down.iter().zip([0, 2]) {
        assert_eq!(out.target, rig.jobs[0].config.workers[rank]);
        assert_eq!((out.header.kind, out.header.members), (Kind::Answer, Members(0b101)));
        assert_eq!(out.payload, 2.5_f32.to_be_bytes().repeat(4));
        let (_, cookie) = {
            let client = &rig.jobs[0].workers[rank];
            (client.peer(), client.terms().unwrap().cookie_down)
        };
        assert_eq!(out.header.cookie, cookie, "each under its own channel's cookie");
    }
    // The third finds it here.
    let kept = rig.ask(&request(&rig, 1, 7, 1));
    assert_eq!((kept.header.kind, kept.header.members), (Kind::Answer, Members(0b010)));
    assert_eq!(kept.payload, 2.5_f32.to_be_bytes().repeat(4));
    assert_eq!(rig.report(0).stats().pulls_answered, 3);
}

#[test]
fn a_repeat_asks_the_server_again() {
    let mut rig = Rig::of_two();
    rig.ask(&request(&rig, 0, 7, 1));
    assert_eq!(rig.ask(&request(&rig, 0, 7, 1)).header.kind, Kind::Contrib);
    assert_eq!(rig.report(0).stats().of(Transition::PullAskAgain), 1);
}

#[test]
fn a_version_that_is_gone_is_gone_for_all_who_asked() {
    let mut rig = Rig::of_two();
    rig.ask(&request(&rig, 0, 7, 1));
    rig.send(&request(&rig, 1, 7, 1)).unwrap();
    let state = Header {
        outcome: Outcome::Stale,
        chunk: ChunkIndex(1),
        ..plain_header(Kind::State, JobId(1), GroupId::new(ROW_MODEL, 7), Members(1 << 2))
    };
    let gone = rig.send(&rig.server_frame(0, &state, &[])).unwrap();
    assert_eq!(gone.len(), 2);
    assert!(gone.iter().all(|out| out.is_state(Outcome::Stale, 0b11)));
    assert_eq!(rig.send(&rig.server_frame(0, &state, &[])).unwrap_err(), DropReason::Unsolicited);
}

#[test]
fn answers_that_nobody_asked_for_change_nothing() {
    let mut rig = Rig::of_two();
    assert_eq!(rig.send(&answer(&rig, 7, 1, 2.5)).unwrap_err(), DropReason::Unsolicited);
    rig.ask(&request(&rig, 0, 7, 1));
    assert_eq!(rig.send(&answer(&rig, 8, 1, 2.5)).unwrap_err(), DropReason::Unsolicited);
    assert_eq!(rig.send(&answer(&rig, 7, 2, 2.5)).unwrap_err(), DropReason::Unsolicited);
    rig.ask(&answer(&rig, 7, 1, 2.5));
    assert_eq!(rig.send(&answer(&rig, 7, 1, 9.5)).unwrap_err(), DropReason::Unsolicited);
    assert_eq!(rig.ask(&request(&rig, 1, 7, 1)).payload, 2.5_f32.to_be_bytes().repeat(4));
}

#[test]
fn a_cache_of_one_chunk_serves_one_after_the_other() {
    let config = PushConfig { pull_cache_bytes: 16, ..push(1, 2) };
    let mut rig = Rig::new(alloc::vec![config]);
    for chunk in 0..2 * CHUNKS {
        rig.ask(&request(&rig, 0, 7, chunk));
        let value = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0][chunk as usize];
        let down = rig.ask(&answer(&rig, 7, chunk, value));
        assert_eq!(down.payload, value.to_be_bytes().repeat(4));
    }
    let beyond = request(&rig, 0, 7, 2 * CHUNKS);
    assert_eq!(rig.send(&beyond).unwrap_err(), DropReason::ChunkOutOfRange);
}

#[test]
fn only_the_server_knows_the_newest_version() {
    let mut rig = Rig::of_two();
    let header = plain_header(Kind::Status, JobId(1), GroupId::new(ROW_MODEL, 0), Members::EMPTY);
    let frame = rig.worker_frame(0, 0, &header, &[]);
    assert_eq!(rig.send(&frame).unwrap_err(), DropReason::Kind);
}
