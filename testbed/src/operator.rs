//! What an operator asks of a controller, over gRPC: a call, and the one answer or why there is
//! none.
//!
//! Invariant: dialling and the first call take at most the caller's time together, each further
//! call as long, and all of it ends soon after a signal.

use std::cell::Cell;
use std::error::Error as _;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};

use tonic::transport::Channel;
use weft_control::{BandPolicy, Command, HoldingCommand};
use weft_rpc::convert::command_to_proto;
use weft_rpc::tls::{self, CallRuntime, DialError, Dialler};
use weft_rpc::v1;
use weft_rpc::v1::status_client::StatusClient;
use weft_rpc::v1::workers_client::WorkersClient;

use crate::certs::{FolderError, of_operator};
use crate::interrupt;

/// A connection to a controller.
#[derive(Debug)]
pub struct Operator {
    runtime: CallRuntime,
    channel: Channel,
    timeout: Duration,
    /// When dialling began, until the first call.
    dialled: Cell<Option<Instant>>,
    endpoint: String,
}

/// Why a controller did not do it.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// This machine has no way to ask.
    #[error("cannot begin to ask the controller")]
    System(#[source] std::io::Error),
    /// What was asked for makes no sense, whoever listens there: an address that is none, or a
    /// certificate that cannot be read.
    #[error("cannot call the controller")]
    Call(#[source] DialError),
    /// So does a folder of certificates.
    #[error("cannot call the controller")]
    Certificates(#[source] FolderError),
    /// So does the address, by itself.
    #[error("cannot call the controller: `{endpoint}` {problem}")]
    Address {
        /// Where.
        endpoint: String,
        /// Why.
        problem: &'static str,
    },
    /// It went before it answered a word.
    #[error(
        "the controller went before it answered; it may have heeded the word: `weft top --once` \
         says what the job does, once it is back"
    )]
    Broken(#[source] tonic::Status),
    /// It was reached, and the two do not understand each other.
    #[error("cannot speak with the controller at {endpoint}: {problem}")]
    Foreign {
        /// Where.
        endpoint: String,
        /// Why.
        problem: String,
    },
    /// It was not reached.
    #[error("cannot reach the controller at {endpoint}; is it running, and is that its `listen`?")]
    Dial {
        /// Where.
        endpoint: String,
        /// Why.
        #[source]
        source: DialError,
    },
    /// It said no.
    #[error("{}", .0.message())]
    Said(tonic::Status),
    /// A signal came first.
    #[error("a signal came before the controller answered")]
    Interrupted,
    /// It said nothing of itself in time.
    #[error("the controller did not answer within {seconds} s; is it stopped, or overloaded?")]
    Unread {
        /// How long it had.
        seconds: f64,
    },
    /// It said nothing to a word in time.
    #[error(
        "the controller did not answer within {seconds} s; it may heed the word yet: `weft top \
         --once` says what the job does"
    )]
    Silent {
        /// How long it had.
        seconds: f64,
    },
}

impl OperatorError {
    /// Nobody was there who could have done it.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Address { .. }
            | Self::Broken(_)
            | Self::Interrupted
            | Self::System(_)
            | Self::Call(_)
            | Self::Certificates(_)
            | Self::Dial { .. }
            | Self::Foreign { .. } => true,
            Self::Unread { .. } | Self::Silent { .. } => false,
            // A stream that breaks in the middle is of no code of the controller's.
            Self::Said(status) => {
                matches!(status.code(), tonic::Code::Unavailable | tonic::Code::Unknown)
            }
        }
    }
}

impl OperatorError {
    /// Whoever asked did so wrongly, or somewhere else than meant: nobody was called.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Call(_) | Self::Certificates(_) | Self::Address { .. })
    }
}

impl Operator {
    /// Calls a controller; with a folder of certificates, or one of them, as [`of_operator`] has
    /// it.
    ///
    /// # Errors
    /// It cannot be reached.
    pub fn dial(
        endpoint: &str,
        certs: Option<&Path>,
        timeout: Duration,
    ) -> Result<Self, OperatorError> {
        if let Some(problem) = problem(endpoint, certs.is_some()) {
            return Err(OperatorError::Address { endpoint: endpoint.to_owned(), problem });
        }
        let begun = Instant::now();
        let runtime = CallRuntime::new().map_err(OperatorError::System)?;
        let files = certs.map(of_operator).transpose().map_err(OperatorError::Certificates)?;
        let dialler = Dialler::new(endpoint, files.as_ref()).map_err(OperatorError::Call)?;
        let dialler = dialler.within(timeout);
        let endpoint = endpoint.to_owned();
        let dial = unless_raised(dialler.dial(|channel| async { Ok(channel) }));
        match runtime.block_on(dial).ok_or(OperatorError::Interrupted)? {
            Ok(channel) => {
                let dialled = Cell::new(Some(begun));
                Ok(Self { runtime, channel, timeout, dialled, endpoint })
            }
            Err(source @ (DialError::Connect(_) | DialError::Late(_))) => {
                Err(match tls::refusal(&source) {
                    Some(problem) => OperatorError::Foreign { endpoint, problem },
                    None => OperatorError::Dial { endpoint, source },
                })
            }
            // Its certificate went meanwhile.
            Err(source) => Err(OperatorError::Call(source)),
        }
    }

    /// Registers a job; returns once it is saved.
    ///
    /// # Errors
    /// The controller's word.
    pub fn register(&self, job: v1::RegisterJobRequest) -> Result<(), OperatorError> {
        self.wait(self.workers().register_job(self.timed(job)))?;
        Ok(())
    }

    /// Ends a job that was registered; returns what ended with it.
    ///
    /// # Errors
    /// The controller's word.
    pub fn unregister(&self, name: &str) -> Result<v1::UnregisterJobReply, OperatorError> {
        let request = v1::UnregisterJobRequest { name: name.to_owned() };
        let reply = self.wait(self.workers().unregister_job(self.timed(request)))?;
        Ok(reply.into_inner())
    }

    /// Has a job pause; returns how long its standstill took, once it stands.
    ///
    /// # Errors
    /// The controller's word.
    pub fn pause(&self, name: &str) -> Result<Duration, OperatorError> {
        let request = v1::PauseJobRequest { name: name.to_owned() };
        let reply = self.wait(self.workers().pause_job(self.timed(request)))?;
        Ok(Duration::from_nanos(reply.into_inner().standstill_ns))
    }

    /// Has a paused job go on.
    ///
    /// # Errors
    /// The controller's word.
    pub fn resume(&self, name: &str) -> Result<(), OperatorError> {
        let request = v1::ResumeJobRequest { name: name.to_owned() };
        self.wait(self.workers().resume_job(self.timed(request)))?;
        Ok(())
    }

    /// Has an allreduce job go on with so many workers; returns once those have begun.
    ///
    /// # Errors
    /// The controller's word.
    pub fn resize(&self, name: &str, workers: u32) -> Result<v1::Resize, OperatorError> {
        let request = v1::ResizeJobRequest { name: name.to_owned(), workers };
        let reply = self.wait(self.workers().resize_job(self.timed(request)))?;
        Ok(reply.into_inner().resize.unwrap_or_default())
    }

    /// Has a box, by its name, hold something for a job, or no more; returns once it has said so.
    ///
    /// # Errors
    /// The controller's word, or the box's.
    pub fn hold(&self, node: &str, command: HoldingCommand) -> Result<(), OperatorError> {
        let command = Some(command_to_proto(&Command::Holding(command)));
        let request = v1::HoldRequest { node: node.to_owned(), command };
        self.wait(self.workers().hold(self.timed(request)))?;
        Ok(())
    }

    /// Sets the policy of bands, and the seconds between two rotations (0: 20); returns how many
    /// jobs have another band now.
    ///
    /// # Errors
    /// The controller's word.
    pub fn set_bands(&self, policy: BandPolicy, interval_s: u64) -> Result<u32, OperatorError> {
        let policy = v1::BandPolicy::from(policy).into();
        let request = v1::SetBandPolicyRequest { policy, interval_s, seen_change: None };
        let reply = self.wait(self.workers().set_band_policy(self.timed(request)))?;
        Ok(reply.into_inner().jobs_changed)
    }

    /// What the controller knows.
    ///
    /// # Errors
    /// The controller's word.
    pub fn status(&self) -> Result<v1::StatusReply, OperatorError> {
        let mut client = StatusClient::new(self.channel.clone());
        let reply = self.wait(client.read(self.timed(v1::StatusRequest {})));
        reply.map(tonic::Response::into_inner).map_err(|error| match error {
            OperatorError::Silent { seconds } => OperatorError::Unread { seconds },
            OperatorError::Broken(status) => OperatorError::Said(status),
            error => error,
        })
    }

    /// Waits for the answer to a call. The connection is dialled again if it broke, which the
    /// call's own clock does not see.
    fn wait<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<tonic::Response<T>, OperatorError> {
        let asked = self.dialled.take().unwrap_or_else(Instant::now);
        let silent = OperatorError::Silent { seconds: self.timeout.as_secs_f64() };
        let left = self.timeout.saturating_sub(asked.elapsed());
        let call = unless_raised(async { tokio::time::timeout(left, call).await });
        let answered = self.runtime.block_on(call);
        let answered = answered.ok_or(OperatorError::Interrupted)?.map_err(|_| silent)?;
        answered.map_err(|status| {
            let is_late = asked.elapsed() >= self.timeout;
            // Whichever side's clock ends the call.
            match status.code() {
                tonic::Code::DeadlineExceeded | tonic::Code::Cancelled if is_late => {
                    OperatorError::Silent { seconds: self.timeout.as_secs_f64() }
                }
                // That it may not is the controller's own word; what comes of a connection that
                // broke has the same code, and a source.
                tonic::Code::PermissionDenied | tonic::Code::Unauthenticated
                    if status.source().is_none() =>
                {
                    OperatorError::Said(status)
                }
                _ => match tls::refusal(&status) {
                    Some(problem) => {
                        OperatorError::Foreign { endpoint: self.endpoint.clone(), problem }
                    }
                    None if is_broken(&status) => OperatorError::Broken(status),
                    None => OperatorError::Said(status),
                },
            }
        })
    }

    fn workers(&self) -> WorkersClient<Channel> {
        WorkersClient::new(self.channel.clone())
    }

    fn timed<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(self.timeout);
        request
    }
}

/// The outcome of some work; none when a signal comes first that is only noted.
async fn unless_raised<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    loop {
        match tokio::time::timeout(LOOK, &mut work).await {
            Ok(done) => return Some(done),
            Err(_) if interrupt::is_raised() => return None,
            Err(_) => {}
        }
    }
}

/// What was told is of the connection, and not the controller's own.
fn is_broken(status: &tonic::Status) -> bool {
    matches!(status.code(), tonic::Code::Unavailable | tonic::Code::Unknown)
        && status.source().is_some()
}

/// How long nobody worked at a resize, whatever a controller says of its parts.
#[must_use]
pub const fn pause_ns(resize: &v1::Resize) -> u64 {
    resize.checkpoint_ns.saturating_add(resize.lease_ns).saturating_add(resize.start_ns)
}

/// Why an endpoint cannot be called, as whoever writes it at a command line is told.
fn problem(endpoint: &str, has_certs: bool) -> Option<&'static str> {
    if endpoint.starts_with("https://") && !has_certs {
        return Some("needs a certificate: give --certs FOLDER, as `weft certs` makes it");
    }
    let (_, rest) = endpoint.split_once("://")?;
    let authority = rest.split('/').next()?;
    // The colons in the brackets of an IPv6 address are of no port.
    let (_, port) = authority.rsplit(']').next()?.rsplit_once(':')?;
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    (!is_port).then_some("has a port that is none: they are 1 to 65535")
}

/// How often a wait looks for a signal.
const LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_nobody_can_have_is_told_from_one_where_nobody_is() {
        let of = |endpoint| problem(endpoint, false);
        for endpoint in ["http://10.0.0.1:22342", "http://[::1]:1", "http://h/", "http://[::1]"] {
            assert_eq!(of(endpoint), None, "{endpoint}");
        }
        for endpoint in ["http://127.0.0.1:99999", "http://[::1]:0", "http://h:65536/x"] {
            assert!(of(endpoint).is_some_and(|it| it.contains("port")), "{endpoint}");
        }
        assert!(of("https://h:1").is_some_and(|it| it.contains("--certs")));
        assert_eq!(problem("https://h:1", true), None);
        let wrong = Operator::dial("http://127.0.0.1:99999", None, LOOK);
        assert!(wrong.is_err_and(|error| error.is_usage()));
    }

    #[test]
    fn a_word_whose_connection_breaks_may_have_been_heeded() {
        let broken = tonic::Status::from_error("transport error".into());
        assert!(is_broken(&broken), "{broken:?}");
        assert!(!is_broken(&tonic::Status::unavailable("its own word")));
        assert!(OperatorError::Broken(broken).to_string().contains("weft top --once"));
    }
}
