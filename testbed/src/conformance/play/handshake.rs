//! Steps that are more than one frame: joining, groups, new lives.

use super::*;

impl Play<'_> {
    pub(super) fn join(&mut self, peers: &[PeerId], holding: Option<&Vec<u32>>) -> Played {
        for peer in peers {
            match &mut self.minds[*peer] {
                Mind::Member(member) => {
                    member.held = holding.cloned();
                    self.ask(*peer, Phase::Hello)?;
                    self.ask(*peer, Phase::Join)?;
                }
                Mind::End(_) => self.open(*peer)?,
            }
        }
        // Those that joined before the last hear of it when they ask again.
        let waiting = (0..self.minds.len())
            .filter(|peer| matches!(&self.minds[*peer], Mind::Member(member) if member.waits));
        for peer in waiting.collect::<Vec<_>>() {
            self.ask(peer, Phase::Join)?;
        }
        let lease = self.script.peers[peers[0]].lease;
        let hosts = (0..self.minds.len()).filter(|peer| self.script.peers[*peer].lease == lease);
        for peer in hosts.collect::<Vec<_>>() {
            if matches!(&self.minds[peer], Mind::End(End::Host { .. })) {
                self.open(peer)?;
            }
        }
        Ok(())
    }

    /// Sends a datagram of the handshake, whose answer has to come.
    fn ask(&mut self, peer: PeerId, phase: Phase) -> Played {
        let frame = self.frame(peer, Word::Hello(phase), &Fields::default())?;
        self.give(peer, &frame)?;
        let name = &self.script.peers[peer].name;
        let Some(answer) = self.inboxes[peer].pop_front() else {
            return self.fail("join", format!("an answer to {name} > {phase}"), "nothing");
        };
        let got = match Arrived::read(&answer) {
            Ok(got) => got,
            Err(problem) => return self.fail("join", "a datagram", problem),
        };
        let is_good = match phase {
            Phase::Hello => got.word() == Word::Hello(Phase::Challenge),
            _ => matches!(got.word(), Word::Hello(Phase::Welcome | Phase::Waiting)),
        };
        if is_good {
            return Ok(());
        }
        self.fail("join", format!("{name} is taken in"), name_of(got.word()))
    }

    /// Opens a channel: a worker's by its own frames, a host's by the box's.
    fn open(&mut self, peer: PeerId) -> Played {
        for _ in 0..OPENINGS_MAX {
            let Mind::End(end) = &mut self.minds[peer] else { return Ok(()) };
            if end.is_open() {
                return Ok(());
            }
            match end.poll(self.now) {
                Some(frame) => self.give(peer, &frame)?,
                None => {
                    let pause = Nanos::from_millis(20);
                    self.now = self.now.saturating_add(pause);
                    self.late = self.late.saturating_add(pause);
                    self.poll()?;
                }
            }
        }
        let name = &self.script.peers[peer].name;
        self.fail("join", format!("a channel of {name}"), "none")
    }

    pub(super) fn group(&mut self, decl: &GroupDecl) -> Played {
        let LeaseKind::Push(push) = &self.script.leases[decl.lease].kind else { return Ok(()) };
        let member = |rank| GroupMember { rank, version: Version(0) };
        self.orders += 1;
        let descriptor = GroupDescriptor {
            job: push.job,
            group: decl.group,
            order: OrderNumber(self.orders),
            members: decl.members.iter().map(member).collect(),
            chunks: decl.chunks,
            element_type: push.element_type,
            elements: push.elements,
            exponent: decl.exponent,
            via: Some(push.box_index),
            replicate: decl.replicate,
            rate_bytes_per_sec: None,
            after: None,
            train_chunks: 0,
            lateness_ns: 0,
        };
        let done = self.target.command(self.now, Command::Install(descriptor));
        self.carried_out(done)?;
        while let Some((_, event)) = self.target.event() {
            match event {
                Event::Installed { group } if group == decl.group && !decl.refused => {
                    self.groups[decl.lease] = Some(decl.clone());
                    return Ok(());
                }
                Event::Refused { group, .. } if group == decl.group && decl.refused => {
                    return Ok(());
                }
                Event::Refused { error, .. } => {
                    return self.fail("group", "installed", format!("{error:?}"));
                }
                _ => {}
            }
        }
        let expected = if decl.refused { "refused" } else { "installed" };
        self.fail("group", expected, "no such event")
    }

    /// A new life: what the peer knew is gone.
    pub(super) fn forget(&mut self, peer: PeerId) -> Played {
        self.lives += 1000;
        let entry = &self.script.peers[peer];
        let integrity = self.integrity(entry.lease);
        let mind = match (&self.script.leases[entry.lease].kind, entry.part) {
            (LeaseKind::Row(row), Part::Member(_)) => {
                Mind::Member(Member::new(row.row, self.lives))
            }
            (LeaseKind::Push(push), part) => {
                Mind::End(End::new(push, part, integrity, self.lives, self.now))
            }
            _ => unreachable!("a row has members only"),
        };
        self.minds[peer] = mind;
        Ok(())
    }
}

/// Frames that open a channel, and pauses between them.
const OPENINGS_MAX: usize = 64;
