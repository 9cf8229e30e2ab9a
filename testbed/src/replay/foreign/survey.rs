//! Finds out who is who in captures: the box, the ranks of its members, and what handshakes told.
//! Pure.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use weft_engine::classify::{Class, classify};
use weft_engine::drops::DropReason;
use weft_io::pcap::{Capture, Packet as Captured};
use weft_wire::frame::multicast::mac_of;
use weft_wire::frame::{Endpoint, Udp, run};
use weft_wire::header::{HEADER_LEN, Header, Kind, Outcome, Packet};
use weft_wire::hello::{Hello, Phase};
use weft_wire::{Cookie, GroupId, JobId, MacAddr, Rank, rows};

/// What captures say of who is who.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Packets that have no datagram of Weft's, by reason.
    pub(super) skipped: BTreeMap<&'static str, u64>,
    /// Packets of several datagrams.
    pub(super) joined: u64,
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
            match frames(&packet) {
                Ok(frames) => {
                    survey.joined += u64::from(frames.len() > 1);
                    frames.iter().for_each(|frame| survey.learn(frame, map, &mut targets));
                }
                Err(reason) => *survey.skipped.entry(reason).or_default() += 1,
            }
        }
        let most = targets.into_iter().max_by_key(|(_, (count, _))| *count);
        survey.target = most.map(|(addr, (_, mac))| Endpoint { mac, addr });
        survey
    }

    fn learn(
        &mut self,
        frame: &[u8],
        map: &BTreeMap<IpAddr, Rank>,
        targets: &mut BTreeMap<SocketAddr, (usize, MacAddr)>,
    ) {
        let Some((udp, weft)) = open(frame) else { return };
        if weft.kind() == Some(Kind::Contrib)
            && let Some(rank) = weft.members().single()
        {
            let rank = map.get(&udp.source.ip()).copied().unwrap_or(rank);
            self.ranks.entry(udp.source).or_insert((rank, udp.source_mac));
            let mac = frame.first_chunk().map_or_else(MacAddr::default, |mac| MacAddr(*mac));
            targets.entry(udp.target).or_insert((0, mac)).0 += 1;
        } else if weft.kind() == Some(Kind::Hello) {
            if let Ok((hello, _)) = Hello::parse(weft.payload())
                && hello.phase == Phase::Welcome
            {
                self.cookies_up.insert(hello.cookie_up.0);
                let key = (weft.job(), weft.group().0);
                self.welcome_down.insert(key, hello.cookie_down);
                self.welcomed.insert((weft.job(), weft.group().0), hello.session);
                self.lives.insert((weft.job(), hello.life, hello.epoch.0), weft.group());
            }
        } else {
            if udp.target.ip().is_multicast() {
                let target = Endpoint { mac: mac_of(udp.target.ip()), addr: udp.target };
                self.casts.insert((udp.source, weft.job(), weft.group()), target);
            }
            self.cookies_down.insert((udp.target, weft.group().0), weft.cookie());
        }
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

/// The frames of a packet: without what the link put behind the IP packet, and one for each of
/// Weft's datagrams where a sender left the cutting of a run to its card.
///
/// # Errors
/// Why there is none of Weft's.
pub(super) fn frames<'a>(packet: &Captured<'a>) -> Result<Vec<Cow<'a, [u8]>>, &'static str> {
    let reason = || match classify(packet.bytes, |_| true) {
        Class::Drop(DropReason::Length) if packet.is_cut() => CUT,
        Class::Drop(reason) => reason.name(),
        Class::Host | Class::Weft(..) => DropReason::NotIp.name(),
    };
    let whole = Udp::parse(packet.bytes).map_err(|_| reason())?.payload_range().end;
    let frame = &packet.bytes[..whole];
    let (udp, _) = open(frame).ok_or_else(reason)?;
    let (headers, mut rest) = frame.split_at(udp.payload_start);
    let mut frames = Vec::new();
    while let Some((datagram, behind)) = first_datagram(rest) {
        let mut headers = headers.to_vec();
        run::set_payload_len(&mut headers, datagram.len());
        // As the card found it.
        run::leave_checksum(&mut headers);
        frames.push(Cow::Owned([&headers[..], datagram].concat()));
        rest = behind;
    }
    Ok(if frames.len() > 1 && rest.is_empty() { frames } else { vec![Cow::Borrowed(frame)] })
}

/// Takes a datagram off a run's payload, by its header; a vector's last contribution by the header
/// behind its padding.
fn first_datagram(run: &[u8]) -> Option<(&[u8], &[u8])> {
    let head = Packet::new_unchecked(run.first_chunk::<HEADER_LEN>()?);
    let (kind, element_len) = (head.kind()?, head.element_type()?.len_bytes());
    let has_elements = matches!(kind, Kind::Contrib | Kind::Answer);
    let mut len = HEADER_LEN;
    if has_elements || rows::is_of_keys(head.group().row()) {
        len += usize::from(head.count()) * element_len;
    }
    // Job and cookie are those of all datagrams of a run.
    let is_end = |behind: &[u8]| behind.is_empty() || behind.get(2..8) == run.get(2..8);
    if kind == Kind::Contrib && head.outcome() == Outcome::LAST {
        len = (len..=run.len()).step_by(element_len).find(|len| is_end(&run[*len..]))?;
    }
    let (datagram, behind) = run.split_at_checked(len)?;
    Header::parse(&Packet::new_unchecked(datagram)).ok().map(|_| (datagram, behind))
}

/// The datagram of Weft's in a frame.
pub(super) fn open(frame: &[u8]) -> Option<(Udp, Packet<&[u8]>)> {
    let udp = Udp::parse(frame).ok()?;
    let weft = Packet::new_checked(frame.get(udp.payload_range())?).ok()?;
    (weft.version() == weft_wire::header::VERSION && weft.kind().is_some()).then_some((udp, weft))
}

/// A frame of which the capture has only the beginning.
const CUT: &str = "cut";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_belongs_to_the_datagram_before_it() {
        let frame = include_bytes!("../../../../proto/vectors/contrib-last.bin");
        let datagram = &frame[42..];
        assert_eq!(first_datagram(datagram), Some((datagram, &[][..])));
        let run = [datagram, datagram, datagram].concat();
        let (first, behind) = first_datagram(&run).unwrap();
        assert_eq!((first, behind.len()), (datagram, 2 * datagram.len()));
    }
}
