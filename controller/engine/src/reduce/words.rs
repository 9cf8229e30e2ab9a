//! What people and policies may have an allreduce job do, in each of its phases. What it comes to
//! is in `steps`.

use alloc::vec::Vec;

use weft_control::JobState;

use super::job::{Phase, Reduce, Why};
use super::places::width;
use crate::steered::{SteerError, Steerer};

impl Reduce {
    pub(crate) fn pause(&mut self, now_ns: u64, by: Steerer) -> Result<(), SteerError> {
        let (ending, is_overdue) = (self.ending(), !self.unbegun().is_empty());
        let is_awaited = self.is_awaited();
        match &mut self.phase {
            Phase::Running if is_overdue => Err(SteerError::Unbegun),
            // Nobody works who could stop, and `begin_timeout_s` says how long that may be so.
            Phase::Running if is_awaited => Err(SteerError::Resizing),
            Phase::Running if let Some(rounds) = ending => Err(SteerError::Ending { rounds }),
            Phase::Running => {
                let why = Why::Pause(by);
                self.turn_to(Phase::Halting { why, asked_ns: Some(now_ns), boundary: None });
                Ok(())
            }
            Phase::Halting { why: Why::Pause(held), .. } | Phase::Paused { by: held, .. }
                if *held < by =>
            {
                *held = by;
                self.is_unsaved = true;
                Ok(())
            }
            Phase::Halting { why: Why::Resize(_), .. } | Phase::Leaving { .. } => {
                Err(SteerError::Resizing)
            }
            Phase::Halting { .. } | Phase::Paused { .. } => Err(SteerError::Paused(self.state())),
        }
    }

    pub(crate) fn resume(&mut self, by: Steerer) -> Result<(), SteerError> {
        match self.phase {
            Phase::Halting { why: Why::Pause(held), .. } | Phase::Paused { by: held, .. } => {
                if held > by {
                    return Err(SteerError::Operators);
                }
                self.turn_to(Phase::Running);
                Ok(())
            }
            Phase::Halting { .. } | Phase::Leaving { .. } => Err(SteerError::Resizing),
            Phase::Running => Err(SteerError::NotPaused(self.state())),
        }
    }

    /// To places that are there and free.
    pub(crate) fn resize(&mut self, now_ns: u64, places: Vec<u16>) -> Result<(), SteerError> {
        let to = width(&places);
        match self.phase {
            Phase::Running if self.state() == JobState::Resizing && !self.beginning.is_known => {
                self.resize_unbegun(now_ns, places)
            }
            Phase::Running if self.state() == JobState::Resizing => Err(SteerError::Resizing),
            Phase::Running if let Some(rounds) = self.ending() => {
                Err(SteerError::Ending { rounds })
            }
            Phase::Running if to == self.cohort.workers => Err(SteerError::SameWidth(to)),
            Phase::Running => {
                let why = Why::Resize(to);
                self.next_places = places;
                self.turn_to(Phase::Halting { why, asked_ns: Some(now_ns), boundary: None });
                Ok(())
            }
            Phase::Halting { why: Why::Pause(_), .. } | Phase::Paused { .. } => {
                Err(SteerError::Paused(self.state()))
            }
            Phase::Halting { .. } | Phase::Leaving { .. } => Err(SteerError::Resizing),
        }
    }
}
