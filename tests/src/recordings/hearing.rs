//! Members that hear the row's multicast address, on a wire and in memory.

use weft_testbed::replay::Member;
use weft_wire::MacAddr;
use weft_wire::frame::Udp;
use weft_wire::header::Packet;
use weft_wire::hello::Phase;

use super::Rig;

/// Every member says this.
fn all_say(rig: &mut Rig, members: &[Member], phase: Phase) {
    for member in members {
        assert_eq!(rig.send(&member.word(phase)).len(), 0, "it is not answered");
    }
}

/// A round whose sum leaves once, with a CRC or not.
fn cast(rig: &mut Rig, members: &[Member], chunk: u32, has_crc: bool) {
    let answers = rig.sum(members, chunk);
    assert_eq!(answers.len(), 1, "the sum left once for all");
    let udp = Udp::parse(&answers[0]).expect("a datagram");
    assert!(udp.target.ip().is_multicast(), "to {}", udp.target);
    let datagram = Packet::new_checked(&answers[0][udp.payload_range()]).expect("Weft's");
    assert_eq!(datagram.crc() != 0, has_crc);
}

fn close(rig: &mut Rig, members: &[Member]) {
    for member in members {
        rig.send(&member.close());
    }
}

pub(super) fn multicast(rig: &mut Rig) {
    let members = rig.form(0, &[1, 2]);
    rig.round(&members, 0);
    rig.send(&members[0].word(Phase::Listen));
    rig.round(&members, 1);
    rig.send(&members[1].word(Phase::Listen));
    cast(rig, &members, 2, true);
    rig.send(&members[0].word(Phase::Deaf));
    rig.round(&members, 3);
    rig.send(&members[0].word(Phase::Listen));
    cast(rig, &members, 4, true);
    close(rig, &members);
    let members = rig.form(0, &[3, 4]);
    rig.round(&members, 0);
    all_say(rig, &members, Phase::Listen);
    cast(rig, &members, 1, true);
}

pub(super) fn memory(rig: &mut Rig) {
    let mut members = vec![rig.member(0, 0, 1), rig.member(0, 1, 2)];
    members.iter_mut().for_each(|member| member.move_to(MacAddr::MEMORY));
    let members = rig.form_of(members);
    assert!(members.iter().all(Member::is_bare));
    rig.round(&members, 0);
    all_say(rig, &members, Phase::Listen);
    cast(rig, &members, 1, false);
    close(rig, &members);
    let mut members = vec![rig.member(0, 0, 3), rig.member(0, 1, 4)];
    members[0].move_to(MacAddr::MEMORY);
    let members = rig.form_of(members);
    assert_eq!([members[0].is_bare(), members[1].is_bare()], [true, false]);
    all_say(rig, &members, Phase::Listen);
    cast(rig, &members, 0, true);
}
