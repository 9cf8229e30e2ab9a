//! Calls the controller of a run as an operator, from where the controller is.

use std::path::PathBuf;
use std::time::Duration;

use crate::lab::netns;
use crate::operator::Operator;

/// How the controller of a run is reached.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Its endpoint.
    pub endpoint: String,
    /// Folder with an operator's certificate.
    pub certs: Option<PathBuf>,
    /// Its network namespace; `None`: this process's own.
    pub namespace: Option<String>,
}

impl Caller {
    /// Dials, and does something with the controller, on a thread that is there.
    ///
    /// # Errors
    /// The controller's word, or why it was not reached.
    pub fn call<T: Send>(
        &self,
        work: impl FnOnce(&Operator) -> Result<T, String> + Send,
    ) -> Result<T, String> {
        self.within(|| {
            let operator = Operator::dial(&self.endpoint, self.certs.as_deref(), CALL_TIMEOUT);
            work(&operator.map_err(|error| error.to_string())?)
        })?
    }

    /// Does something where the controller is, on a thread that is there.
    ///
    /// # Errors
    /// One cannot get there.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, String> {
        match &self.namespace {
            None => Ok(work()),
            Some(namespace) => {
                netns::within(namespace, work).map_err(|error| format!("{namespace}: {error}"))
            }
        }
    }
}

/// What a call may take: a resize waits for the new workers.
const CALL_TIMEOUT: Duration = Duration::from_secs(40);
