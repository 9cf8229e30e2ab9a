//! gRPC to workers: streams in and out of the core; jobs that are registered, and what boxes hold
//! for jobs.
//!
//! Nothing is decided here; a stream that breaks is told to the core once.

use std::pin::Pin;

use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use weft_control::{AckMode, BandPolicy, Command, Mode, is_pushed};
use weft_controller_engine::{
    BandsConfig, BandsSet, JobConfig, NotHeld, SteerError, UnregisterError, WorkerConfig,
};
use weft_rpc::convert::{code, command};
use weft_rpc::v1;
use weft_rpc::v1::worker_message::Message;
use weft_rpc::v1::workers_server::Workers;
use weft_wire::header::ElementType;

use crate::auth::Peer;
use crate::core::{CoreSender, Input, OUTBOX_MAX, Outbox, Unheld, Unpaused, Unresized, WorkerKey};
use crate::status;
use crate::stream::{self, Answer, Kind, Silent};

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
        let place = self.silent.enter(&peer)?;
        let inbound = request.into_inner();
        let (outbox, outbound) = mpsc::channel(OUTBOX_MAX);
        tokio::spawn(stream::serve::<OfWorkers>(self.core.clone(), (inbound, place), peer, outbox));
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

    async fn pause_job(
        &self,
        request: Request<v1::PauseJobRequest>,
    ) -> Result<Response<v1::PauseJobReply>, Status> {
        let (answer, answered) = oneshot::channel();
        let input = Input::Pause(request.into_inner().name, answer);
        self.core.send(input).await.map_err(|_| gone())?;
        match answered.await.map_err(|_| gone())? {
            Ok(standstill_ns) => Ok(Response::new(v1::PauseJobReply { standstill_ns })),
            Err(Unpaused::Untold(error)) => Err(not_steered(&error)),
            Err(Unpaused::GivenUp(problem)) => Err(Status::aborted(problem)),
            Err(Unpaused::Resumed) => {
                let problem = "name: somebody had the job go on before it stood still";
                Err(Status::aborted(problem))
            }
        }
    }

    async fn resume_job(
        &self,
        request: Request<v1::ResumeJobRequest>,
    ) -> Result<Response<v1::ResumeJobReply>, Status> {
        let (answer, answered) = oneshot::channel();
        let input = Input::Resume(request.into_inner().name, answer);
        self.core.send(input).await.map_err(|_| gone())?;
        match answered.await.map_err(|_| gone())? {
            Ok(()) => Ok(Response::new(v1::ResumeJobReply {})),
            Err(error) => Err(not_steered(&error)),
        }
    }

    async fn resize_job(
        &self,
        request: Request<v1::ResizeJobRequest>,
    ) -> Result<Response<v1::ResizeJobReply>, Status> {
        let v1::ResizeJobRequest { name, workers } = request.into_inner();
        let (answer, answered) = oneshot::channel();
        self.core.send(Input::Resize(name, workers, answer)).await.map_err(|_| gone())?;
        match answered.await.map_err(|_| gone())? {
            Ok(resize) => {
                let resize = Some(status::resize_to_proto(&resize));
                Ok(Response::new(v1::ResizeJobReply { resize }))
            }
            Err(Unresized::Untold(error)) => Err(not_steered(&error)),
            Err(Unresized::Reverted(problem)) => Err(Status::aborted(problem)),
        }
    }

    async fn hold(
        &self,
        request: Request<v1::HoldRequest>,
    ) -> Result<Response<v1::HoldReply>, Status> {
        let v1::HoldRequest { node, command: asked } = request.into_inner();
        let read = command(&asked.unwrap_or_default()).map_err(|error| invalid(&error.into()))?;
        let Some(Command::Holding(holding)) = read else {
            let problem = "must install or remove a job, a lease or a push job";
            return Err(invalid(&v1::Refused::new("command", problem)));
        };
        let (answer, answered) = oneshot::channel();
        let input = Input::Hold(node, Box::new(holding), answer);
        self.core.send(input).await.map_err(|_| gone())?;
        match answered.await.map_err(|_| gone())? {
            Ok(()) => Ok(Response::new(v1::HoldReply {})),
            Err(Unheld::Told(why @ NotHeld::Gone)) => Err(Status::unavailable(why.to_string())),
            Err(Unheld::Told(why)) => Err(Status::failed_precondition(why.to_string())),
            Err(Unheld::Untold(refusal)) => {
                Err(Status::failed_precondition(format!("{}: {}", refusal.field, refusal.problem)))
            }
        }
    }

    async fn set_band_policy(
        &self,
        request: Request<v1::SetBandPolicyRequest>,
    ) -> Result<Response<v1::SetBandPolicyReply>, Status> {
        let asked = request.into_inner();
        let config = band_policy(&asked).map_err(|refused| invalid(&refused))?;
        let (answer, answered) = oneshot::channel();
        let input = Input::SetBandPolicy(config, asked.seen_change, answer);
        self.core.send(input).await.map_err(|_| gone())?;
        match answered.await.map_err(|_| gone())? {
            Ok(BandsSet { changes, jobs_changed }) => {
                Ok(Response::new(v1::SetBandPolicyReply { changes, jobs_changed }))
            }
            Err(refusal) if ["bands", "seen_change"].contains(&refusal.field) => {
                Err(Status::failed_precondition(refusal.to_string()))
            }
            Err(refusal) => Err(Status::invalid_argument(refusal.to_string())),
        }
    }
}

fn band_policy(asked: &v1::SetBandPolicyRequest) -> Result<BandsConfig, v1::Refused> {
    let policy: BandPolicy = code(asked.policy)?;
    let interval_s = match asked.interval_s {
        0 => BandsConfig::default().interval_s,
        interval_s => interval_s,
    };
    Ok(BandsConfig { policy, interval_s })
}

fn not_steered(error: &SteerError) -> Status {
    match error {
        SteerError::Unknown => Status::not_found(error.to_string()),
        _ => Status::failed_precondition(error.to_string()),
    }
}

fn gone() -> Status {
    Status::unavailable("the controller is ending")
}

/// The streams of workers.
struct OfWorkers;

impl Kind for OfWorkers {
    type Message = v1::WorkerMessage;
    type Reply = v1::WorkerReply;
    type Key = WorkerKey;

    fn begin(
        first: v1::WorkerMessage,
        peer: Peer,
        outbox: Outbox<v1::WorkerReply>,
        answer: Answer<WorkerKey>,
    ) -> Result<Option<Input>, v1::Refused> {
        let Some(Message::Hello(hello)) = first.message else { return Ok(None) };
        Ok(Some(Input::WorkerHello { hello, peer, outbox, answer }))
    }

    fn go_on(key: WorkerKey, message: v1::WorkerMessage) -> Option<Input> {
        message.message.map(|message| Input::Worker(key, message))
    }

    fn end(key: WorkerKey) -> Input {
        Input::WorkerGone(key)
    }

    fn refuse(refused: v1::Refused) -> v1::WorkerReply {
        v1::WorkerReply { message: Some(v1::worker_reply::Message::Refused(refused)) }
    }
}

fn invalid(refused: &v1::Refused) -> Status {
    Status::invalid_argument(format!("{}: {}", refused.field, refused.problem))
}

fn job_config(job: v1::RegisterJobRequest) -> Result<JobConfig, v1::Refused> {
    let index = weft_rpc::convert::job(job.job)?;
    // 0 is what a field that is not sent has.
    let element = match job.element_type {
        0 => ElementType::I32,
        number => code(number)?,
    };
    if !is_pushed(element) {
        return Err(v1::Refused::new("element_type", "must be I32 or F32; BF16 is for allreduce"));
    }
    let mode = match job.mode {
        0 => Mode::Async,
        number => code(number)?,
    };
    let elements = u16::try_from(job.elements_per_chunk)
        .map_err(|_| v1::Refused::new("elements_per_chunk", "must be at most 65535"))?;
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
