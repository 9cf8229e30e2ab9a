//! What workers and boxes say after their hellos: read, handed to the engine, and answered where the
//! engine refuses. A word of a stream that has been replaced is not heard.

use weft_engine::push::Version;
use weft_plan::engine::{Reporter, TransferRequest};
use weft_rpc::{convert, v1};
use weft_wire::{JobId, Rank};

use super::{Core, NodeKey, WorkerKey};
use crate::{northbound, southbound};

impl Core {
    pub(super) fn hear_worker(&mut self, key: WorkerKey, message: v1::worker_message::Message) {
        use v1::worker_message::Message;
        let WorkerKey { job, rank, stream } = key;
        if self.workers.get(&(job, rank)).is_none_or(|peer| peer.stream != stream) {
            return;
        }
        let now_ns = self.now_ns();
        let (outcome, update_id) = match message {
            Message::Hello(_) => {
                let again = northbound::refusal("hello", "was said already on this stream");
                (Err(again), None)
            }
            Message::Request(request) => {
                let outcome = self.request(now_ns, job, rank, &request);
                (outcome, Some(request.update_id))
            }
            Message::Cancel(cancel) => {
                let outcome = self.controller.handle_cancel(job, rank, cancel.update_id);
                let refused = |refusal| northbound::refused(&refusal, None);
                (outcome.map_err(refused), Some(cancel.update_id))
            }
            Message::PullSample(sample) => {
                let sample = (sample.bytes, sample.duration_ns);
                let outcome = self.controller.handle_pull_sample(now_ns, job, rank, sample);
                (outcome.map_err(|refusal| northbound::refused(&refusal, None)), None)
            }
            Message::Telemetry(telemetry) => {
                let telemetry = southbound::node::telemetry(&telemetry);
                let outcome =
                    self.controller.handle_worker_telemetry(now_ns, job, rank, &telemetry);
                (outcome.map_err(|refusal| northbound::refused(&refusal, None)), None)
            }
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

    fn hear_port(&mut self, from: Reporter, port: &v1::ProbePort) -> Result<(), v1::Refused> {
        let address = port
            .address
            .parse()
            .map_err(|_| northbound::refusal("address", "must be \"address:port\""))?;
        let outcome = self.controller.handle_probe_port(from, address);
        outcome.map_err(|refusal| northbound::refused(&refusal, None))
    }

    fn hear_probe(
        &mut self,
        now_ns: u64,
        from: Reporter,
        train: &v1::ProbeTrain,
    ) -> Result<(), v1::Refused> {
        let train = southbound::node::probe_train(train)?;
        let outcome = self.controller.handle_probe_train(now_ns, from, &train);
        outcome.map_err(|refusal| northbound::refused(&refusal, None))
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
            return Err(northbound::refusal("destination", &problem));
        }
        let request = TransferRequest {
            update_id: request.update_id,
            size_bytes: request.size_bytes,
            version: Version(request.version),
            norm: request.norm,
            max_abs: request.max_abs,
        };
        let outcome = self.controller.handle_request(now_ns, job, rank, &request);
        outcome.map_err(|refusal| northbound::refused(&refusal, None))
    }

    pub(super) fn hear_node(&mut self, key: NodeKey, message: v1::node_message::Message) {
        use v1::node_message::Message;
        if self.nodes.get(&key.node).is_none_or(|peer| peer.stream != key.stream) {
            return;
        }
        let now_ns = self.now_ns();
        let outcome = match &message {
            Message::Hello(_) => {
                Err(northbound::refusal("hello", "was said already on this stream"))
            }
            Message::Event(event) => match convert::event(event) {
                Ok((job, event)) => {
                    let outcome = self.controller.handle_event(now_ns, key.node, job, &event);
                    outcome.map_err(|refusal| northbound::refused(&refusal, None))
                }
                Err(invalid) => Err(invalid.into()),
            },
            Message::Train(train) => match convert::train(train) {
                Ok(train) => {
                    let outcome = self.controller.handle_train(now_ns, key.node, &train);
                    outcome.map_err(|refusal| northbound::refused(&refusal, None))
                }
                Err(invalid) => Err(invalid.into()),
            },
            Message::Telemetry(telemetry) => {
                let telemetry = southbound::node::telemetry(telemetry);
                let outcome = self.controller.handle_telemetry(now_ns, key.node, &telemetry);
                outcome.map_err(|refusal| northbound::refused(&refusal, None))
            }
            Message::ProbePort(port) => self.hear_port(Reporter::Box(key.node), port),
            Message::ProbeTrain(train) => self.hear_probe(now_ns, Reporter::Box(key.node), train),
        };
        if let Err(refused) = outcome
            && let Some(peer) = self.nodes.get(&key.node)
        {
            let command = Some(v1::command::Command::Refused(refused));
            // A box that reads nothing is dealt with by the next command.
            let _ = peer.outbox.try_send(Ok(v1::Command { command }));
        }
    }
}
