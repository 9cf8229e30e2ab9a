//! Makes replayed contributions new: for benches on ports that deliver the same frames for ever.
//!
//! [`Restamp`] lets a [`Stamp`] rewrite each received frame in place before the engine sees it. A
//! frame that the stamp refuses is freed and counted. [`WindowStamp`] numbers contributions so that
//! each is the next one its member may send under the successor rule (SPEC#slot).
//!
//! The cost is charged to Weft in every figure: it runs on the same lcore, in the same burst. A CRC
//! is mended ([`Reseal`]), not made anew, for no deployment seals what it receives.

use weft_wire::header::{HEADER_LEN, LAYOUT, Packet};
use weft_wire::{Cookie, GroupId, MEMBERS_MAX, Nanos};

use crate::forward_port;
use crate::port::{Burst, Port};
use crate::reseal::Reseal;

/// Rewrites a received frame in place.
pub trait Stamp {
    /// Returns false when the frame is of no use.
    fn stamp(&mut self, frame: &mut [u8]) -> bool;
}

impl<F: FnMut(&mut [u8]) -> bool> Stamp for F {
    fn stamp(&mut self, frame: &mut [u8]) -> bool {
        self(frame)
    }
}

/// A port whose received frames are stamped.
#[derive(Debug)]
pub struct Restamp<P, S> {
    port: P,
    stamp: S,
    refused: u64,
}

impl<P: Port, S: Stamp> Restamp<P, S> {
    /// Wraps `port`.
    pub fn new(port: P, stamp: S) -> Self {
        Self { port, stamp, refused: 0 }
    }

    /// The wrapped port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The stamp.
    pub fn stamp(&self) -> &S {
        &self.stamp
    }

    /// The stamp, to give it other orders.
    pub fn stamp_mut(&mut self) -> &mut S {
        &mut self.stamp
    }

    /// Frames that the stamp refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

impl<P: Port, S: Stamp> Port for Restamp<P, S> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        let before = rx.len();
        self.port.rx_burst(now, rx);
        let mut index = before;
        while index < rx.len() {
            if self.stamp.stamp(rx[index].as_mut()) {
                index += 1;
            } else {
                rx.remove(index);
                self.refused += 1;
            }
        }
        rx.len() - before
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        self.port.tx_burst(now, tx)
    }

    forward_port!(port: alloc, copy, recycles, free, info, stats, carried, is_open, wait, waker);
    forward_port!(port: merges, multicast_base, hears, complaint);
}

/// What a [`WindowStamp`] writes.
#[derive(Clone, Debug)]
pub struct WindowStampConfig {
    /// Where the datagram starts in each frame: 42 (IPv4) or 62 (IPv6).
    pub payload_start: usize,
    /// Bytes of each member's datagram, padding behind it excluded.
    pub datagram_len: usize,
    /// The group, as welcomed.
    pub group: GroupId,
    /// Each member's cookie, by rank; as many as the group has members, 1 to 64.
    pub cookies: Vec<Cookie>,
    /// Slots of the lane.
    pub window: u32,
    /// Lanes of the box.
    pub shards: u32,
    /// The lane that this port feeds, below `shards`.
    pub shard: u32,
    /// First step.
    pub step_start: u32,
    /// First step that is not sent any more: the lane's `step_count`.
    pub step_end: u32,
    /// Mends the CRC of each datagram; `None` where the group's integrity is not `crc32c`.
    pub crc32c: Option<fn(&[u8]) -> u32>,
}

/// Gives every contribution of a member the next step of that member.
///
/// No member gets more than a window ahead of the slowest, so every accepted frame may claim or
/// join its slot. A frame is refused when its member must wait for another one, when all steps are
/// used up, or when it is no contribution of a member.
#[derive(Clone, Debug)]
pub struct WindowStamp {
    config: WindowStampConfig,
    reseal: Option<Reseal>,
    /// What group and cookie changed in the CRC of each member's last frame: as frames repeat, in
    /// that of the next too.
    changes: [Change; MEMBERS_MAX],
    /// Next step of each member.
    steps: [u32; MEMBERS_MAX],
    /// No member's next step is below this.
    lowest: u32,
}

impl WindowStamp {
    /// Starts all members at `step_start`.
    ///
    /// # Panics
    /// If there are no or more than 64 cookies, no shards, or `shard` is not below `shards`.
    #[must_use]
    pub fn new(config: WindowStampConfig) -> Self {
        assert!((1..=MEMBERS_MAX).contains(&config.cookies.len()), "1 to 64 members");
        assert!(config.shard < config.shards, "the shard is one of the shards");
        let reseal = config
            .crc32c
            .map(|crc32c| Reseal::new(crc32c, config.datagram_len, &[CHUNK, GROUP, COOKIE]));
        Self {
            steps: [config.step_start; MEMBERS_MAX],
            changes: [Change::default(); MEMBERS_MAX],
            lowest: config.step_start,
            config,
            reseal,
        }
    }

    /// Steps that every member has contributed to.
    #[must_use]
    pub fn complete_steps(&self) -> u32 {
        self.lowest_step() - self.config.step_start
    }

    /// Slots of the lane.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.config.window
    }

    fn lowest_step(&self) -> u32 {
        let members = self.config.cookies.len();
        self.steps[..members].iter().copied().min().unwrap_or(self.config.step_start)
    }

    /// The next step of the member, if it may send one.
    fn advance(&mut self, rank: usize) -> Option<u32> {
        let step = self.steps[rank];
        if step - self.lowest >= self.config.window {
            self.lowest = self.lowest_step();
        }
        if step - self.lowest >= self.config.window || step >= self.config.step_end {
            return None;
        }
        self.steps[rank] = step + 1;
        Some(step)
    }
}

impl WindowStamp {
    /// Stamps a datagram, which may have more bytes behind it.
    #[inline(always)]
    pub fn stamp_datagram(&mut self, datagram: &mut [u8]) -> bool {
        if datagram.len() < self.config.datagram_len {
            return false;
        }
        let Some(header) = datagram.first_chunk_mut::<HEADER_LEN>() else { return false };
        let Some(rank) = Packet::new_unchecked(&*header).members().single() else { return false };
        let rank = rank.index();
        let Some(Cookie(cookie)) = self.config.cookies.get(rank).copied() else { return false };
        let Some(step) = self.advance(rank) else { return false };
        // Chunks run modulo 2^32 over a session.
        let chunk = step.wrapping_mul(self.config.shards).wrapping_add(self.config.shard);
        let group = self.config.group.0;
        if let Some(reseal) = &self.reseal {
            let packet = Packet::new_unchecked(&*header);
            let differs = [packet.group().0 ^ group, packet.cookie().0 ^ cookie];
            let known = &mut self.changes[rank];
            if known.differs != differs {
                *known = Change { differs, crc: reseal.change(&[0, differs[0], differs[1]]) };
            }
            let crc = known.crc ^ reseal.change(&[packet.chunk().0 ^ chunk]);
            Reseal::mend(header, crc);
        }
        for (at, word) in [(CHUNK, chunk), (GROUP, group), (COOKIE, cookie)] {
            header[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        true
    }
}

impl Stamp for WindowStamp {
    #[inline(always)]
    fn stamp(&mut self, frame: &mut [u8]) -> bool {
        let start = self.config.payload_start;
        frame.get_mut(start..).is_some_and(|datagram| self.stamp_datagram(datagram))
    }
}

/// What new values of a group and a cookie change in a CRC.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// The bits of group and cookie that are others.
    differs: [u32; 2],
    crc: u32,
}

const COOKIE: usize = byte_of(b"cookie");
const GROUP: usize = byte_of(b"group");
const CHUNK: usize = byte_of(b"chunk");

/// Where a field lies in a datagram, from the table that the specification is checked against.
const fn byte_of(name: &[u8]) -> usize {
    let mut index = 0;
    while index < LAYOUT.len() {
        let field = LAYOUT[index].0.as_bytes();
        let mut at = 0;
        while at < name.len() && at < field.len() && name[at] == field[at] {
            at += 1;
        }
        if at == name.len() && at == field.len() {
            return LAYOUT[index].1;
        }
        index += 1;
    }
    panic!("the header has no such field");
}
