//! Frames that no engine sends: each is refused under one reason, and changes nothing (I7).

use weft_wire::header::{ElementType, Flags, HEADER_LEN, Operation};
use weft_wire::keys::{HEAD_LEN, Head, KEY_LEN};
use weft_wire::{Cookie, GroupId, Members};

use super::*;
use crate::drops::DropReason;

/// A datagram, taken apart so that it can be forged, with a right CRC in the end.
struct Forged {
    passing: Passing,
    header: Header,
}

impl Forged {
    fn of(passing: &Passing) -> Self {
        let header = Header::parse(&Packet::new_unchecked(&passing.octets[..])).unwrap();
        Self { passing: passing.clone(), header }
    }

    fn header(mut self, change: impl FnOnce(&mut Header)) -> Self {
        change(&mut self.header);
        self
    }

    fn head(mut self, change: impl FnOnce(&mut Head)) -> Self {
        let mut head = Head::parse(&self.passing.octets[HEADER_LEN..]).unwrap();
        change(&mut head);
        head.emit(self.passing.octets[HEADER_LEN..].first_chunk_mut().unwrap());
        self
    }

    fn octet(mut self, at: usize, octet: u8) -> Self {
        self.passing.octets[HEADER_LEN + HEAD_LEN + at] = octet;
        self
    }

    fn from(mut self, from: Option<u8>) -> Self {
        self.passing.from = from;
        self
    }

    fn to(mut self, to: Option<u8>) -> Self {
        self.passing.to = to;
        self
    }

    fn seal(mut self) -> Passing {
        let mut packet = Packet::new_unchecked(&mut self.passing.octets[..]);
        self.header.emit(&mut packet);
        packet.seal(weft_kernel::crc32c);
        self.passing
    }
}

/// One frame of each kind as engines send it, by what it is and where it goes.
fn genuine(what: What, to_box: bool) -> (Rig, Passing) {
    let mut rig = Rig::new();
    match what {
        What::Access | What::Answer => rig.call(1, FIRST_KEY, Op::Pull, 1),
        _ => rig.localize(1, FIRST_KEY, 1),
    }
    loop {
        let passing = rig.wire.pop_front().expect("such a frame is sent");
        if passing.what() == Some(what) && passing.to.is_none() == to_box {
            return (rig, passing);
        }
        rig.arrive(&passing).unwrap();
    }
}

/// Lets the forged frame arrive: it counts once, nothing is sent but a STALE, no row changes.
fn assert_refused(mut rig: Rig, forged: Passing, reason: DropReason) {
    let drops = |rig: &Rig| match forged.to {
        None => rig.home.stats().drops.clone(),
        Some(to) => rig.processes[usize::from(to)].stats().drops.clone(),
    };
    let before = drops(&rig);
    let rows = all_rows(&mut rig);
    rig.wire.clear();
    assert_eq!(rig.arrive(&forged), Err(reason));
    let after = drops(&rig);
    assert_eq!((after.of(reason), after.total()), (before.of(reason) + 1, before.total() + 1));
    assert!(rig.wire.iter().all(|passing| passing.what() == Some(What::Stale)), "{reason:?}");
    assert_eq!(all_rows(&mut rig), rows);
}

fn all_rows(rig: &mut Rig) -> Vec<(RowEpoch, Vec<f32>)> {
    let mut rows = Vec::new();
    for process in &mut rig.processes {
        for key in FIRST_KEY..FIRST_KEY + 40 {
            rows.push(process.with_row(key, |slot| (*slot.epoch, slot.value.to_vec())).unwrap());
        }
    }
    rows
}

type Change = fn(Forged) -> Forged;

/// What both ends refuse of any frame.
const OF_ANY: &[(Change, DropReason)] = &[
    (|f| f.header(|h| h.job = JobId(8)), DropReason::UnknownJob),
    (|f| f.header(|h| h.group = GroupId::new(0x9000, 1)), DropReason::UnknownGroup),
    (|f| f.header(|h| h.members = Members(0b11)), DropReason::BadMembers),
    (|f| f.header(|h| h.members = Members(0b1000)), DropReason::BadMembers),
    (|f| f.header(|h| h.cookie = Cookie(h.cookie.0 ^ 1)), DropReason::BadCookie),
    (|f| f.header(|h| h.group = GroupId::new(0x9001, 2)), DropReason::StaleEpoch),
    (|f| f.from(Some(77)), DropReason::WrongSource),
    (|f| f.header(|h| h.element_type = ElementType::F32), DropReason::ElementType),
    (|f| f.header(|h| h.operation = Operation::Sum), DropReason::Operation),
    (|f| f.head(|h| h.row_len = 3), DropReason::ElementCount),
    (|f| f.head(|h| h.entries += 1), DropReason::Length),
    (|f| f.head(|h| h.floors = 9), DropReason::Length),
    // A key outside the table.
    (|f| f.octet(0, 1), DropReason::ChunkOutOfRange),
    (|f| f.octet(7, 99), DropReason::ChunkOutOfRange),
    (|f| f.octet(7, 140), DropReason::ChunkOutOfRange),
    (|f| f.header(|h| h.flags = h.flags.union(Flags::DIRECT)), DropReason::Kind),
];

#[test]
fn frames_that_no_engine_sends_are_refused() {
    for (what, to_box) in [(What::Access, true), (What::Localize, true), (What::Localize, false)] {
        for (change, reason) in OF_ANY {
            let (rig, passing) = genuine(what, to_box);
            assert_refused(rig, change(Forged::of(&passing)).seal(), *reason);
        }
    }
}

#[test]
fn frames_that_say_nothing_are_refused() {
    let empty = |passing: &Passing| {
        let mut forged = Forged::of(passing).head(|h| h.entries = 0);
        forged.passing.octets.truncate(HEADER_LEN + HEAD_LEN);
        forged.header(|h| h.count = u16::try_from(HEAD_LEN / 4).unwrap()).seal()
    };
    for (what, to_box) in [(What::Access, true), (What::Localize, false), (What::Answer, false)] {
        let (rig, passing) = genuine(what, to_box);
        assert_refused(rig, empty(&passing), DropReason::Length);
    }
    // That the sender holds the row, and not which one has arrived.
    let (rig, passing) = genuine(What::RowAck, true);
    let held = Forged::of(&passing).octet(19, 0xff);
    assert_refused(rig, held.seal(), DropReason::Length);
}

#[test]
fn damaged_frames_are_refused() {
    for (what, to_box) in [(What::Access, true), (What::Row, false), (What::RowAck, true)] {
        let (rig, mut passing) = genuine(what, to_box);
        let last = passing.octets.len() - 1;
        passing.octets[last] ^= 1;
        assert_refused(rig, passing, DropReason::Integrity);
    }
}

#[test]
fn accesses_whose_parts_mean_nothing_are_refused() {
    for parts in [0, 8, 255] {
        let (rig, passing) = genuine(What::Access, true);
        let forged = Forged::of(&passing).octet(KEY_LEN, parts).seal();
        assert_refused(rig, forged, DropReason::Operation);
    }
}

#[test]
fn rows_name_processes_that_there_are() {
    let (rig, passing) = genuine(What::Row, false);
    let forged = Forged::of(&passing).head(|head| head.peer = 3).seal();
    assert_refused(rig, forged, DropReason::BadMembers);
    let (rig, passing) = genuine(What::Row, false);
    let forged = Forged::of(&passing).head(|head| head.peer = 2).seal();
    assert_refused(rig, forged, DropReason::BadMembers);
    // An ACK to a giver that is none, and a claim of a copy that went to nobody.
    let (rig, passing) = genuine(What::RowAck, true);
    let forged = Forged::of(&passing).head(|head| head.peer = 64).seal();
    assert_refused(rig, forged, DropReason::BadMembers);
    let (rig, passing) = genuine(What::RowAck, true);
    let forged = Forged::of(&passing).octet(16, 0).octet(17, 0).octet(18, 0).octet(19, 9).seal();
    assert_refused(rig, forged, DropReason::BadMembers);
}

#[test]
fn nobody_speaks_for_another() {
    // A row that says that it comes from another process.
    let (rig, passing) = genuine(What::Row, false);
    let forged = Forged::of(&passing).from(Some(2)).seal();
    assert_refused(rig, forged, DropReason::WrongSource);
    // What the box alone says, from a process.
    let (rig, passing) = genuine(What::RowAck, false);
    let forged = Forged::of(&passing).from(Some(2)).seal();
    assert_refused(rig, forged, DropReason::WrongSource);
    // An ACK for another taker.
    let (rig, passing) = genuine(What::RowAck, true);
    let forged = Forged::of(&passing).header(|header| header.members = Members(0b100)).seal();
    assert_refused(rig, forged, DropReason::WrongSource);
}

#[test]
fn answers_that_nobody_waits_for_are_refused() {
    let (rig, passing) = genuine(What::Answer, false);
    let forged = Forged::of(&passing).head(|head| head.number.0 += 1).seal();
    assert_refused(rig, forged, DropReason::Unsolicited);
    let (rig, passing) = genuine(What::Answer, false);
    let forged = Forged::of(&passing).to(Some(2)).seal();
    assert_refused(rig, forged, DropReason::BadMembers);
}

#[test]
fn frames_that_the_receiver_does_not_serve_are_refused() {
    let (rig, passing) = genuine(What::Row, false);
    let cookie = {
        let (_, access) = genuine(What::Localize, true);
        Forged::of(&access).header.cookie
    };
    let forged = Forged::of(&passing).to(None).header(|header| header.cookie = cookie);
    let forged = forged.from(Some(1)).header(|header| header.members = Members(0b10)).seal();
    assert_refused(rig, forged, DropReason::Kind);
}
