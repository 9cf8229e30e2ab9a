//! Decides what a box has counted, over its lives: what it told in each of them, added up.
//!
//! Invariants: what is shown of a box only grows, but for what waits in it; figures that shrink
//! within a life change nothing; a box takes the same memory whatever it tells.

use alloc::boxed::Box;

use weft_control::figures::BoxFigures;

use super::Controller;
use super::message::{NodeId, Refusal};

/// What a box has told.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// In lives that are over.
    former: Box<BoxFigures>,
    /// In the life that was here last.
    life: Box<BoxFigures>,
}

impl Told {
    /// Another life of the box begins, at 0.
    pub(super) fn begin(&mut self) {
        self.life.forget_waiting();
        *self.former = self.life.plus(&self.former);
        *self.life = BoxFigures::default();
    }

    /// Its stream has ended.
    pub(super) fn end(&mut self) {
        self.life.forget_waiting();
    }

    /// Takes figures in; false when they shrink.
    fn handle(&mut self, figures: &BoxFigures) -> bool {
        let is_good = figures.continues(&self.life);
        if is_good {
            *self.life = figures.clone();
        }
        is_good
    }

    /// All that it has counted.
    pub(super) fn sum(&self) -> BoxFigures {
        self.life.plus(&self.former)
    }
}

impl Controller {
    /// A box tells what it has counted since it started.
    ///
    /// # Errors
    /// It is not attached, or counts less than before in the same life.
    pub fn handle_figures(&mut self, node: NodeId, figures: &BoxFigures) -> Result<(), Refusal> {
        let known = self.nodes.get_mut(node.index()).filter(|node| node.is_attached());
        let taken = match known.map(|node| node.told_mut().handle(figures)) {
            Some(true) => Ok(()),
            Some(false) => Err(Refusal::new("figures", "a counter went backwards")),
            None => Err(Refusal::new("name", "attach before reporting")),
        };
        self.checked(taken)
    }
}
