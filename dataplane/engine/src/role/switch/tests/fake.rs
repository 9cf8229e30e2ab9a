//! A switch made of a few maps: tables, banks, and SPEC#slot's table for windowed leases. It
//! refuses what a real one would, and asserts what the agent has promised about order.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use weft_wire::frame::{Encap, Endpoint, Udp};
use weft_wire::header::{Flags, HEADER_LEN, Header, Kind, Outcome, Packet};
use weft_wire::{ChunkIndex, GroupId, Members};

use super::super::op::is_op;
use super::super::{Address, Entry, EntryKey, Row, RowKey, VECTOR_AT, Write, group_of};

/// The port of the box.
pub(super) const CPU: u16 = 510;
pub(super) const BANKS: u32 = 64;

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum State {
    #[default]
    Empty,
    Collecting,
    Answered,
    Virtual,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Bank {
    pub(super) epoch: u32,
    pub(super) step: u32,
    pub(super) state: State,
    pub(super) members: Members,
    pub(super) exponent: i8,
    pub(super) sum: Vec<i32>,
}

pub(super) struct FakeSwitch {
    pub(super) entries: BTreeMap<EntryKey, Entry>,
    pub(super) banks: Vec<Bank>,
    pub(super) life: u64,
    /// Entries of these tables are refused.
    pub(super) refuses: &'static str,
    pub(super) added: u64,
}

impl FakeSwitch {
    pub(super) fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            banks: vec![Bank::default(); BANKS as usize],
            life: 0,
            refuses: "none",
            added: 0,
        }
    }

    pub(super) fn write(&mut self, write: Write) -> Result<(), String> {
        let key = write.entry().key();
        let is_there = self.entries.contains_key(&key);
        self.check_order(&write);
        if alloc::format!("{key:?}").contains(self.refuses) {
            return Err("RESOURCE_EXHAUSTED".to_string());
        }
        match write {
            Write::Insert(entry) => {
                assert!(!is_there, "ALREADY_EXISTS: {entry:?}");
                self.entries.insert(key, entry);
            }
            Write::Modify(entry) => {
                assert!(is_there, "NOT_FOUND: {entry:?}");
                self.entries.insert(key, entry);
            }
            Write::Delete(entry) => {
                assert!(is_there, "NOT_FOUND: {entry:?}");
                self.entries.remove(&key);
            }
        }
        Ok(())
    }

    /// A row comes in last and goes out first.
    fn check_order(&self, write: &Write) {
        match write {
            Write::Insert(Entry::Windowed { row, .. } | Entry::Whole { row, .. }) => {
                let group = Entry::Group { id: group_of(row.scope), nodes: Vec::new() };
                assert!(self.entries.contains_key(&group.key()), "a row without its group");
                for rank in row.mask.iter() {
                    let id = u16::from(rank.number());
                    assert!(self.copy(row.scope, id).is_some(), "a row without rank {id}'s copy");
                    let has = |entry: &Entry| {
                        matches!(entry, Entry::Member { scope, members, .. }
                            if (*scope, *members) == (row.scope, rank.bit()))
                    };
                    assert!(self.entries.values().any(has), "a row without member {id}");
                }
            }
            Write::Insert(Entry::Member { scope, .. })
            | Write::Modify(Entry::Member { scope, .. })
            | Write::Delete(Entry::Member { scope, .. }) => {
                let meets = |entry: &Entry| matches!(entry, Entry::Windowed { row, .. } if row.scope == *scope);
                assert!(!self.entries.values().any(meets), "a member changes under its lease");
            }
            _ => {}
        }
    }

    fn copy(&self, scope: u16, id: u16) -> Option<Address> {
        self.entries.values().find_map(|entry| match entry {
            Entry::Copy { scope: of, id: it, to } if (*of, *it) == (scope, id) => Some(*to),
            _ => None,
        })
    }

    pub(super) fn row(&self, key: RowKey) -> Option<(Row, u32)> {
        self.entries.values().find_map(|entry| match entry {
            Entry::Windowed { key: of, row, window, .. } if *of == key => Some((*row, *window)),
            _ => None,
        })
    }

    /// Takes a frame in at a port; says what goes out where.
    pub(super) fn handle(&mut self, port: u16, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
        if is_op(frame) && port == CPU {
            return self.handle_op(frame);
        }
        if port == CPU {
            return self.bridge(port, frame);
        }
        let udp = Udp::parse(frame).expect("the tests send nothing else");
        let packet = Packet::new_unchecked(&frame[udp.payload_range()]);
        let header = Header::parse(&packet).expect("the workers' are whole");
        match header.kind {
            Kind::Contrib | Kind::Status => self.handle_step(&header, frame).unwrap_or_default(),
            _ => vec![(CPU, frame.to_vec())],
        }
    }

    fn bridge(&self, from: u16, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let known = self.entries.values().find_map(|entry| match entry {
            Entry::Bridge { mac, port } if mac.0 == frame[..6] => Some(*port),
            _ => None,
        });
        let flood = || match self.entries.get(&Entry::Group { id: 1, nodes: Vec::new() }.key()) {
            Some(Entry::Group { nodes, .. }) => nodes.iter().map(|(port, _)| *port).collect(),
            _ => Vec::new(),
        };
        let ports = known.map_or_else(flood, |port| vec![port]);
        ports.into_iter().filter(|to| *to != from).map(|to| (to, frame.to_vec())).collect()
    }

    fn handle_op(&mut self, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
        let wide = |at: usize| u64::from_be_bytes(frame[at..at + 8].try_into().unwrap());
        match frame[14] {
            1 => self.life = wide(46),
            3 => {
                let bank = &mut self.banks[word(26) as usize];
                let (epoch, step) = (word(30), word(34));
                let is_open =
                    bank.epoch == epoch && bank.step == step && bank.state == State::Collecting;
                if bank.epoch != epoch || is_open {
                    *bank = Bank {
                        epoch,
                        step,
                        state: if frame[15] == 3 { State::Answered } else { State::Virtual },
                        members: Members(wide(38)),
                        exponent: frame[16].cast_signed(),
                        sum: values(&frame[VECTOR_AT..]),
                    };
                }
            }
            _ => {}
        }
        let mut echo = frame[..VECTOR_AT].to_vec();
        echo[14] |= 0x80;
        echo[18..20].fill(0);
        echo[46..54].copy_from_slice(&self.life.to_be_bytes());
        vec![(CPU, echo)]
    }

    fn handle_step(&mut self, header: &Header, frame: &[u8]) -> Option<Vec<(u16, Vec<u8>)>> {
        let key = RowKey { job: header.job, row: header.group.row() };
        let (row, window) = self.row(key)?;
        let cookie = self.entries.values().find_map(|entry| match entry {
            Entry::Member { scope, members, cookie, .. }
                if (*scope, *members) == (row.scope, header.members) =>
            {
                Some(*cookie)
            }
            _ => None,
        })?;
        let rank = header.members.single()?;
        let id = u16::from(rank.number());
        let state = |header: &Header, outcome, members| Header {
            kind: Kind::State,
            flags: Flags::NONE,
            outcome,
            members,
            ..*header
        };
        if header.cookie != cookie {
            let stale = state(header, Outcome::Stale, Members::EMPTY);
            return Some(vec![self.out(row.scope, id, &stale, true, &[])?]);
        }
        let udp = Udp::parse(frame).ok()?;
        if !udp.checksum_ok(frame) || header.group != GroupId::new(key.row, row.generation) {
            return None;
        }
        let step = header.chunk.0;
        let slot = step & (window - 1);
        let of = |bank: u32| (row.base + 2 * slot + bank) as usize;
        let (at, other) = (of((step / window) & 1), of((step / window) & 1 ^ 1));
        let live = |at: usize, banks: &[Bank]| banks[at].epoch == row.lease_epoch;
        let current = live(at, &self.banks) && self.banks[at].step == step;
        let claimable = if step < window {
            !live(at, &self.banks) && !live(other, &self.banks)
        } else {
            let before = &self.banks[other];
            live(other, &self.banks)
                && matches!(before.state, State::Answered | State::Virtual)
                && before.step == step - window
                && (!live(at, &self.banks) || self.banks[at].step < step)
        };
        let is_status = header.kind == Kind::Status;
        let have = |members| state(header, Outcome::Have, members);
        if !current && claimable && is_status {
            return Some(vec![self.out(row.scope, id, &have(Members::EMPTY), false, &[])?]);
        }
        if !current && !claimable || self.banks[at].state == State::Virtual && current {
            let stale = state(header, Outcome::Stale, Members::EMPTY);
            return Some(vec![self.out(row.scope, id, &stale, false, &[])?]);
        }
        let answer = |bank: &Bank| Header {
            kind: Kind::Answer,
            flags: Flags::NONE,
            chunk: ChunkIndex(step),
            exponent: bank.exponent,
            members: row.mask,
            ..*header
        };
        if current && self.banks[at].state == State::Answered {
            let bank = self.banks[at].clone();
            return Some(vec![self.out(row.scope, id, &answer(&bank), false, &bank.sum)?]);
        }
        if current && (is_status || self.banks[at].members.contains(rank.bit())) {
            let have = have(self.banks[at].members);
            return Some(vec![self.out(row.scope, id, &have, false, &[])?]);
        }
        let payload = values(&frame[udp.payload_range()][HEADER_LEN..]);
        let bank = &mut self.banks[at];
        self.added += 1;
        if current {
            for (sum, value) in bank.sum.iter_mut().zip(&payload) {
                *sum = sum.wrapping_add(*value);
            }
            bank.members = bank.members.union(rank.bit());
        } else {
            *bank = Bank {
                epoch: row.lease_epoch,
                step,
                state: State::Collecting,
                members: rank.bit(),
                exponent: header.exponent,
                sum: payload,
            };
        }
        if bank.members != row.mask {
            return Some(Vec::new());
        }
        bank.state = State::Answered;
        let bank = bank.clone();
        let outs = row.mask.iter().filter_map(|rank| {
            self.out(row.scope, u16::from(rank.number()), &answer(&bank), false, &bank.sum)
        });
        Some(outs.collect())
    }

    /// A frame to a receiver of a scope, by its copy and its node.
    fn out(
        &self,
        scope: u16,
        id: u16,
        header: &Header,
        echoes: bool,
        sum: &[i32],
    ) -> Option<(u16, Vec<u8>)> {
        let to = self.copy(scope, id)?;
        let group = self.entries.get(&Entry::Group { id: group_of(scope), nodes: vec![] }.key())?;
        let Entry::Group { nodes, .. } = group else { return None };
        let (port, _) = nodes.iter().find(|(_, node)| *node == id)?;
        let source = Endpoint { mac: to.src_mac, addr: (to.src_ip, to.src_port).into() };
        let target = Endpoint { mac: to.dst_mac, addr: (to.dst_ip, to.dst_port).into() };
        let encap = Encap::new(source, target)?;
        let start = encap.header_len();
        let mut frame = vec![0; start + HEADER_LEN + sum.len() * 4];
        let cookie = if echoes { header.cookie } else { to.cookie };
        Header { cookie, ..*header }.emit(&mut Packet::new_unchecked(&mut frame[start..]));
        for (place, value) in frame[start + HEADER_LEN..].chunks_exact_mut(4).zip(sum) {
            place.copy_from_slice(&value.to_be_bytes());
        }
        let len = encap.emit(&mut frame, HEADER_LEN + sum.len() * 4);
        encap.finish(&mut frame[..len]);
        Some((*port, frame))
    }
}

fn values(bytes: &[u8]) -> Vec<i32> {
    let value = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().unwrap());
    bytes.chunks_exact(4).map(value).collect()
}
