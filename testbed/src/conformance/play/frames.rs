//! What a frame is that a line sends or expects, from what its peer knows by now.

use super::*;

impl Play<'_> {
    /// Whether a server or replica takes the cookie for the box's.
    pub(super) fn knows(&self, to: PeerId, frame: &[u8], header: &Header, fields: &Fields) -> bool {
        let Mind::End(End::Host { host, peer }) = &self.minds[to] else { return true };
        let Ok(udp) = Datagram::find(frame) else { return false };
        fields.cookie.is_some() || host.identify(*peer, header.cookie, udp.source(frame)).is_ok()
    }

    pub(super) fn wanted<'b>(&'b self, to: PeerId, word: Word, fields: &'b Fields) -> Wanted<'b> {
        let peer = &self.script.peers[to];
        let lease = &self.script.leases[peer.lease];
        let is_push = matches!(lease.kind, LeaseKind::Push(_));
        let elements = match word {
            Word::Hello(_) => Elements::NONE,
            Word::Data(Kind::State | Kind::Ack, _) if is_push => Elements::NONE,
            Word::Data(..) => Elements::of(lease),
        };
        let group = self.group_for(to, fields);
        let cookie = match (fields.cookie, &self.minds[to]) {
            (Some(cookie), _) => Some(self.cookie(to, cookie)),
            (None, Mind::Member(member)) => Some(member.cookie_down),
            (None, Mind::End(End::Worker(client))) => client.terms().map(|terms| terms.cookie_down),
            (None, Mind::End(End::Host { .. })) => None,
        };
        let member = match &self.minds[to] {
            Mind::Member(member) => Some(member),
            Mind::End(_) => None,
        };
        Wanted {
            word,
            fields,
            to: endpoint_of(peer),
            job: fields.job.map_or_else(|| lease.job(), JobId),
            group,
            cookie,
            elements: elements.with(fields),
            count: lease.elements(),
            integrity: self.integrity(peer.lease),
            mask: self.mask(peer.lease),
            member,
        }
    }

    pub(super) fn integrity(&self, lease: usize) -> Integrity {
        match &self.script.leases[lease].kind {
            LeaseKind::Row(row) => row.integrity,
            LeaseKind::Push(_) => self.target.push_integrity(),
        }
    }

    pub(super) fn mask(&self, lease: usize) -> Members {
        match (&self.script.leases[lease].kind, &self.groups[lease]) {
            (LeaseKind::Row(row), _) => Members::first(row.members.len()),
            (LeaseKind::Push(_), Some(group)) => group.members,
            (LeaseKind::Push(push), None) => Members::first(push.workers.len()),
        }
    }

    /// The group id of a frame from or to a peer.
    pub(super) fn group_for(&self, peer: PeerId, fields: &Fields) -> GroupId {
        let lease = self.script.peers[peer].lease;
        let (known, old) = match &self.minds[peer] {
            Mind::Member(member) => (member.group, member.group_old),
            Mind::End(_) => {
                let group = self.groups[lease].as_ref().map_or(GroupId::new(0, 1), |g| g.group);
                (group, group)
            }
        };
        let generation = match fields.generation {
            None => known.generation(),
            Some(Generation::Number(number)) => number,
            Some(Generation::Other) => known.generation().wrapping_add(7),
            Some(Generation::Old) => old.generation(),
        };
        GroupId::new(fields.row.unwrap_or_else(|| known.row()), generation)
    }

    pub(super) fn cookie(&self, peer: PeerId, cookie: CookieOf) -> Cookie {
        let up = |peer: PeerId| match &self.minds[peer] {
            Mind::Member(member) => member.cookie_up,
            Mind::End(end) => end.cookie_up(),
        };
        match cookie {
            CookieOf::Up(peer) => up(peer),
            CookieOf::Down(peer) => match &self.minds[peer] {
                Mind::Member(member) => member.cookie_down,
                Mind::End(End::Worker(client)) => {
                    client.terms().map(|terms| terms.cookie_down).unwrap_or_default()
                }
                Mind::End(_) => Cookie::default(),
            },
            CookieOf::Stale => Cookie(up(peer).0 ^ 0x0100_0000),
            CookieOf::Wrong => Cookie(up(peer).0 ^ 1),
            CookieOf::Old => match &self.minds[peer] {
                Mind::Member(member) => member.cookie_old,
                Mind::End(_) => self.carried[peer],
            },
            CookieOf::Echoed => self.carried[peer],
            CookieOf::Got => {
                self.received[peer].as_ref().map(|got| got.header.cookie).unwrap_or_default()
            }
            CookieOf::Number(number) => Cookie(number),
        }
    }

    pub(super) fn frame(&mut self, from: PeerId, word: Word, fields: &Fields) -> Played<Vec<u8>> {
        let peer = &self.script.peers[from];
        let lease = &self.script.leases[peer.lease];
        let job = fields.job.map_or_else(|| lease.job(), JobId);
        let group = self.group_for(from, fields);
        let own = endpoint_of(peer);
        let source = match fields.source {
            None => own,
            Some(Source::Peer(other)) => moved(own, endpoint_of(&self.script.peers[other]).addr),
            Some(Source::Port(port)) => moved(own, SocketAddr::new(own.addr.ip(), port)),
            Some(Source::Address(addr)) => moved(own, addr.into()),
        };
        let bit = match peer.part {
            Part::Member(rank) => Rank::new(rank).expect("members are few").bit(),
            Part::Server | Part::Replica => self.mask(peer.lease),
        };
        let (kind, outcome) = match word {
            Word::Hello(phase) => {
                return self.hello(from, phase, source, (job, group, bit), fields);
            }
            Word::Data(kind, outcome) => (kind, outcome),
        };
        let bit = if kind == Kind::Answer { self.mask(peer.lease) } else { bit };
        let cookie = self.cookie(from, fields.cookie.unwrap_or(CookieOf::Up(from)));
        self.carried[from] = cookie;
        let elements = match kind {
            Kind::Contrib | Kind::Answer | Kind::Status => Elements::of(lease),
            _ => Elements::NONE,
        };
        let members = fields.members.unwrap_or(bit);
        let header = header_of(kind, job, group, (cookie, members), elements.with(fields), fields);
        let header = Header { outcome, ..header };
        let chunk = fields.chunk.unwrap_or(0);
        let bytes = match kind {
            Kind::Contrib | Kind::Answer => {
                if fields.balances {
                    let Some(got) = &self.received[from] else {
                        return self.fail("script", "an answer before", "nothing to balance");
                    };
                    self.values.insert((from, chunk), vec![i32::from(got.balance(chunk)), 0]);
                }
                if let Some(values) = &fields.values {
                    self.values.insert((from, chunk), values.clone());
                }
                let values = self.values.get(&(from, chunk)).map_or(&[][..], Vec::as_slice);
                payload(values, lease.elements())
            }
            _ if fields.padded => payload(&[], lease.elements()),
            _ => Vec::new(),
        };
        Ok(build(source, self.integrity(peer.lease), &header, &bytes, fields))
    }

    fn hello(
        &mut self,
        from: PeerId,
        phase: Phase,
        source: weft_wire::frame::Endpoint,
        (job, group, bit): (JobId, GroupId, Members),
        fields: &Fields,
    ) -> Played<Vec<u8>> {
        let Mind::Member(member) = &mut self.minds[from] else {
            return self.fail("script", "join", "a handshake datagram of a push job");
        };
        if fields.holding.is_some() {
            member.held.clone_from(&fields.holding);
        }
        let (mut body, bitmap) = member.body(phase);
        body.life = fields.life.unwrap_or(body.life);
        body.token = fields.token.unwrap_or(body.token);
        body.session = fields.session.unwrap_or(body.session);
        let group = GroupId::new(group.row(), 0);
        let plain = plain_header(Kind::Hello, job, group, fields.members.unwrap_or(bit));
        let header = Header { flags: fields.flags, ..plain };
        let bytes = hello_payload(&body, &bitmap);
        Ok(build(source, Integrity::Crc32c, &header, &bytes, fields))
    }
}
