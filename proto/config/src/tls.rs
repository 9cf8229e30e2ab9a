//! Certificates, where a file names them.

use serde::{Deserialize, Serialize};

use crate::FilePath;

/// Where a certificate is, in PEM.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSection {
    /// The certificates that the other end's is to be signed by; more than one while one CA takes
    /// another's place.
    pub ca: FilePath,
    /// The own certificate, and those between it and the CA.
    pub cert: FilePath,
    /// Its key. Nobody else should be able to read it.
    pub key: FilePath,
}
