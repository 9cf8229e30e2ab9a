//! Decides what a node tells a controller that it is when it starts: its roles, what it holds, its
//! link. No I/O.

use std::net::SocketAddr;

use weft_agent::Link;
use weft_config::node::{Io, NodeConfig};
use weft_control::{BoxIndex, Holding, OrderNumber, Role, RoleState, Version};
use weft_wire::JobId;

use crate::durable::Resumed;

/// What the node is in its jobs when it starts: as configured, or where former lives stopped.
pub(super) fn roles(config: &NodeConfig, resumed: &[Resumed]) -> Vec<RoleState> {
    let address = SocketAddr::new(config.port.ip.ip, config.port.udp_port).to_string();
    let role =
        |job: u16, role, index| RoleState::new(JobId(job), role, BoxIndex(index), address.clone());
    let begin = |state: RoleState, order: u64, version: u64| {
        let resumed = resumed.iter().find(|resumed| resumed.job == state.job);
        RoleState {
            next_order: resumed.map_or(OrderNumber(order), |resumed| resumed.next_order),
            version: resumed.map_or(Version(version), |resumed| resumed.version),
            momentum_norm: resumed.map_or(0.0, |resumed| resumed.momentum_norm),
            ..state
        }
    };
    let servers = config
        .server
        .iter()
        .map(|job| begin(role(job.job, Role::Server, 0), job.initial_order, job.initial_version));
    let replicas = config.replica.iter().map(|job| {
        let state = role(job.job, Role::Replica, job.box_index);
        begin(state, job.initial_order, job.initial_version)
    });
    let aggregators =
        (config.push.iter()).map(|job| role(job.job, Role::Aggregator, job.box_index));
    servers.chain(replicas).chain(aggregators).collect()
}

/// What the node holds for jobs when it starts.
pub(super) fn holdings(config: &NodeConfig) -> impl Iterator<Item = (JobId, Holding)> + '_ {
    let jobs = config.job.iter().map(|job| (JobId(job.id), Holding::Job));
    let rows = config.row.iter().map(|row| (JobId(row.job), Holding::Row(row.row)));
    let pushes = config.push.iter().map(|push| (JobId(push.job), Holding::Push));
    jobs.chain(rows).chain(pushes)
}

/// The link of a node's port. One without a kernel (DPDK) names no interface.
pub(super) fn link(config: &NodeConfig) -> Link {
    let port = &config.port;
    let device = port.device.clone().filter(|_| port.io == Io::AfPacket);
    Link { address: port.ip.ip, device, mtu: port.mtu }
}
