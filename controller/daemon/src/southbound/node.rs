//! gRPC to boxes: streams in and out of the core.

use std::pin::Pin;

use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use weft_rpc::v1;
use weft_rpc::v1::node_message::Message;
use weft_rpc::v1::nodes_server::Nodes;

use crate::auth::Peer;
use crate::core::{CoreSender, Input, NodeKey, OUTBOX_MAX, Outbox};
use crate::stream::{self, Answer, Kind, Silent};

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
        let place = self.silent.enter(&peer)?;
        let (outbox, outbound) = mpsc::channel(OUTBOX_MAX);
        tokio::spawn(stream::serve::<Boxes>(
            self.core.clone(),
            (request.into_inner(), place),
            peer,
            outbox,
        ));
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound))))
    }
}

/// The streams of boxes.
struct Boxes;

impl Kind for Boxes {
    type Message = v1::NodeMessage;
    type Reply = v1::Command;
    type Key = NodeKey;

    fn begin(
        first: v1::NodeMessage,
        peer: Peer,
        outbox: Outbox<v1::Command>,
        answer: Answer<NodeKey>,
    ) -> Result<Option<Input>, v1::Refused> {
        let Some(Message::Hello(hello)) = first.message else { return Ok(None) };
        peer.caller.check_node(&hello.name)?;
        Ok(Some(Input::NodeHello { hello, outbox, answer }))
    }

    fn go_on(key: NodeKey, message: v1::NodeMessage) -> Option<Input> {
        message.message.map(|message| Input::Node(key, message))
    }

    fn end(key: NodeKey) -> Input {
        Input::NodeGone(key)
    }

    fn refuse(refused: v1::Refused) -> v1::Command {
        v1::Command { command: Some(v1::command::Command::Refused(refused)) }
    }
}
