//! What a frame means: credits and outcomes from the server, HAVE from aggregators. A frame is
//! refused under the first reason that fits, before anything has changed.

use weft_control::{Decision, GROUPS_OPEN_MAX, Version};
use weft_wire::Nanos;
use weft_wire::frame::{Datagram, UdpAddr};
use weft_wire::header::{Flags, HEADER_LEN, Header, Kind, Outcome};
use weft_wire::rows::ROW_MODEL;

use super::pull::SERVER;
use super::update::{Asking, Phase};
use super::versions::extend;
use super::{EARLY_MAX, Event, ModelFault, PushFault, Pusher, State, UPDATE_CHUNKS_MAX};
use crate::classify::{Class, classify};
use crate::drops::DropReason;
use crate::role::channel::ClientEvent;
use weft_wire::GroupId;

impl Pusher {
    /// Takes an Ethernet frame that arrived at `now`.
    ///
    /// # Errors
    /// Why it was refused; that is counted, and nothing else has changed.
    pub fn handle_frame(&mut self, now: Nanos, frame: &mut [u8]) -> Result<(), DropReason> {
        let taken = self.take_frame(now, frame);
        if let Err(reason) = taken {
            self.stats.drops.count(reason);
        }
        taken
    }

    fn take_frame(&mut self, now: Nanos, frame: &mut [u8]) -> Result<(), DropReason> {
        let local = UdpAddr::from(self.config.local.addr);
        let (udp, header) = match classify(frame, |port| port == local.port()) {
            Class::Weft(udp, header) => (udp, header),
            Class::Host => return Err(DropReason::NotForUs),
            Class::Drop(reason) => return Err(reason),
        };
        if udp.target(frame) != local {
            return Err(DropReason::NotForUs);
        }
        if matches!(header.kind, Kind::Contrib | Kind::Status) {
            return Err(DropReason::Kind);
        }
        if self.state == State::Stopped {
            return Err(DropReason::Unsolicited);
        }
        let source = udp.source(frame);
        let place = self.hosts.iter().position(|host| host.channel.is_from_host(source));
        let place = place.ok_or(DropReason::WrongSource)?;
        let channel = &mut self.hosts[place].channel;
        match channel.handle_frame(now, &udp, &header, frame)? {
            ClientEvent::Handshake => Ok(()),
            ClientEvent::Opened => {
                self.take_opened(now, place);
                Ok(())
            }
            ClientEvent::Lost => {
                self.stats.channels_lost += 1;
                if place == SERVER {
                    self.asked_at = Some(now);
                }
                Ok(())
            }
            ClientEvent::Closed => {
                self.stop_if_closed();
                Ok(())
            }
            ClientEvent::Frame if self.state != State::Open => Err(DropReason::Unsolicited),
            ClientEvent::Frame if place == SERVER => {
                self.asked_at = None;
                self.take_from_server(now, &udp, &header, frame)
            }
            ClientEvent::Frame => self.take_from_box(now, place, &udp, &header, frame),
        }
    }

    fn take_opened(&mut self, now: Nanos, place: usize) {
        if place != SERVER {
            return;
        }
        let Some(terms) = self.hosts[SERVER].channel.terms().copied() else { return };
        self.asked_at = None;
        let chunk_len = usize::from(terms.job.elements) * size_of::<f32>();
        let probe_len = usize::from(self.config.probe_len);
        let fault = if terms.job.chunks > UPDATE_CHUNKS_MAX {
            Some(ModelFault::Chunks)
        } else if probe_len > 0 && HEADER_LEN + chunk_len > probe_len {
            Some(ModelFault::Elements)
        } else if !terms.mask.contains(self.config.rank.bit()) {
            Some(ModelFault::Mask)
        } else if self.terms.is_some_and(|agreed| agreed.job != terms.job) {
            Some(ModelFault::Changed)
        } else {
            None
        };
        if let Some(fault) = fault {
            self.stop(Event::Failed(PushFault::BadModel(fault)));
            return;
        }
        let is_first = self.terms.replace(terms).is_none();
        if is_first && self.state == State::Connecting {
            self.state = State::Open;
            self.report(Event::Connected);
            return;
        }
        // What was under way must be asked for anew: the server may know nothing of it.
        (self.newest, self.pulled) = (Version(0), Version(0));
        for update in self.updates.iter_mut().filter(|update| Self::is_granted(update)) {
            update.credits_lost();
            update.status = Asking::after(now, 0);
        }
        self.puller.restart(now, &mut self.stats);
        self.report(Event::Reconnected);
    }

    fn take_from_server(
        &mut self,
        now: Nanos,
        udp: &Datagram,
        header: &Header,
        frame: &[u8],
    ) -> Result<(), DropReason> {
        match header.kind {
            Kind::Pull if udp.payload_range().len() > HEADER_LEN => Err(DropReason::Length),
            Kind::Pull => self.take_credit(now, header),
            Kind::Ack if header.group.row() == ROW_MODEL => self.take_version(now, header),
            Kind::Ack => self.take_outcome(now, header),
            Kind::State => self.take_server_state(now, header),
            Kind::Answer => self.take_model(now, udp, header, frame),
            _ => Err(DropReason::Kind),
        }
    }

    fn take_from_box(
        &mut self,
        now: Nanos,
        place: usize,
        udp: &Datagram,
        header: &Header,
        frame: &[u8],
    ) -> Result<(), DropReason> {
        match header.kind {
            Kind::State => self.take_box_state(now, place, udp, header),
            Kind::Answer => self.take_model(now, udp, header, frame),
            _ => Err(DropReason::Kind),
        }
    }

    /// A credit: the chunk goes out, once. One that overtook its grant is kept for it.
    fn take_credit(&mut self, now: Nanos, header: &Header) -> Result<(), DropReason> {
        let chunks = self.terms.map_or(0, |terms| terms.job.chunks);
        let chunk = header.chunk.0;
        if !header.members.is_empty() && !header.members.contains(self.config.rank.bit()) {
            return Err(DropReason::BadMembers);
        }
        let Some(index) = self.granted(header.group) else {
            let is_waiting = self.updates.iter().any(|update| update.phase == Phase::Requested);
            let is_known = self.updates.iter().any(|update| update.group == header.group);
            let is_installed = header.group.row() < GROUPS_OPEN_MAX;
            if is_installed && !is_waiting && !is_known {
                self.decline(header.group);
            }
            if !is_waiting || is_known || !is_installed || chunk >= chunks {
                return Err(DropReason::UnknownGroup);
            }
            if self.early.len() == EARLY_MAX {
                self.early.pop_front();
            }
            self.early.push_back((header.group, chunk));
            self.stats.credits_early += 1;
            return Ok(());
        };
        if chunk >= chunks {
            return Err(DropReason::ChunkOutOfRange);
        }
        let interval_ns = self.config.status_interval_ns;
        let update = &mut self.updates[index];
        if update.via.is_some() && !header.flags.contains(Flags::DIRECT) {
            return Err(DropReason::Unwanted);
        }
        if !update.take_credit(chunk) {
            self.stats.credits_refused += 1;
            return Err(DropReason::OverQuota);
        }
        self.stats.credits += 1;
        update.status = Asking::after(now, interval_ns);
        Ok(())
    }

    /// No grant will come for this group: the server need not wait for us.
    fn decline(&mut self, group: GroupId) {
        if !self.declined.contains(&group) && !self.declined.is_full() {
            self.declined.push(group);
        }
    }

    /// Gives a group that was granted now the credits that came before.
    pub(super) fn replay_early(&mut self, group: GroupId) {
        let Some(index) = self.granted(group) else { return };
        let update = &mut self.updates[index];
        for (_, chunk) in self.early.iter().filter(|(early, _)| *early == group) {
            update.take_credit(*chunk);
        }
        self.early.retain(|(early, _)| *early != group);
    }

    fn take_outcome(&mut self, now: Nanos, header: &Header) -> Result<(), DropReason> {
        let index = self.granted(header.group).ok_or(DropReason::Unsolicited)?;
        let version = extend(header.chunk.0, self.newest);
        let decision = match header.outcome {
            Outcome::Committed if header.members.contains(self.config.rank.bit()) => {
                Decision::Committed(version)
            }
            Outcome::Committed | Outcome::Void => Decision::Void,
            Outcome::Dropped => Decision::Dropped,
            Outcome::Staged => {
                let interval_ns = self.config.status_interval_ns;
                self.updates[index].status = Asking::after(now, interval_ns);
                return Ok(());
            }
            _ => return Err(DropReason::Kind),
        };
        if header.outcome == Outcome::Committed {
            self.newest = self.newest.max(version);
        }
        self.decide(index, decision);
        Ok(())
    }

    fn take_server_state(&mut self, now: Nanos, header: &Header) -> Result<(), DropReason> {
        match header.outcome {
            // No version may be shown yet; our own timer goes on.
            Outcome::Wait if header.group.row() == ROW_MODEL => Ok(()),
            Outcome::Wait => self.granted(header.group).map(drop).ok_or(DropReason::Unsolicited),
            Outcome::Stale if header.group.row() == ROW_MODEL => self.take_gone(now, header),
            Outcome::Stale => {
                // The server keeps what it decided lately, so it never will decide this.
                let index = self.granted(header.group).ok_or(DropReason::Unsolicited)?;
                self.decide(index, Decision::Void);
                Ok(())
            }
            _ => Err(DropReason::Unsolicited),
        }
    }

    fn take_box_state(
        &mut self,
        now: Nanos,
        place: usize,
        udp: &Datagram,
        header: &Header,
    ) -> Result<(), DropReason> {
        if header.group.row() == ROW_MODEL {
            return match header.outcome {
                Outcome::Stale => self.take_gone(now, header),
                // The relay has asked the server; our own timer goes on.
                Outcome::Have | Outcome::Wait => Ok(()),
                _ => Err(DropReason::Unsolicited),
            };
        }
        let index = self.granted(header.group).ok_or(DropReason::Unsolicited)?;
        if self.updates[index].via.is_none() || self.updates[index].via != self.hosts[place].index {
            return Err(DropReason::Unsolicited);
        }
        match header.outcome {
            Outcome::Have => self.take_have(now, index, place, udp, header),
            Outcome::Stale => {
                // The lease is gone: the group is decided, or the server will ask us itself.
                let update = &mut self.updates[index];
                update.flight.stop();
                update.status = Asking::after(now, 0);
                Ok(())
            }
            Outcome::Wait => Ok(()),
            _ => Err(DropReason::Unsolicited),
        }
    }

    fn take_have(
        &mut self,
        now: Nanos,
        index: usize,
        place: usize,
        udp: &Datagram,
        header: &Header,
    ) -> Result<(), DropReason> {
        let interval_ns = self.config.status_interval_ns;
        let (update, host) = (&mut self.updates[index], &mut self.hosts[place]);
        if !header.members.contains(self.config.rank.bit()) {
            // The sum went up without us: the group was closed. The server knows.
            update.flight.stop();
            update.status = Asking::after(now, 0);
            return Ok(());
        }
        let is_limited = update.flight.out() >= host.path.window();
        let sent = update.flight.acknowledge(now, &host.path, header.chunk.0);
        let sent = sent.ok_or(DropReason::Duplicate)?;
        let is_marked = udp.congestion() || header.flags.contains(Flags::CONGESTION);
        let halved = host.path.on_answer(now, &sent, is_limited, is_marked);
        self.stats.congestion_marks += u64::from(is_marked);
        self.stats.window_reductions += u64::from(halved);
        if update.flight.is_finished() && !update.is_delivered {
            update.is_delivered = true;
            update.status = Asking::after(now, interval_ns);
            let number = update.number;
            self.report_progress(number, false, true);
        }
        Ok(())
    }

    /// The update that was granted this group and is not decided.
    fn granted(&self, group: GroupId) -> Option<usize> {
        self.updates.iter().position(|update| Self::is_granted(update) && update.group == group)
    }
}
