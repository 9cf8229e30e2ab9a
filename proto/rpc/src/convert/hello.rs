//! What a box says when it attaches.

use weft_control::{NodeHello, OpenGroup, OrderNumber, RoleState, ServerEpoch, Version};
use weft_wire::{GroupId, Members};

use super::{Invalid, box_index, code, holding, job, magnitude, octet};
use crate::v1;

/// Writes a hello, with the sender's version, for people, and the events that it has lost.
#[must_use]
pub fn hello_to_proto(hello: &NodeHello, version: &str, events_lost: u64) -> v1::NodeHello {
    let role = |state: &RoleState| v1::JobRole {
        job: state.job.0.into(),
        role: v1::Role::from(state.role).into(),
        box_index: state.box_index.0.into(),
        address: state.address.clone(),
        next_order: state.next_order.0,
        version: state.version.0,
        momentum_norm: state.momentum_norm,
        epoch: state.epoch.0,
        is_fit: state.is_fit,
        has_met_replica: state.has_met_replica,
        has_left_replica: state.has_left_replica,
        open_groups: state.open_groups.iter().map(open_to_proto).collect(),
    };
    v1::NodeHello {
        name: hello.name.clone(),
        version: version.to_owned(),
        roles: hello.roles.iter().map(role).collect(),
        life: hello.life,
        events_lost,
        holdings: hello.holdings.iter().map(holding::held_to_proto).collect(),
        bands: hello.bands.as_ref().map(|bands| v1::Bands {
            jobs: (bands.iter())
                .map(|(job, band)| v1::JobBand { job: job.0.into(), band: (*band).into() })
                .collect(),
        }),
    }
}

fn open_to_proto(open: &OpenGroup) -> v1::OpenGroup {
    v1::OpenGroup { group: open.group.0, order: open.order.0, members: open.members.0 }
}

/// Reads a hello.
///
/// # Errors
/// The first field that makes no sense.
pub fn hello(hello: &v1::NodeHello) -> Result<NodeHello, Invalid> {
    let mut roles = Vec::with_capacity(hello.roles.len());
    for role in &hello.roles {
        let open_groups = role.open_groups.iter().map(|open| OpenGroup {
            group: GroupId(open.group),
            order: OrderNumber(open.order),
            members: Members(open.members),
        });
        roles.push(RoleState {
            job: job(role.job)?,
            role: code(role.role)?,
            box_index: box_index("box_index", role.box_index)?,
            address: role.address.clone(),
            next_order: OrderNumber(role.next_order),
            version: Version(role.version),
            momentum_norm: magnitude("momentum_norm", role.momentum_norm)?,
            epoch: ServerEpoch(role.epoch),
            is_fit: role.is_fit,
            has_met_replica: role.has_met_replica,
            has_left_replica: role.has_left_replica,
            open_groups: open_groups.collect(),
        });
    }
    let holdings = hello.holdings.iter().map(holding::held).collect::<Result<_, _>>()?;
    let band = |held: &v1::JobBand| Ok::<_, Invalid>((job(held.job)?, octet(held.band)));
    let bands = hello.bands.as_ref().map(|bands| bands.jobs.iter().map(band).collect());
    let bands = bands.transpose()?;
    Ok(NodeHello { name: hello.name.clone(), life: hello.life, roles, holdings, bands })
}
