//! How a worker or a box calls its controller: with a certificate (`https://`), or without
//! (`http://`), and what to make of a call that the other end would not take.
//!
//! Files are read anew at each call, so a renewed certificate is used from the next stream on.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::rustls;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};
use weft_config::TlsSection;

use crate::DIAL_TIMEOUT;

/// Where a certificate is, in PEM.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificates that the other end's is to be signed by; more than one while one CA takes
    /// another's place.
    pub ca: PathBuf,
    /// The own certificate, and those between it and the CA.
    pub cert: PathBuf,
    /// Its key. Nobody else should be able to read it.
    pub key: PathBuf,
}

impl From<&TlsSection> for TlsFiles {
    fn from(section: &TlsSection) -> Self {
        let TlsSection { ca, cert, key } = section;
        Self { ca: ca.into(), cert: cert.into(), key: key.into() }
    }
}

/// What is in the files.
#[derive(Clone)]
pub struct TlsPem {
    /// CA certificates.
    pub ca: Vec<u8>,
    /// The own chain.
    pub cert: Vec<u8>,
    /// The own key.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for TlsPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsPem").finish_non_exhaustive()
    }
}

/// Why a controller cannot be called, or was not reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The endpoint is no URL.
    #[error("`{endpoint}` is no endpoint: {source}; it looks like https://10.0.0.1:22342")]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// Why.
        #[source]
        source: tonic::transport::Error,
    },
    /// `https` without a certificate, or a certificate without `https`.
    #[error("`{endpoint}` {problem}")]
    Scheme {
        /// The endpoint.
        endpoint: String,
        /// What does not fit, and what would.
        problem: &'static str,
    },
    /// A file of the certificate.
    #[error("cannot read {path}: {source}; name a readable file", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error("cannot use the certificate {path}: {problem}", path = .path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// There was no connection.
    #[error("{}", innermost(.0))]
    Connect(#[from] tonic::transport::Error),
    /// There was no first answer in time.
    #[error("no answer within {} s; is it stopped, or does something else listen there?", .0.as_secs_f64())]
    Late(Duration),
    /// The first answer was a refusal, or the connection broke before it.
    #[error("{}", .0.message())]
    Answer(#[from] Status),
}

impl TlsFiles {
    /// `ca.pem`, `NAME.pem` and `NAME.key` of one folder, as `weft certs` lays them out.
    #[must_use]
    pub fn in_folder(folder: &Path, name: &str) -> Self {
        Self {
            ca: folder.join("ca.pem"),
            cert: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
        }
    }

    /// Reads the files.
    ///
    /// # Errors
    /// [`DialError::Unreadable`].
    pub fn read(&self) -> Result<TlsPem, DialError> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|source| DialError::Unreadable { path: path.to_owned(), source })
        };
        Ok(TlsPem { ca: read(&self.ca)?, cert: read(&self.cert)?, key: read(&self.key)? })
    }
}

/// How to reach a controller.
#[derive(Clone, Debug)]
pub struct Dialler {
    endpoint: Endpoint,
    tls: Option<TlsFiles>,
    timeout: Duration,
}

impl Dialler {
    /// Checks an endpoint and the certificate's files.
    ///
    /// # Errors
    /// [`DialError`]; nothing is called yet.
    pub fn new(endpoint: &str, tls: Option<&TlsFiles>) -> Result<Self, DialError> {
        let wrong = |problem| DialError::Scheme { endpoint: endpoint.to_owned(), problem };
        let parsed = Endpoint::from_shared(endpoint.to_owned())
            .map_err(|source| DialError::Endpoint { endpoint: endpoint.to_owned(), source })?;
        match (parsed.uri().scheme_str(), tls) {
            (Some("https"), Some(_)) | (Some("http"), None) => {}
            (Some("https"), None) => {
                return Err(wrong("needs a certificate: give tls = { ca, cert, key }"));
            }
            (Some("http"), Some(_)) => {
                return Err(wrong("does not use the certificate: write https://"));
            }
            _ => return Err(wrong("is neither https:// nor http://")),
        }
        let endpoint = parsed.connect_timeout(CONNECT_TIMEOUT);
        let dialler = Self { endpoint, tls: tls.cloned(), timeout: DIAL_TIMEOUT };
        dialler.ready()?;
        Ok(dialler)
    }

    /// Gives a connection up once it has been silent for twice this.
    #[must_use]
    pub fn keep_alive(mut self, period: Duration) -> Self {
        self.endpoint = (self.endpoint.http2_keep_alive_interval(period))
            .keep_alive_timeout(period)
            .keep_alive_while_idle(true);
        self
    }

    /// Takes at most this long for a call's first answer, where it is less than [`DIAL_TIMEOUT`].
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(DIAL_TIMEOUT);
        self
    }

    /// Where it calls.
    #[must_use]
    pub fn uri(&self) -> String {
        self.endpoint.uri().to_string()
    }

    /// Calls, and asks `first` of the connection: all of it ends by one deadline.
    ///
    /// # Errors
    /// [`DialError`]
    pub async fn dial<T, F>(&self, first: impl FnOnce(Channel) -> F) -> Result<T, DialError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let called = async { Ok(first(self.ready()?.connect().await?).await?) };
        let answered = tokio::time::timeout(self.timeout, called).await;
        answered.unwrap_or(Err(DialError::Late(self.timeout)))
    }

    /// The endpoint with the certificate as it is now.
    fn ready(&self) -> Result<Endpoint, DialError> {
        let Some(files) = &self.tls else { return Ok(self.endpoint.clone()) };
        let pem = files.read()?;
        let host = self.endpoint.uri().host().unwrap_or_default();
        let config = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&pem.ca))
            .identity(tonic::transport::Identity::from_pem(&pem.cert, &pem.key))
            // A literal IPv6 address has brackets in a URL, and none in a certificate.
            .domain_name(host.trim_start_matches('[').trim_end_matches(']'));
        self.endpoint.clone().tls_config(config).map_err(|error| DialError::Certificate {
            path: files.cert.clone(),
            problem: innermost(&error),
        })
    }
}

/// One thread for calls. Its end waits for nothing: a name that is still being looked up has a
/// thread that nothing can stop.
#[derive(Debug)]
pub struct CallRuntime(Option<Runtime>);

impl CallRuntime {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        Builder::new_current_thread().enable_all().build().map(|runtime| Self(Some(runtime)))
    }

    /// Runs a future to its end, on this thread.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.0.as_ref().expect("it is taken at its end alone").block_on(work)
    }
}

impl Drop for CallRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Why a call failed, if the two ends do not accept each other: who calls again as it is fares no
/// better.
#[must_use]
pub fn refusal(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(problem) = between_ends(error) {
            return Some(problem);
        }
        next = error.source();
    }
    let answer = match error.downcast_ref() {
        Some(DialError::Answer(status)) => Some(status),
        _ => error.downcast_ref(),
    };
    let status: &Status = answer?;
    matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated)
        .then(|| status.message().to_owned())
}

fn between_ends(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        if error.reason() == Some(h2::Reason::INADEQUATE_SECURITY) {
            return Some(
                "the controller takes no call without a certificate: give tls and write \
                 https://"
                    .to_owned(),
            );
        }
        return error.get_io().and_then(|error| between_ends(error));
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        // HTTP/2 passes on the words of an error alone.
        let text = error.to_string();
        let alert = text.strip_prefix("received fatal alert: ");
        return alert.map(not_accepted).or_else(|| error.get_ref().and_then(|e| between_ends(e)));
    }
    match error.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(alert) => Some(not_accepted(&format!("{alert:?}"))),
        error @ rustls::Error::InvalidCertificate(_) => {
            Some(format!("the controller's certificate is not accepted: {error}"))
        }
        rustls::Error::InvalidMessage(_) => {
            Some("the controller does not speak TLS: write http://, or give it [tls]".to_owned())
        }
        _ => None,
    }
}

fn not_accepted(alert: &str) -> String {
    format!(
        "the controller does not accept the certificate ({alert}): is it of the controller's CA, \
         and not expired?"
    )
}

/// What an error comes of, for people.
#[must_use]
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// How long TCP may take of a dial: a machine that is not there is called again soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;
    use crate::v1::StatusRequest;
    use crate::v1::status_client::StatusClient;

    /// The kernel accepts for it.
    #[test]
    fn what_listens_and_says_nothing_is_given_up() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", silent.local_addr().unwrap());
        let timeout = Duration::from_millis(200);
        let dialler = Dialler::new(&endpoint, None).unwrap().within(timeout);
        let begun = Instant::now();
        let read = |channel| async { StatusClient::new(channel).read(StatusRequest {}).await };
        let error = CallRuntime::new().unwrap().block_on(dialler.dial(read)).unwrap_err();
        assert!(matches!(error, DialError::Late(it) if it == timeout), "{error}");
        assert!(begun.elapsed() >= timeout && refusal(&error).is_none());
    }
}
