//! Whose a frame of a push job is, and who pays for it (SPEC#checks, SPEC#channels).

use weft_wire::header::{HEADER_LEN, Kind, Outcome};
use weft_wire::rows::ROW_MODEL;
use weft_wire::{ChunkIndex, GroupId, Nanos};

use super::job::Job;
use super::{Arrival, Outbox};
use crate::admit::quota::{Payer, Strangers, formation_bytes};
use crate::drops::{DropCounters, DropReason};
use crate::role::Verdict;
use crate::role::channel::{ClientEvent, Peer, PeerChange};
use crate::send::pacer::TokenBucket;

impl Job {
    /// Decides the fate of a frame. What has not been paid for by then is the caller's to charge.
    pub(super) fn handle(
        &mut self,
        arrival: &mut Arrival<'_>,
        outbox: &mut Outbox,
        strangers: &mut Strangers,
        drops: &mut DropCounters,
    ) -> Result<Verdict, DropReason> {
        let result = self.dispatch(arrival, outbox, strangers, drops);
        self.stats.over_quota += u64::from(result == Err(DropReason::OverQuota));
        result
    }

    fn dispatch(
        &mut self,
        arrival: &mut Arrival<'_>,
        outbox: &mut Outbox,
        strangers: &mut Strangers,
        drops: &mut DropCounters,
    ) -> Result<Verdict, DropReason> {
        if arrival.header.kind == Kind::Pull {
            self.check_padding(arrival)?;
        }
        let source = arrival.source();
        if self.server.is_from_host(source) {
            return self.handle_from_server(arrival);
        }
        if let Some(replica) = self.replica.as_mut().filter(|link| link.is_from_host(source)) {
            let Arrival { now, udp, header, buffer, .. } = arrival;
            return match replica.handle_frame(*now, udp, header, buffer)? {
                ClientEvent::Frame => Err(DropReason::Kind),
                _ => Ok(Verdict::Hold),
            };
        }
        match arrival.header.kind {
            Kind::Hello => self.handle_hello(arrival, strangers),
            Kind::Contrib | Kind::Status => {
                self.handle_from_worker(arrival, outbox, strangers, drops)
            }
            Kind::Answer | Kind::Ack | Kind::Pull | Kind::State => Err(DropReason::Kind),
        }
    }

    /// A credit is padded to the length of a sum, or not at all.
    fn check_padding(&self, arrival: &Arrival<'_>) -> Result<(), DropReason> {
        let sum_len = self.data_header(GroupId(0), ChunkIndex(0), 0).payload_len();
        let padding_len = arrival.udp.payload_range().len() - HEADER_LEN;
        if [0, sum_len].contains(&padding_len) { Ok(()) } else { Err(DropReason::Length) }
    }

    fn handle_hello(
        &mut self,
        arrival: &mut Arrival<'_>,
        strangers: &mut Strangers,
    ) -> Result<Verdict, DropReason> {
        let (source, now, len_bytes) = (arrival.source(), arrival.now, arrival.len_bytes());
        let Arrival { udp, header, buffer, payer: unpaid, .. } = arrival;
        let bucket = &mut self.bucket;
        let reply = self.workers.handle_hello_for(udp, header, buffer, |payer| {
            *unpaid = Payer::Nobody;
            match payer {
                Payer::Job => take(bucket, now, len_bytes),
                _ => strangers.take(source, now, len_bytes),
            }
        })?;
        if reply.change.is_some() {
            self.renew_expected();
        }
        if let Some(PeerChange::NewLife(Peer::Worker(rank))) = reply.change {
            if let Some(bucket) = &mut self.bucket {
                bucket.charge(now, formation_bytes(0, 0));
            }
            // What the former life left half done here will never be whole.
            self.close(rank, |_, begun, chunks| begun > 0 && begun < chunks);
        }
        Ok(Verdict::Send { len: reply.len })
    }

    fn handle_from_worker(
        &mut self,
        arrival: &mut Arrival<'_>,
        outbox: &mut Outbox,
        strangers: &mut Strangers,
        drops: &mut DropCounters,
    ) -> Result<Verdict, DropReason> {
        let peer = Peer::worker(arrival.header.members)?;
        let (cookie, source) = (arrival.header.cookie, arrival.source());
        if let Err(reason) = self.workers.identify(peer, cookie, source) {
            let is_stale = matches!(reason, DropReason::StaleEpoch | DropReason::BadCookie);
            if !is_stale || !self.workers.is_at(peer, source) {
                return Err(reason);
            }
            arrival.payer = Payer::Nobody;
            strangers.take(source, arrival.now, arrival.len_bytes())?;
            let Arrival { udp, header, buffer, .. } = arrival;
            let len = self.workers.refuse_stale(peer, udp, header, buffer).ok_or(reason)?;
            drops.count(reason);
            return Ok(Verdict::Send { len });
        }
        arrival.payer = Payer::Nobody;
        let is_model = arrival.header.group.row() == ROW_MODEL;
        // A request costs what it may be answered with.
        let answer_len = if is_model { self.model_frame_len() } else { 0 };
        take(&mut self.bucket, arrival.now, answer_len.max(arrival.len_bytes()))?;
        let Peer::Worker(rank) = peer else { return Err(DropReason::BadMembers) };
        match arrival.header.kind {
            _ if is_model => self.handle_request(rank, arrival),
            Kind::Contrib => self.handle_contribution(rank, arrival, outbox, drops),
            // What became of a group its server tells.
            _ => Err(DropReason::Kind),
        }
    }

    fn handle_from_server(&mut self, arrival: &mut Arrival<'_>) -> Result<Verdict, DropReason> {
        let Arrival { now, udp, header, buffer, payer } = arrival;
        let event = self.server.handle_frame(*now, udp, header, buffer)?;
        *payer = Payer::Nobody;
        match event {
            ClientEvent::Opened => {
                self.relay.forget();
                return Ok(Verdict::Hold);
            }
            ClientEvent::Frame => {}
            ClientEvent::Handshake | ClientEvent::Lost | ClientEvent::Closed => {
                return Ok(Verdict::Hold);
            }
        }
        let is_model = header.group.row() == ROW_MODEL;
        match header.kind {
            Kind::Pull => {
                // A credit is answered with a sum. What the server sends else, it was asked for.
                let sum_len = usize::try_from(self.frame_len).unwrap_or(usize::MAX);
                take(&mut self.bucket, arrival.now, sum_len.max(arrival.len_bytes()))?;
                self.handle_credit(arrival)
            }
            Kind::Ack => self.handle_ack(&header.clone()),
            Kind::Answer if is_model => self.handle_answer(arrival),
            Kind::State if is_model && header.outcome == Outcome::Stale => {
                self.handle_gone(arrival)
            }
            _ => Err(DropReason::Kind),
        }
    }
}

/// Takes bytes from a job's token bucket, if it has one.
pub(super) fn take(
    bucket: &mut Option<TokenBucket>,
    now: Nanos,
    bytes: usize,
) -> Result<(), DropReason> {
    let has = bucket.as_mut().is_none_or(|bucket| bucket.take(now, bytes as u64));
    if has { Ok(()) } else { Err(DropReason::OverQuota) }
}
