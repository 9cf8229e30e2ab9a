//! Channels of this box to a job's server and replica.

use weft_control::PushConfig;
use weft_wire::Nanos;
use weft_wire::frame::Endpoint;
use weft_wire::header::HEADER_LEN;

use crate::role::channel::{ChannelClient, ChannelClientConfig, ChannelError, Peer};

/// A channel of this box to a server or a replica.
pub(super) fn channel(
    config: &PushConfig,
    local: Endpoint,
    target: Endpoint,
    life: u64,
) -> Result<ChannelClient, ChannelError> {
    let probe_len = HEADER_LEN + usize::from(config.elements) * 4;
    let client = ChannelClientConfig {
        probe_len: u16::try_from(probe_len).expect("chunks fit the MTU"),
        ..ChannelClientConfig::new(config.job, Peer::Box(config.box_index), local, target)
    };
    ChannelClient::new(client, life, AT_ONCE)
}

/// Whatever the time.
const AT_ONCE: Nanos = Nanos(0);
