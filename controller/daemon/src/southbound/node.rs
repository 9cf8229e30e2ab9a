//! gRPC to boxes: streams in and out of the core.

use std::pin::Pin;

use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use weft_rpc::v1;
use weft_rpc::v1::nodes_server::Nodes;

use crate::auth::Peer;
use crate::core::{CoreSender, Input, OUTBOX_MAX, Outbox};
use crate::hello::{self, First, Place, Silent};

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
            let refused = v1::Refused::new("hello", "must be the first message, within 10 s");
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
