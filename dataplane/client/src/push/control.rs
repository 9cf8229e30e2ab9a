//! The thread that speaks gRPC to the controller: requests out, grants in, and again when the
//! stream breaks (`proto/rpc/weft/v1/worker.proto`). Decides nothing but when to dial again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use weft_agent::{Link, LinkAgent, Report};
use weft_control::{BoxIndex, Decision, LABEL_MAX};
use weft_engine::role::push::{Grant, Segment};
use weft_io::nic::Carried;
use weft_rpc::convert;
use weft_rpc::tls::{self, CallRuntime, DialError, Dialler};
use weft_rpc::v1;
use weft_rpc::v1::worker_message::Message as Said;
use weft_rpc::v1::worker_reply::Message as Heard;
use weft_rpc::v1::workers_client::WorkersClient;
use weft_wire::GroupId;
use weft_wire::header::ElementType;
use weft_wire::quant::is_exponent;

use super::message::{FromController, Job, Mailbox, Message, ToController};
use super::{ControllerConfig, PushConfig, PushError};

/// Starts the thread. It ends when the returned sender is dropped.
pub(super) fn start(
    controller: &ControllerConfig,
    config: &PushConfig,
    life: u64,
    messages: Mailbox,
    carried: Arc<Carried>,
) -> Result<mpsc::Sender<ToController>, PushError> {
    let problem = |error: &dyn std::fmt::Display| PushError::Controller(error.to_string());
    let dialler = Dialler::new(&controller.endpoint, controller.tls.as_ref())
        .map_err(|error| problem(&error))?
        .keep_alive(controller.silence / 2);
    let runtime = CallRuntime::new()
        .map_err(|error| PushError::System { what: "a runtime", cause: error.to_string() })?;
    let (requests, inbox) = mpsc::channel(REQUESTS_MAX);
    let hello = v1::WorkerHello {
        job: u32::from(config.job),
        name: None,
        rank: u32::from(config.rank),
        life,
        position: None,
    };
    let link = Link { address: config.local.ip(), device: None, mtu: config.mtu };
    let link = LinkAgent::new(link, carried);
    thread::Builder::new()
        .name("weft-controller".to_owned())
        .spawn(move || runtime.block_on(serve(&dialler, hello, inbox, &messages, link)))
        .map_err(|error| PushError::System { what: "a thread", cause: error.to_string() })?;
    Ok(requests)
}

/// How a stream ended.
enum End {
    /// The session is over.
    Session,
    /// The controller will not have this worker.
    Refused(String),
    /// The two do not accept each other's certificates, or this worker's role.
    NotAccepted(String),
    Broken,
}

impl End {
    /// Of a call that failed.
    fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        tls::refusal(error).map_or(Self::Broken, Self::NotAccepted)
    }
}

async fn serve(
    dialler: &Dialler,
    hello: v1::WorkerHello,
    mut requests: mpsc::Receiver<ToController>,
    messages: &Mailbox,
    mut link: LinkAgent,
) {
    let mut wait = REDIAL_MIN;
    let mut was_ever_up = false;
    loop {
        let mut was_up = false;
        let ended = attach(dialler, &hello, &mut requests, messages, &mut link, &mut was_up).await;
        link.end();
        was_ever_up |= was_up;
        match ended {
            End::Session => return,
            // A certificate that ran out on the way may be renewed yet.
            End::NotAccepted(_) if was_ever_up => {}
            End::Refused(problem) | End::NotAccepted(problem) => {
                let _ = messages.send(Message::Controller(FromController::Refused(problem)));
                return;
            }
            End::Broken => {}
        }
        if messages.send(Message::Controller(FromController::Lost)).is_err() {
            return;
        }
        wait = if was_up { REDIAL_MIN } else { (2 * wait).min(REDIAL_MAX) };
        tokio::time::sleep(wait).await;
        // What was asked of the old stream is asked anew on the next.
        loop {
            match requests.try_recv() {
                Ok(_) => {}
                Err(mpsc::error::TryRecvError::Empty) => break,
                Err(mpsc::error::TryRecvError::Disconnected) => return,
            }
        }
    }
}

async fn attach(
    dialler: &Dialler,
    hello: &v1::WorkerHello,
    requests: &mut mpsc::Receiver<ToController>,
    messages: &Mailbox,
    link: &mut LinkAgent,
    was_up: &mut bool,
) -> End {
    let (said, outbound) = mpsc::channel(REQUESTS_MAX);
    let hello = v1::WorkerMessage { message: Some(Said::Hello(hello.clone())) };
    if said.send(hello).await.is_err() {
        return End::Broken;
    }
    let dial = dialler.dial(|channel| async {
        WorkersClient::new(channel).attach(ReceiverStream::new(outbound)).await
    });
    let mut heard = match dial.await {
        Ok(stream) => stream.into_inner(),
        Err(DialError::Answer(status)) if status.code() == tonic::Code::InvalidArgument => {
            return End::Refused(status.message().to_owned());
        }
        Err(error) => return End::of(&error),
    };
    loop {
        tokio::select! {
            reply = heard.message() => {
                let reply = match reply {
                    Ok(Some(reply)) => reply,
                    Err(status) if !*was_up => return End::of(&status),
                    Ok(None) | Err(_) => return End::Broken,
                };
                let Some(reply) = reply.message else { continue };
                if let Heard::Probe(probe) = &reply {
                    link.obey(probe);
                    continue;
                }
                if let Heard::Refused(refused) = &reply && !*was_up {
                    return End::Refused(describe(refused));
                }
                if let Heard::Welcome(job) = &reply {
                    *was_up = true;
                    if let Some(port) = link.begin(job.telemetry_period_ns, job.probe_nonce) {
                        tell(&said, Said::ProbePort(port));
                    }
                }
                let Some(heard) = translate(reply) else { continue };
                if messages.send(Message::Controller(heard)).is_err() {
                    return End::Session;
                }
            }
            request = requests.recv() => {
                let Some(request) = request else { return End::Session };
                let message = v1::WorkerMessage { message: Some(encode(request)) };
                if said.send(message).await.is_err() {
                    return End::Broken;
                }
            }
            report = link.report() => tell(&said, match report {
                Report::Telemetry(telemetry) => Said::Telemetry(telemetry),
                Report::Train(train) => Said::ProbeTrain(train),
            }),
        }
    }
}

/// Says something of which nothing is lost when the stream is behind.
fn tell(said: &mpsc::Sender<v1::WorkerMessage>, message: Said) {
    let _ = said.try_send(v1::WorkerMessage { message: Some(message) });
}

fn encode(request: ToController) -> Said {
    match request {
        ToController::Request { id, version, norm, max_abs } => {
            Said::Request(v1::TransferRequest {
                update_id: id,
                size_bytes: 0,
                version: version.0,
                norm,
                max_abs: f64::from(max_abs),
                destination: String::new(),
            })
        }
        ToController::Cancel { id } => Said::Cancel(v1::Cancel { update_id: id }),
        ToController::PullSample { bytes, duration_ns } => {
            Said::PullSample(v1::PullSample { bytes, duration_ns })
        }
    }
}

/// What the session is to know of; `None`: nothing.
fn translate(reply: Heard) -> Option<FromController> {
    Some(match reply {
        Heard::Welcome(job) => FromController::Welcome(job_of(&job)),
        Heard::Grant(grant) => {
            let id = grant.update_id;
            grant_of(&grant).map_or(FromController::BadGrant { id }, |grant| {
                FromController::Grant { id, grant: Box::new(grant) }
            })
        }
        Heard::Drop(drop) => FromController::Drop { id: drop.update_id },
        Heard::Release(release) => FromController::Release {
            id: release.update_id,
            segment: usize::try_from(release.segment).unwrap_or(usize::MAX),
        },
        Heard::Delivered(delivered) => FromController::Delivered {
            id: delivered.update_id,
            // One that is not known may be asked for again, as a void one.
            decision: convert::decision(delivered.decision, delivered.version)
                .unwrap_or(Decision::Void),
        },
        Heard::ServerMoved(moved) => {
            FromController::ServerMoved { address: moved.address.parse().ok(), epoch: moved.epoch }
        }
        // Obeyed where it is heard; or for workers of an allreduce.
        Heard::Probe(_) | Heard::Cohort(_) | Heard::RoundOrder(_) => return None,
        Heard::Refused(refused) => {
            FromController::RequestRefused { id: refused.update_id, problem: describe(&refused) }
        }
    })
}

/// The grant in the engine's words; `None` when a number is out of range.
fn grant_of(grant: &v1::Grant) -> Option<Grant> {
    let via = match grant.via {
        Some(index) => Some(BoxIndex(u8::try_from(index).ok()?)),
        None => None,
    };
    let segments = grant.segments.iter().map(|segment| Segment {
        is_open: matches!(segment.gate, Some(v1::segment::Gate::Open(true))),
        rate_bytes_per_sec: segment.rate_bytes_per_sec,
    });
    Some(Grant {
        group: GroupId(grant.group),
        via,
        exponent: i8::try_from(grant.exponent).ok().filter(|exponent| is_exponent(*exponent))?,
        member_count: grant.member_count.max(1),
        // Beyond the last that is kept, its rate goes on.
        segments: segments.take(weft_engine::role::push::SEGMENTS_MAX).collect(),
        replicate: grant.replicate,
        // More than the engine sends in a train is no more than that.
        train_chunks: u16::try_from(grant.train_chunks).unwrap_or(u16::MAX),
    })
}

fn job_of(job: &v1::JobDescription) -> Job {
    let place = |place: &v1::Box| -> Option<(BoxIndex, SocketAddr)> {
        Some((BoxIndex(u8::try_from(place.index).ok()?), place.address.parse().ok()?))
    };
    Job {
        chunks: job.chunk_count,
        elements: job.elements_per_chunk,
        element_type: match job.element_type() {
            v1::ElementType::I32 => Some(ElementType::I32),
            v1::ElementType::F32 => Some(ElementType::F32),
            v1::ElementType::Bf16 => Some(ElementType::Bf16),
            v1::ElementType::Unspecified => None,
        },
        server: job.server.as_ref().and_then(|server| server.address.parse().ok()),
        epoch: job.epoch,
        aggregators: job.aggregators.iter().filter_map(place).collect(),
        replica: job.replica.as_ref().and_then(place),
        // One that is none labels nothing.
        label: u8::try_from(job.label).ok().filter(|label| *label <= LABEL_MAX).unwrap_or(0),
    }
}

fn describe(refused: &v1::Refused) -> String {
    if refused.field.is_empty() {
        refused.problem.clone()
    } else {
        format!("`{}` {}", refused.field, refused.problem)
    }
}

/// Requests that wait for the stream.
const REQUESTS_MAX: usize = 256;
/// Least and greatest wait before the controller is dialled again.
const REDIAL_MIN: Duration = Duration::from_millis(100);
const REDIAL_MAX: Duration = Duration::from_secs(5);
