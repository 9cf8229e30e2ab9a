//! `[controller]`: who commands this node.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::TlsSection;

/// `[controller]`. Without it the node serves what its file says.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerSection {
    /// Where the controller listens: `"https://10.0.0.1:22342"`; `http://` without `tls`.
    pub endpoint: String,
    /// Name that the controller knows this node by. Default: `node.name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// This node's certificate (`weft certs issue node`), read anew whenever the controller is
    /// called: `tls = { ca = "ca.pem", cert = "node.pem", key = "node.key" }`. Default: none, for a
    /// controller that does not ask who calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSection>,
}
