//! Enumerations of the interface, one by one.

use weft_control::{Decision, InstallError, Version};

use super::{Invalid, invalid};
use crate::v1;

pub(super) fn decision(decision: i32, version: u64) -> Result<Decision, Invalid> {
    match v1::Decision::try_from(decision) {
        Ok(v1::Decision::Committed) => Ok(Decision::Committed(Version(version))),
        Ok(v1::Decision::Void) => Ok(Decision::Void),
        Ok(v1::Decision::Dropped) => Ok(Decision::Dropped),
        _ => Err(invalid("decision", "must be COMMITTED, VOID or DROPPED")),
    }
}

pub(super) fn install_error_to_proto(error: InstallError) -> v1::InstallError {
    match error {
        InstallError::UnknownJob => v1::InstallError::UnknownJob,
        InstallError::RowTaken => v1::InstallError::RowTaken,
        InstallError::Shape => v1::InstallError::Shape,
        InstallError::Order => v1::InstallError::Order,
        InstallError::Full => v1::InstallError::Full,
    }
}

pub(super) fn install_error(error: i32) -> Result<InstallError, Invalid> {
    match v1::InstallError::try_from(error) {
        Ok(v1::InstallError::UnknownJob) => Ok(InstallError::UnknownJob),
        Ok(v1::InstallError::RowTaken) => Ok(InstallError::RowTaken),
        Ok(v1::InstallError::Shape) => Ok(InstallError::Shape),
        Ok(v1::InstallError::Order) => Ok(InstallError::Order),
        Ok(v1::InstallError::Full) => Ok(InstallError::Full),
        _ => Err(invalid("error", "must be one of the listed reasons")),
    }
}

/// Reads a bound, which is infinite when there is none.
pub(super) fn bound(field: &'static str, value: f64) -> Result<f64, Invalid> {
    match value >= 0.0 {
        true => Ok(value),
        false => Err(invalid(field, "must be a number that is not negative")),
    }
}
