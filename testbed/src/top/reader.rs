//! Calls a controller's Status, one call at a time.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tonic::transport::Channel;
use weft_rpc::tls::{DialError, Dialler, TlsFiles};
use weft_rpc::v1::{self, status_client::StatusClient};

/// Who asks a controller.
#[derive(Debug)]
pub struct Reader {
    runtime: Runtime,
    dialler: Dialler,
    client: Option<StatusClient<Channel>>,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The endpoint or the certificate cannot be used.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// There is no runtime for calls.
    #[error("cannot make calls: {0}")]
    Runtime(#[source] std::io::Error),
    /// The controller was called and did not answer so.
    #[error("{endpoint} did not tell its status: {problem}")]
    Call {
        /// Where it was called.
        endpoint: String,
        /// What came instead.
        problem: String,
    },
}

impl Reader {
    /// Of the controller at an endpoint; nothing is called yet.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn new(endpoint: &str, tls: Option<&TlsFiles>) -> Result<Self, ReadError> {
        let dialler = Dialler::new(endpoint, tls, |endpoint| {
            endpoint.connect_timeout(CALL_TIMEOUT).timeout(CALL_TIMEOUT)
        })?;
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self { runtime: runtime.map_err(ReadError::Runtime)?, dialler, client: None })
    }

    /// Reads the figures; calls anew after a failure.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn read(&mut self) -> Result<v1::StatusReply, ReadError> {
        let Self { runtime, dialler, client } = self;
        runtime.block_on(async {
            let mut ready = match client.take() {
                Some(ready) => ready,
                None => StatusClient::new(dialler.dial().await?),
            };
            match ready.read(v1::StatusRequest {}).await {
                Ok(reply) => {
                    *client = Some(ready);
                    Ok(reply.into_inner())
                }
                Err(status) => Err(ReadError::Call {
                    endpoint: dialler.uri(),
                    problem: status.message().to_owned(),
                }),
            }
        })
    }
}

/// What a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
