//! Whole leases, cell by cell of proto/vectors/slot.toml.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use weft_wire::header::{ElementType, Header, Kind, Outcome, Packet};
use weft_wire::{GroupId, JobId, Members};

use super::rig::*;
use crate::drops::DropReason;
use crate::role::channel::Standing;
use crate::send::datagram::plain_header;
use crate::slot::State;
use crate::slot::cells::{Cell, Fate, Seen, World, counted, judge, walk};

/// A frame for chunk 0 of the group, or beside it.
#[derive(Clone, Copy, Debug)]
enum Event {
    Contribution {
        rank: usize,
        group: GroupId,
    },
    /// `mask`: who is still in the group, as the server sees it.
    Credit {
        group: GroupId,
        chunk: u32,
        mask: u64,
    },
}

struct Whole {
    rig: Rig,
    can_send_up: bool,
}

fn open() -> GroupId {
    group(5, 2)
}

/// A group of these ranks, whose slot has been asked for in vain or not; then the way to the server
/// is lost, or not.
fn whole(ranks: &[u8], has_credit: bool, can_send_up: bool) -> Whole {
    let mut rig = Rig::of_two();
    rig.install(descriptor(1, open(), ranks));
    let chunk = u32::from(!has_credit);
    let cookie = rig.ask(&rig.credit(open(), chunk, 0b11)).header.cookie;
    if !can_send_up {
        // The server has restarted, and does not know this box's cookie.
        let stale = plain_header(Kind::State, JobId(1), open(), Members::EMPTY);
        let mut echo = rig.server_frame(0, &Header { outcome: Outcome::Stale, ..stale }, &[]);
        let mut packet = Packet::new_unchecked(&mut echo[42..]);
        packet.set_cookie(cookie);
        packet.seal(weft_kernel::crc32c);
        assert!(rig.send(&echo).unwrap().is_empty());
        assert_ne!(rig.report(0).server(), Standing::Open);
    }
    Whole { rig, can_send_up }
}

impl Whole {
    /// State, contributors and credit of the slot, and the group's mask.
    fn slot(&self) -> (State, Members, bool, Members) {
        let report = self.rig.report(0);
        let (id, mask) = report.groups().next().expect("it stays open");
        let (state, members, has_credit) = report.slot_and_credit(id, 0).expect("its chunk");
        (state, members, has_credit, mask)
    }

    fn transitions(&self) -> Vec<(&'static str, u64)> {
        let counts = self.rig.report(0).stats().transitions();
        // That a credit narrows the group is no matter of one slot.
        counts.filter(|(name, _)| *name != "narrow").collect()
    }

    fn drops(&self) -> Vec<(&'static str, u64)> {
        let counts = self.rig.aggregator.stats().drops.iter();
        counts.map(|(reason, count)| (DropReason::name(reason), count)).collect()
    }
}

impl World for Whole {
    type Event = Event;

    fn state(&self) -> String {
        format!("{:?}", self.slot())
    }

    fn cell(&self, event: Event) -> Option<Cell> {
        let (state, members, has_credit, mask) = self.slot();
        let cell = |event, step, when| {
            Some(Cell { lease: "whole", event, state: state.name(), step, when })
        };
        let none = |event, when| {
            Some(Cell { lease: "whole", event, state: "NONE", step: "foreign", when })
        };
        match event {
            Event::Contribution { group, .. } if group.row() != open().row() => {
                none("contribution", vec!["no_group"])
            }
            Event::Contribution { group, .. } if group != open() => {
                none("contribution", vec!["other_group"])
            }
            Event::Contribution { rank, .. } if !mask.contains(Members(1 << rank)) => {
                none("contribution", vec!["no_member"])
            }
            Event::Contribution { rank, .. } => {
                let bit = Members(1 << rank);
                if members.contains(bit) {
                    return cell("contribution", "in", vec![]);
                }
                let mut when = vec![];
                if members.union(bit) == mask {
                    when.push("fills");
                    if has_credit {
                        when.push("credited");
                        if !self.can_send_up {
                            when.push("no_way_up");
                        }
                    }
                }
                let step = if state == State::Empty { "claimable" } else { "new" };
                cell("contribution", step, when)
            }
            // Of what a credit does elsewhere only the mask matters here.
            Event::Credit { chunk: 1, .. } => None,
            _ if !self.can_send_up => None,
            Event::Credit { group, .. } if group.row() != open().row() => {
                none("credit", vec!["no_group"])
            }
            Event::Credit { group, .. } if group != open() => none("credit", vec!["other_group"]),
            Event::Credit { chunk, .. } if chunk >= CHUNKS => none("credit", vec!["no_chunk"]),
            Event::Credit { mask: named, .. } => {
                let stays = Members(mask.0 & named);
                let when = if stays.is_empty() {
                    vec!["no_member"]
                } else if !stays.contains(members) {
                    vec!["outside"]
                } else if members == stays {
                    vec!["full"]
                } else {
                    vec![]
                };
                cell("credit", "current", when)
            }
        }
    }

    fn apply(&mut self, event: Event) -> Fate {
        let frame = match event {
            Event::Contribution { rank, group } => {
                let header = data_header(group, 0, ElementType::I32);
                self.rig.worker_frame(0, rank, &header, &1_i32.to_be_bytes().repeat(4))
            }
            Event::Credit { group, chunk, mask } => self.rig.credit(group, chunk, mask),
        };
        let is_slot = self.cell(event).is_none_or(|cell| cell.state != "NONE");
        let (transitions, drops) = (self.transitions(), self.drops());
        let mut out: Vec<String> = match self.rig.send(&frame) {
            Ok(frames) => frames.iter().map(name_of).collect(),
            Err(_) => vec![],
        };
        let mut buffer = vec![0; 1514];
        let now = self.rig.now;
        while let Some(len) = self.rig.aggregator.poll_transmit(now, &mut buffer) {
            let sent = read(&buffer[..len]);
            if sent.header.kind != Kind::Hello {
                out.push(name_of(&sent));
            }
        }
        let next = if is_slot { self.slot().0.name() } else { "NONE" };
        Fate {
            transitions: counted(&transitions, self.transitions().into_iter()),
            next: next.to_owned(),
            out,
            drop: counted(&drops, self.drops().into_iter()).join(" "),
        }
    }
}

fn name_of(out: &Out) -> String {
    let name = match (out.header.kind, out.header.outcome) {
        (Kind::Contrib, _) => "sum_up",
        (Kind::State, Outcome::Have) => "have",
        (Kind::State, Outcome::Stale) => "stale",
        other => panic!("nothing in a slot sends {other:?}"),
    };
    name.to_owned()
}

#[test]
fn every_cell_of_a_whole_lease_is_as_the_table_says() {
    let mut events = Vec::new();
    for id in [open(), group(5, 1), group(6, 1)] {
        events.extend([0, 1].map(|rank| Event::Contribution { rank, group: id }));
        events.extend((0..4).map(|mask| Event::Credit { group: id, chunk: 0, mask }));
    }
    events.extend([1, 2].map(|mask| Event::Credit { group: open(), chunk: 1, mask }));
    events.push(Event::Credit { group: open(), chunk: CHUNKS, mask: 3 });
    let mut seen = Seen::new();
    for (has_credit, can_send_up) in [(false, true), (true, true), (false, false), (true, false)] {
        walk(|| whole(&[0, 1], has_credit, can_send_up), &events, &mut seen);
        walk(|| whole(&[1], has_credit, can_send_up), &events, &mut seen);
    }
    judge(&["whole"], &seen);
}
