//! gRPC to workers: streams in and out of the core, and the words of the interface.
//!
//! Nothing is decided here; a stream that breaks is told to the core once.

use std::pin::Pin;

use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use weft_control::{AckMode, Mode, ServerEpoch, is_pushed};
use weft_plan::engine::{
    Gate, Grant, JobConfig, Refusal, Reply, TransferKey, UnregisterError, WorkerConfig,
};
use weft_rpc::convert::{code, decision_to_proto};
use weft_rpc::v1;
use weft_rpc::v1::worker_reply::Message;
use weft_rpc::v1::workers_server::Workers;
use weft_wire::header::ElementType;

use crate::auth::Peer;
use crate::core::{CoreSender, Input, OUTBOX_MAX};
use crate::hello::{self, First, Place, Silent};

/// The service.
#[derive(Clone, Debug)]
pub struct Northbound {
    core: CoreSender,
    silent: Silent,
}

impl Northbound {
    /// In front of the core.
    #[must_use]
    pub fn new(core: CoreSender) -> Self {
        Self { core, silent: Silent::new() }
    }
}

#[tonic::async_trait]
impl Workers for Northbound {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<v1::WorkerReply, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::WorkerMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let peer = Peer::of(&request);
        let place = self.silent.enter()?;
        let inbound = request.into_inner();
        let (outbox, outbound) = mpsc::channel(OUTBOX_MAX);
        tokio::spawn(serve(self.core.clone(), (inbound, place), peer, outbox));
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound))))
    }

    async fn register_job(
        &self,
        request: Request<v1::RegisterJobRequest>,
    ) -> Result<Response<v1::RegisterJobReply>, Status> {
        let job = job_config(request.into_inner()).map_err(|refused| invalid(&refused))?;
        let (answer, answered) = oneshot::channel();
        self.core.send(Input::Register(Box::new(job), answer)).await.map_err(|_| gone())?;
        match answered.await.map_err(|_| gone())? {
            Ok(job) => Ok(Response::new(v1::RegisterJobReply { job: Some(job) })),
            Err(error) if error.is_taken => Err(Status::already_exists(error.to_string())),
            Err(error) => Err(Status::invalid_argument(error.to_string())),
        }
    }

    async fn unregister_job(
        &self,
        request: Request<v1::UnregisterJobRequest>,
    ) -> Result<Response<v1::UnregisterJobReply>, Status> {
        let (answer, answered) = oneshot::channel();
        let input = Input::Unregister(request.into_inner().name, answer);
        self.core.send(input).await.map_err(|_| gone())?;
        match answered.await.map_err(|_| gone())? {
            Ok(ended) => {
                let (dropped, groups) = (ended.dropped, ended.groups);
                Ok(Response::new(v1::UnregisterJobReply { dropped, groups }))
            }
            Err(error @ UnregisterError::Unknown) => Err(Status::not_found(error.to_string())),
            Err(error @ UnregisterError::Configured) => {
                Err(Status::failed_precondition(error.to_string()))
            }
        }
    }
}

fn gone() -> Status {
    Status::unavailable("the controller is ending")
}

/// Takes a worker's messages to the core until its stream ends.
async fn serve(
    core: CoreSender,
    (mut inbound, place): (Streaming<v1::WorkerMessage>, Place),
    peer: Peer,
    outbox: crate::core::Outbox<v1::WorkerReply>,
) {
    let refuse =
        |refused: v1::Refused| v1::WorkerReply { message: Some(Message::Refused(refused)) };
    let first = match hello::first(&mut inbound, place).await {
        First::Said(v1::WorkerMessage {
            message: Some(v1::worker_message::Message::Hello(hello)),
        }) => hello,
        First::Said(_) | First::Nothing => {
            let refused = refusal("hello", "must be the first message, within 10 s");
            let _ = outbox.send(Ok(refuse(refused))).await;
            return;
        }
        First::Gone => return,
    };
    let (answer, answered) = oneshot::channel();
    let hello = Input::WorkerHello { hello: first, peer, outbox: outbox.clone(), answer };
    if core.send(hello).await.is_err() {
        return;
    }
    let (key, mut ended) = match answered.await {
        Ok(Ok(attached)) => attached,
        Ok(Err(refused)) => {
            let _ = outbox.send(Ok(refuse(refused))).await;
            return;
        }
        Err(_) => return,
    };
    // The core has the stream now; it ends it by letting go of its end.
    drop(outbox);
    loop {
        let message = tokio::select! {
            message = inbound.message() => message,
            _ = &mut ended => return,
        };
        let input = match message {
            Ok(Some(v1::WorkerMessage { message: Some(message) })) => Input::Worker(key, message),
            // A kind of message that this version does not know.
            Ok(Some(v1::WorkerMessage { message: None })) => continue,
            Ok(None) | Err(_) => break,
        };
        if core.send(input).await.is_err() {
            return;
        }
    }
    let _ = core.send(Input::WorkerGone(key)).await;
}

/// A refusal in the interface's words.
pub(crate) fn refusal(field: &str, problem: &str) -> v1::Refused {
    v1::Refused { field: field.to_owned(), problem: problem.to_owned(), update_id: None }
}

/// The engine's refusal in the interface's words.
pub(crate) fn refused(refusal: &Refusal, update_id: Option<u64>) -> v1::Refused {
    v1::Refused { field: refusal.field.to_owned(), problem: refusal.problem.clone(), update_id }
}

fn invalid(refused: &v1::Refused) -> Status {
    Status::invalid_argument(format!("{}: {}", refused.field, refused.problem))
}

/// A reply in the interface's words.
pub(crate) fn reply_to_proto(reply: &Reply) -> Message {
    match reply {
        Reply::Grant(grant) => Message::Grant(grant_to_proto(grant)),
        Reply::Drop { update_id, reason } => Message::Drop(v1::Drop {
            update_id: *update_id,
            reason: v1::DropReason::from(reason).into(),
            detail: reason.as_str().to_owned(),
        }),
        Reply::Release { update_id, segment } => {
            Message::Release(v1::Release { update_id: *update_id, segment: *segment })
        }
        Reply::Delivered { update_id, decision } => {
            let (decision, version) = decision_to_proto(*decision);
            let decision = decision.into();
            Message::Delivered(v1::Delivered { update_id: *update_id, decision, version })
        }
        Reply::ServerMoved { address, epoch } => {
            Message::ServerMoved(v1::ServerMoved { address: address.clone(), epoch: epoch.0 })
        }
    }
}

fn grant_to_proto(grant: &Grant) -> v1::Grant {
    let segments = grant.segments.iter().map(|segment| v1::Segment {
        rate_bytes_per_sec: segment.rate_bytes_per_sec,
        expected_in_ns: segment.expected_in_ns,
        gate: Some(match segment.gate {
            Gate::Open => v1::segment::Gate::Open(true),
            Gate::After(key) => v1::segment::Gate::After(v1::TransferId {
                group: key.group().0,
                rank: match key {
                    TransferKey::Member(_, rank) => Some(weft_rpc::convert::rank_to_proto(rank)),
                    TransferKey::Sum(_) | TransferKey::Copy(_) => None,
                },
            }),
        }),
    });
    v1::Grant {
        update_id: grant.update_id,
        group: grant.group.0,
        order: grant.order.0,
        via: grant.via.map(|via| via.0.into()),
        exponent: grant.exponent.into(),
        segments: segments.collect(),
        replicate: grant.replicate,
        member_count: grant.member_count,
        train_chunks: grant.train_chunks.into(),
    }
}

/// A job as its workers need to know it. `address` gives a box's.
pub(crate) fn describe(
    job: &JobConfig,
    epoch: ServerEpoch,
    (telemetry_period_ns, probe_nonce): (u64, u64),
    address: &dyn Fn(&str) -> String,
) -> v1::JobDescription {
    let place = |index: usize, node: &String| v1::Box {
        index: u32::try_from(index).unwrap_or(u32::MAX),
        node: node.clone(),
        address: address(node),
    };
    let aggregators = job.aggregators.iter().enumerate();
    v1::JobDescription {
        name: job.name.clone(),
        job: job.index.into(),
        dimension: job.dimension,
        element_type: v1::ElementType::from(job.element).into(),
        elements_per_chunk: job.elements().into(),
        chunk_count: u32::try_from(job.chunk_count()).unwrap_or(u32::MAX),
        worker_count: u32::try_from(job.workers.len()).unwrap_or(u32::MAX),
        tau_max: job.delay_max(),
        mode: v1::Mode::from(job.mode).into(),
        partial_count: job.partial_count.unwrap_or(0),
        server: Some(place(0, &job.server)),
        aggregators: aggregators.map(|(index, node)| place(index, node)).collect(),
        replica: job.replica.as_ref().map(|node| place(job.aggregators.len(), node)),
        epoch: epoch.0,
        telemetry_period_ns,
        probe_nonce,
    }
}

fn job_config(job: v1::RegisterJobRequest) -> Result<JobConfig, v1::Refused> {
    let index = weft_rpc::convert::job(job.job)?;
    // 0 is what a field that is not sent has.
    let element = match job.element_type {
        0 => ElementType::I32,
        number => code(number)?,
    };
    if !is_pushed(element) {
        return Err(refusal("element_type", "must be I32 or F32; BF16 is for allreduce"));
    }
    let mode = match job.mode {
        0 => Mode::Async,
        number => code(number)?,
    };
    let elements = u16::try_from(job.elements_per_chunk)
        .map_err(|_| refusal("elements_per_chunk", "must be at most 65535"))?;
    Ok(JobConfig {
        name: job.name,
        index: index.0,
        dimension: job.dimension,
        element,
        elements_per_chunk: Some(elements).filter(|elements| *elements > 0),
        workers: job.worker_hosts.into_iter().map(WorkerConfig::Host).collect(),
        server: job.server,
        ack: if job.ack_replica { AckMode::Replica } else { AckMode::Commit },
        aggregators: job.aggregators,
        replica: job.replica,
        tau_max: Some(job.tau_max).filter(|tau_max| *tau_max > 0),
        momentum: job.momentum,
        div_max: job.div_max,
        mode,
        partial_count: Some(job.partial_count).filter(|count| *count > 0),
        policy: Some(job.policy).filter(|policy| !policy.is_empty()),
        weight: if job.weight == 0.0 { 1.0 } else { job.weight },
        options: weft_plan::case::Options::default(),
    })
}
