//! What can be wrong with a topology, in words that name the field.

use super::build::{STAR_AGGREGATORS_MAX, STAR_WORKERS_MAX};
use super::{MTU_MAX, MTU_MIN, NODE_NAME_LEN_MAX, SWITCH_PORT_MAX};

/// Why a topology is refused.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// JSON or a field's type is wrong; says line and column.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A link is at fault.
    #[error("links[{index}]: {reason}")]
    Link {
        /// Position in the list, from 0.
        index: usize,
        /// What is wrong with it.
        reason: Box<Self>,
    },
    /// A link is not written in a known shape.
    #[error("expected [\"h1\", \"s1-p1\"] or [[\"h1\", \"s1-p1\"], {{\"bw\": 100}}]: {reason}")]
    LinkShape {
        /// What was found.
        reason: String,
    },
    /// The link wants what labs do not do.
    #[error(
        "`{field}` is nothing that labs do; impair frames with the scenario's [faults] section \
         instead, which is reproducible from a seed"
    )]
    NotOfLabs {
        /// The option.
        field: &'static str,
    },
    /// A number is out of range.
    #[error("`{field}` is {value}; expected {expected}")]
    Range {
        /// The option.
        field: &'static str,
        /// The value given.
        value: String,
        /// What is allowed.
        expected: &'static str,
    },
    /// A node has an unusable name.
    #[error(
        "node name `{name}`: use 1 to {NODE_NAME_LEN_MAX} letters, digits, `_` or `-`, starting \
         with a letter or digit, so that interface names fit Linux's 15 bytes"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Two nodes have one name.
    #[error("node `{name}` is defined twice")]
    Twice {
        /// The name.
        name: String,
    },
    /// A link ends nowhere.
    #[error(
        "link end `{end}` is no host, switch or switch port (`s1-p1`, up to {SWITCH_PORT_MAX})"
    )]
    UnknownEnd {
        /// The text given.
        end: String,
    },
    /// A link starts and ends at one node.
    #[error("both ends are `{name}`")]
    Loop {
        /// The node.
        name: String,
    },
    /// A switch port has two links.
    #[error("port `{interface}` already has a link")]
    PortTwice {
        /// The port.
        interface: String,
    },
    /// An IP address cannot be read.
    #[error("`{text}` is no address with a prefix length, such as 10.0.1.1/24")]
    Address {
        /// The text given.
        text: String,
    },
    /// An Ethernet address cannot be read.
    #[error("`{text}` is no Ethernet address, such as 02:00:00:00:00:01")]
    Mac {
        /// The text given.
        text: String,
    },
    /// Two hosts have one address.
    #[error("hosts `{first}` and `{second}` have the same ip or mac")]
    SharedAddress {
        /// One host.
        first: String,
        /// The other.
        second: String,
    },
    /// The MTU is out of range.
    #[error("mtu is {mtu}; expected {MTU_MIN} to {MTU_MAX}")]
    Mtu {
        /// The value given.
        mtu: u32,
    },
    /// There is no host.
    #[error("a topology needs at least one host")]
    Empty,
    /// The star is larger than its address plan.
    #[error(
        "{workers} workers and {aggregators} aggregators; a lab holds at most {STAR_WORKERS_MAX} \
         and {STAR_AGGREGATORS_MAX}"
    )]
    StarSize {
        /// Workers asked for.
        workers: u8,
        /// Aggregators asked for.
        aggregators: u8,
    },
}
