//! Who calls, and what a caller may do.
//!
//! | module | does |
//! | --- | --- |
//! | [`listener`] | takes connections, with TLS or without |
//! | [`certificates`] | the controller's own certificate, read anew when its files change |
//! | [`rights`] | decides which role may make which call |
//!
//! Invariant: with `[tls]` no call reaches a service unless the caller's certificate is signed by
//! the CA, valid when the connection was made, and of a role that may make this call. Without
//! `[tls]` everybody may make every call, so such a listener has to be on the loopback, or to be
//! wanted so (`insecure`).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_process::places::Calls;
use weft_rpc::identity::Identity;
use weft_rpc::v1;
use weft_wire::{JobId, Rank};

pub mod certificates;
pub mod listener;
pub mod rights;

/// Who a connection is from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Caller {
    /// There is no TLS: nobody asked.
    Anyone,
    /// The owner of a certificate.
    Known(Identity),
    /// A certificate of the CA that names no role of Weft's.
    Stranger,
}

/// A connection's other end; every request carries it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it calls from.
    pub addr: Option<SocketAddr>,
    /// Who it is.
    pub caller: Arc<Caller>,
    /// The calls on its connection.
    pub calls: Arc<Calls>,
}

/// The owner of the places that connections and streams take.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Owner {
    /// The identity in a certificate.
    Named(String),
    /// An address, without TLS.
    At(Option<IpAddr>),
}

impl Peer {
    /// Of a request. One without the mark of our listener is nobody's.
    pub(crate) fn of<T>(request: &tonic::Request<T>) -> Self {
        let peer = request.extensions().get::<Self>().cloned();
        peer.unwrap_or_else(|| Self::new(None, Caller::Stranger))
    }

    /// Without a call.
    #[must_use]
    pub fn new(addr: Option<SocketAddr>, caller: Caller) -> Self {
        Self { addr, caller: Arc::new(caller), calls: Arc::default() }
    }

    pub(crate) fn owner(&self) -> Owner {
        match &*self.caller {
            Caller::Known(identity) => Owner::Named(identity.to_string()),
            Caller::Anyone | Caller::Stranger => Owner::At(self.ip()),
        }
    }

    /// Where it calls from.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.addr.map(|addr| addr.ip())
    }
}

impl Caller {
    /// Whether it may speak for this worker.
    ///
    /// # Errors
    /// The field that its certificate has another value for.
    pub fn check_worker(&self, at: JobId, as_rank: Rank) -> Result<(), v1::Refused> {
        let Self::Known(Identity::Worker { job, rank }) = self else { return Ok(()) };
        if let Some(job) = job
            && *job != at.0
        {
            return Err(v1::Refused::new("job", format!("this certificate is for job {job}")));
        }
        match rank {
            Some(rank) if usize::from(*rank) != as_rank.index() => {
                Err(v1::Refused::new("rank", format!("this certificate is for rank {rank}")))
            }
            _ => Ok(()),
        }
    }

    /// Whether it may speak for this box.
    ///
    /// # Errors
    /// Its certificate has another name.
    pub fn check_node(&self, as_name: &str) -> Result<(), v1::Refused> {
        match self {
            Self::Known(Identity::Node { name: Some(name) }) if name != as_name => {
                Err(v1::Refused::new("name", format!("this certificate is for node `{name}`")))
            }
            _ => Ok(()),
        }
    }
}

/// What was refused before any service saw it.
#[derive(Debug, Default)]
pub struct Refusals {
    /// Connections that came to no handshake: by other certificates, without TLS, too slow, or too
    /// many at a time.
    pub connections: AtomicU64,
    /// Calls that the caller's role may not make.
    pub calls: AtomicU64,
}

impl Refusals {
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.connections.load(Ordering::Relaxed), self.calls.load(Ordering::Relaxed))
    }
}
