//! How entries become frames: for each destination there is one frame in the making, and it leaves
//! when an entry of another kind comes, or one too many, or at the end of the turn.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Packet};
use weft_wire::hello::{BODY_LEN, Hello};
use weft_wire::keys::{
    ACCESS_LEN, CLAIM_LEN, Claim, ELEMENT_LEN, HEAD_LEN, Head, KEY_LEN, LAST_LEN, Number, What,
    emit,
};
use weft_wire::{ChunkIndex, Cookie, GroupId, Members};

use super::config::TableConfig;
use crate::send::datagram::plain_header;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum To {
    /// The table's box.
    Home,
    /// A process.
    Process(u8),
}

/// Who sends datagrams.
pub trait Outbox {
    /// Sends a datagram: a UDP payload. It may be lost.
    fn send(&mut self, to: To, datagram: &[u8]);
}

/// What all entries of a frame share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Kinship {
    pub(super) what: What,
    pub(super) repeat: bool,
    /// Whose bit the header has.
    pub(super) from: u8,
    pub(super) hops: u8,
    pub(super) peer: u8,
    pub(super) number: Number,
    pub(super) low: u64,
}

impl Kinship {
    /// Of a frame that answers a number, or none.
    pub(super) fn new(what: What, from: u8, number: Number) -> Self {
        Self { what, repeat: false, from, hops: 0, peer: 0, number, low: 0 }
    }
}

/// What its sender's frames show.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Terms {
    pub(super) life: u16,
    /// Of frames to the box, and of frames to processes.
    pub(super) cookies: [Cookie; 2],
}

/// The frames in the making.
#[derive(Debug)]
pub(super) struct Frames {
    table: TableConfig,
    terms: Terms,
    bins: Vec<Bin>,
}

#[derive(Clone, Debug)]
struct Bin {
    octets: Vec<u8>,
    /// 0: there is no frame.
    len: usize,
    entries: u16,
    floors: u16,
    kinship: Kinship,
    has_values: bool,
}

impl Frames {
    pub(super) fn new(table: TableConfig) -> Self {
        let bin = Bin {
            octets: vec![0; usize::from(table.payload_max)],
            len: 0,
            entries: 0,
            floors: 0,
            kinship: Kinship::new(What::Beat, 0, Number::NONE),
            has_values: false,
        };
        let bins = vec![bin; 1 + usize::from(table.processes)];
        Self { table, terms: Terms::default(), bins }
    }

    /// What frames show from now on. Nothing is in the making.
    pub(super) fn set_terms(&mut self, terms: Terms) {
        self.terms = terms;
    }

    /// Adds an entry of `len` bytes, which `write` writes.
    pub(super) fn put(
        &mut self,
        to: To,
        kinship: Kinship,
        len: usize,
        out: &mut impl Outbox,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) {
        self.open(to, kinship, len, 0, out);
        let bin = &mut self.bins[place(to)];
        if let Some(room) = bin.octets.get_mut(bin.len..bin.len + len)
            && write(room) == Some(len)
        {
            bin.len += len;
            bin.entries += 1;
        }
    }

    /// Adds an entry that is as it came.
    pub(super) fn put_octets(
        &mut self,
        to: To,
        kinship: Kinship,
        octets: &[u8],
        out: &mut impl Outbox,
    ) {
        self.put(to, kinship, octets.len(), out, |room| {
            room.copy_from_slice(octets);
            Some(octets.len())
        });
    }

    /// Adds a key alone.
    pub(super) fn put_key(&mut self, to: To, kinship: Kinship, key: u64, out: &mut impl Outbox) {
        self.put(to, kinship, KEY_LEN, out, |room| emit::key(room, key));
    }

    /// Adds an answer.
    pub(super) fn put_answer(
        &mut self,
        to: To,
        kinship: Kinship,
        key: u64,
        value: Option<&[f32]>,
        out: &mut impl Outbox,
    ) {
        let value_len = value.map_or(0, |value| value.len() * ELEMENT_LEN);
        let len = ACCESS_LEN + value_len;
        self.put(to, kinship, len, out, |room| emit::answer(room, key, value));
        self.bins[place(to)].has_values |= value.is_some();
    }

    /// Adds entries of a claim that belong into one frame.
    pub(super) fn put_claims(
        &mut self,
        to: To,
        kinship: Kinship,
        claims: &[Claim],
        out: &mut impl Outbox,
    ) {
        self.open(to, kinship, claims.len() * CLAIM_LEN, 0, out);
        for claim in claims {
            let len = CLAIM_LEN;
            self.put(to, kinship, len, out, |room| emit::claim(room, claim));
        }
    }

    /// Adds a row, in a frame that begins with these floors.
    pub(super) fn put_row(
        &mut self,
        to: To,
        kinship: Kinship,
        floors: &[Number],
        len: usize,
        out: &mut impl Outbox,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) {
        let floors_len = emit::number_count(floors) * LAST_LEN;
        if self.open(to, kinship, len, floors_len, out) {
            let bin = &mut self.bins[place(to)];
            if let Some(len) = emit::numbers(&mut bin.octets[bin.len..], floors) {
                bin.len += len;
                bin.floors = u16::try_from(emit::number_count(floors)).unwrap_or(0);
            }
        }
        self.put(to, kinship, len, out, write);
    }

    /// Makes a frame that has room for `len` bytes more. True if it has just been begun.
    pub(super) fn open(
        &mut self,
        to: To,
        kinship: Kinship,
        len: usize,
        first_len: usize,
        out: &mut impl Outbox,
    ) -> bool {
        let bin = &self.bins[place(to)];
        if bin.len > 0 {
            if bin.kinship == kinship && bin.len + len <= bin.octets.len() {
                return false;
            }
            self.flush(to, out);
        }
        let bin = &mut self.bins[place(to)];
        debug_assert!(HEADER_LEN + HEAD_LEN + first_len + len <= bin.octets.len(), "checked");
        (bin.len, bin.entries, bin.floors) = (HEADER_LEN + HEAD_LEN, 0, 0);
        (bin.kinship, bin.has_values) = (kinship, false);
        true
    }

    /// Sends what is in the making for one destination.
    pub(super) fn flush(&mut self, to: To, out: &mut impl Outbox) {
        let bin = &mut self.bins[place(to)];
        let len = core::mem::take(&mut bin.len);
        if len == 0 {
            return;
        }
        let cookie = self.terms.cookies[usize::from(to != To::Home)];
        let Kinship { what, hops, peer, number, low, .. } = bin.kinship;
        let (entries, floors) = (bin.entries, bin.floors);
        let head = Head { row_len: self.table.row_len, entries, floors, hops, peer, number, low };
        let mut header = header_of(&self.table, self.terms.life, cookie, &bin.kinship, len);
        if what == What::Answer && !bin.has_values {
            header.kind = Kind::Ack;
        }
        let datagram = &mut bin.octets[..len];
        seal(datagram, &header, &head);
        out.send(to, datagram);
    }

    /// Sends a frame without entries that shows this cookie.
    pub(super) fn send_lone(
        &self,
        to: To,
        kinship: &Kinship,
        cookie: Cookie,
        out: &mut impl Outbox,
    ) {
        let mut datagram = [0; HEADER_LEN + HEAD_LEN];
        let Kinship { hops, peer, number, low, .. } = *kinship;
        let row_len = self.table.row_len;
        let head = Head { row_len, entries: 0, floors: 0, hops, peer, number, low };
        let header =
            header_of(&self.table, self.terms.life, cookie, kinship, HEADER_LEN + HEAD_LEN);
        seal(&mut datagram, &header, &head);
        out.send(to, &datagram);
    }

    /// Sends a handshake datagram, padded as `body` says where that fits a datagram of the
    /// table's.
    pub(super) fn send_handshake(
        &mut self,
        to: To,
        life: u16,
        members: Members,
        body: &Hello,
        out: &mut impl Outbox,
    ) {
        self.flush(to, out);
        let room = &mut self.bins[place(to)].octets[..];
        let len = HEADER_LEN + body.body_len();
        match room.get_mut(..len) {
            Some(datagram) => {
                seal_handshake(&self.table, life, members, body, datagram);
                out.send(to, datagram);
            }
            None => out.send(to, &handshake(&self.table, life, members, body)),
        }
    }

    /// Sends all that is in the making, in order of destination.
    pub(super) fn flush_all(&mut self, out: &mut impl Outbox) {
        self.flush(To::Home, out);
        for process in 0..self.table.processes {
            self.flush(To::Process(process), out);
        }
    }

    /// Throws away what is in the making.
    pub(super) fn clear(&mut self) {
        self.bins.iter_mut().for_each(|bin| bin.len = 0);
    }
}

fn place(to: To) -> usize {
    match to {
        To::Home => 0,
        To::Process(process) => 1 + usize::from(process),
    }
}

fn header_of(
    table: &TableConfig,
    life: u16,
    cookie: Cookie,
    kinship: &Kinship,
    len: usize,
) -> Header {
    let (kind, flags, outcome) = kinship.what.header_fields();
    Header {
        kind,
        flags: if kinship.repeat { flags.union(Flags::RETRANSMIT) } else { flags },
        outcome,
        job: table.job,
        cookie,
        group: GroupId::new(table.row(), life),
        chunk: ChunkIndex(0),
        element_type: ElementType::I32,
        operation: Operation::None,
        exponent: 0,
        count: u16::try_from((len - HEADER_LEN) / ELEMENT_LEN).unwrap_or(u16::MAX),
        members: Members(1 << (kinship.from % 64)),
    }
}

fn seal(datagram: &mut [u8], header: &Header, head: &Head) {
    if let Some(room) = datagram[HEADER_LEN..].first_chunk_mut() {
        head.emit(room);
    }
    let mut packet = Packet::new_unchecked(datagram);
    header.emit(&mut packet);
    packet.seal(weft_kernel::crc32c);
}

/// A handshake datagram about a table, whole and sealed, without padding.
pub(super) fn handshake(
    table: &TableConfig,
    life: u16,
    members: Members,
    body: &Hello,
) -> [u8; HEADER_LEN + BODY_LEN] {
    let body = Hello { probe_len: 0, ..*body };
    let mut datagram = [0; HEADER_LEN + BODY_LEN];
    seal_handshake(table, life, members, &body, &mut datagram);
    datagram
}

/// Writes one over `datagram`, which is as long as `body` and its padding.
fn seal_handshake(
    table: &TableConfig,
    life: u16,
    members: Members,
    body: &Hello,
    datagram: &mut [u8],
) {
    body.emit(&[], &mut datagram[HEADER_LEN..]);
    let group = GroupId::new(table.row(), life);
    let mut packet = Packet::new_unchecked(datagram);
    plain_header(Kind::Hello, table.job, group, members).emit(&mut packet);
    packet.seal(weft_kernel::crc32c);
}
