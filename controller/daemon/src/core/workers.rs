//! Workers' streams: who may attach, when each is welcomed, what its messages ask of the engine.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use weft_control::Version;
use weft_controller_engine::{
    BegunRound, LostCommits, Reporter, TransferRequest, Unregistered, shown,
};
use weft_rpc::convert::rounds;
use weft_rpc::v1;
use weft_wire::{JobId, Rank};

use super::{Core, Ended, Outbox, Peer, UnregisterAnswer, WorkerKey, convert};
use crate::auth;

impl Core {
    pub(super) fn attach_worker(
        &mut self,
        hello: &v1::WorkerHello,
        peer: &auth::Peer,
        outbox: Outbox<v1::WorkerReply>,
    ) -> Result<(WorkerKey, Ended), v1::Refused> {
        let known = |name: &str| {
            self.controller.job_by_name(name).or_else(|| self.controller.reduce_by_name(name))
        };
        let job = match &hello.name {
            Some(name) => known(name).ok_or_else(|| {
                v1::Refused::new("name", format!("there is no job `{}`", shown(name)))
            })?,
            None => weft_rpc::convert::job(hello.job)?,
        };
        let rank = weft_rpc::convert::rank(hello.rank)?;
        peer.caller.check_worker(job, rank)?;
        if let Some(position) = &hello.position {
            let from = (hello.life, peer.ip());
            return self.attach_reducer((job, rank), from, position, outbox);
        }
        let attached = self.controller.handle_worker(job, rank, hello.life, peer.ip());
        attached.map_err(convert::refused)?;
        self.streams += 1;
        let key = WorkerKey { job, rank, stream: self.streams };
        let (end, ended) = oneshot::channel();
        self.workers.insert((job, rank), Peer { stream: key.stream, outbox, _end: end });
        self.welcomes.push((key, Instant::now() + ADDRESSES_TIMEOUT));
        Ok((key, ended))
    }

    /// A worker of an allreduce is answered once its lease is in.
    fn attach_reducer(
        &mut self,
        (job, rank): (JobId, Rank),
        from: (u64, Option<IpAddr>),
        position: &v1::RoundPosition,
        outbox: Outbox<v1::WorkerReply>,
    ) -> Result<(WorkerKey, Ended), v1::Refused> {
        let position = rounds::position(position)?;
        self.streams += 1;
        let key = WorkerKey { job, rank, stream: self.streams };
        let attached = self.controller.handle_reducer(job, rank, from, position);
        attached.map_err(convert::refused)?;
        let (end, ended) = oneshot::channel();
        self.workers.insert((job, rank), Peer { stream: key.stream, outbox, _end: end });
        Ok((key, ended))
    }

    /// Answers the hellos of workers whose boxes' addresses are known by now, or will not be.
    pub(super) fn welcome(&mut self) {
        let now = Instant::now();
        let mut ready = Vec::new();
        let mut waiting = Vec::with_capacity(self.welcomes.len());
        for (key, until) in std::mem::take(&mut self.welcomes) {
            match until <= now || self.knows_addresses(key.job) {
                true => ready.push(key),
                false => waiting.push((key, until)),
            }
        }
        self.welcomes = waiting;
        for key in ready {
            let is_current =
                self.workers.get(&(key.job, key.rank)).is_some_and(|p| p.stream == key.stream);
            let described = self.describe(key.job).filter(|_| is_current);
            if let Some(described) = described {
                self.reply(key.job, key.rank, v1::worker_reply::Message::Welcome(described));
            }
        }
    }

    fn knows_addresses(&self, job: JobId) -> bool {
        self.controller.job(job).is_none_or(|job| {
            let boxes = job.aggregators.iter().chain([&job.server]).chain(&job.replica);
            boxes.into_iter().all(|node| !self.controller.address(node).is_empty())
        })
    }

    pub(super) fn describe(&self, job: JobId) -> Option<v1::JobDescription> {
        let config = self.controller.job(job)?;
        let address = |node: &str| self.controller.address(node).to_owned();
        let epoch = self.controller.server_epoch(job);
        let links = (self.telemetry_period_ns, self.probe_nonce());
        let label = self.controller.label(job).into();
        Some(v1::JobDescription { label, ..convert::describe(config, epoch, links, &address) })
    }

    pub(super) fn reply(&mut self, job: JobId, rank: Rank, message: v1::worker_reply::Message) {
        let Some(peer) = self.workers.get(&(job, rank)) else { return };
        if peer.outbox.try_send(Ok(v1::WorkerReply { message: Some(message) })).is_err() {
            self.snapshot.slow_peers += 1;
            self.workers.remove(&(job, rank));
            self.controller.handle_worker_gone(job, rank);
            self.controller.handle_reducer_gone(job, rank);
        }
    }

    pub(super) fn hear_worker(&mut self, key: WorkerKey, message: v1::worker_message::Message) {
        use v1::worker_message::Message;
        let WorkerKey { job, rank, stream } = key;
        if self.workers.get(&(job, rank)).is_none_or(|peer| peer.stream != stream) {
            return;
        }
        let now_ns = self.now_ns();
        let (outcome, update_id) = match message {
            Message::Hello(_) => {
                let again = v1::Refused::new("hello", "was said already on this stream");
                (Err(again), None)
            }
            Message::Request(request) => {
                let outcome = self.request(now_ns, job, rank, &request);
                (outcome, Some(request.update_id))
            }
            Message::Cancel(cancel) => {
                let outcome = self.controller.handle_cancel(now_ns, job, rank, cancel.update_id);
                (outcome.map_err(convert::refused), Some(cancel.update_id))
            }
            Message::PullSample(sample) => {
                let sample = (sample.bytes, sample.duration_ns);
                let outcome = self.controller.handle_pull_sample(now_ns, job, rank, sample);
                (outcome.map_err(convert::refused), None)
            }
            Message::Telemetry(telemetry) => {
                let telemetry = convert::telemetry(&telemetry);
                let outcome =
                    self.controller.handle_worker_telemetry(now_ns, job, rank, &telemetry);
                (outcome.map_err(convert::refused), None)
            }
            Message::RoundBegun(begun) => (self.hear_round(now_ns, job, rank, &begun), None),
            Message::RoundPosition(said) => (self.hear_position(now_ns, job, rank, &said), None),
            Message::ProbePort(port) => (self.hear_port(Reporter::Worker(job, rank), &port), None),
            Message::ProbeTrain(train) => {
                (self.hear_probe(now_ns, Reporter::Worker(job, rank), &train), None)
            }
        };
        if let Err(refused) = outcome {
            let refused = v1::Refused { update_id, ..refused };
            self.reply(job, rank, v1::worker_reply::Message::Refused(refused));
        }
    }

    fn hear_round(
        &mut self,
        now_ns: u64,
        job: JobId,
        rank: Rank,
        said: &v1::RoundBegun,
    ) -> Result<(), v1::Refused> {
        // The round has begun, whatever else is said with it.
        let messages = said.messages.as_ref().map(rounds::messages).transpose();
        let known = messages.as_ref().ok().copied().flatten();
        let begun = BegunRound { round: said.round, bytes: said.bytes, messages: known };
        let outcome = self.controller.handle_round(now_ns, job, rank, begun);
        outcome.map_err(convert::refused)?;
        messages.map(drop).map_err(Into::into)
    }

    fn hear_position(
        &mut self,
        now_ns: u64,
        job: JobId,
        rank: Rank,
        said: &v1::RoundPosition,
    ) -> Result<(), v1::Refused> {
        let (_, position) = rounds::position(said)?;
        let outcome = self.controller.handle_position(now_ns, job, rank, position);
        outcome.map_err(convert::refused)
    }

    fn request(
        &mut self,
        now_ns: u64,
        job: JobId,
        rank: Rank,
        request: &v1::TransferRequest,
    ) -> Result<(), v1::Refused> {
        let server = self.controller.job(job).map(|job| job.server.clone()).unwrap_or_default();
        if !(request.destination.is_empty() || request.destination == server) {
            let problem = format!("is not the job's server, `{server}`");
            return Err(v1::Refused::new("destination", problem));
        }
        let request = TransferRequest {
            update_id: request.update_id,
            size_bytes: request.size_bytes,
            version: Version(request.version),
            norm: request.norm,
            max_abs: request.max_abs,
        };
        let outcome = self.controller.handle_request(now_ns, job, rank, &request);
        outcome.map_err(convert::refused)
    }

    /// Ends a job.
    pub(super) fn unregister(&mut self, name: &str, answer: UnregisterAnswer) {
        let ended = self.controller.unregister_job(self.now_ns(), name);
        let name = name.to_owned();
        self.answer_saved(move |core| {
            if let Ok(ended) = &ended {
                core.end_workers(&name, ended);
            }
            // The caller may have gone.
            let _ = answer.send(ended);
        });
    }

    /// A job's server returned with fewer commits than it announced.
    pub(super) fn lose_commits(&mut self, job: JobId, lost: LostCommits, is_over: bool) {
        let name = self.controller.job(job).map_or_else(String::new, |job| job.name.clone());
        self.write_event(|events| events.commits_lost(&name, lost, is_over));
        if is_over {
            self.end_streams(job, &lost.to_string());
        }
    }

    /// Ends the streams of a job's workers, after their last replies.
    fn end_streams(&mut self, id: JobId, problem: &str) {
        let refused = v1::Refused::new("job", problem);
        let message = Some(v1::worker_reply::Message::Refused(refused));
        self.workers.retain(|(job, _), peer| {
            if *job == id {
                // One that does not read is not told, and finds its stream ended.
                let _ = peer.outbox.try_send(Ok(v1::WorkerReply { message: message.clone() }));
            }
            *job != id
        });
    }

    fn end_workers(&mut self, name: &str, ended: &Unregistered) {
        self.end_streams(ended.job, "was unregistered");
        weft_process::say!(
            "weft-controller: job `{name}` is over: {} updates dropped, {} groups taken back",
            ended.dropped,
            ended.groups
        );
    }

    pub(super) fn worker_gone(&mut self, key: WorkerKey) {
        if self.workers.get(&(key.job, key.rank)).is_some_and(|peer| peer.stream == key.stream) {
            self.workers.remove(&(key.job, key.rank));
            self.controller.handle_worker_gone(key.job, key.rank);
            self.controller.handle_reducer_gone(key.job, key.rank);
        }
    }
}

/// How long a worker's welcome waits for its boxes' addresses.
const ADDRESSES_TIMEOUT: Duration = Duration::from_secs(3);
