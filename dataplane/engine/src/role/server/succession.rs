//! How a job changes its server: a replica takes over, and the old server stands down
//! (SPEC#promotion).

use weft_control::{Event, OrderNumber, ServerEpoch, Version};

use super::job::Job;
use super::presence::Presence;
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
        presence: Presence,
    ) -> Result<(), ModelConfigError> {
        self.restore(state)?;
        self.ledger.begin_at(order.0);
        self.epoch = epoch;
        self.presence = presence;
        Ok(())
    }

    /// The answer to [`Command::Promote`].
    pub(crate) fn tell_promoted(&mut self, applied: OrderNumber) {
        let model = self.ledger.model();
        let event = Event::Promoted {
            epoch: self.epoch,
            applied,
            order: OrderNumber(self.ledger.next_order()),
            version: Version(model.version()),
            momentum_norm: model.momentum_norm(),
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
