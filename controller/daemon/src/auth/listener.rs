//! Takes connections and hands them to the gRPC server, each with who it is from.
//!
//! Invariants: a peer that shakes hands slowly, badly or not at all delays no other, and has a
//! place for at most [`HANDSHAKE_TIMEOUT`]. A connection without a call has one for at most two
//! [`IDLE_PERIOD`]s, and gives way to a new one. An identity, or an address without TLS, has at
//! most half of the places; operators have places of their own; and all connections together leave
//! [`FILES_RESERVED`] descriptors to the rest of the process.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant as Time, Sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use weft_process::files;
use weft_process::listener::{SCRAPERS_MAX, accept};
use weft_process::places::{Place, Places};
use weft_rpc::identity::{Identity, PREFIX};

use super::certificates::Certificates;
use super::{Caller, Owner, Peer, Refusals};

/// A connection whose other end is known.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    peer: Peer,
    place: Place<Owner>,
    door: Arc<Door>,
    /// When it is looked next whether there were calls.
    idle: Pin<Box<Sleep>>,
    is_over: bool,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// The connections of a listener: with TLS where there are `certificates`, else as they come.
pub fn connections(
    listener: TcpListener,
    certificates: Option<Certificates>,
    refusals: Arc<Refusals>,
) -> ReceiverStream<io::Result<Connection>> {
    let (sender, receiver) = mpsc::channel(ACCEPTED_MAX);
    let door = Arc::new(Door::new(certificates, refusals, files::raise()));
    tokio::spawn(async move {
        loop {
            let (stream, addr) = tokio::select! {
                accepted = accept(&listener) => accepted,
                () = sender.closed() => return,
            };
            door.let_in(stream, addr, &sender).await;
        }
    });
    ReceiverStream::new(receiver)
}

/// The certificates, counters and places that all connections share.
#[derive(Debug)]
struct Door {
    certificates: Option<Certificates>,
    refusals: Arc<Refusals>,
    handshakes: Places<IpAddr>,
    operators: Places<Owner>,
    others: Places<Owner>,
    /// When a refusal was last told to people.
    told: Mutex<Option<Instant>>,
}

type Accepted = mpsc::Sender<io::Result<Connection>>;

impl Door {
    /// Shares out so many descriptors.
    fn new(certificates: Option<Certificates>, refusals: Arc<Refusals>, files: usize) -> Self {
        let free = files.saturating_sub(FILES_RESERVED + SCRAPERS_MAX);
        let handshakes_max = (free / 4).clamp(1, HANDSHAKES_MAX);
        let operators_max = (free / 8).clamp(1, OPERATORS_MAX);
        let others_max = (free / 2).clamp(2, CONNECTIONS_MAX);
        Self {
            certificates,
            refusals,
            handshakes: Places::new(handshakes_max, handshakes_max),
            operators: Places::new(operators_max, operators_max),
            others: Places::new(others_max, others_max / 2),
            told: Mutex::new(None),
        }
    }

    async fn let_in(self: &Arc<Self>, stream: TcpStream, addr: SocketAddr, accepted: &Accepted) {
        // Without it a grant may wait 40 ms for the acknowledgement of the message before.
        let _ = stream.set_nodelay(true);
        let Some(certificates) = &self.certificates else {
            return self.pass(Stream::Plain(stream), addr, Caller::Anyone, accepted).await;
        };
        let acceptor = TlsAcceptor::from(certificates.current());
        // None has a call under way, so there is one.
        let Some(mut place) = self.handshakes.enter(addr.ip()) else { return };
        let (door, accepted) = (Arc::clone(self), accepted.clone());
        tokio::spawn(async move {
            let shaken = tokio::select! {
                shaken = shake_hands(acceptor, stream) => shaken,
                () = tokio::time::sleep(HANDSHAKE_TIMEOUT) => {
                    return door.refuse(addr, "no handshake in time");
                }
                () = place.gone() => return door.refuse(addr, "too many shake hands at a time"),
            };
            match shaken {
                Ok(stream) => {
                    let caller = caller(&stream);
                    door.pass(Stream::Tls(Box::new(stream)), addr, caller, &accepted).await;
                }
                Err(error) => door.refuse(addr, &error.to_string()),
            }
        });
    }

    /// Hands a connection to the server, if there is a place for it.
    async fn pass(
        self: &Arc<Self>,
        stream: Stream,
        addr: SocketAddr,
        caller: Caller,
        accepted: &Accepted,
    ) {
        let mut peer = Peer::new(Some(addr), caller);
        let places = match &*peer.caller {
            Caller::Known(Identity::Operator { .. }) => &self.operators,
            _ => &self.others,
        };
        let Some(place) = places.enter(peer.owner()) else {
            return self.refuse(addr, "its owner has too many connections, all with calls");
        };
        peer.calls = Arc::clone(place.calls());
        let (door, idle) = (Arc::clone(self), Box::pin(tokio::time::sleep(IDLE_PERIOD)));
        let _ =
            accepted.send(Ok(Connection { stream, peer, place, door, idle, is_over: false })).await;
    }

    /// Counts a connection that is not taken, and tells of some.
    fn refuse(&self, addr: SocketAddr, reason: &str) {
        let count = 1 + self.refusals.connections.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() > TELL_PERIOD) {
            *told = Some(Instant::now());
            weft_process::say!(
                "weft-controller: no connection for {addr}: {reason} ({count} refused)"
            );
        }
    }
}

async fn shake_hands(
    acceptor: TlsAcceptor,
    mut stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let mut first = [0; PLAIN_HTTP2.len()];
    let len = stream.peek(&mut first).await?;
    if len > 0 && PLAIN_HTTP2.starts_with(&first[..len]) {
        stream.write_all(&go_away()).await?;
        stream.shutdown().await?;
        // What is left unread would have the kernel take the answer back.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        return Err(io::Error::other("it calls without TLS"));
    }
    acceptor.accept(stream).await
}

/// Whom the certificate of a connection is of.
fn caller(stream: &TlsStream<TcpStream>) -> Caller {
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let Some(certificate) = certificates.first() else { return Caller::Stranger };
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else {
        return Caller::Stranger;
    };
    let mut roles = certificate.valid_uri_names().filter(|uri| uri.starts_with(PREFIX));
    match (roles.next().map(str::parse), roles.next()) {
        (Some(Ok(identity)), None) => Caller::Known(identity),
        _ => Caller::Stranger,
    }
}

/// To a client that speaks HTTP/2 without TLS: empty SETTINGS, then GOAWAY with
/// INADEQUATE_SECURITY (RFC 9113, sections 6.5, 6.8 and 9.2).
fn go_away() -> Vec<u8> {
    let text = b"this controller takes calls over TLS alone: call https:// with a certificate";
    let mut frames = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    let len = u8::try_from(8 + text.len()).expect("a short text");
    frames.extend([0, 0, len, 7, 0, 0, 0, 0, 0]);
    frames.extend([0, 0, 0, 0, 0, 0, 0, 0xc]);
    frames.extend(text);
    frames
}

impl Connection {
    /// True when it is to end: another has taken its place, or there are no calls.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        if !self.is_over && self.place.poll_gone(context).is_ready() {
            self.is_over = true;
            if let Some(addr) = self.peer.addr {
                self.door.refuse(addr, "it has no call, and its place went to another");
            }
        }
        while !self.is_over && self.idle.as_mut().poll(context).is_ready() {
            self.is_over = self.place.was_idle();
            self.idle.as_mut().reset(Time::now() + IDLE_PERIOD);
        }
        self.is_over
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_over(context) {
            // As if the peer had ended it.
            return Poll::Ready(Ok(()));
        }
        match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// What a client sends first that knows that there is HTTP/2 without TLS.
const PLAIN_HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Handshakes at a time, where there are descriptors for as many.
const HANDSHAKES_MAX: usize = 256;
/// Connections of operators, likewise.
const OPERATORS_MAX: usize = 64;
/// Connections of workers and nodes, likewise.
const CONNECTIONS_MAX: usize = 8192;
/// Descriptors that connections leave alone: for the state, logs, programs that are policies.
const FILES_RESERVED: usize = 64;
/// A connection without a call within this time, and then within this time again, is ended.
const IDLE_PERIOD: Duration = Duration::from_secs(60);
/// How long one may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that wait for the server.
const ACCEPTED_MAX: usize = 64;
/// Least time between two lines of the log about refusals.
const TELL_PERIOD: Duration = Duration::from_secs(10);
