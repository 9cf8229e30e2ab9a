//! What a caller and a controller may say, and when: updates handed over, granted, released,
//! finished; pulls begun. A command that does not fit is refused and changes nothing.

use alloc::vec::Vec;

use weft_control::{BoxIndex, Decision, Version};
use weft_wire::header::ElementType;
use weft_wire::rows::ROW_DIRECT;
use weft_wire::{GroupId, Nanos, quant};

use super::config::{Grant, NewUpdate, Values};
use super::event::PushRefusal;
use super::pull::SERVER;
use super::update::{Asking, Phase, Update};
use super::{Pusher, State};

impl Pusher {
    /// Takes an update into its keeping. It waits for [`Pusher::handle_grant`] or
    /// [`Pusher::send_direct`].
    ///
    /// # Errors
    /// [`PushRefusal`]; the update is given back with it.
    pub fn begin_update(&mut self, new: NewUpdate) -> Result<(), (PushRefusal, NewUpdate)> {
        let Some(terms) = self.terms.filter(|_| self.state == State::Open) else {
            return Err((PushRefusal::NotOpen, new));
        };
        if self.updates.len() >= self.config.updates_max {
            return Err((PushRefusal::Full, new));
        }
        if self.updates.iter().any(|update| update.number == new.number) {
            return Err((PushRefusal::Number, new));
        }
        let is_integers = matches!(new.values, Values::Integers(_));
        let room = terms.job.chunks as usize * usize::from(terms.job.elements);
        if new.values.len() > room || (is_integers && self.config.element_type != ElementType::I32)
        {
            return Err((PushRefusal::Values, new));
        }
        let update = match self.spare.pop() {
            Some(mut update) => {
                update.replace(new);
                update
            }
            None => Update::new(new, terms.job.chunks),
        };
        self.updates.push(update);
        Ok(())
    }

    /// Takes a controller's grant.
    ///
    /// # Errors
    /// [`PushRefusal`] when there is no such update, or it does not wait for a grant.
    pub fn handle_grant(
        &mut self,
        now: Nanos,
        number: u64,
        grant: &Grant,
    ) -> Result<(), PushRefusal> {
        let terms = self.terms.ok_or(PushRefusal::NotOpen)?;
        if let Some(via) = grant.via {
            self.box_host(via).ok_or(PushRefusal::UnknownBox)?;
        }
        let interval_ns = self.config.status_interval_ns;
        let update = self.update_mut(number)?;
        if update.phase != Phase::Requested {
            return Err(PushRefusal::State);
        }
        update.grant(now, grant, terms.job.chunks);
        update.status = Asking::after(now, interval_ns);
        self.replay_early(grant.group);
        Ok(())
    }

    /// Sends an update without a controller: the server is asked for a turn, and pulls it.
    ///
    /// # Errors
    /// [`PushRefusal`] when there is no such update, or it has been granted.
    pub fn send_direct(&mut self, now: Nanos, number: u64) -> Result<(), PushRefusal> {
        let terms = self.terms.ok_or(PushRefusal::NotOpen)?;
        let row = ROW_DIRECT + u16::try_from(self.config.rank.index()).unwrap_or(0);
        let group = GroupId::new(row, self.generation);
        let (kernels, is_fixed) = (self.kernels, self.config.element_type == ElementType::I32);
        let update = self.update_mut(number)?;
        if update.phase != Phase::Requested {
            return Err(PushRefusal::State);
        }
        let exponent = terms.job.exponent.unwrap_or_else(|| match &update.values {
            Values::Reals(values) if is_fixed => {
                quant::exponent_for(kernels.max_abs_f32(values), 1)
            }
            _ => 0,
        });
        let grant = Grant {
            group,
            via: None,
            exponent,
            member_count: 1,
            segments: arrayvec::ArrayVec::new(),
            replicate: false,
            train_chunks: 0,
        };
        update.grant(now, &grant, terms.job.chunks);
        update.status = Asking::after(now, 0);
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    /// The gate of a segment has opened.
    ///
    /// # Errors
    /// [`PushRefusal`] when there is no such update, or it was never granted.
    pub fn handle_release(
        &mut self,
        now: Nanos,
        number: u64,
        segment: usize,
    ) -> Result<(), PushRefusal> {
        let update = self.update_mut(number)?;
        if update.phase != Phase::Granted {
            return Err(PushRefusal::State);
        }
        update.release(now, segment);
        Ok(())
    }

    /// The controller says what became of an update: the server's ACK is on its way, or lost.
    ///
    /// # Errors
    /// [`PushRefusal`] when there is no such update, or it is decided already.
    pub fn handle_outcome(&mut self, number: u64, decision: Decision) -> Result<(), PushRefusal> {
        let index = self.updates.iter().position(|update| update.number == number);
        let index = index.ok_or(PushRefusal::Number)?;
        if self.updates[index].phase == Phase::Decided {
            return Err(PushRefusal::State);
        }
        self.decide(index, decision);
        Ok(())
    }

    /// Takes the data of an update that is decided, or was never granted, and forgets the update.
    pub fn finish(&mut self, number: u64) -> Option<Values> {
        let index = self
            .updates
            .iter()
            .position(|update| update.number == number && update.phase != Phase::Granted)?;
        let mut update = self.updates.swap_remove(index);
        let values = core::mem::replace(&mut update.values, Values::Reals(Vec::new()));
        self.spare.push(update);
        Some(values)
    }

    /// Lets an update that was void, or never granted, wait for a grant again, under a fresh
    /// number.
    ///
    /// # Errors
    /// [`PushRefusal`] when there is no such update, or it may not be sent anew.
    pub fn renew(&mut self, number: u64, fresh: u64) -> Result<(), PushRefusal> {
        if self.updates.iter().any(|update| update.number == fresh) {
            return Err(PushRefusal::Number);
        }
        let update = self.update_mut(number)?;
        let is_void = update.decision == Some(Decision::Void);
        if update.phase != Phase::Requested && !is_void {
            return Err(PushRefusal::State);
        }
        update.reset();
        update.number = fresh;
        Ok(())
    }

    /// Begins to pull the first `parameters` elements of the newest model, of one newer than
    /// `newer_than` if that is given; from `via`, or from the server. [`super::Event::Pulled`]
    /// follows.
    ///
    /// # Errors
    /// [`PushRefusal`] when a pull is under way, or the model is smaller.
    pub fn begin_pull(
        &mut self,
        now: Nanos,
        parameters: usize,
        newer_than: Option<Version>,
        via: Option<BoxIndex>,
    ) -> Result<(), PushRefusal> {
        let terms = self.terms.filter(|_| self.state == State::Open).ok_or(PushRefusal::NotOpen)?;
        if !self.puller.is_idle() {
            return Err(PushRefusal::Pulling);
        }
        if parameters > terms.job.chunks as usize * usize::from(terms.job.elements) {
            return Err(PushRefusal::Values);
        }
        let host = match via {
            Some(via) => self.box_host(via).ok_or(PushRefusal::UnknownBox)?,
            None => SERVER,
        };
        self.puller.begin(now, parameters, terms.job.elements, newer_than, host);
        Ok(())
    }

    /// The model of the last [`super::Event::Pulled`], padded to whole chunks.
    #[must_use]
    pub fn model(&self) -> &[f32] {
        self.puller.model()
    }
}
