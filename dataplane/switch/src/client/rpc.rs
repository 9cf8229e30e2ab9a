//! The calls of P4Runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Sender, TrySendError};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use weft_engine::role::switch::{Read, Write};
use weft_rpc::DIAL_TIMEOUT;
use weft_rpc::google;
use weft_rpc::p4::v1 as p4;
use weft_rpc::p4::v1::p4_runtime_client::P4RuntimeClient;
use weft_rpc::p4::v1::stream_message_request::Update as Up;
use weft_rpc::p4::v1::stream_message_response::Update as Down;

use super::{Answer, Ends, LinkConfig, Patience, Request, close};
use crate::SwitchError;

type Client = P4RuntimeClient<Channel>;

/// Speaks to the switch until its stream ends or nobody wants it any more.
pub(super) async fn run(
    config: LinkConfig,
    ends: Ends,
    ready: &Sender<Result<(), SwitchError>>,
    stop: &Arc<AtomicBool>,
) {
    match Session::begin(&config, stop).await {
        Ok(session) => {
            let _ = ready.send(Ok(()));
            let (shared, reason) = (Arc::clone(&ends.shared), Arc::clone(&ends.reason));
            let unparker = ends.unparker.clone();
            let why = session.serve(&config, ends).await;
            close(&shared, &reason, &why);
            unparker.unpark();
        }
        Err(error) => drop(ready.send(Err(error))),
    }
}

/// A switch that this box is the primary of.
struct Session {
    client: Client,
    up: mpsc::Sender<p4::StreamMessageRequest>,
    down: Streaming<p4::StreamMessageResponse>,
}

impl Session {
    /// Dials until somebody answers, or the configured patience ends.
    async fn begin(config: &LinkConfig, stop: &AtomicBool) -> Result<Self, SwitchError> {
        let mut patience = Patience::begin();
        loop {
            let attempt = tokio::select! {
                biased;
                () = stopped(stop) => return Err(SwitchError::Stopped),
                attempt = Self::attempt(config) => attempt,
            };
            let problem = match attempt {
                Ok(session) => return Ok(session),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Again(problem)) => problem,
            };
            if let Some(error) = patience.failed(config, problem) {
                return Err(error);
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    async fn attempt(config: &LinkConfig) -> Result<Self, Failure> {
        let arbitrated = tokio::time::timeout(DIAL_TIMEOUT, Self::arbitrate(config)).await;
        let mut session = arbitrated.map_err(|late| Failure::Again(words(&late)))??;
        let prepared = tokio::time::timeout(PUSH_TIMEOUT, async {
            session.clear_groups(config).await;
            session.push(config).await
        });
        prepared.await.map_err(|late| Failure::Again(words(&late)))??;
        Ok(session)
    }

    /// Dials, and becomes the switch's primary.
    async fn arbitrate(config: &LinkConfig) -> Result<Self, Failure> {
        let again = |error: &dyn std::error::Error| Failure::Again(words(error));
        let is_socket = config.grpc.starts_with("unix:");
        let scheme = if is_socket { "" } else { "http://" };
        let endpoint = Endpoint::from_shared(format!("{scheme}{}", config.grpc));
        let endpoint = endpoint.map_err(|error| {
            let (grpc, problem) = (config.grpc.clone(), error.to_string());
            Failure::Final(SwitchError::Unreachable { grpc, problem })
        })?;
        let channel = endpoint.connect().await.map_err(|error| again(&error))?;
        let mut client = Client::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let (up, requests) = mpsc::channel(FRAMES_UNDER_WAY);
        let arbitration = Up::Arbitration(p4::MasterArbitrationUpdate {
            device_id: config.device_id,
            election_id: Some(election(config)),
            ..Default::default()
        });
        let first = p4::StreamMessageRequest { update: Some(arbitration) };
        up.send(first).await.map_err(|error| again(&error))?;
        let stream = client.stream_channel(ReceiverStream::new(requests)).await;
        let stream = stream.map_err(|status| refused(config, &status))?;
        let mut session = Self { client, up, down: stream.into_inner() };
        let answer = session.down.message().await;
        let answer = answer.map_err(|status| refused(config, &status))?;
        let Some(Down::Arbitration(update)) = answer.and_then(|answer| answer.update) else {
            return Err(Failure::Again("the stream began without an arbitration".to_owned()));
        };
        let status = update.status.unwrap_or_default();
        if status.code != 0 {
            return Err(Failure::Final(other_primary(config, &status.message)));
        }
        Ok(session)
    }

    /// Removes multicast groups that an earlier box left: a program that is pushed again keeps
    /// them on some switches.
    async fn clear_groups(&mut self, config: &LinkConfig) {
        use p4::packet_replication_engine_entry::Type;
        let group = Type::MulticastGroupEntry(p4::MulticastGroupEntry::default());
        let entry = p4::PacketReplicationEngineEntry { r#type: Some(group) };
        let entity = p4::entity::Entity::PacketReplicationEngineEntry(entry);
        let entities = vec![p4::Entity { entity: Some(entity) }];
        let (device_id, read) = (config.device_id, p4::ReadRequest::default());
        let read = p4::ReadRequest { device_id, entities, ..read };
        // One that has no program yet, or does not read groups, has none.
        let Ok(stream) = self.client.read(read).await else { return };
        let mut stream = stream.into_inner();
        let mut updates = Vec::new();
        while let Ok(Some(response)) = stream.message().await {
            let delete = p4::update::Type::Delete.into();
            let entities = response.entities.into_iter();
            updates.extend(entities.map(|it| p4::Update { r#type: delete, entity: Some(it) }));
        }
        if !updates.is_empty() {
            let _ = self.client.write(write_request(config, updates)).await;
        }
    }

    async fn push(&mut self, config: &LinkConfig) -> Result<(), Failure> {
        use p4::set_forwarding_pipeline_config_request::Action;
        let request = p4::SetForwardingPipelineConfigRequest {
            device_id: config.device_id,
            election_id: Some(election(config)),
            action: Action::VerifyAndCommit.into(),
            config: Some(p4::ForwardingPipelineConfig {
                p4info: Some(config.program.info.clone()),
                p4_device_config: config.program.device.clone(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let pushed = self.client.set_forwarding_pipeline_config(request).await;
        pushed.map(drop).map_err(|status| match status.code() {
            Code::PermissionDenied => Failure::Final(other_primary(config, status.message())),
            Code::Unavailable | Code::Cancelled => Failure::Again(words(&status)),
            _ => Failure::Final(SwitchError::Refused {
                grpc: config.grpc.clone(),
                program: config.program.name().display().to_string(),
                problem: words(&status),
            }),
        })
    }

    /// Carries until the stream ends; says why it did.
    async fn serve(self, config: &LinkConfig, ends: Ends) -> String {
        let Self { client, up, mut down } = self;
        let Ends { mut asked, answering, mut to_send, receiving, shared, unparker, .. } = ends;
        let calls = async {
            let mut client = client;
            while let Some(request) = asked.recv().await {
                let mut batch = vec![request];
                while batch.len() < BATCH_MAX
                    && let Ok(request) = asked.try_recv()
                {
                    batch.push(request);
                }
                let Err(status) = carry(&mut client, config, batch, &answering).await else {
                    unparker.unpark();
                    continue;
                };
                return format!("the switch does not answer: {}", words(&status));
            }
            "the lane has ended".to_owned()
        };
        let packets_out = async {
            while let Some(payload) = to_send.recv().await {
                let packet = Up::Packet(p4::PacketOut { payload, metadata: Vec::new() });
                let message = p4::StreamMessageRequest { update: Some(packet) };
                if up.send(message).await.is_err() {
                    return "the switch has ended the stream".to_owned();
                }
            }
            "the lane has ended".to_owned()
        };
        let packets_in = async {
            loop {
                match down.message().await {
                    Ok(Some(message)) => match message.update {
                        Some(Down::Packet(packet)) => {
                            if let Err(TrySendError::Full(_)) = receiving.try_send(packet.payload) {
                                shared.missed.fetch_add(1, Ordering::Relaxed);
                            }
                            unparker.unpark();
                        }
                        Some(Down::Arbitration(update))
                            if update.status.as_ref().is_some_and(|status| status.code != 0) =>
                        {
                            return "another controller is the switch's primary now".to_owned();
                        }
                        _ => {}
                    },
                    Ok(None) => return "the switch has ended the stream".to_owned(),
                    Err(status) => {
                        return format!("the stream to the switch broke: {}", words(&status));
                    }
                }
            }
        };
        let closed = async {
            // A port that the lane has closed needs no thread any more.
            while !shared.is_closed.load(Ordering::Acquire) {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            "the lane has ended".to_owned()
        };
        tokio::select! {
            why = calls => why,
            why = packets_out => why,
            why = packets_in => why,
            why = closed => why,
        }
    }
}

/// Returns once the box is to end.
async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// Why an attempt failed.
enum Failure {
    /// The switch may be coming up.
    Again(String),
    /// The next attempt will fail alike.
    Final(SwitchError),
}

/// Carries out requests in their order, runs of writes as one call.
async fn carry(
    client: &mut Client,
    config: &LinkConfig,
    batch: Vec<Request>,
    answering: &Sender<Answer>,
) -> Result<(), Status> {
    let mut writes: Vec<(u64, Write)> = Vec::new();
    for request in batch {
        match request {
            Request::Write(number, write) => writes.push((number, write)),
            Request::Read(read) => {
                write_all(client, config, core::mem::take(&mut writes), answering).await?;
                read_all(client, config, read, answering).await?;
            }
        }
    }
    write_all(client, config, writes, answering).await
}

async fn write_all(
    client: &mut Client,
    config: &LinkConfig,
    writes: Vec<(u64, Write)>,
    answering: &Sender<Answer>,
) -> Result<(), Status> {
    let mut updates = Vec::with_capacity(writes.len());
    let mut under_way = Vec::with_capacity(writes.len());
    for (number, write) in writes {
        match config.program.update(&write) {
            Ok(update) => {
                updates.push(update);
                under_way.push((number, write));
            }
            Err(problem) => {
                let _ = answering.send(Answer::Written(number, Err(problem)));
            }
        }
    }
    if updates.is_empty() {
        return Ok(());
    }
    let mut request = tonic::Request::new(write_request(config, updates));
    request.set_timeout(CALL_TIMEOUT);
    let results = match client.write(request).await {
        Ok(_) => vec![Ok(()); under_way.len()],
        Err(status) => results_of(&status, &under_way)?,
    };
    for ((number, _), result) in under_way.into_iter().zip(results) {
        // A lane that takes no answers has ended.
        let _ = answering.send(Answer::Written(number, result));
    }
    Ok(())
}

/// What became of each write of a call that failed.
fn results_of(status: &Status, writes: &[(u64, Write)]) -> Result<Vec<Result<(), String>>, Status> {
    let details = google::rpc::Status::decode(status.details()).unwrap_or_default().details;
    if details.len() == writes.len() {
        let one = |(any, (_, write)): (&prost_types::Any, &(u64, Write))| {
            let error = p4::Error::decode(any.value.as_slice()).unwrap_or_default();
            let code = Code::from_i32(error.canonical_code);
            // What is gone was to go.
            let is_gone = code == Code::NotFound && matches!(write, Write::Delete(_));
            if code == Code::Ok || is_gone {
                return Ok(());
            }
            Err(format!("the switch refuses {:?}: {code:?} {}", write.entry(), error.message))
        };
        return Ok(details.iter().zip(writes).map(one).collect());
    }
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::PermissionDenied => {
            Err(status.clone())
        }
        _ => Ok(vec![Err(format!("the switch refuses a write: {}", words(status))); writes.len()]),
    }
}

async fn read_all(
    client: &mut Client,
    config: &LinkConfig,
    read: Read,
    answering: &Sender<Answer>,
) -> Result<(), Status> {
    let Read { counter, cells } = read;
    let entities = cells.map(|cell| config.program.counter(counter, cell));
    let entities = entities.collect::<Result<_, _>>().map_err(Status::internal)?;
    let (device_id, request) = (config.device_id, p4::ReadRequest::default());
    let mut request = tonic::Request::new(p4::ReadRequest { device_id, entities, ..request });
    request.set_timeout(CALL_TIMEOUT);
    let mut stream = client.read(request).await?.into_inner();
    while let Some(response) = stream.message().await? {
        for entity in response.entities {
            let Some(p4::entity::Entity::CounterEntry(entry)) = entity.entity else { continue };
            let cell = entry.index.and_then(|index| u32::try_from(index.index).ok());
            let value = entry.data.map_or(0, |data| data.packet_count);
            if let (Some(cell), Ok(value)) = (cell, u64::try_from(value)) {
                let _ = answering.send(Answer::Cell(counter, cell, value));
            }
        }
    }
    let _ = answering.send(Answer::Done);
    Ok(())
}

fn write_request(config: &LinkConfig, updates: Vec<p4::Update>) -> p4::WriteRequest {
    p4::WriteRequest {
        device_id: config.device_id,
        election_id: Some(election(config)),
        updates,
        atomicity: p4::write_request::Atomicity::ContinueOnError.into(),
        ..Default::default()
    }
}

fn election(config: &LinkConfig) -> p4::Uint128 {
    p4::Uint128 { high: 0, low: config.election_id }
}

fn refused(config: &LinkConfig, status: &Status) -> Failure {
    match status.code() {
        Code::InvalidArgument | Code::AlreadyExists | Code::PermissionDenied => {
            Failure::Final(other_primary(config, status.message()))
        }
        _ => Failure::Again(words(status)),
    }
}

fn other_primary(config: &LinkConfig, problem: &str) -> SwitchError {
    let problem = if problem.is_empty() { "it is not this box's turn" } else { problem };
    let (grpc, election_id) = (config.grpc.clone(), config.election_id);
    SwitchError::OtherPrimary { grpc, election_id, problem: problem.replace('\n', " ") }
}

/// An error and its causes on one line.
fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text.replace('\n', " ")
}

/// Between two attempts.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// A call that takes longer has failed.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// A program that takes longer to put in has failed.
const PUSH_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest answer of a switch.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Packets that wait for the stream.
const FRAMES_UNDER_WAY: usize = 256;
/// Requests that are looked at together.
const BATCH_MAX: usize = 256;
