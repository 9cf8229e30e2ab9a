//! MLfabric: order, then aggregate, then replicate.

use crate::case::Case;
use crate::net::ledger::Ledger;
use crate::plan::Plan;

use super::order::order;
use super::{Policy, PolicyError};

/// The composition of the three planners.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mlfabric;

impl Policy for Mlfabric {
    fn name(&self) -> &str {
        "mlfabric"
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        let mut ledger = Ledger::new(case);
        Ok(order(case, &mut ledger).into_plan(self.name(), case))
    }
}
