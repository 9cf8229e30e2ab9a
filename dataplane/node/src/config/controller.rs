//! `[controller]`: who commands this node.

use serde::{Deserialize, Serialize};

/// `[controller]`. Without it the node serves what its file says.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerSection {
    /// Where the controller listens: `"http://10.0.0.1:22342"`.
    pub endpoint: String,
    /// Name that the controller knows this node by. Default: `node.name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
