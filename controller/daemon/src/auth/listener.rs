//! Takes connections and hands them to the gRPC server, each with who it is from.
//!
//! Invariant: a peer that shakes hands slowly, badly or not at all holds up nobody, and holds one
//! of `HANDSHAKES_MAX` places for at most `HANDSHAKE_TIMEOUT`.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use weft_rpc::identity::PREFIX;

use super::certificates::Certificates;
use super::{Caller, Peer, Refusals};

/// A connection whose other end is known.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    peer: Peer,
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
    let door = Arc::new(Door {
        certificates,
        refusals,
        places: Semaphore::new(HANDSHAKES_MAX),
        told: Mutex::new(None),
    });
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = sender.closed() => return,
            };
            match accepted {
                Ok((stream, addr)) => door.let_in(stream, addr, &sender).await,
                // No file descriptor is left, most likely: some will be soon.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    });
    ReceiverStream::new(receiver)
}

/// What handshakes share.
struct Door {
    certificates: Option<Certificates>,
    refusals: Arc<Refusals>,
    places: Semaphore,
    /// When a refusal was last told to people.
    told: Mutex<Option<Instant>>,
}

type Accepted = mpsc::Sender<io::Result<Connection>>;

impl Door {
    async fn let_in(self: &Arc<Self>, stream: TcpStream, addr: SocketAddr, accepted: &Accepted) {
        // Without it a grant may wait 40 ms for the acknowledgement of the message before.
        let _ = stream.set_nodelay(true);
        let peer = move |caller| Peer { addr: Some(addr), caller: Arc::new(caller) };
        let Some(certificates) = &self.certificates else {
            let stream = Stream::Plain(stream);
            let _ = accepted.send(Ok(Connection { stream, peer: peer(Caller::Anyone) })).await;
            return;
        };
        let acceptor = TlsAcceptor::from(certificates.current());
        let (door, accepted) = (Arc::clone(self), accepted.clone());
        tokio::spawn(async move {
            let Ok(_place) = door.places.try_acquire() else {
                return door.refuse(addr, "too many shake hands at a time");
            };
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, shake_hands(acceptor, stream)).await {
                Ok(Ok(stream)) => {
                    let peer = peer(caller(&stream));
                    let stream = Stream::Tls(Box::new(stream));
                    let _ = accepted.send(Ok(Connection { stream, peer })).await;
                }
                Ok(Err(error)) => door.refuse(addr, &error.to_string()),
                Err(_) => door.refuse(addr, "no handshake in time"),
            }
        });
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
        match &mut self.get_mut().stream {
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
/// Handshakes at a time.
const HANDSHAKES_MAX: usize = 256;
/// How long one may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that wait for the server.
const ACCEPTED_MAX: usize = 64;
/// After an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Least time between two lines of the log about refusals.
const TELL_PERIOD: Duration = Duration::from_secs(10);
