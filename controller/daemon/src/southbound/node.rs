//! gRPC to boxes: streams in and out of the core, and what a hello and telemetry mean.

use std::pin::Pin;

use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use weft_control::{OrderNumber, ServerEpoch, Version};
use weft_plan::engine::{NodeHello, OpenGroup, ProbeTrain, RoleState, Telemetry};
use weft_plan::net::estimate::train::{Arrival, PACKETS_MAX, Reading};
use weft_rpc::convert::{box_index, code, job, magnitude};
use weft_rpc::v1;
use weft_rpc::v1::nodes_server::Nodes;
use weft_wire::{GroupId, Members};

use crate::auth::Peer;
use crate::core::{CoreSender, Input, OUTBOX_MAX, Outbox};
use crate::hello::{self, First, Place, Silent};
use crate::northbound::refusal;

/// The service.
#[derive(Clone, Debug)]
pub struct Southbound {
    core: CoreSender,
    silent: Silent,
}

impl Southbound {
    /// In front of the core.
    #[must_use]
    pub fn new(core: CoreSender) -> Self {
        Self { core, silent: Silent::new() }
    }
}

#[tonic::async_trait]
impl Nodes for Southbound {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<v1::Command, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::NodeMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let peer = Peer::of(&request);
        let place = self.silent.enter()?;
        let (outbox, outbound) = mpsc::channel(OUTBOX_MAX);
        tokio::spawn(serve(self.core.clone(), (request.into_inner(), place), peer, outbox));
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound))))
    }
}

/// Takes a box's messages to the core until its stream ends.
async fn serve(
    core: CoreSender,
    (mut inbound, place): (Streaming<v1::NodeMessage>, Place),
    peer: Peer,
    outbox: Outbox<v1::Command>,
) {
    let refuse = |refused| v1::Command { command: Some(v1::command::Command::Refused(refused)) };
    let first = match hello::first(&mut inbound, place).await {
        First::Said(v1::NodeMessage { message: Some(v1::node_message::Message::Hello(hello)) }) => {
            hello
        }
        First::Said(_) | First::Nothing => {
            let refused = refusal("hello", "must be the first message, within 10 s");
            let _ = outbox.send(Ok(refuse(refused))).await;
            return;
        }
        First::Gone => return,
    };
    if let Err(refused) = peer.caller.check_node(&first.name) {
        let _ = outbox.send(Ok(refuse(refused))).await;
        return;
    }
    let (answer, answered) = oneshot::channel();
    let hello = Input::NodeHello { hello: first, outbox: outbox.clone(), answer };
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
            Ok(Some(v1::NodeMessage { message: Some(message) })) => Input::Node(key, message),
            // A kind of message that this version does not know.
            Ok(Some(v1::NodeMessage { message: None })) => continue,
            Ok(None) | Err(_) => break,
        };
        if core.send(input).await.is_err() {
            return;
        }
    }
    let _ = core.send(Input::NodeGone(key)).await;
}

/// Reads a hello.
///
/// # Errors
/// The first field that makes no sense.
pub fn hello(hello: &v1::NodeHello) -> Result<NodeHello, v1::Refused> {
    let mut roles = Vec::with_capacity(hello.roles.len());
    for role in &hello.roles {
        let open_groups = role.open_groups.iter().map(|open| OpenGroup {
            group: GroupId(open.group),
            order: OrderNumber(open.order),
            members: Members(open.members),
        });
        roles.push(RoleState {
            job: job(role.job)?,
            role: code(role.role)?,
            box_index: box_index("box_index", role.box_index)?,
            address: role.address.clone(),
            next_order: OrderNumber(role.next_order),
            version: Version(role.version),
            momentum_norm: magnitude("momentum_norm", role.momentum_norm)?,
            epoch: ServerEpoch(role.epoch),
            is_fit: role.is_fit,
            has_met_replica: role.has_met_replica,
            has_left_replica: role.has_left_replica,
            open_groups: open_groups.collect(),
        });
    }
    Ok(NodeHello { name: hello.name.clone(), life: hello.life, roles })
}

/// Reads counters.
pub(crate) const fn telemetry(telemetry: &v1::Telemetry) -> Telemetry {
    Telemetry {
        at_ns: telemetry.at_ns,
        rx_bytes: telemetry.rx_bytes,
        tx_bytes: telemetry.tx_bytes,
        nic_rx_bytes: telemetry.nic_rx_bytes,
        nic_tx_bytes: telemetry.nic_tx_bytes,
    }
}

/// Reads a probe train.
///
/// # Errors
/// Lists that are too long, or not of one length.
pub(crate) fn probe_train(train: &v1::ProbeTrain) -> Result<ProbeTrain, v1::Refused> {
    let most = PACKETS_MAX as usize;
    if train.at_ns.len() > most {
        return Err(refusal("at_ns", "must be at most 256"));
    }
    if train.reading_at_ns.len() > most || train.reading_at_ns.len() != train.reading_bytes.len() {
        return Err(refusal("reading_bytes", "must be at most 256, and as many as reading_at_ns"));
    }
    let arrival = |at_ns: &u64| Arrival { at_ns: *at_ns, len_bytes: train.frame_bytes };
    let readings = train.reading_at_ns.iter().zip(&train.reading_bytes);
    let reading = |(at_ns, total): (&u64, &u64)| Reading { at_ns: *at_ns, total_bytes: *total };
    Ok(ProbeTrain {
        train: train.train,
        arrivals: train.at_ns.iter().map(arrival).collect(),
        readings: readings.map(reading).collect(),
    })
}
