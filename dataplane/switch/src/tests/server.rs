//! A P4Runtime server without a switch: notes what it is told, sends packets back.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use prost::Message;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Response, Status, Streaming};
use weft_rpc::google;
use weft_rpc::p4::v1 as p4;
use weft_rpc::p4::v1::p4_runtime_server::{P4Runtime, P4RuntimeServer};
use weft_rpc::p4::v1::stream_message_request::Update as Up;
use weft_rpc::p4::v1::stream_message_response::Update as Down;

/// What goes wrong.
#[derive(Clone, Debug, Default)]
pub(super) struct Behaviour {
    pub(super) has_other_primary: bool,
    pub(super) refuses_program: bool,
    /// Which of all updates finds its table full.
    pub(super) refuses_update: Option<usize>,
    pub(super) lacks_deleted: bool,
}

/// What it was told.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) pushed: usize,
    pub(super) device_id: u64,
    pub(super) election_id: u64,
    pub(super) updates: usize,
    pub(super) values: Vec<Vec<u8>>,
}

pub(super) struct FakeServer {
    addr: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl FakeServer {
    pub(super) fn start(behaviour: Behaviour) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let service = Service { behaviour, seen: Arc::clone(&seen) };
        let (stop, stopped) = oneshot::channel();
        let (listening, addr) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                listening.send(listener.local_addr().unwrap()).unwrap();
                let incoming = tonic::transport::server::TcpIncoming::from(listener);
                let router =
                    tonic::transport::Server::builder().add_service(P4RuntimeServer::new(service));
                // Dropped, not asked to end: as a process that is killed.
                tokio::select! {
                    _ = router.serve_with_incoming(incoming) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { addr: addr.recv().unwrap(), seen, stop: Some(stop), thread: Some(thread) }
    }

    pub(super) fn addr(&self) -> String {
        self.addr.to_string()
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Service {
    behaviour: Behaviour,
    seen: Arc<Mutex<Seen>>,
}

type Outgoing<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl P4Runtime for Service {
    type ReadStream = Outgoing<p4::ReadResponse>;
    type StreamChannelStream = Outgoing<p4::StreamMessageResponse>;

    async fn write(
        &self,
        request: Request<p4::WriteRequest>,
    ) -> Result<Response<p4::WriteResponse>, Status> {
        let request = request.into_inner();
        let mut seen = self.seen.lock().unwrap();
        let (mut errors, mut has_failed) = (Vec::new(), false);
        for update in request.updates {
            let is_full = self.behaviour.refuses_update == Some(seen.updates);
            let is_delete = update.r#type() == p4::update::Type::Delete;
            seen.updates += 1;
            let error = if is_full {
                p4::Error {
                    canonical_code: 8,
                    message: "table is full".into(),
                    ..Default::default()
                }
            } else if is_delete && self.behaviour.lacks_deleted {
                p4::Error { canonical_code: 5, ..Default::default() }
            } else {
                p4::Error::default()
            };
            has_failed |= error.canonical_code != 0;
            let value = error.encode_to_vec();
            errors.push(prost_types::Any { type_url: "p4.v1.Error".into(), value });
            if let Some(p4::entity::Entity::TableEntry(entry)) =
                update.entity.and_then(|it| it.entity)
            {
                let action = entry.action.and_then(|action| action.r#type);
                if let Some(p4::table_action::Type::Action(action)) = action {
                    seen.values.extend(action.params.into_iter().map(|param| param.value));
                }
            }
        }
        if !has_failed {
            return Ok(Response::new(p4::WriteResponse {}));
        }
        let status = google::rpc::Status { code: 2, message: String::new(), details: errors };
        let details = status.encode_to_vec();
        Err(Status::with_details(Code::Unknown, "", details.into()))
    }

    async fn read(
        &self,
        request: Request<p4::ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let mut entities = request.into_inner().entities;
        for entity in &mut entities {
            if let Some(p4::entity::Entity::CounterEntry(entry)) = &mut entity.entity {
                let index = entry.index.map_or(0, |index| index.index);
                let data = p4::CounterData { packet_count: index, ..Default::default() };
                entry.data = Some(data);
            }
        }
        entities.retain(|it| matches!(it.entity, Some(p4::entity::Entity::CounterEntry(_))));
        let response = p4::ReadResponse { entities };
        Ok(Response::new(Box::pin(tokio_stream::iter([Ok(response)]))))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<p4::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4::SetForwardingPipelineConfigResponse>, Status> {
        if self.behaviour.refuses_program {
            return Err(Status::invalid_argument("bad JSON"));
        }
        let request = request.into_inner();
        let mut seen = self.seen.lock().unwrap();
        seen.pushed += 1;
        seen.device_id = request.device_id;
        seen.election_id = request.election_id.map_or(0, |id| id.low);
        Ok(Response::new(p4::SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        _: Request<p4::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<p4::GetForwardingPipelineConfigResponse>, Status> {
        Err(Status::unimplemented("nobody asks"))
    }

    async fn stream_channel(
        &self,
        request: Request<Streaming<p4::StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let mut requests = request.into_inner();
        let (sender, responses) = mpsc::channel(16);
        let has_other_primary = self.behaviour.has_other_primary;
        tokio::spawn(async move {
            while let Some(Ok(message)) = requests.next().await {
                let down = match message.update {
                    Some(Up::Arbitration(update)) => {
                        let code = if has_other_primary { 6 } else { 0 };
                        let status = google::rpc::Status { code, ..Default::default() };
                        Down::Arbitration(p4::MasterArbitrationUpdate {
                            status: Some(status),
                            ..update
                        })
                    }
                    Some(Up::Packet(packet)) => {
                        Down::Packet(p4::PacketIn { payload: packet.payload, metadata: Vec::new() })
                    }
                    _ => continue,
                };
                let response = p4::StreamMessageResponse { update: Some(down) };
                if sender.send(Ok(response)).await.is_err() {
                    break;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }

    async fn capabilities(
        &self,
        _: Request<p4::CapabilitiesRequest>,
    ) -> Result<Response<p4::CapabilitiesResponse>, Status> {
        Err(Status::unimplemented("nobody asks"))
    }
}
