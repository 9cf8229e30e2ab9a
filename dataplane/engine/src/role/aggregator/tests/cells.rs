//! Windowed leases, cell by cell of proto/vectors/slot.toml: at the root and at a leaf, formed
//! afresh and resumed.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use alloc::{borrow::ToOwned, format};

use weft_wire::frame::Encap;
use weft_wire::header::{HEADER_LEN, Header, Kind, Outcome, Packet};
use weft_wire::{ChunkIndex, Members, Nanos};

use super::super::Aggregator;
use super::leaf::{Tree, open_tree_of, root_endpoint};
use super::rig::*;
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::slot::State;
use crate::slot::cells::{Cell, Fate, Seen, World, counted, judge, walk};
use crate::slot::counter::Transition;
use crate::table::RowConfig;

/// A frame for the one slot of the lease.
#[derive(Clone, Copy, Debug)]
enum Event {
    Contribution { rank: usize, step: u32, exponent: i8, ends: bool },
    Status { rank: usize, step: u32 },
    HandOver { rank: usize, step: u32 },
    Answer { step: u32 },
    Refusal { step: u32 },
}

struct Windowed {
    lease: &'static str,
    aggregator: Aggregator,
    group: Vec<Member>,
    /// Of a leaf: a frame of the root, but for chunk and payload.
    root: Option<Header>,
    can_send_up: bool,
}

fn one_slot(row: RowConfig) -> RowConfig {
    RowConfig { window: 1, exponent: None, ..row }
}

/// The lease of a root: `held` says which steps the members bring from before.
fn root(members: u8, held: &[(u32, u8)]) -> Windowed {
    let row = one_slot(row(0, 0, members));
    let mut aggregator = aggregator(config(vec![row.clone()]), 1);
    let mut group: Vec<Member> = (0..members).map(|rank| Member::new(&row, rank, 9)).collect();
    for _ in 0..2 {
        for (rank, member) in group.iter_mut().enumerate() {
            let held = held.get(rank);
            member.session = u64::from(held.is_some()) * 777;
            let bits = held.map(|(low, bits)| (*low, vec![*bits]));
            let bits = bits.as_ref().map(|(low, bits)| (*low, &bits[..]));
            member.join_at(&mut aggregator, bits, Nanos(1_000_000_000));
        }
    }
    Windowed { lease: "root", aggregator, group, root: None, can_send_up: true }
}

fn leaf(members: u8, held: &[(u32, u8)], can_send_up: bool) -> Windowed {
    let (mut tree, group) = open_tree_of(members, one_slot, held);
    let lease = &tree.root.leases[0];
    let header = Header {
        kind: Kind::Answer,
        cookie: lease.cookie_down,
        group: lease.group,
        members: lease.mask,
        ..group[0].header(Kind::Contrib, 0)
    };
    if !can_send_up {
        let cookie = lease.members[0].peer.cookie_up();
        let stale = Header { kind: Kind::State, outcome: Outcome::Stale, cookie, ..header };
        let stale = Header { count: 0, ..stale };
        assert_eq!(tree.at_leaf(from_root(&stale, &[])), None);
    }
    let Tree { leaf: aggregator, .. } = tree;
    Windowed { lease: "leaf", aggregator, group, root: Some(header), can_send_up }
}

fn from_root(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut to = box_endpoint();
    to.addr.set_port(9000);
    let encap = Encap::new(root_endpoint(), to).unwrap();
    let start = encap.header_len();
    let mut frame = vec![0; start + HEADER_LEN + payload.len()];
    let mut packet = Packet::new_unchecked(&mut frame[start..]);
    header.emit(&mut packet);
    packet.payload_mut().copy_from_slice(payload);
    packet.seal(weft_kernel::crc32c);
    encap.emit(&mut frame, HEADER_LEN + payload.len());
    frame
}

impl Windowed {
    fn frame(&self, event: Event) -> Vec<u8> {
        let sum_of_all = |header: Header, step| Header { chunk: ChunkIndex(step), ..header };
        match event {
            Event::Contribution { rank, step, exponent, ends } => {
                let mut header = self.group[rank].header(Kind::Contrib, step);
                if ends {
                    header.outcome = Outcome::LAST;
                }
                self.group[rank].frame(&Header { exponent, ..header }, &payload(1))
            }
            Event::Status { rank, step } => self.group[rank].status(step),
            Event::HandOver { rank, step } => {
                let members = Members::first(self.group.len());
                let header = self.group[rank].header(Kind::Answer, step);
                self.group[rank].frame(&Header { members, ..header }, &payload(7))
            }
            Event::Answer { step } => {
                from_root(&sum_of_all(self.root.expect("a leaf"), step), &payload(7))
            }
            Event::Refusal { step } => {
                let header = sum_of_all(self.root.expect("a leaf"), step);
                let (kind, outcome) = (Kind::State, Outcome::MISMATCH);
                let members = Members::EMPTY;
                from_root(&Header { kind, outcome, members, ..header }, &[])
            }
        }
    }
}

impl World for Windowed {
    type Event = Event;

    fn state(&self) -> String {
        let slots = &self.aggregator.leases[0].slots;
        let places = [slots.locate(0), slots.locate(1)];
        format!(
            "{:?}",
            places.map(|place| {
                let bank = slots.bank(place);
                (
                    bank.state(),
                    bank.step(),
                    bank.members(),
                    bank.exponent(),
                    bank.completed_by(),
                    bank.has_data(),
                    (bank.length(), bank.other_count(Members::EMPTY)),
                )
            })
        )
    }

    fn cell(&self, event: Event) -> Option<Cell> {
        let lease = &self.aggregator.leases[0];
        let (name, rank, step) = match event {
            Event::Contribution { rank, step, .. } => ("contribution", Some(rank), step),
            Event::Status { rank, step } => ("status", Some(rank), step),
            Event::HandOver { rank, step } => ("hand_over", Some(rank), step),
            Event::Answer { step } => ("answer", None, step),
            Event::Refusal { step } => ("refusal", None, step),
        };
        if name == "hand_over" {
            let holds = lease.members[rank?].held.holds(step);
            if !holds || !lease.wanted.has_bit(step) {
                return None;
            }
        }
        let bank = lease.slots.bank(lease.slots.locate(step));
        let bit = rank.map_or(Members::EMPTY, |rank| self.group[rank].rank.bit());
        let is_current = bank.state() != State::Empty && bank.step() == step;
        let is_in = bank.members().contains(bit);
        let relation = match (is_current, rank.is_some()) {
            (true, false) => "current",
            (true, true) if is_in => "in",
            (true, true) => "new",
            (false, _) if lease.slots.is_claimable(step) => "claimable",
            (false, _) => "foreign",
        };
        let before = if is_current { bank.members() } else { Members::EMPTY };
        let is_full = before.union(bit) == lease.mask;
        let is_contribution = name == "contribution";
        let adds =
            (relation == "new" && bank.state() == State::Collecting) || relation == "claimable";
        let fills = is_contribution && adds && is_full;
        let ends_elsewhere = matches!(event, Event::Contribution { ends, .. }
            if relation == "new" && ends != (bank.length().outcome() == Outcome::LAST));
        let differs = matches!(event, Event::Contribution { exponent, .. }
            if relation == "new" && exponent != bank.exponent());
        let completed_it = bank.state() == State::Sent
            && relation == "in"
            && Some(usize::from(bank.completed_by())) == rank
            && matches!(name, "contribution" | "status");
        let is_virtual = is_current && bank.state() == State::Answered && !bank.has_data();
        let mut when = Vec::new();
        if name == "refusal" && (relation, bank.state()) != ("current", State::Sent) {
            // It changes nothing.
            return None;
        }
        if ends_elsewhere && bank.state() == State::Collecting {
            when.push("other_length");
        } else if differs && bank.state() == State::Collecting {
            when.push("other_exponent");
        } else if fills {
            when.push("fills");
        }
        if completed_it {
            when.push("completed_it");
        }
        if is_virtual {
            when.push("virtual");
        }
        let goes_up = self.lease == "leaf" && (when == ["fills"] || completed_it);
        if goes_up && !self.can_send_up {
            when.push("no_way_up");
        }
        Some(Cell {
            lease: self.lease,
            event: name,
            state: bank.state().name(),
            step: relation,
            when,
        })
    }

    fn apply(&mut self, event: Event) -> Fate {
        let frame = self.frame(event);
        let step = match event {
            Event::Contribution { step, .. }
            | Event::Status { step, .. }
            | Event::HandOver { step, .. }
            | Event::Answer { step }
            | Event::Refusal { step } => step,
        };
        let transitions: Vec<_> = transitions(&self.aggregator).collect();
        let drops: Vec<_> = drops(&self.aggregator).collect();
        let (verdict, answer) = deliver(&mut self.aggregator, frame, Nanos(2_000_000_000));
        let mut out: Vec<String> = answer.iter().map(|out| name_of(out, verdict)).collect();
        let mut buffer = vec![0; MAX_FRAME];
        while let Some(len) = self.aggregator.poll_transmit(Nanos(2_000_000_000), &mut buffer) {
            let sent = read(&buffer[..len]);
            if sent.header.kind == Kind::Contrib {
                out.push("sum_up".to_owned());
            }
        }
        let lease = &self.aggregator.leases[0];
        let bank = lease.slots.bank(lease.slots.locate(step));
        Fate {
            transitions: counted(&transitions, self::transitions(&self.aggregator)),
            next: bank.state().name().to_owned(),
            out,
            drop: counted(&drops, self::drops(&self.aggregator)).join(" "),
        }
    }
}

fn name_of(out: &Out, verdict: Verdict) -> String {
    let name = match (out.header.kind, out.header.outcome, verdict) {
        (Kind::Answer, _, Verdict::Multicast { .. }) => "answer_to_all",
        (Kind::Answer, ..) => "kept_answer",
        (Kind::State, Outcome::Have, _) => "have",
        (Kind::State, Outcome::Stale, _) => "stale",
        (Kind::State, Outcome::MISMATCH, _) => "mismatch",
        (Kind::Contrib, ..) => "sum_up",
        other => panic!("nothing in a slot sends {other:?}"),
    };
    name.to_owned()
}

fn transitions(aggregator: &Aggregator) -> impl Iterator<Item = (&'static str, u64)> {
    let counts: Vec<_> = aggregator.stats().transitions.iter().collect();
    Transition::ALL.iter().zip(counts).map(|((_, name), (_, count))| (*name, count))
}

fn drops(aggregator: &Aggregator) -> impl Iterator<Item = (&'static str, u64)> {
    let counts: Vec<_> = aggregator.stats().drops.iter().collect();
    counts.into_iter().map(|(reason, count)| (DropReason::name(reason), count))
}

/// Contributions of one rank under two exponents and of two lengths, the rest under one; with
/// hand-overs, and with the root's answers and refusals at a leaf.
fn events(members: usize, hands_over: bool, is_leaf: bool) -> Vec<Event> {
    let mut events = Vec::new();
    for step in 0..STEPS {
        for rank in 0..members {
            events.push(Event::Contribution { rank, step, exponent: 0, ends: false });
            events.push(Event::Status { rank, step });
            if hands_over {
                events.push(Event::HandOver { rank, step });
            }
        }
        if members > 1 {
            events.push(Event::Contribution { rank: 1, step, exponent: 1, ends: false });
        }
        if members == 2 {
            events.push(Event::Contribution { rank: 1, step, exponent: 0, ends: true });
        }
        if is_leaf {
            events.push(Event::Answer { step });
            events.push(Event::Refusal { step });
        }
    }
    events
}

#[test]
fn every_cell_of_a_windowed_lease_is_as_the_table_says() {
    let mut seen = Seen::new();
    // Both hold step 0, so that slots begin at step 1, which the first holds too.
    let held = &[(1, 0x80), (1, 0)];
    walk(|| root(3, &[]), &events(3, false, false), &mut seen);
    walk(|| leaf(3, &[], true), &events(3, false, true), &mut seen);
    walk(|| root(2, &[]), &events(2, false, false), &mut seen);
    walk(|| root(1, &[]), &events(1, false, false), &mut seen);
    walk(|| root(2, held), &events(2, true, false), &mut seen);
    for can_send_up in [true, false] {
        walk(|| leaf(2, &[], can_send_up), &events(2, false, true), &mut seen);
        walk(|| leaf(1, &[], can_send_up), &events(1, false, true), &mut seen);
        walk(|| leaf(2, held, can_send_up), &events(2, true, true), &mut seen);
    }
    judge(&["root", "leaf"], &seen);
}

const STEPS: u32 = 4;
