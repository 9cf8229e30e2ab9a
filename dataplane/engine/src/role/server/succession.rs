//! How a job changes its server: a replica takes over, and the old server stands down
//! (SPEC#promotion).

use weft_control::{Event, OrderNumber, ServerEpoch, Version};

use super::job::Job;
use crate::role::model::ModelConfigError;
use crate::role::model::ModelState;

impl Job {
    /// Takes a job over from its server, whose replica this was (SPEC#promotion): `order` is
    /// decided next, in this epoch.
    pub(crate) fn succeed(
        &mut self,
        state: &ModelState,
        epoch: ServerEpoch,
        order: OrderNumber,
    ) -> Result<(), ModelConfigError> {
        self.restore(state)?;
        self.next_order = order.0;
        self.epoch = epoch;
        Ok(())
    }

    /// The answer to [`Command::Promote`].
    pub(crate) fn tell_promoted(&mut self, applied: OrderNumber) {
        let event = Event::Promoted {
            epoch: self.epoch,
            applied,
            order: OrderNumber(self.next_order),
            version: Version(self.model.version),
            momentum_norm: self.model.momentum_norm,
        };
        self.tell(event);
    }

    /// Serves the job no more: a later server has it (SPEC#promotion). A word that is meant for an
    /// earlier server is none for this one.
    pub(super) fn stand_down(&mut self, epoch: ServerEpoch) {
        if epoch > self.epoch {
            self.is_retired = true;
            self.tell(Event::StoodDown { epoch });
        }
    }
}
