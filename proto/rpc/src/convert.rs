//! Between the interface's messages and what the engines take ([`weft_control`]).
//!
//! Nothing a peer sends is trusted: a number out of range, a missing field, an unknown
//! enumeration value is an [`Invalid`] that names the field, never a panic and never a guess.

use weft_control::{
    BoxIndex, Command, Event, GROUPS_OPEN_MAX, GroupDescriptor, GroupMember, OrderNumber,
    ServerEpoch, UPDATE_CHUNKS_MAX, Version,
};
use weft_wire::quant::is_exponent;
use weft_wire::{GroupId, JobId, Members, Rank};

use crate::v1;

mod bands;
mod codes;
mod figures;
mod hello;
mod holding;
pub mod rounds;
mod train;

pub use bands::answer_to_bad_bands;
use codes::bound;
pub use codes::{Code, code, decision, decision_to_proto, drop_reason};
pub use figures::{band_to_proto, figures, figures_to_proto};
pub use hello::{hello, hello_to_proto};
pub use holding::held_to_proto;
pub use train::{train, train_to_proto};

/// A message that does not fit: which field, and what about it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Invalid {
    /// The field's name in the `.proto`.
    pub field: &'static str,
    /// What would be right.
    pub problem: &'static str,
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.field, self.problem)
    }
}

impl std::error::Error for Invalid {}

impl From<Invalid> for v1::Refused {
    fn from(invalid: Invalid) -> Self {
        Self::new(invalid.field, invalid.problem)
    }
}

impl v1::Refused {
    /// Of a field, and of no update.
    #[must_use]
    pub fn new(field: &str, problem: impl Into<String>) -> Self {
        Self { field: field.to_owned(), problem: problem.into(), update_id: None }
    }
}

const fn invalid(field: &'static str, problem: &'static str) -> Invalid {
    Invalid { field, problem }
}

/// Reads a job index.
///
/// # Errors
/// Above 65535.
pub fn job(job: u32) -> Result<JobId, Invalid> {
    u16::try_from(job).map(JobId).map_err(|_| invalid("job", "must be at most 65535"))
}

/// Reads a rank.
///
/// # Errors
/// Above 63.
pub fn rank(rank: u32) -> Result<Rank, Invalid> {
    let rank = u8::try_from(rank).ok().and_then(Rank::new);
    rank.ok_or(invalid("rank", "must be at most 63"))
}

/// Writes a rank.
#[must_use]
pub const fn rank_to_proto(rank: Rank) -> u32 {
    // The lowest bit of a rank's set is the rank.
    rank.bit().0.trailing_zeros()
}

/// Reads a box index.
///
/// # Errors
/// Above 255.
pub fn box_index(field: &'static str, index: u32) -> Result<BoxIndex, Invalid> {
    u8::try_from(index).map(BoxIndex).map_err(|_| invalid(field, "must be at most 255"))
}

fn row_group(field: &'static str, group: u32) -> Result<GroupId, Invalid> {
    let group = GroupId(group);
    match group.row() < GROUPS_OPEN_MAX {
        true => Ok(group),
        false => Err(invalid(field, "must have a row below 1024")),
    }
}

/// Writes a group's descriptor.
#[must_use]
pub fn descriptor_to_proto(group: &GroupDescriptor) -> v1::GroupDescriptor {
    let members = group
        .members
        .iter()
        .map(|member| v1::Member { rank: rank_to_proto(member.rank), version: member.version.0 });
    v1::GroupDescriptor {
        job: group.job.0.into(),
        group: group.group.0,
        order: group.order.0,
        members: members.collect(),
        chunk_count: group.chunks,
        element_type: v1::ElementType::from(group.element_type).into(),
        elements_per_chunk: group.elements.into(),
        exponent: group.exponent.into(),
        via: group.via.map(|via| via.0.into()),
        replicate: group.replicate,
        rate_bytes_per_sec: group.rate_bytes_per_sec,
        after: group.after.map(|after| after.0),
        lateness_ns: group.lateness_ns,
        train_chunks: group.train_chunks.into(),
    }
}

/// Reads a group's descriptor.
///
/// # Errors
/// The first field that is out of range: no or too many members, a rank twice, no chunks.
pub fn descriptor(group: &v1::GroupDescriptor) -> Result<GroupDescriptor, Invalid> {
    if group.members.is_empty() || group.members.len() > 64 {
        return Err(invalid("members", "must be 1 to 64"));
    }
    let mut members = Vec::with_capacity(group.members.len());
    let mut mask = Members::EMPTY;
    for member in &group.members {
        let rank = rank(member.rank)?;
        if mask.contains(rank.bit()) {
            return Err(invalid("members", "must not name a rank twice"));
        }
        mask = mask.union(rank.bit());
        members.push(GroupMember { rank, version: Version(member.version) });
    }
    if group.chunk_count == 0 || group.chunk_count > UPDATE_CHUNKS_MAX {
        return Err(invalid("chunk_count", "must be 1 to 1048576"));
    }
    let elements = u16::try_from(group.elements_per_chunk).ok().filter(|count| *count > 0);
    let exponent = i8::try_from(group.exponent).ok().filter(|exponent| is_exponent(*exponent));
    Ok(GroupDescriptor {
        job: job(group.job)?,
        group: row_group("group", group.group)?,
        order: OrderNumber(group.order),
        members,
        chunks: group.chunk_count,
        element_type: code(group.element_type)?,
        elements: elements.ok_or(invalid("elements_per_chunk", "must be 1 to 65535"))?,
        exponent: exponent.ok_or(invalid("exponent", "must be -126 to 126"))?,
        via: group.via.map(|via| box_index("via", via)).transpose()?,
        replicate: group.replicate,
        rate_bytes_per_sec: group.rate_bytes_per_sec,
        after: group.after.map(|after| row_group("after", after)).transpose()?,
        lateness_ns: group.lateness_ns,
        train_chunks: u16::try_from(group.train_chunks).unwrap_or(u16::MAX),
    })
}

/// Writes a command.
#[must_use]
pub fn command_to_proto(command: &Command) -> v1::Command {
    use v1::command::Command as Proto;
    let command = match command {
        Command::Install(group) => Proto::Install(descriptor_to_proto(group)),
        Command::Remove { job, group } => {
            Proto::Remove(v1::Remove { job: job.0.into(), group: group.0 })
        }
        Command::CloseMember { job, group, rank } => Proto::CloseMember(v1::CloseMember {
            job: job.0.into(),
            group: group.map(|group| group.0),
            rank: rank_to_proto(*rank),
        }),
        Command::SetRate { job, rate_bytes_per_sec } => Proto::SetRate(v1::SetRate {
            job: job.0.into(),
            rate_bytes_per_sec: *rate_bytes_per_sec,
        }),
        Command::Skip { job, below } => Proto::Skip(v1::Skip { job: job.0.into(), below: below.0 }),
        Command::Promote { job, epoch, order } => {
            Proto::Promote(v1::Promote { job: job.0.into(), epoch: epoch.0, order: order.0 })
        }
        Command::MoveServer { job, server } => {
            Proto::MoveServer(v1::MoveServer { job: job.0.into(), server: server.to_string() })
        }
        Command::StandDown { job, epoch } => {
            Proto::StandDown(v1::StandDown { job: job.0.into(), epoch: epoch.0 })
        }
        Command::LeaveReplica { job } => {
            Proto::LeaveReplica(v1::LeaveReplica { job: job.0.into() })
        }
        Command::Holding(command) => holding::to_proto(command),
        Command::SetBands { job, label, band } => Proto::SetBands(v1::SetBands {
            job: job.0.into(),
            label: (*label).into(),
            band: band.map(u32::from),
        }),
        Command::SetLabel { job, label } => {
            Proto::SetLabel(v1::SetLabel { job: job.0.into(), label: (*label).into() })
        }
    };
    v1::Command { command: Some(command) }
}

/// Reads a command; `None` for a message that is not for the box's lanes (welcome,
/// refused, probe, settled).
///
/// # Errors
/// The first field that is out of range.
pub fn command(command: &v1::Command) -> Result<Option<Command>, Invalid> {
    use v1::command::Command as Proto;
    let Some(command) = &command.command else {
        return Err(invalid("command", "must be given"));
    };
    Ok(Some(match command {
        Proto::Welcome(_) | Proto::Refused(_) | Proto::Probe(_) | Proto::Settled(_) => {
            return Ok(None);
        }
        Proto::Install(group) => Command::Install(descriptor(group)?),
        Proto::Remove(remove) => {
            Command::Remove { job: job(remove.job)?, group: row_group("group", remove.group)? }
        }
        Proto::CloseMember(close) => Command::CloseMember {
            job: job(close.job)?,
            group: close.group.map(|group| row_group("group", group)).transpose()?,
            rank: rank(close.rank)?,
        },
        Proto::SetRate(rate) => {
            Command::SetRate { job: job(rate.job)?, rate_bytes_per_sec: rate.rate_bytes_per_sec }
        }
        Proto::Skip(skip) => Command::Skip { job: job(skip.job)?, below: OrderNumber(skip.below) },
        Proto::Promote(promote) => Command::Promote {
            job: job(promote.job)?,
            epoch: ServerEpoch(promote.epoch),
            order: OrderNumber(promote.order),
        },
        Proto::MoveServer(moved) => {
            let address = moved.server.parse();
            let server = address.map_err(|_| invalid("server", "must be \"address:port\""))?;
            Command::MoveServer { job: job(moved.job)?, server }
        }
        Proto::StandDown(down) => {
            Command::StandDown { job: job(down.job)?, epoch: ServerEpoch(down.epoch) }
        }
        Proto::LeaveReplica(left) => Command::LeaveReplica { job: job(left.job)? },
        Proto::InstallJob(share) => Command::Holding(holding::job_share(share)?),
        Proto::InstallLease(lease) => Command::Holding(holding::lease(lease)?),
        Proto::RemoveJob(removed) => Command::Holding(holding::without_job(removed)?),
        Proto::RemoveLease(removed) => Command::Holding(holding::without_lease(removed)?),
        Proto::InstallPush(push) => Command::Holding(holding::push(push)?),
        Proto::RemovePush(removed) => Command::Holding(holding::without_push(removed)?),
        Proto::SetBands(set) => Command::SetBands {
            job: job(set.job)?,
            label: octet(set.label),
            band: set.band.map(bands::band).transpose()?,
        },
        Proto::SetLabel(set) => Command::SetLabel { job: job(set.job)?, label: octet(set.label) },
    }))
}

/// Writes an event of a job.
#[must_use]
pub fn event_to_proto(job: JobId, event: &Event) -> v1::Event {
    use v1::event::Event as Proto;
    let event = match *event {
        Event::Installed { group } => Proto::Installed(v1::Installed { group: group.0 }),
        Event::Refused { group, error } => Proto::Refused(v1::InstallRefused {
            group: group.0,
            error: v1::InstallError::from(error).into(),
        }),
        Event::Gathered { group, rank } => {
            Proto::Gathered(v1::Gathered { group: group.0, rank: rank_to_proto(rank) })
        }
        Event::Staged { group } => Proto::Staged(v1::Staged { group: group.0 }),
        Event::Transferred { group, rank, bytes, duration_ns, wait_ns, idle_ns } => {
            Proto::Transferred(v1::Transferred {
                group: group.0,
                rank: rank.map(rank_to_proto),
                bytes,
                duration_ns,
                wait_ns,
                idle_ns,
            })
        }
        Event::Decided { group, order, decision, members, norm, momentum_norm } => {
            let (decision, version) = decision_to_proto(decision);
            Proto::Decided(v1::Decided {
                group: group.0,
                order: order.0,
                decision: decision.into(),
                version,
                members: members.0,
                norm,
                momentum_norm,
            })
        }
        Event::MemberLost { rank, .. } => {
            Proto::MemberLost(v1::MemberLost { rank: rank_to_proto(rank) })
        }
        Event::ReplicaAt { order, divergence_bound, is_held } => {
            Proto::ReplicaAt(v1::ReplicaAt { order: order.0, divergence_bound, is_held })
        }
        Event::ReplicaFitness { is_fit } => Proto::ReplicaFitness(v1::ReplicaFitness { is_fit }),
        Event::Promoted { epoch, applied, order, version, momentum_norm } => {
            Proto::Promoted(v1::Promoted {
                epoch: epoch.0,
                applied: applied.0,
                order: order.0,
                version: version.0,
                momentum_norm,
            })
        }
        Event::PromotionRefused { applied } => {
            Proto::PromotionRefused(v1::PromotionRefused { applied: applied.0 })
        }
        Event::StoodDown { epoch } => Proto::StoodDown(v1::StoodDown { epoch: epoch.0 }),
        Event::HoldingInstalled { holding } => {
            Proto::HoldingInstalled(v1::HoldingInstalled { holding: Some(holding.into()) })
        }
        Event::HoldingRemoved { holding } => {
            Proto::HoldingRemoved(v1::HoldingRemoved { holding: Some(holding.into()) })
        }
        Event::HoldingRefused { holding, error } => Proto::HoldingRefused(v1::HoldingRefused {
            holding: Some(holding.into()),
            error: v1::HoldingError::from(error).into(),
        }),
        Event::BandSet { band } => Proto::BandSet(v1::BandSet { band: band.map(u32::from) }),
        Event::BandLost { band, error } => Proto::BandLost(v1::BandLost {
            band: band.map(u32::from),
            error: v1::BandError::from(error).into(),
        }),
        Event::BandRefused { band, error } => Proto::BandRefused(v1::BandRefused {
            band: band.map(u32::from),
            error: v1::BandError::from(error).into(),
        }),
    };
    v1::Event { job: job.0.into(), event: Some(event) }
}

/// Reads an event.
///
/// # Errors
/// The first field that is out of range; a norm or a bound that is not a number or negative.
pub fn event(event: &v1::Event) -> Result<(JobId, Event), Invalid> {
    use v1::event::Event as Proto;
    let job = job(event.job)?;
    let Some(event) = &event.event else { return Err(invalid("event", "must be given")) };
    let event = match event {
        Proto::Installed(event) => Event::Installed { group: GroupId(event.group) },
        Proto::Refused(event) => {
            Event::Refused { group: GroupId(event.group), error: code(event.error)? }
        }
        Proto::Gathered(event) => {
            Event::Gathered { group: GroupId(event.group), rank: rank(event.rank)? }
        }
        Proto::Staged(event) => Event::Staged { group: GroupId(event.group) },
        Proto::Transferred(event) => Event::Transferred {
            group: GroupId(event.group),
            rank: event.rank.map(rank).transpose()?,
            bytes: event.bytes,
            duration_ns: event.duration_ns,
            wait_ns: event.wait_ns,
            idle_ns: event.idle_ns,
        },
        Proto::Decided(event) => Event::Decided {
            group: GroupId(event.group),
            order: OrderNumber(event.order),
            decision: decision(event.decision, event.version)?,
            members: Members(event.members),
            norm: magnitude("norm", event.norm)?,
            momentum_norm: magnitude("momentum_norm", event.momentum_norm)?,
        },
        Proto::MemberLost(event) => Event::MemberLost { job, rank: rank(event.rank)? },
        Proto::ReplicaAt(event) => Event::ReplicaAt {
            order: OrderNumber(event.order),
            divergence_bound: bound("divergence_bound", event.divergence_bound)?,
            is_held: event.is_held,
        },
        Proto::ReplicaFitness(event) => Event::ReplicaFitness { is_fit: event.is_fit },
        Proto::Promoted(event) => Event::Promoted {
            epoch: ServerEpoch(event.epoch),
            applied: OrderNumber(event.applied),
            order: OrderNumber(event.order),
            version: Version(event.version),
            momentum_norm: magnitude("momentum_norm", event.momentum_norm)?,
        },
        Proto::PromotionRefused(event) => {
            Event::PromotionRefused { applied: OrderNumber(event.applied) }
        }
        Proto::StoodDown(event) => Event::StoodDown { epoch: ServerEpoch(event.epoch) },
        Proto::HoldingInstalled(event) => {
            Event::HoldingInstalled { holding: holding::holding(event.holding)? }
        }
        Proto::HoldingRemoved(event) => {
            Event::HoldingRemoved { holding: holding::holding(event.holding)? }
        }
        Proto::HoldingRefused(event) => Event::HoldingRefused {
            holding: holding::holding(event.holding)?,
            error: code(event.error)?,
        },
        Proto::BandSet(event) => Event::BandSet { band: event.band.map(octet) },
        Proto::BandLost(event) => {
            Event::BandLost { band: event.band.map(octet), error: code(event.error)? }
        }
        Proto::BandRefused(event) => {
            Event::BandRefused { band: event.band.map(octet), error: code(event.error)? }
        }
    };
    Ok((job, event))
}

/// Reads a number of which whoever takes it judges the range: what is above 255 is as wrong as 255.
fn octet(number: u32) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// Reads a number that must be finite and not negative.
///
/// # Errors
/// It is negative, infinite or not a number.
pub fn magnitude(field: &'static str, value: f64) -> Result<f64, Invalid> {
    match value.is_finite() && value >= 0.0 {
        true => Ok(value),
        false => Err(invalid(field, "must be finite and not negative")),
    }
}

#[cfg(test)]
mod tests;
