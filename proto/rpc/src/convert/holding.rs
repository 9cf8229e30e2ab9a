//! What a box holds for jobs: shares, leases and push jobs.

use std::net::SocketAddr;

use weft_control::{
    Holding, HoldingCommand, JobConfig, MemberConfig, ParentConfig, PushConfig, RowConfig,
};
use weft_wire::frame::Endpoint;
use weft_wire::{JobId, MacAddr};

use super::{Invalid, box_index, code, invalid, job, rank, rank_to_proto};
use crate::v1;

/// Writes a command.
pub(super) fn to_proto(command: &HoldingCommand) -> v1::command::Command {
    use v1::command::Command as Proto;
    match command {
        HoldingCommand::InstallJob(config) => Proto::InstallJob(v1::JobShare {
            job: config.job.0.into(),
            slots_max: config.slots_max,
            rate_bytes_per_sec: config.rate_bytes_per_sec,
            burst_bytes: config.burst_bytes,
        }),
        HoldingCommand::InstallLease(row) => Proto::InstallLease(lease_to_proto(row)),
        HoldingCommand::RemoveJob { job } => Proto::RemoveJob(v1::RemoveJob { job: job.0.into() }),
        HoldingCommand::RemoveLease { job, row } => {
            Proto::RemoveLease(v1::RemoveLease { job: job.0.into(), row: (*row).into() })
        }
        HoldingCommand::InstallPush(push) => Proto::InstallPush(push_to_proto(push)),
        HoldingCommand::RemovePush { job } => {
            Proto::RemovePush(v1::RemovePush { job: job.0.into() })
        }
    }
}

/// Reads a job's share.
pub(super) fn job_share(share: &v1::JobShare) -> Result<HoldingCommand, Invalid> {
    Ok(HoldingCommand::InstallJob(JobConfig {
        job: job(share.job)?,
        slots_max: share.slots_max,
        rate_bytes_per_sec: share.rate_bytes_per_sec,
        burst_bytes: share.burst_bytes,
    }))
}

/// Reads the removal of a job's share.
pub(super) fn without_job(removed: &v1::RemoveJob) -> Result<HoldingCommand, Invalid> {
    Ok(HoldingCommand::RemoveJob { job: job(removed.job)? })
}

/// Reads the removal of a lease.
pub(super) fn without_lease(removed: &v1::RemoveLease) -> Result<HoldingCommand, Invalid> {
    let (job, row) = (job(removed.job)?, number("row", removed.row)?);
    Ok(HoldingCommand::RemoveLease { job, row })
}

/// Reads the removal of a push job.
pub(super) fn without_push(removed: &v1::RemovePush) -> Result<HoldingCommand, Invalid> {
    Ok(HoldingCommand::RemovePush { job: job(removed.job)? })
}

/// Reads a number of 16 bits.
fn number(field: &'static str, value: u32) -> Result<u16, Invalid> {
    u16::try_from(value).map_err(|_| invalid(field, "must be at most 65535"))
}

fn lease_to_proto(row: &RowConfig) -> v1::WindowedLease {
    let members = row.members.iter().map(|member| v1::LeaseMember {
        address: member.addr.to_string(),
        weight: member.weight,
        is_box: member.is_box,
    });
    let root = row.parent.as_ref().map(|parent| {
        let (address, mac) = endpoint_to_proto(&parent.endpoint);
        v1::LeaseRoot {
            address,
            mac,
            row: parent.row.into(),
            rank: rank_to_proto(parent.rank),
            source_port: parent.source_port.into(),
        }
    });
    v1::WindowedLease {
        job: row.job.0.into(),
        row: row.row.into(),
        members: members.collect(),
        element_type: v1::ElementType::from(row.element_type).into(),
        operation: v1::Operation::from(row.operation).into(),
        sum_order: v1::SumOrder::from(row.sum_order).into(),
        overflow: v1::Overflow::from(row.overflow).into(),
        integrity: v1::Integrity::from(row.integrity).into(),
        elements_per_chunk: row.elements.into(),
        window: row.window.into(),
        chunks_max: row.chunks_max,
        exponent: row.exponent.map(Into::into),
        fan_in: row.fan_in,
        root,
    }
}

/// Reads a windowed lease. Whether the box can serve it is the box's to judge.
pub(super) fn lease(lease: &v1::WindowedLease) -> Result<HoldingCommand, Invalid> {
    let member = |member: &v1::LeaseMember| {
        let addr = address("members", &member.address)?;
        Ok(MemberConfig { addr, weight: member.weight, is_box: member.is_box })
    };
    if lease.members.len() > weft_wire::MEMBERS_MAX {
        return Err(invalid("members", "must be at most 64"));
    }
    Ok(HoldingCommand::InstallLease(RowConfig {
        row: number("row", lease.row)?,
        job: job(lease.job)?,
        members: lease.members.iter().map(member).collect::<Result<_, _>>()?,
        element_type: code(lease.element_type)?,
        operation: code(lease.operation)?,
        sum_order: code(lease.sum_order)?,
        overflow: code(lease.overflow)?,
        integrity: code(lease.integrity)?,
        elements: number("elements_per_chunk", lease.elements_per_chunk)?,
        window: number("window", lease.window)?,
        chunks_max: lease.chunks_max,
        exponent: lease.exponent.map(exponent).transpose()?,
        fan_in: lease.fan_in,
        parent: lease.root.as_ref().map(parent).transpose()?,
    }))
}

fn parent(root: &v1::LeaseRoot) -> Result<ParentConfig, Invalid> {
    Ok(ParentConfig {
        endpoint: endpoint("root", &root.address, root.mac.as_ref())?,
        row: number("row", root.row)?,
        rank: rank(root.rank)?,
        source_port: number("source_port", root.source_port)?,
    })
}

fn push_to_proto(push: &PushConfig) -> v1::PushJob {
    let end = |end: &Endpoint| {
        let (address, mac) = endpoint_to_proto(end);
        v1::PushEnd { address, mac }
    };
    v1::PushJob {
        job: push.job.0.into(),
        box_index: push.box_index.0.into(),
        workers: push.workers.iter().map(SocketAddr::to_string).collect(),
        server: Some(end(&push.server)),
        replica: push.replica.as_ref().map(end),
        quota_bytes: push.quota_bytes,
        pull_cache_bytes: push.pull_cache_bytes,
        chunk_count: push.chunks,
        elements_per_chunk: push.elements.into(),
        element_type: v1::ElementType::from(push.element_type).into(),
        overflow: v1::Overflow::from(push.overflow).into(),
        integrity: v1::Integrity::from(push.integrity).into(),
        exponent: push.exponent.map(Into::into),
        rate_bytes_per_sec: push.rate_bytes_per_sec,
        burst_bytes: push.burst_bytes,
    }
}

/// Reads a push job. Whether the box can serve it is the box's to judge.
pub(super) fn push(push: &v1::PushJob) -> Result<HoldingCommand, Invalid> {
    let end = |field, end: &v1::PushEnd| endpoint(field, &end.address, end.mac.as_ref());
    if push.workers.len() > weft_wire::MEMBERS_MAX {
        return Err(invalid("workers", "must be at most 64"));
    }
    let workers = push.workers.iter().map(|worker| address("workers", worker));
    let server = push.server.as_ref().ok_or(invalid("server", "must be given"))?;
    Ok(HoldingCommand::InstallPush(PushConfig {
        job: job(push.job)?,
        box_index: box_index("box_index", push.box_index)?,
        workers: workers.collect::<Result<_, _>>()?,
        server: end("server", server)?,
        replica: push.replica.as_ref().map(|replica| end("replica", replica)).transpose()?,
        quota_bytes: push.quota_bytes,
        pull_cache_bytes: push.pull_cache_bytes,
        chunks: push.chunk_count,
        elements: number("elements_per_chunk", push.elements_per_chunk)?,
        element_type: code(push.element_type)?,
        overflow: code(push.overflow)?,
        integrity: code(push.integrity)?,
        exponent: push.exponent.map(exponent).transpose()?,
        rate_bytes_per_sec: push.rate_bytes_per_sec,
        burst_bytes: push.burst_bytes,
    }))
}

fn exponent(exponent: i32) -> Result<i8, Invalid> {
    i8::try_from(exponent).map_err(|_| invalid("exponent", "must be -126 to 126"))
}

/// Address and, where it is known, Ethernet address.
fn endpoint_to_proto(end: &Endpoint) -> (String, Option<String>) {
    let mac = (end.mac != MacAddr::BROADCAST).then(|| end.mac.to_string());
    (end.addr.to_string(), mac)
}

fn endpoint(field: &'static str, addr: &str, mac: Option<&String>) -> Result<Endpoint, Invalid> {
    let mac = mac.map_or(Ok(MacAddr::BROADCAST), |mac| mac.parse());
    let mac = mac.map_err(|_| invalid("mac", "must be six octets, \"02:00:00:00:00:01\""))?;
    Ok(Endpoint { mac, addr: address(field, addr)? })
}

fn address(field: &'static str, address: &str) -> Result<SocketAddr, Invalid> {
    address.parse().map_err(|_| invalid(field, "must have \"address:port\""))
}

impl From<Holding> for v1::Holding {
    fn from(holding: Holding) -> Self {
        let (kind, row) = match holding {
            Holding::Job => (v1::HoldingKind::Job, 0),
            Holding::Row(row) => (v1::HoldingKind::Row, row.into()),
            Holding::Push => (v1::HoldingKind::Push, 0),
        };
        Self { kind: kind.into(), row }
    }
}

/// Reads what an event is about.
pub(super) fn holding(holding: Option<v1::Holding>) -> Result<Holding, Invalid> {
    let Some(v1::Holding { kind, row }) = holding else {
        return Err(invalid("holding", "must be given"));
    };
    match v1::HoldingKind::try_from(kind) {
        Ok(v1::HoldingKind::Job) => Ok(Holding::Job),
        Ok(v1::HoldingKind::Row) => Ok(Holding::Row(number("row", row)?)),
        Ok(v1::HoldingKind::Push) => Ok(Holding::Push),
        Ok(v1::HoldingKind::Unspecified) | Err(_) => {
            Err(invalid("kind", "must be JOB, ROW or PUSH"))
        }
    }
}

/// Writes what a box holds.
#[must_use]
pub fn held_to_proto((job, holding): &(JobId, Holding)) -> v1::Held {
    v1::Held { job: job.0.into(), holding: Some((*holding).into()) }
}

/// Reads what a box holds.
pub(super) fn held(held: &v1::Held) -> Result<(JobId, Holding), Invalid> {
    Ok((job(held.job)?, holding(held.holding)?))
}
