//! Whole leases and the pull relay, cell by cell of SPEC#push and SPEC#pull.

mod cells;
mod groups;
mod holdings;
mod hostile;
mod pulls;
mod quick;
mod rig;
mod run;

use alloc::vec;
use alloc::vec::Vec;

use weft_control::Event;
use weft_wire::header::{ElementType, Flags, Header, Kind, Outcome};
use weft_wire::hello::Overflow;
use weft_wire::{Cookie, Members, Rank};

use rig::*;

use super::Transition;
use crate::drops::DropReason;
use crate::role::channel::Peer;
use crate::slot::State;

fn installed() -> (Rig, weft_wire::GroupId) {
    let mut rig = Rig::of_two();
    let id = group(5, 1);
    assert_eq!(rig.install(descriptor(1, id, &[0, 1])), Event::Installed { group: id });
    (rig, id)
}

#[test]
fn a_contribution_is_stored_added_and_acknowledged() {
    let (mut rig, id) = installed();
    let have = rig.ask(&rig.contribution(0, id, 2, 5));
    assert!(have.is_state(Outcome::Have, 0b01));
    assert_eq!((have.header.group, have.header.chunk.0), (id, 2));
    assert_eq!(have.target, rig.jobs[0].config.workers[0]);
    let have = rig.ask(&rig.contribution(1, id, 2, 7));
    assert!(have.is_state(Outcome::Have, 0b11));
    assert_eq!(rig.report(0).slot(id, 2), Some((State::Collecting, Members(0b11))));
    assert_eq!(rig.report(0).slot(id, 1), Some((State::Empty, Members::EMPTY)));
    let stats = rig.report(0).stats();
    assert_eq!((stats.contributions_added, stats.chunks_completed), (2, 1));
}

#[test]
fn a_repeat_is_acknowledged_and_not_added() {
    let (mut rig, id) = installed();
    rig.ask(&rig.contribution(0, id, 0, 5));
    assert!(rig.ask(&rig.contribution(0, id, 0, 5)).is_state(Outcome::Have, 0b01));
    rig.ask(&rig.contribution(1, id, 0, 7));
    assert!(rig.ask(&rig.contribution(1, id, 0, 7)).is_state(Outcome::Have, 0b11));
    let sum = rig.ask(&rig.credit(id, 0, 0b11));
    assert_eq!(sum.values(), [12; 4]);
    assert!(rig.ask(&rig.contribution(0, id, 0, 5)).is_state(Outcome::Have, 0b11));
    let again = rig.ask(&rig.credit(id, 0, 0b11));
    assert_eq!(again.values(), [12; 4], "a repeat after the sum was sent changes nothing");
    assert_eq!(rig.report(0).stats().duplicates, 3);
    assert_eq!(rig.aggregator.stats().drops.of(DropReason::Duplicate), 3);
}

#[test]
fn a_full_slot_waits_for_its_credit() {
    let (mut rig, id) = installed();
    rig.ask(&rig.contribution(0, id, 1, 5));
    rig.ask(&rig.contribution(1, id, 1, -7));
    let sum = rig.ask(&rig.credit(id, 1, 0b11));
    assert_eq!((sum.header.kind, sum.header.members), (Kind::Contrib, Members(0b11)));
    assert_eq!((sum.header.group, sum.header.chunk.0), (id, 1));
    assert_eq!(sum.target, rig.jobs[0].config.server.addr);
    assert_eq!(sum.values(), [-2; 4]);
    assert_eq!(sum.header.flags, Flags::NONE);
    let source = weft_wire::frame::UdpAddr::from(box_endpoint().addr);
    let peer = Peer::Box(rig.jobs[0].config.box_index);
    assert_eq!(rig.jobs[0].server.identify(peer, sum.header.cookie, source), Ok(()));
    assert_eq!(rig.report(0).slot(id, 1), Some((State::Sent, Members(0b11))));
}

#[test]
fn a_credit_waits_for_the_last_contribution() {
    let (mut rig, id) = installed();
    assert!(rig.ask(&rig.credit(id, 0, 0b11)).is_state(Outcome::Have, 0));
    rig.ask(&rig.contribution(1, id, 0, 1));
    assert!(rig.ask(&rig.credit(id, 0, 0b11)).is_state(Outcome::Have, 0b10));
    let sum = rig.ask(&rig.contribution(0, id, 0, 2));
    assert_eq!((sum.header.kind, sum.values()), (Kind::Contrib, vec![3; 4]));
    // The buffer became the sum, so the acknowledgement comes by itself.
    let haves = rig.poll();
    assert_eq!(haves.len(), 1);
    assert!(haves[0].is_state(Outcome::Have, 0b11));
    assert_eq!(haves[0].target, rig.jobs[0].config.workers[0]);
    let report = rig.report(0);
    for transition in
        [Transition::CreditEmpty, Transition::CreditCollecting, Transition::SendOnContribution]
    {
        assert_eq!(report.stats().of(transition), 1, "{transition:?}");
    }
}

#[test]
fn a_group_of_one_with_a_credit_goes_at_once() {
    let mut rig = Rig::of_two();
    let id = group(0, 9);
    rig.install(descriptor(1, id, &[1]));
    rig.ask(&rig.credit(id, 0, 0b10));
    let sum = rig.ask(&rig.contribution(1, id, 0, 2));
    assert_eq!((sum.header.kind, sum.values()), (Kind::Contrib, vec![2; 4]));
    assert!(rig.poll()[0].is_state(Outcome::Have, 0b10));
}

#[test]
fn a_repeated_credit_gets_the_kept_sum_again() {
    let (mut rig, id) = installed();
    rig.ask(&rig.contribution(0, id, 0, 5));
    rig.ask(&rig.contribution(1, id, 0, 7));
    rig.ask(&rig.credit(id, 0, 0b11));
    let again = rig.ask(&rig.credit(id, 0, 0b11));
    assert_eq!(again.values(), [12; 4]);
    assert!(again.header.flags.contains(Flags::RETRANSMIT));
    assert_eq!(rig.report(0).stats().of(Transition::SendAgain), 1);
}

#[test]
fn a_smaller_mask_completes_a_slot_and_a_foreign_rank_spoils_one() {
    let (mut rig, id) = installed();
    rig.ask(&rig.contribution(0, id, 0, 5));
    let sum = rig.ask(&rig.credit(id, 0, 0b01));
    assert_eq!((sum.values(), sum.header.members), (vec![5; 4], Members(0b01)));
    // Worker 1 has left, for good: a credit that says otherwise is old.
    assert!(rig.ask(&rig.contribution(1, id, 1, 7)).is_state(Outcome::Stale, 0));
    assert!(rig.ask(&rig.credit(id, 1, 0b11)).is_state(Outcome::Have, 0));
    let sum = rig.ask(&rig.contribution(0, id, 1, 9));
    assert_eq!((sum.values(), sum.header.members), (vec![9; 4], Members(0b01)));

    let other = group(6, 1);
    rig.install(descriptor(1, other, &[0, 1]));
    rig.ask(&rig.contribution(0, other, 0, 5));
    rig.ask(&rig.contribution(1, other, 0, 7));
    let stale = rig.ask(&rig.credit(other, 0, 0b10));
    assert!(stale.is_state(Outcome::Stale, 0b11), "it says what it holds");
    assert_eq!(stale.target, rig.jobs[0].config.server.addr);
}

#[test]
fn a_credit_without_members_is_refused_and_changes_nothing() {
    let (mut rig, id) = installed();
    rig.ask(&rig.contribution(0, id, 0, 5));
    assert!(rig.ask(&rig.credit(id, 0, 0)).is_state(Outcome::Stale, 0b01));
    assert!(rig.ask(&rig.credit(group(7, 7), 0, 1)).is_state(Outcome::Stale, 0));
    assert!(rig.ask(&rig.credit(id, CHUNKS, 0b11)).is_state(Outcome::Stale, 0));
    rig.ask(&rig.contribution(1, id, 0, 7));
    assert_eq!(rig.ask(&rig.credit(id, 0, 0b11)).values(), [12; 4]);
}

#[test]
fn a_replica_gets_a_copy_under_a_header_of_its_own() {
    let mut rig = Rig::of_two();
    let id = group(5, 1);
    rig.install(weft_control::GroupDescriptor { replicate: true, ..descriptor(1, id, &[0, 1]) });
    rig.ask(&rig.contribution(0, id, 0, 5));
    rig.ask(&rig.contribution(1, id, 0, 7));
    let out = rig.send(&rig.credit(id, 0, 0b11)).unwrap();
    let [sum, copy] = &out[..] else { panic!("two frames, not {out:?}") };
    assert_eq!(sum.payload, copy.payload);
    assert_eq!(copy.target, rig.jobs[0].config.replica.unwrap().addr);
    assert_eq!(copy.header.flags, Flags::REPLICA);
    assert_eq!(
        Header { flags: sum.header.flags, cookie: sum.header.cookie, ..copy.header },
        sum.header
    );
    let source = weft_wire::frame::UdpAddr::from(box_endpoint().addr);
    let peer = Peer::Box(rig.jobs[0].config.box_index);
    assert_eq!(rig.jobs[0].replica.identify(peer, copy.header.cookie, source), Ok(()));
    // Repeats are the server's business alone.
    assert_eq!(rig.send(&rig.credit(id, 0, 0b11)).unwrap().len(), 1);
}

#[test]
fn marks_and_clamps_of_contributions_are_in_the_sum() {
    let (mut rig, id) = installed();
    let mut marked = rig.contribution(0, id, 0, 5);
    // ECN CE, with the IPv4 checksum mended by hand: one bit more in the type of service.
    marked[15] |= 1;
    marked[25] = marked[25].wrapping_sub(1);
    rig.ask(&marked);
    let header = data_header(id, 0, ElementType::I32);
    let clamped = Header { flags: Flags::CLAMPED, ..header };
    rig.ask(&rig.worker_frame(0, 1, &clamped, &[0; 16]));
    let sum = rig.ask(&rig.credit(id, 0, 0b11));
    assert_eq!(sum.header.flags, Flags::CLAMPED.union(Flags::CONGESTION));
    assert_eq!(rig.report(0).stats().contributions_marked, 1);
}

/// The exponent was chosen for the group's members; so must the limit be, not for the job's.
#[test]
fn a_contribution_is_clamped_to_its_share_of_the_group() {
    let config = super::PushConfig { overflow: Overflow::Clamp, ..push(1, 4) };
    let mut rig = Rig::new(vec![config]);
    let id = group(0, 1);
    rig.install(descriptor(1, id, &[0, 1]));
    let limit = i32::MAX / 2;
    rig.ask(&rig.contribution(0, id, 0, limit));
    rig.ask(&rig.contribution(1, id, 0, i32::MAX));
    let sum = rig.ask(&rig.credit(id, 0, 0b11));
    assert!(sum.values().iter().all(|value| *value == 2 * limit), "{:?}", sum.values());
    assert_eq!(rig.report(0).stats().contributions_clamped, 1);
}

#[test]
fn floats_are_summed_as_such() {
    let element_type = ElementType::F32;
    let mut rig = Rig::new(vec![super::PushConfig { element_type, ..push(1, 2) }]);
    let id = group(0, 1);
    rig.install(weft_control::GroupDescriptor { element_type, ..descriptor(1, id, &[0, 1]) });
    let header = data_header(id, 0, element_type);
    rig.ask(&rig.worker_frame(0, 0, &header, &1.5_f32.to_be_bytes().repeat(4)));
    rig.ask(&rig.worker_frame(0, 1, &header, &2.25_f32.to_be_bytes().repeat(4)));
    let sum = rig.ask(&rig.credit(id, 0, 0b11));
    assert_eq!(sum.payload, 3.75_f32.to_be_bytes().repeat(4));
    assert_eq!(sum.header.element_type, element_type);
}

/// What became of a group its server tells.
#[test]
fn a_status_of_a_group_is_refused_and_changes_nothing() {
    let (mut rig, id) = installed();
    rig.ask(&rig.contribution(1, id, 0, 5));
    let header =
        crate::send::datagram::plain_header(Kind::Status, weft_wire::JobId(1), id, Members::EMPTY);
    assert_eq!(rig.send(&rig.worker_frame(0, 0, &header, &[])).unwrap_err(), DropReason::Kind);
    assert_eq!(rig.report(0).slot(id, 0), Some((State::Collecting, Members(0b10))));
}

#[test]
fn an_update_that_is_whole_is_reported_with_its_transfer() {
    let (mut rig, id) = installed();
    for chunk in 0..CHUNKS {
        rig.now.0 += 1000;
        rig.ask(&rig.contribution(1, id, chunk, 5));
    }
    let rank = Rank::new(1).unwrap();
    assert_eq!(rig.event(), Some(Event::Gathered { group: id, rank }));
    let bytes = 3 * (14 + 20 + 8 + 32 + 16);
    let transferred = Event::Transferred {
        group: id,
        rank: Some(rank),
        bytes,
        duration_ns: 2000,
        wait_ns: 0,
        idle_ns: 0,
    };
    assert_eq!(rig.event(), Some(transferred));
    assert_eq!(rig.event(), None);
}

/// Two jobs with the same group ids: what one does the other cannot see (I6).
#[test]
fn jobs_share_nothing() {
    let mut rig = Rig::new(vec![push(1, 2), push(3, 2)]);
    let id = group(5, 1);
    rig.install(descriptor(1, id, &[0, 1]));
    rig.install(descriptor(3, id, &[0, 1]));
    rig.ask(&rig.contribution(0, id, 0, 5));
    assert_eq!(rig.report(1).slot(id, 0), Some((State::Empty, Members::EMPTY)));
    // The first job's quota is used up; the second's is its own.
    rig.install(descriptor(1, group(6, 1), &[0]));
    let full = rig.install(descriptor(1, group(7, 1), &[0]));
    assert!(matches!(full, Event::Refused { .. }));
    assert!(matches!(rig.install(descriptor(3, group(6, 1), &[0])), Event::Installed { .. }));
    // A member of one job is nobody in the other, even under the right cookie.
    let mut frame = rig.contribution(0, id, 1, 5);
    frame[42 + 3] = 3;
    let mut datagram = weft_wire::header::Packet::new_unchecked(&mut frame[42..]);
    datagram.seal(weft_kernel::crc32c);
    assert!(rig.send(&frame).is_err());
    assert_eq!(rig.report(1).stats().contributions_added, 0);
}

#[test]
fn without_a_server_a_full_slot_keeps_its_sum() {
    let (mut rig, id) = installed();
    rig.ask(&rig.contribution(0, id, 0, 5));
    rig.ask(&rig.credit(id, 0, 0b11));
    // A restarted server does not know this box's cookie.
    let mut stale = rig.ask(&rig.credit(id, 0, 0b11)).header;
    stale.outcome = Outcome::Stale;
    let (encap, cookie) = {
        let mut frame = [0; 100];
        let client = rig.server_frame(0, &stale, &[]);
        frame[..client.len()].copy_from_slice(&client);
        (frame[..client.len()].to_vec(), rig.ask(&rig.credit(id, 1, 0b11)).header.cookie)
    };
    let mut echo: Vec<u8> = encap;
    let mut packet = weft_wire::header::Packet::new_unchecked(&mut echo[42..]);
    packet.set_cookie(cookie);
    packet.seal(weft_kernel::crc32c);
    assert!(rig.send(&echo).unwrap().is_empty());
    assert_ne!(cookie, Cookie::default());
    assert_ne!(rig.report(0).server(), crate::role::channel::Standing::Open);
    assert!(rig.ask(&rig.contribution(1, id, 0, 7)).is_state(Outcome::Have, 0b11));
    rig.poll();
    assert_eq!(rig.report(0).server(), crate::role::channel::Standing::Open);
    assert_eq!(rig.ask(&rig.credit(id, 0, 0b11)).values(), [12; 4]);
}
