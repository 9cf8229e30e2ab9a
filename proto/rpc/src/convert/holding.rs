//! What a box holds for jobs: shares and leases.

use std::net::SocketAddr;

use weft_control::{Holding, HoldingCommand, JobConfig, MemberConfig, ParentConfig, RowConfig};
use weft_wire::MacAddr;
use weft_wire::frame::Endpoint;

use super::{Invalid, code, invalid, job, rank, rank_to_proto};
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
        let Endpoint { mac, addr } = parent.endpoint;
        v1::LeaseRoot {
            address: addr.to_string(),
            mac: (mac != MacAddr::BROADCAST).then(|| mac.to_string()),
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
    let exponent =
        |exponent| i8::try_from(exponent).map_err(|_| invalid("exponent", "must be -126 to 126"));
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
    let mac = root.mac.as_ref().map_or(Ok(MacAddr::BROADCAST), |mac| mac.parse());
    let mac = mac.map_err(|_| invalid("mac", "must be six octets, \"02:00:00:00:00:01\""))?;
    Ok(ParentConfig {
        endpoint: Endpoint { mac, addr: address("root", &root.address)? },
        row: number("row", root.row)?,
        rank: rank(root.rank)?,
        source_port: number("source_port", root.source_port)?,
    })
}

fn address(field: &'static str, address: &str) -> Result<SocketAddr, Invalid> {
    address.parse().map_err(|_| invalid(field, "must have \"address:port\""))
}

impl From<Holding> for v1::Holding {
    fn from(holding: Holding) -> Self {
        let (kind, row) = match holding {
            Holding::Job => (v1::HoldingKind::Job, 0),
            Holding::Row(row) => (v1::HoldingKind::Row, row.into()),
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
        Ok(v1::HoldingKind::Unspecified) | Err(_) => Err(invalid("kind", "must be JOB or ROW")),
    }
}
