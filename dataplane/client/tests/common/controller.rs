//! A controller that speaks the real gRPC interface: it puts every `group_size` requests into one
//! group by way of the aggregator, or grants each by itself when that is 1.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};
use weft_control::{BoxIndex, Command, Event, GroupDescriptor, GroupMember, OrderNumber, Version};
use weft_rpc::v1;
use weft_rpc::v1::worker_message::Message as Heard;
use weft_rpc::v1::worker_reply::Message as Said;
use weft_rpc::v1::workers_server::{Workers, WorkersServer};
use weft_wire::header::ElementType;
use weft_wire::{GroupId, Rank, quant};

use super::{Cluster, Control, ELEMENTS, JOB, PARAMETERS, box_addr, server_addr};

type Replies = mpsc::Sender<Result<v1::WorkerReply, Status>>;

struct Asking {
    rank: u8,
    request: v1::TransferRequest,
    replies: Replies,
}

struct State {
    server: Control,
    aggregator: Control,
    group_size: usize,
    workers: u32,
    order: u64,
    pending: Vec<Asking>,
    /// How many requests are dropped from now on.
    drops: usize,
    /// The gate opens this long after the grant.
    gate: Duration,
    cancelled: usize,
    /// What workers said that they have carried.
    counters: Vec<v1::Telemetry>,
}

/// A running controller.
pub(crate) struct Controller {
    pub(crate) endpoint: String,
    state: Arc<Mutex<State>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Controller {
    pub(crate) fn start(cluster: &Cluster, workers: u32, group_size: usize) -> Self {
        let state = Arc::new(Mutex::new(State {
            server: cluster.server.clone(),
            aggregator: cluster.aggregator.clone(),
            group_size,
            workers,
            order: 0,
            pending: Vec::new(),
            drops: 0,
            gate: Duration::ZERO,
            cancelled: 0,
            counters: Vec::new(),
        }));
        let (stop, stopped) = oneshot::channel();
        let (told, addr) = std::sync::mpsc::channel::<SocketAddr>();
        let service = Service(Arc::clone(&state));
        let thread = thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                told.send(listener.local_addr().unwrap()).unwrap();
                let serve = tonic::transport::Server::builder()
                    .add_service(WorkersServer::new(service))
                    .serve_with_incoming(TcpListenerStream::new(listener));
                tokio::select! {
                    served = serve => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        let endpoint = format!("http://{}", addr.recv().unwrap());
        Self { endpoint, state, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn drop_next(&self, count: usize) {
        self.state.lock().unwrap().drops = count;
    }

    pub(crate) fn counters(&self) -> Vec<v1::Telemetry> {
        self.state.lock().unwrap().counters.clone()
    }

    pub(crate) fn gate(&self, gate: Duration) {
        self.state.lock().unwrap().gate = gate;
    }

    /// Ends as a process that is killed.
    pub(crate) fn kill(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Service(Arc<Mutex<State>>);

#[tonic::async_trait]
impl Workers for Service {
    type AttachStream = ReceiverStream<Result<v1::WorkerReply, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::WorkerMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let mut heard = request.into_inner();
        let (replies, stream) = mpsc::channel(64);
        let state = Arc::clone(&self.0);
        tokio::spawn(async move {
            let mut rank = 0;
            while let Ok(Some(message)) = heard.message().await {
                match message.message.unwrap() {
                    Heard::Hello(hello) if hello.rank > 63 => {
                        let problem = "must be 0 to 63".to_owned();
                        let refused = v1::Refused {
                            field: "rank".to_owned(),
                            problem,
                            ..v1::Refused::default()
                        };
                        say(&replies, Said::Refused(refused)).await;
                    }
                    Heard::Hello(hello) => {
                        rank = u8::try_from(hello.rank).unwrap();
                        let welcome = describe(state.lock().unwrap().workers);
                        say(&replies, Said::Welcome(welcome)).await;
                    }
                    Heard::Request(request) => {
                        let asking = Asking { rank, request, replies: replies.clone() };
                        take(&state, asking).await;
                    }
                    Heard::RoundBegun(_) | Heard::RoundPosition(_) => panic!("{rank} pushes"),
                    Heard::Cancel(_) => state.lock().unwrap().cancelled += 1,
                    Heard::PullSample(sample) => assert!(sample.bytes > 0),
                    // On the loopback there is no link to probe.
                    Heard::ProbePort(_) | Heard::ProbeTrain(_) => panic!("{rank} is probed"),
                    Heard::Telemetry(telemetry) => state.lock().unwrap().counters.push(telemetry),
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn set_band_policy(
        &self,
        _: Request<v1::SetBandPolicyRequest>,
    ) -> Result<Response<v1::SetBandPolicyReply>, Status> {
        Err(Status::unimplemented("the tests have no operators"))
    }

    async fn hold(&self, _: Request<v1::HoldRequest>) -> Result<Response<v1::HoldReply>, Status> {
        Err(Status::unimplemented("nobody asks here"))
    }

    async fn pause_job(
        &self,
        _: Request<v1::PauseJobRequest>,
    ) -> Result<Response<v1::PauseJobReply>, Status> {
        Err(Status::unimplemented("nobody asks here"))
    }

    async fn resize_job(
        &self,
        _: Request<v1::ResizeJobRequest>,
    ) -> Result<Response<v1::ResizeJobReply>, Status> {
        Err(Status::unimplemented("nobody asks here"))
    }

    async fn resume_job(
        &self,
        _: Request<v1::ResumeJobRequest>,
    ) -> Result<Response<v1::ResumeJobReply>, Status> {
        Err(Status::unimplemented("nobody asks here"))
    }

    async fn register_job(
        &self,
        _: Request<v1::RegisterJobRequest>,
    ) -> Result<Response<v1::RegisterJobReply>, Status> {
        Err(Status::unimplemented("jobs are fixed here"))
    }

    async fn unregister_job(
        &self,
        _: Request<v1::UnregisterJobRequest>,
    ) -> Result<Response<v1::UnregisterJobReply>, Status> {
        Err(Status::unimplemented("jobs are fixed here"))
    }
}

async fn say(replies: &Replies, message: Said) {
    let _ = replies.send(Ok(v1::WorkerReply { message: Some(message) })).await;
}

fn describe(workers: u32) -> v1::JobDescription {
    let place =
        |index, addr: SocketAddr| v1::Box { index, node: String::new(), address: addr.to_string() };
    let mut job = v1::JobDescription {
        job: u32::from(JOB.0),
        dimension: PARAMETERS as u64,
        elements_per_chunk: u32::from(ELEMENTS),
        chunk_count: u32::try_from(PARAMETERS.div_ceil(usize::from(ELEMENTS))).unwrap(),
        worker_count: workers,
        server: Some(place(0, server_addr())),
        aggregators: vec![place(0, box_addr())],
        telemetry_period_ns: 20_000_000,
        probe_nonce: 9,
        ..v1::JobDescription::default()
    };
    job.set_element_type(v1::ElementType::I32);
    job.set_mode(v1::Mode::Async);
    job
}

/// Takes a request; the last of a group has all of them granted.
async fn take(state: &Mutex<State>, asking: Asking) {
    let is_dropped = {
        let mut state = state.lock().unwrap();
        let is_dropped = state.drops > 0;
        state.drops -= usize::from(is_dropped);
        is_dropped
    };
    if is_dropped {
        let update_id = asking.request.update_id;
        let mut drop = v1::Drop { update_id, ..v1::Drop::default() };
        drop.set_reason(v1::DropReason::TooOld);
        return say(&asking.replies, Said::Drop(drop)).await;
    }
    let (members, descriptor, gate) = {
        let mut state = state.lock().unwrap();
        state.pending.push(asking);
        if state.pending.len() < state.group_size {
            return;
        }
        let members = std::mem::take(&mut state.pending);
        let descriptor = describe_group(&mut state, &members);
        (members, descriptor, state.gate)
    };
    install(state, &descriptor).await;
    for member in &members {
        let gate_is = |open| v1::segment::Gate::Open(open);
        let segment = v1::Segment { gate: Some(gate_is(gate.is_zero())), ..v1::Segment::default() };
        let grant = v1::Grant {
            update_id: member.request.update_id,
            group: descriptor.group.0,
            order: descriptor.order.0,
            via: descriptor.via.map(|via| u32::from(via.0)),
            exponent: i32::from(descriptor.exponent),
            segments: vec![segment],
            replicate: false,
            member_count: u32::try_from(members.len()).unwrap(),
            train_chunks: 0,
        };
        say(&member.replies, Said::Grant(grant)).await;
    }
    if !gate.is_zero() {
        tokio::time::sleep(gate).await;
        for member in &members {
            let release = v1::Release { update_id: member.request.update_id, segment: 0 };
            say(&member.replies, Said::Release(release)).await;
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "it was an f32 when it was sent")]
fn describe_group(state: &mut State, members: &[Asking]) -> GroupDescriptor {
    let count = u32::try_from(members.len()).unwrap();
    let max_abs = members.iter().map(|member| member.request.max_abs).fold(0.0, f64::max);
    let order = state.order;
    state.order += 1;
    GroupDescriptor {
        job: JOB,
        group: GroupId::new(
            u16::try_from(order % 1024).unwrap(),
            u16::try_from(order / 1024).unwrap(),
        ),
        order: OrderNumber(order),
        members: members
            .iter()
            .map(|member| GroupMember {
                rank: Rank::new(member.rank).unwrap(),
                version: Version(member.request.version),
            })
            .collect(),
        chunks: u32::try_from(PARAMETERS.div_ceil(usize::from(ELEMENTS))).unwrap(),
        element_type: ElementType::I32,
        elements: ELEMENTS,
        exponent: quant::exponent_for(max_abs as f32, count),
        via: (count > 1).then_some(BoxIndex(0)),
        replicate: false,
        rate_bytes_per_sec: None,
        after: None,
        train_chunks: 0,
        lateness_ns: 2_000_000_000,
    }
}

/// Installs a group everywhere on its path and waits for the boxes' word.
async fn install(state: &Mutex<State>, descriptor: &GroupDescriptor) {
    let boxes = {
        let state = state.lock().unwrap();
        // The server pulls as soon as it knows of the group: its aggregator must by then.
        let mut boxes: Vec<Control> =
            descriptor.via.map(|_| state.aggregator.clone()).into_iter().collect();
        boxes.push(state.server.clone());
        boxes
    };
    for place in &boxes {
        place.commands.send(Command::Install(descriptor.clone())).unwrap();
        loop {
            match place.events.try_recv() {
                Ok((_, Event::Installed { group })) if group == descriptor.group => break,
                Ok((_, Event::Refused { error, .. })) => panic!("refused: {error:?}"),
                Ok(_) => {}
                Err(_) => tokio::time::sleep(Duration::from_micros(200)).await,
            }
        }
    }
}
