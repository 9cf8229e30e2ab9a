//! Rewrites frames of a capture as if they had come to this box, and what leaves it as if the
//! capture's box had sent it.

use std::net::SocketAddr;

use weft_engine::drops::DropReason;
use weft_kernel::crc32c;
use weft_wire::frame::{Encap, Endpoint, Udp};
use weft_wire::header::{Kind, Packet};
use weft_wire::hello::{Hello, Integrity};
use weft_wire::{Cookie, GroupId, JobId, MacAddr, Nanos, Rank};

use super::Foreign;
use crate::replay::member::Member;

/// A row of the capture, and which of ours it is.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) job: JobId,
    pub(super) number: u16,
    /// Ours, by index in the configuration.
    pub(super) index: usize,
    pub(super) members: Vec<Member>,
    /// The last JOIN of each rank in the capture.
    pub(super) joins: Vec<Option<Join>>,
    pub(super) formed: Vec<Formed>,
}

/// A JOIN of the capture.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) hello: Hello,
    pub(super) bitmap: Vec<u8>,
    /// Where it came from.
    pub(super) mac: MacAddr,
}

/// A generation of the capture, and what it is here.
#[derive(Debug)]
pub(super) struct Formed {
    pub(super) theirs: GroupId,
    pub(super) ours: GroupId,
    pub(super) cookies_up: Vec<Cookie>,
    pub(super) cookie_down: Cookie,
    pub(super) session: u64,
}

impl Foreign<'_> {
    /// What the frame would be if it had come to this box.
    pub(super) fn translate(
        &mut self,
        now: Nanos,
        bytes: &[u8],
        udp: &Udp,
        weft: &Packet<&[u8]>,
        rank: Rank,
    ) -> Result<Vec<u8>, DropReason> {
        let row = self.row(weft).ok_or(DropReason::UnknownGroup)?;
        if rank.index() >= self.rows[row].members.len() {
            return Err(DropReason::BadMembers);
        }
        let is_known = self.rows[row].formed.iter().any(|it| it.theirs == weft.group());
        let has_handshake = self.survey.has_handshake(weft.job(), weft.group().row());
        let is_stale = has_handshake && !self.survey.cookies_up.contains(&weft.cookie().0);
        if !is_known && !is_stale {
            self.form(now, row, weft.group());
        }
        let row = &self.rows[row];
        let config = &self.settings.table.rows[row.index];
        let formed = row.formed.iter().find(|formed| formed.theirs == weft.group());
        let unknown = GroupId::new(config.row, weft.group().generation());
        let (cookie, group) = match formed {
            _ if is_stale => (weft.cookie(), formed.map_or(unknown, |formed| formed.ours)),
            Some(formed) => (formed.cookies_up[rank.index()], formed.ours),
            None => return Err(DropReason::UnknownGroup),
        };
        let mut datagram = bytes[udp.payload_range()].to_vec();
        // As the box judges it; a checksum that is left to a card is none that failed.
        let was_good = match config.integrity {
            Integrity::Checksum16 => udp.checksum_ok(bytes) || udp.checksum_is_left(),
            _ => weft.crc() == 0 || Packet::new_unchecked(&mut datagram[..]).verify_crc(crc32c),
        };
        datagram[2..4].copy_from_slice(&config.job.0.to_be_bytes());
        datagram[4..8].copy_from_slice(&cookie.0.to_be_bytes());
        datagram[8..12].copy_from_slice(&group.0.to_be_bytes());
        if weft.members().single().is_some() {
            datagram[24..32].copy_from_slice(&rank.bit().0.to_be_bytes());
        }
        // Without a CRC only where this box has told the member so, too.
        let is_bare = row.members[rank.index()].is_bare() && weft.crc() == 0;
        let has_crc = config.integrity == Integrity::Crc32c && !is_bare;
        let mut frame = row.members[rank.index()].datagram(&mut datagram, has_crc);
        if !was_good && let Some(last) = frame.last_mut() {
            *last ^= 1;
        }
        Ok(frame)
    }

    /// The row of a frame; a new one finds its place in the configuration.
    pub(super) fn row(&mut self, weft: &Packet<&[u8]>) -> Option<usize> {
        let (job, number) = (weft.job(), weft.group().row());
        let known = self.rows.iter().position(|row| row.job == job && row.number == number);
        if known.is_some() {
            return known;
        }
        let ours = &self.settings.table.rows;
        let is_free = |index: &usize| self.rows.iter().all(|row| row.index != *index);
        let same = ours.iter().position(|row| row.job == job && row.row == number);
        let index = same.filter(is_free).or_else(|| (0..ours.len()).find(is_free))?;
        let config = &ours[index];
        let has_checksum = config.integrity == Integrity::Checksum16;
        let member = |(rank, member): (u8, &weft_engine::table::MemberConfig)| {
            let own = Endpoint { mac: mac_of_member(index, rank.into()), addr: member.addr };
            let (row, rank) = (config.row, Rank::new(rank)?);
            let member = Member::new((own, self.local), config.job, row, rank, 1)?;
            Some(if has_checksum { member.with_checksum() } else { member })
        };
        let members = (0..=u8::MAX).zip(&config.members).map(member).collect::<Option<_>>()?;
        let members: Vec<Member> = members;
        let joins = members.iter().map(|_| None).collect();
        self.rows.push(Row { job, number, index, members, joins, formed: Vec::new() });
        Some(self.rows.len() - 1)
    }

    /// What a frame would be if the box of the capture had sent it, and to whom.
    pub(super) fn map_back(&self, frame: &[u8]) -> Option<(SocketAddr, Vec<u8>)> {
        let udp = Udp::parse(frame).ok()?;
        let mut datagram = frame.get(udp.payload_range())?.to_vec();
        let weft = Packet::new_checked(&datagram[..]).ok()?;
        if weft.kind() == Some(Kind::Hello) {
            return None;
        }
        let (group, has_crc) = (weft.group(), weft.crc() != 0);
        let ours = &self.settings.table.rows;
        let row = self.rows.iter().find(|row| ours[row.index].row == group.row())?;
        let config = &ours[row.index];
        let formed = row.formed.iter().find(|formed| formed.ours == group);
        let stale = GroupId::new(row.number, group.generation());
        let theirs = formed.map_or(stale, |formed| formed.theirs);
        // Where the capture does not say: one that never contributed, and a sum for all that the
        // capture's box sent to each.
        let here = Endpoint { mac: MacAddr::default(), addr: udp.target };
        let there = match udp.target.ip().is_multicast() {
            true => self.survey.cast(row.job, theirs),
            false => self.member_of_capture(
                config.members.iter().position(|member| member.addr == udp.target)?,
            ),
        };
        let to = there.unwrap_or(here);
        datagram[2..4].copy_from_slice(&row.job.0.to_be_bytes());
        datagram[8..12].copy_from_slice(&theirs.0.to_be_bytes());
        // Another cookie than the lease's is a stranger's, echoed.
        let is_own =
            formed.is_some_and(|formed| formed.cookie_down.0.to_be_bytes() == datagram[4..8]);
        let welcome = self.survey.welcome_down.get(&(row.job, theirs.0));
        let seen = || self.survey.cookies_down.get(&(to.addr, theirs.0));
        if let Some(cookie) = welcome.or_else(seen).filter(|_| is_own) {
            datagram[4..8].copy_from_slice(&cookie.0.to_be_bytes());
        }
        let mut packet = Packet::new_unchecked(&mut datagram[..]);
        if has_crc {
            packet.seal(crc32c);
        }
        let encap = Encap::new(self.target, to)?;
        let start = encap.header_len();
        let mut frame = vec![0; start + datagram.len()];
        frame[start..].copy_from_slice(&datagram);
        encap.emit(&mut frame, datagram.len());
        if udp.checksum != 0 {
            encap.finish(&mut frame);
        }
        Some((to.addr, frame))
    }

    /// Where a rank is in the capture; one that never contributed there has no place.
    fn member_of_capture(&self, rank: usize) -> Option<Endpoint> {
        let (addr, (_, mac)) = self.survey.ranks.iter().find(|(_, (it, _))| it.index() == rank)?;
        Some(Endpoint { mac: *mac, addr: *addr })
    }

    /// Where a member of ours begins a life: in memory, if its namesake does.
    pub(super) fn mac_of(&self, row: usize, rank: usize) -> MacAddr {
        let row = &self.rows[row];
        let joined = row.joins[rank].as_ref().map(|join| join.mac);
        let theirs = joined.or_else(|| self.member_of_capture(rank).map(|it| it.mac));
        match theirs {
            Some(MacAddr::MEMORY) => MacAddr::MEMORY,
            _ => mac_of_member(row.index, rank),
        }
    }
}

/// The Ethernet address of a member on a wire.
fn mac_of_member(row: usize, rank: usize) -> MacAddr {
    let octet = |index: usize| u8::try_from(index).unwrap_or(u8::MAX);
    MacAddr([2, 0, 0, 0, octet(row), octet(rank)])
}
