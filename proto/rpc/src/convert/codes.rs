//! Enumerations of the interface: one pair of conversions for each, exhaustive in both directions.

use weft_control::figures::DropReason as FrameDrop;
use weft_control::{
    BandError, BandPolicy, Decision, DropReason, Halt, HoldingError, InstallError, JobState, Mode,
    Role, SumOrder, Version,
};
use weft_wire::header::{ElementType, Operation};
use weft_wire::hello::{Integrity, Overflow};

use super::{Invalid, invalid};
use crate::v1;

/// A pair whose values have the same names on both sides. The interface's value 0, and a number
/// that it does not list, is none of them.
macro_rules! pair {
    ($ours:ident, $field:literal, $problem:literal, { $($value:ident),+ } $(, besides $none:ident)?) => {
        impl From<$ours> for v1::$ours {
            fn from(value: $ours) -> Self {
                match value {
                    $($ours::$value => Self::$value,)+
                    $($ours::$none => Self::Unspecified,)?
                }
            }
        }

        impl TryFrom<v1::$ours> for $ours {
            type Error = Invalid;

            fn try_from(value: v1::$ours) -> Result<Self, Invalid> {
                match value {
                    $(v1::$ours::$value => Ok(Self::$value),)+
                    v1::$ours::Unspecified => Err(invalid($field, $problem)),
                }
            }
        }

        impl Code for $ours {
            const UNKNOWN: Invalid = invalid($field, $problem);
            type Proto = v1::$ours;
        }
    };
}

/// An enumeration that the interface has too.
pub trait Code: TryFrom<Self::Proto, Error = Invalid> {
    /// For a number that the interface does not list.
    const UNKNOWN: Invalid;
    /// The interface's.
    type Proto: TryFrom<i32>;
}

/// Reads an enumeration's number.
///
/// # Errors
/// Unspecified or unknown.
pub fn code<T: Code>(value: i32) -> Result<T, Invalid> {
    T::Proto::try_from(value).map_err(|_| T::UNKNOWN).and_then(T::try_from)
}

pair!(ElementType, "element_type", "must be I32, F32 or BF16", { I32, F32, Bf16 }, besides None);
pair!(Mode, "mode", "must be ASYNC, SYNC or PARTIAL", { Async, Sync, Partial });
pair!(Role, "role", "must be SERVER, REPLICA or AGGREGATOR", { Server, Replica, Aggregator });
pair!(InstallError, "error", "must be one of the listed reasons", {
    UnknownJob, RowTaken, Shape, Order, Full
});
pair!(HoldingError, "error", "must be one of the listed reasons", {
    UnknownJob, Missing, Taken, OtherJob, InUse, Full, Quota, Number, Members, Window, Elements,
    Root, Role, Both, Port, Workers, Updates, Memory, Switch
});
pair!(BandError, "error", "must be one of the listed reasons", {
    NoBands, OutOfRange, LabelTaken, NoTool, NotPermitted, NoDevice, Foreign, NoDiscipline, Failed,
    NoClass
});
pair!(BandPolicy, "policy", "must be FIFO, ONE or ROUND_ROBIN", { Fifo, One, RoundRobin });
pair!(FrameDrop, "reason", "must be one of the listed reasons", {
    Length, Vlan, Fragment, IpHeader, IpChecksum, NotIp, NotForUs, Version, Kind, UnknownJob, UnknownGroup, BadMembers, StaleEpoch, BadCookie, StaleGroup, WrongSource, WrongShard, OverQuota, StrangersQuota, ChunkOutOfRange, ElementCount, ElementType, Operation, Exponent, Integrity, StaleStep, Duplicate, Unwanted, Handshake, Token, Unsolicited
});
pair!(Operation, "operation", "must be SUM or MAX", { Sum, Max }, besides None);
pair!(Halt, "halt", "must be NONE, HELD, STOPPED or LEFT", { None, Held, Stopped, Left });
pair!(JobState, "state", "must be RUNNING, PAUSING, PAUSED or RESIZING", {
    Running, Pausing, Paused, Resizing
});
pair!(SumOrder, "sum_order", "must be ARRIVAL or RANK", { Arrival, Rank });
pair!(Overflow, "overflow", "must be WRAP or CLAMP", { Wrap, Clamp });
pair!(Integrity, "integrity", "must be NONE, CRC32C or CHECKSUM16", { None, Crc32c, Checksum16 });

/// Writes a decision: what became of it, and the version.
#[must_use]
pub const fn decision_to_proto(decision: Decision) -> (v1::Decision, u64) {
    match decision {
        Decision::Committed(version) => (v1::Decision::Committed, version.0),
        Decision::Void => (v1::Decision::Void, 0),
        Decision::Dropped => (v1::Decision::Dropped, 0),
    }
}

/// Reads a decision.
///
/// # Errors
/// Unspecified or unknown.
pub fn decision(decision: i32, version: u64) -> Result<Decision, Invalid> {
    match v1::Decision::try_from(decision) {
        Ok(v1::Decision::Committed) => Ok(Decision::Committed(Version(version))),
        Ok(v1::Decision::Void) => Ok(Decision::Void),
        Ok(v1::Decision::Dropped) => Ok(Decision::Dropped),
        Ok(v1::Decision::Unspecified) | Err(_) => {
            Err(invalid("decision", "must be COMMITTED, VOID or DROPPED"))
        }
    }
}

impl From<&DropReason> for v1::DropReason {
    fn from(reason: &DropReason) -> Self {
        match reason {
            DropReason::TooOld => Self::TooOld,
            DropReason::DeadlineCluster => Self::DeadlineCluster,
            DropReason::DelaysOthers => Self::DelaysOthers,
            DropReason::NoBandwidth => Self::NoBandwidth,
            DropReason::RoundClosed => Self::RoundClosed,
            DropReason::Refused => Self::Refused,
            DropReason::JobEnded => Self::JobEnded,
            DropReason::Other(_) => Self::Other,
        }
    }
}

/// Reads why an update was dropped; `detail` has the words of an outside policy.
///
/// # Errors
/// Unspecified or unknown.
pub fn drop_reason(reason: i32, detail: &str) -> Result<DropReason, Invalid> {
    match v1::DropReason::try_from(reason) {
        Ok(v1::DropReason::TooOld) => Ok(DropReason::TooOld),
        Ok(v1::DropReason::DeadlineCluster) => Ok(DropReason::DeadlineCluster),
        Ok(v1::DropReason::DelaysOthers) => Ok(DropReason::DelaysOthers),
        Ok(v1::DropReason::NoBandwidth) => Ok(DropReason::NoBandwidth),
        Ok(v1::DropReason::RoundClosed) => Ok(DropReason::RoundClosed),
        Ok(v1::DropReason::Refused) => Ok(DropReason::Refused),
        Ok(v1::DropReason::JobEnded) => Ok(DropReason::JobEnded),
        Ok(v1::DropReason::Other) => Ok(DropReason::Other(detail.into())),
        Ok(v1::DropReason::Unspecified) | Err(_) => {
            Err(invalid("reason", "must be one of the listed reasons"))
        }
    }
}

/// Reads a bound, which is infinite when there is none.
pub(super) fn bound(field: &'static str, value: f64) -> Result<f64, Invalid> {
    match value >= 0.0 {
        true => Ok(value),
        false => Err(invalid(field, "must be a number that is not negative")),
    }
}
