//! The streams of workers and boxes, which differ in their messages alone: a first message, waited
//! for so long, by so many at a time; then everything to the core, until the stream ends.
//!
//! Nothing is decided here; a stream that breaks is told to the core once.
//!
//! Invariant: streams without a hello are bounded, in time and in number, and turn no other away.

use std::time::Duration;

use tokio::sync::oneshot;
use tonic::{Status, Streaming};
use weft_process::places::{Place, Places};
use weft_rpc::v1;

use crate::auth::{Owner, Peer};
use crate::core::{CoreSender, Ended, Input, Outbox};

/// Streams of one service that have not said hello.
#[derive(Clone, Debug)]
pub(crate) struct Silent(Places<Owner>);

impl Silent {
    pub(crate) fn new() -> Self {
        Self(Places::new(SILENT_MAX, SILENT_MAX))
    }

    /// A place for a stream that begins: one that has been silent for longer gives way.
    ///
    /// # Errors
    /// None gives way.
    pub(crate) fn enter(&self, peer: &Peer) -> Result<Place<Owner>, Status> {
        let full = "too many streams have not said hello yet; say it, or try again in 10 s";
        self.0.enter(peer.owner()).ok_or_else(|| Status::resource_exhausted(full))
    }
}

/// A kind of stream.
pub(crate) trait Kind {
    /// What its peer says.
    type Message;
    /// What its peer is told.
    type Reply;
    /// What the core knows one by.
    type Key: Copy;

    /// What the core is told first; `None` if the message is no hello.
    ///
    /// # Errors
    /// The peer may not say this.
    fn begin(
        first: Self::Message,
        peer: Peer,
        outbox: Outbox<Self::Reply>,
        answer: Answer<Self::Key>,
    ) -> Result<Option<Input>, v1::Refused>;

    /// What the core is told then; `None` for a kind of message that this version does not know.
    fn go_on(key: Self::Key, message: Self::Message) -> Option<Input>;

    /// What the core is told at last.
    fn end(key: Self::Key) -> Input;

    /// A refusal in the messages of this kind.
    fn refuse(refused: v1::Refused) -> Self::Reply;
}

/// Whether a stream may stay.
pub(crate) type Answer<K> = oneshot::Sender<Result<(K, Ended), v1::Refused>>;

/// Takes a stream's messages to the core until it ends.
pub(crate) async fn serve<K: Kind>(
    core: CoreSender,
    (mut inbound, mut place): (Streaming<K::Message>, Place<Owner>),
    peer: Peer,
    outbox: Outbox<K::Reply>,
) {
    let _call = peer.calls.begin();
    let first = tokio::select! {
        first = inbound.message() => Some(first),
        () = tokio::time::sleep(HELLO_TIMEOUT) => None,
        () = place.gone() => None,
    };
    drop(place);
    let (answer, answered) = oneshot::channel();
    let hello = match first {
        Some(Ok(Some(message))) => K::begin(message, peer, outbox.clone(), answer),
        Some(Ok(None) | Err(_)) => return,
        None => Ok(None),
    };
    let no_hello = || v1::Refused::new("hello", "must be the first message, within 10 s");
    let attached = match hello.and_then(|hello| hello.ok_or_else(no_hello)) {
        Ok(hello) => match core.send(hello).await {
            Ok(()) => answered.await,
            Err(_) => return,
        },
        Err(refused) => Ok(Err(refused)),
    };
    let (key, mut ended) = match attached {
        Ok(Ok(attached)) => attached,
        Ok(Err(refused)) => {
            let _ = outbox.send(Ok(K::refuse(refused))).await;
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
        let Ok(Some(message)) = message else { break };
        if let Some(input) = K::go_on(key, message)
            && core.send(input).await.is_err()
        {
            return;
        }
    }
    let _ = core.send(K::end(key)).await;
}

/// Streams of one service that may be without a hello.
pub(crate) const SILENT_MAX: usize = 256;
/// How long a stream may be without one.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
