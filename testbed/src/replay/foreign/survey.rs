//! Finds out who is who in captures: the box, the ranks of its members, and what handshakes told.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use weft_io::pcap::{Capture, Packet as Captured};
use weft_wire::frame::multicast::mac_of;
use weft_wire::frame::{Endpoint, Udp};
use weft_wire::header::{Kind, Packet};
use weft_wire::hello::{Hello, Phase};
use weft_wire::{Cookie, GroupId, JobId, MacAddr, Rank};

/// What captures say of who is who.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) target: Option<Endpoint>,
    /// Ranks by the address that contributions came from, and their Ethernet addresses.
    pub(super) ranks: BTreeMap<SocketAddr, (Rank, MacAddr)>,
    /// Groups that the box welcomed members to, and the sessions.
    pub(super) welcomed: BTreeMap<(JobId, u32), u64>,
    /// The same groups by the life that a member was welcome in, and the epoch.
    pub(super) lives: BTreeMap<(JobId, u64, u32), GroupId>,
    /// Where a box sent a group's sums once for all members.
    pub(super) casts: BTreeMap<(SocketAddr, JobId, GroupId), Endpoint>,
    /// What it told them to put into their frames, and what its own carry.
    pub(super) cookies_up: BTreeSet<u32>,
    pub(super) welcome_down: BTreeMap<(JobId, u32), Cookie>,
    /// What the box put into frames to an address, by group.
    pub(super) cookies_down: BTreeMap<(SocketAddr, u32), Cookie>,
}

impl Survey {
    pub(super) fn of<'a>(
        captures: impl Iterator<Item = &'a Capture>,
        map: &BTreeMap<IpAddr, Rank>,
    ) -> Self {
        let mut survey = Self::default();
        let mut targets: BTreeMap<SocketAddr, (usize, MacAddr)> = BTreeMap::new();
        for packet in captures.flat_map(Capture::packets) {
            let Some((udp, weft)) = open(&packet) else { continue };
            if weft.kind() == Some(Kind::Contrib)
                && let Some(rank) = weft.members().single()
            {
                let rank = map.get(&udp.source.ip()).copied().unwrap_or(rank);
                survey.ranks.entry(udp.source).or_insert((rank, udp.source_mac));
                let mac =
                    packet.bytes.first_chunk().map_or_else(MacAddr::default, |mac| MacAddr(*mac));
                targets.entry(udp.target).or_insert((0, mac)).0 += 1;
            } else if weft.kind() == Some(Kind::Hello) {
                if let Ok((hello, _)) = Hello::parse(weft.payload())
                    && hello.phase == Phase::Welcome
                {
                    survey.cookies_up.insert(hello.cookie_up.0);
                    let key = (weft.job(), weft.group().0);
                    survey.welcome_down.insert(key, hello.cookie_down);
                    survey.welcomed.insert((weft.job(), weft.group().0), hello.session);
                    survey.lives.insert((weft.job(), hello.life, hello.epoch.0), weft.group());
                }
            } else {
                if udp.target.ip().is_multicast() {
                    let target = Endpoint { mac: mac_of(udp.target.ip()), addr: udp.target };
                    survey.casts.insert((udp.source, weft.job(), weft.group()), target);
                }
                survey.cookies_down.insert((udp.target, weft.group().0), weft.cookie());
            }
        }
        let most = targets.into_iter().max_by_key(|(_, (count, _))| *count);
        survey.target = most.map(|(addr, (_, mac))| Endpoint { mac, addr });
        survey
    }

    /// True if the box welcomed a member to a group of this row.
    pub(super) fn has_handshake(&self, job: JobId, row: u16) -> bool {
        self.welcomed.keys().any(|(its, group)| *its == job && GroupId(*group).row() == row)
    }

    /// Where the box of the capture sent a group's sums once for all members, if it did.
    pub(super) fn cast(&self, job: JobId, group: GroupId) -> Option<Endpoint> {
        self.casts.get(&(self.target?.addr, job, group)).copied()
    }
}

/// The datagram of Weft's in a whole packet.
pub(super) fn open<'a>(packet: &Captured<'a>) -> Option<(Udp, Packet<&'a [u8]>)> {
    if packet.is_cut() {
        return None;
    }
    let udp = Udp::parse(packet.bytes).ok()?;
    let weft = Packet::new_checked(packet.bytes.get(udp.payload_range())?).ok()?;
    (weft.version() == weft_wire::header::VERSION && weft.kind().is_some()).then_some((udp, weft))
}
