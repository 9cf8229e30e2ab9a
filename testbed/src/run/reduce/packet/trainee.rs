//! A worker's training in virtual time. It does what `weft_client::Session` does: it agrees on
//! exponents where the job has none, sums, applies, and goes on.

use std::net::SocketAddr;
use std::path::Path;

use weft_client::payload::{Exponents, FixedPoint, Integers, Nothing};
use weft_engine::role::worker::{Event, LeaseInfo, Payload, Worker};
use weft_io::fault::member_seed;
use weft_kernel::{Kernels, crc32c_blank};
use weft_sim::allreduce::member::Member;
use weft_sim::coverage::Coverage;
use weft_sim::transcript::Transcript;
use weft_wire::frame::{ETHERNET_LEN, Udp};
use weft_wire::header::{CRC_AT, Operation, Packet};
use weft_wire::{Nanos, quant};

use crate::run::packet::{PacketError, mac};
use crate::run::plan::WorkerPlan;
use crate::run::recording::Recording;
use crate::run::reduce::configs::ROWS;
use crate::run::{RoundMessage, WorkerMessage, WorkerSummary, recording_path};
use crate::workload::digits::Trainer;

/// Where a worker stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// So many groups are not joined yet.
    Joining(usize),
    /// The exponents of a round are being agreed on.
    Agreeing,
    /// A round is summed.
    Summing,
    /// So many groups are not left yet.
    Closing(usize),
    Over,
}

/// One worker of the training.
pub(super) struct Trainee<'a> {
    plan: &'a WorkerPlan,
    trainer: Trainer,
    /// Until it is whole.
    recording: Option<Recording>,
    /// The group that sums, and the one that agrees on exponents, if there is one.
    groups: Vec<Worker>,
    stage: Stage,
    gradient: Vec<f32>,
    values: Vec<f32>,
    encoded: Vec<i32>,
    round: u32,
    loss: f32,
    start: Nanos,
    clamped: u64,
    /// Retransmissions and duplicates before this round.
    before: [u64; 2],
    messages: Vec<(Nanos, WorkerMessage)>,
}

impl<'a> Trainee<'a> {
    pub(super) fn new(plan: &'a WorkerPlan, directory: &Path) -> Result<Self, PacketError> {
        let job = &plan.scenario.job;
        let rank = usize::from(plan.rank);
        let trainer = Trainer::new(rank, job.workers.into(), plan.seed, &job.trainer())?;
        Ok(Self {
            plan,
            recording: Some(Recording::create(&recording_path(directory, rank))?),
            groups: Vec::new(),
            stage: Stage::Over,
            gradient: vec![0.0; trainer.parameter_count()],
            values: vec![0.0; trainer.parameter_count()],
            encoded: Vec::new(),
            trainer,
            round: 0,
            loss: 0.0,
            start: Nanos(0),
            clamped: 0,
            before: [0; 2],
            messages: Vec::new(),
        })
    }

    /// What it has said so far, with the time.
    pub(super) fn messages(&self) -> &[(Nanos, WorkerMessage)] {
        &self.messages
    }

    /// What it has said.
    pub(super) fn into_messages(self) -> Vec<(Nanos, WorkerMessage)> {
        self.messages
    }

    fn lease(&self) -> LeaseInfo {
        *self.groups[0].lease().expect("an open worker has a lease")
    }

    /// The group that is at work and what it sums; the other has nothing to do meanwhile.
    fn work<T>(&mut self, f: impl FnOnce(&mut [Worker], usize, &mut dyn Payload) -> T) -> T {
        let kernels = Kernels::detect();
        let is_fixed = !self.plan.has_block_exponents();
        match self.stage {
            Stage::Agreeing => {
                let lease = *self.groups[1].lease().expect("an open worker has a lease");
                let mut payload = Integers {
                    kernels,
                    elements: lease.elements.into(),
                    data: &mut self.encoded,
                    padding: quant::encode_exponent(quant::EXPONENT_MIN),
                    exponent: lease.exponent.unwrap_or(0),
                    clamped: 0,
                };
                f(&mut self.groups, 1, &mut payload)
            }
            Stage::Summing => {
                let lease = self.lease();
                let mut payload = FixedPoint {
                    kernels,
                    elements: lease.elements.into(),
                    data: &mut self.values,
                    limit: quant::clamp_limit(lease.fan_in),
                    exponents: match is_fixed {
                        true => Exponents::Job(lease.exponent.unwrap_or(0)),
                        false => Exponents::Agreed(&self.encoded),
                    },
                    clamped: 0,
                };
                let done = f(&mut self.groups, 0, &mut payload);
                self.clamped += payload.clamped;
                done
            }
            Stage::Joining(_) | Stage::Closing(_) | Stage::Over => {
                f(&mut self.groups, 0, &mut Nothing)
            }
        }
    }

    fn say(&mut self, now: Nanos, message: WorkerMessage) {
        self.messages.push((now, message));
    }

    fn fail(&mut self, now: Nanos, error: impl ToString) {
        self.stage = Stage::Over;
        self.groups.clear();
        let error = error.to_string();
        self.say(now, WorkerMessage::Failed { at_ns: now.0, error });
    }

    fn take(&mut self, now: Nanos, event: Event) {
        match (event, self.stage) {
            (Event::Opened, Stage::Joining(1)) => {
                self.say(now, WorkerMessage::Joined { at_ns: now.0 });
                self.begin_round(now);
            }
            (Event::Opened, Stage::Joining(waiting)) => self.stage = Stage::Joining(waiting - 1),
            (Event::RoundComplete, Stage::Agreeing) => self.sum(now),
            (Event::RoundComplete, Stage::Summing) => self.end_round(now),
            (Event::Closed { .. }, Stage::Closing(1)) => self.finish(now),
            (Event::Closed { .. }, Stage::Closing(waiting)) => {
                self.stage = Stage::Closing(waiting - 1);
            }
            (Event::Failed(error), _) => self.fail(now, error),
            _ => {}
        }
    }

    fn begin_round(&mut self, now: Nanos) {
        if self.round == self.plan.scenario.job.rounds {
            let recording = self.recording.take().expect("no round has come after the last");
            if let Err(error) = recording.finish(self.trainer.parameters()) {
                return self.fail(now, error);
            }
            self.stage = Stage::Closing(self.groups.len());
            return self.groups.iter_mut().for_each(|group| group.close(now));
        }
        self.loss = self.trainer.gradient(u64::from(self.round), &mut self.gradient);
        self.values.copy_from_slice(&self.gradient);
        self.start = now;
        if !self.plan.has_block_exponents() {
            return self.sum(now);
        }
        let (lease, kernels) = (self.lease(), Kernels::detect());
        self.encoded.clear();
        self.encoded.extend(self.values.chunks(lease.elements.into()).map(|block| {
            let exponent = quant::exponent_for(kernels.max_abs_f32(block), lease.fan_in);
            quant::encode_exponent(exponent)
        }));
        self.stage = Stage::Agreeing;
        self.begin(now, 1, self.encoded.len());
    }

    fn sum(&mut self, now: Nanos) {
        self.stage = Stage::Summing;
        self.begin(now, 0, self.values.len());
    }

    fn begin(&mut self, now: Nanos, group: usize, len: usize) {
        let lease = self.groups[group].lease().expect("an open worker has a lease");
        let chunks = len.div_ceil(lease.elements.into());
        let chunks = u32::try_from(chunks).expect("a model of fewer than 2^32 chunks");
        if let Err(error) = self.groups[group].begin_round(now, chunks) {
            self.fail(now, format!("a round cannot begin: {error}"));
        }
    }

    fn end_round(&mut self, now: Nanos) {
        let exponents: Vec<i8> = match self.plan.has_block_exponents() {
            true => self
                .encoded
                .iter()
                .map(|encoded| quant::decode_exponent(*encoded).unwrap_or(quant::EXPONENT_MIN))
                .collect(),
            false => vec![self.lease().exponent.unwrap_or(0)],
        };
        let recording = self.recording.as_mut().expect("it is whole after the last round");
        if let Err(error) = recording.round(&exponents, &self.gradient, &self.values) {
            return self.fail(now, error);
        }
        let workers = f32::from(self.plan.scenario.job.workers);
        self.values.iter_mut().for_each(|value| *value /= workers);
        self.trainer.apply(&self.values);
        let stats = self.groups[0].stats();
        let sent_again = self.groups.iter().map(|group| group.stats().retransmissions).sum();
        let after = [sent_again, stats.duplicate_answers];
        let before = std::mem::replace(&mut self.before, after);
        let message = RoundMessage {
            round: self.round,
            start_ns: self.start.0,
            duration_ns: now.since(self.start).0,
            loss: self.loss,
            chunks: self.values.len().div_ceil(self.lease().elements.into()) as u64,
            retransmissions: after[0] - before[0],
            duplicates: after[1] - before[1],
            chunks_clamped: std::mem::take(&mut self.clamped),
        };
        self.say(now, WorkerMessage::Round(message));
        self.round += 1;
        self.begin_round(now);
    }

    fn finish(&mut self, now: Nanos) {
        self.stage = Stage::Over;
        let stats = self.groups[0].stats();
        let summary = WorkerSummary {
            accuracy: self.trainer.accuracy(),
            model_sha256: self.trainer.model_sha256(),
            chunks_sent: stats.chunks_sent,
            chunks_aggregated: stats.answers,
            retransmissions: self.before[0],
            ..WorkerSummary::default()
        };
        self.say(now, WorkerMessage::Done(Box::new(summary)));
    }
}

impl Member for Trainee<'_> {
    fn addr(&self) -> SocketAddr {
        self.plan.local
    }

    fn start(&mut self, now: Nanos) {
        let client = self.plan.client();
        let mac = mac(1, self.plan.rank.into());
        let seed = member_seed(self.plan.seed, self.plan.rank);
        let rows = [(ROWS[0], Operation::Sum, seed), (ROWS[1], Operation::Max, !seed)];
        let count = 1 + usize::from(self.plan.has_block_exponents());
        for (row, operation, seed) in rows.into_iter().take(count) {
            let config = client.worker(row, operation, mac).expect("a plan's MTU fits its headers");
            match Worker::new(config, crc32c_blank::<CRC_AT>, seed, now) {
                Ok(group) => self.groups.push(group),
                Err(error) => return self.fail(now, error),
            }
        }
        self.stage = Stage::Joining(count);
    }

    fn handle(&mut self, now: Nanos, frame: &mut [u8]) {
        self.work(|groups, active, payload| {
            let row = Udp::parse(frame).ok().map(|udp| {
                let datagram = frame.get(udp.payload_range()).unwrap_or_default();
                Packet::new_checked(datagram).map_or(0, |packet| packet.group().row())
            });
            let other = groups.iter().position(|group| Some(group.row()) == row);
            let other = other.unwrap_or(active);
            // What an engine refuses it has counted.
            let _ = match groups.get_mut(other) {
                Some(group) if other == active => group.handle_frame(now, frame, payload),
                Some(group) => group.handle_frame(now, frame, &mut Nothing),
                None => Ok(()),
            };
        });
    }

    fn poll(&mut self, now: Nanos, _: &mut Coverage, transcript: &mut Transcript) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let mut buffer = vec![0; usize::from(self.plan.mtu) + ETHERNET_LEN];
        for group in self.groups.iter_mut().filter(|group| now >= group.poll_timeout()) {
            group.handle_timeout(now);
        }
        loop {
            self.work(|groups, active, payload| {
                for (index, group) in groups.iter_mut().enumerate() {
                    let payload: &dyn Payload = if index == active { payload } else { &Nothing };
                    while let Some(len) = group.poll_transmit(now, payload, &mut buffer) {
                        out.push(buffer[..len].to_vec());
                    }
                }
            });
            let event = self.groups.iter_mut().find_map(Worker::poll_event);
            let Some(event) = event else { break };
            transcript.note_event(now, self.plan.rank.into(), &event);
            self.take(now, event);
        }
        out
    }

    fn timeout(&self) -> Nanos {
        if self.stage == Stage::Over {
            return Nanos::MAX;
        }
        self.groups.iter().map(Worker::poll_timeout).min().unwrap_or(Nanos::MAX)
    }

    fn is_done(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Rounds of rank 0, by which restarts go.
    fn progress(&self) -> u64 {
        if self.plan.rank == 0 { self.round.into() } else { 0 }
    }
}
