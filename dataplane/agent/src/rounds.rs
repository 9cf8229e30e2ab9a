//! What a worker of an allreduce may do about its rounds, and what its controller is to hear of
//! that. Pure.
//!
//! A worker asks before each round ([`Rounds::step`]). Orders come between rounds and within them;
//! where the worker is is told as soon as an order asks for it, without waiting for a round to end.
//!
//! Invariants: no round at or behind a boundary is begun while the order stands; who holds for a
//! controller that has gone goes on after [`HOLD_TIMEOUT_NS`], which is harmless: a round ends for
//! nobody that not all have begun, so if others were told a boundary, it is not passed. Who was
//! told a boundary stays there.

use weft_control::{Halt, RoundOrder, RoundPosition};

/// What a worker does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Begin the next round.
    Begin,
    /// Nothing; ask again when something was heard, or in a while.
    Wait,
    /// Keep a checkpoint, and say so with [`Rounds::handle_kept`].
    Keep,
    /// End.
    End,
}

/// A worker's rounds.
#[derive(Clone, Debug)]
pub struct Rounds {
    next: u64,
    /// With its number; none: the controller has not spoken yet.
    order: Option<(u32, RoundOrder)>,
    has_kept: bool,
    /// Since when there is no stream.
    lost_ns: Option<u64>,
    told: Option<RoundPosition>,
}

impl Rounds {
    /// Of a worker that begins with this round.
    #[must_use]
    pub const fn new(next: u64) -> Self {
        Self { next, order: None, has_kept: false, lost_ns: None, told: None }
    }

    /// The round that comes next.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// What to do now.
    #[must_use]
    pub fn step(&self, now_ns: u64) -> Step {
        let Some((_, order)) = self.order else { return Step::Wait };
        let is_alone =
            self.lost_ns.is_some_and(|lost_ns| now_ns.saturating_sub(lost_ns) >= HOLD_TIMEOUT_NS);
        match order {
            RoundOrder::Go => Step::Begin,
            RoundOrder::Hold if is_alone => Step::Begin,
            RoundOrder::Hold => Step::Wait,
            RoundOrder::Stop(boundary) | RoundOrder::Leave(boundary) if self.next < boundary => {
                Step::Begin
            }
            RoundOrder::Leave(_) if !self.has_kept => Step::Keep,
            RoundOrder::Stop(_) | RoundOrder::Leave(_) => Step::Wait,
            RoundOrder::Bye => Step::End,
        }
    }

    /// The next round begins.
    pub fn handle_begin(&mut self) {
        self.next = self.next.saturating_add(1);
        // What was kept is of a round before.
        self.has_kept = false;
    }

    /// The checkpoint is kept, where it outlives the worker.
    pub fn handle_kept(&mut self) {
        self.has_kept = true;
    }

    /// The controller says what to do.
    pub fn handle_order(&mut self, turn: u32, order: RoundOrder) {
        self.order = Some((turn, order));
        self.told = None;
    }

    /// The cohort is over, and its worker was told so instead of an order.
    pub fn handle_over(&mut self) {
        self.order = Some((0, RoundOrder::Bye));
    }

    /// The stream to the controller is there: what was said on another one was perhaps not heard.
    pub fn handle_attached(&mut self) {
        self.lost_ns = None;
        self.told = None;
    }

    /// The stream to the controller has gone.
    pub fn handle_lost(&mut self, now_ns: u64) {
        self.lost_ns.get_or_insert(now_ns);
    }

    /// Where the worker is.
    #[must_use]
    pub fn position(&self) -> RoundPosition {
        let next = self.next;
        let Some((turn, order)) = self.order else {
            return RoundPosition { turn: 0, next, halt: Halt::None };
        };
        let halt = match order {
            RoundOrder::Go | RoundOrder::Bye => Halt::None,
            RoundOrder::Hold => Halt::Held,
            RoundOrder::Stop(boundary) | RoundOrder::Leave(boundary) if next < boundary => {
                Halt::None
            }
            // Beyond it, which the controller has to know.
            RoundOrder::Stop(boundary) | RoundOrder::Leave(boundary) if next > boundary => {
                Halt::Held
            }
            RoundOrder::Leave(_) if self.has_kept => Halt::Left,
            RoundOrder::Stop(_) | RoundOrder::Leave(_) => Halt::Stopped,
        };
        RoundPosition { turn, next, halt }
    }

    /// What the controller is to be told of where the worker is, once for each change of it. At a
    /// boundary it is told only when the last round before that has ended: when the worker asks for
    /// its next step. Hence `is_between`, true between two rounds.
    pub fn poll_position(&mut self, is_between: bool) -> Option<RoundPosition> {
        self.order?;
        let mut position = self.position();
        if !is_between && position.halt >= Halt::Stopped {
            position.halt = Halt::None;
        }
        let is_new =
            self.told.is_none_or(|told| (told.turn, told.halt) != (position.turn, position.halt));
        is_new.then(|| *self.told.insert(position))
    }
}

/// How long a worker that was asked to hold waits for a controller that has gone.
pub const HOLD_TIMEOUT_NS: u64 = 3_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(turn: u32, next: u64, halt: Halt) -> Option<RoundPosition> {
        Some(RoundPosition { turn, next, halt })
    }

    #[test]
    fn a_worker_waits_until_it_is_welcome_and_then_goes() {
        let mut rounds = Rounds::new(5);
        assert_eq!((rounds.step(0), rounds.poll_position(true)), (Step::Wait, None));
        rounds.handle_order(1, RoundOrder::Go);
        assert_eq!(rounds.step(0), Step::Begin);
        assert_eq!(rounds.poll_position(true), at(1, 5, Halt::None));
        rounds.handle_begin();
        assert_eq!((rounds.next(), rounds.poll_position(false)), (6, None));
    }

    #[test]
    fn it_holds_at_once_and_stops_where_it_is_told_to() {
        let mut rounds = Rounds::new(0);
        rounds.handle_order(1, RoundOrder::Go);
        rounds.handle_begin();
        // Within round 0.
        rounds.handle_order(2, RoundOrder::Hold);
        assert_eq!(rounds.poll_position(false), at(2, 1, Halt::Held));
        assert_eq!(rounds.step(0), Step::Wait);
        rounds.handle_order(3, RoundOrder::Stop(2));
        assert_eq!(
            (rounds.step(0), rounds.poll_position(true)),
            (Step::Begin, at(3, 1, Halt::None))
        );
        rounds.handle_begin();
        assert_eq!(rounds.poll_position(false), None, "round 1 has not ended");
        assert_eq!(
            (rounds.step(0), rounds.poll_position(true)),
            (Step::Wait, at(3, 2, Halt::Stopped))
        );
        assert_eq!(rounds.poll_position(true), None, "once");
        rounds.handle_order(4, RoundOrder::Go);
        assert_eq!(rounds.step(0), Step::Begin);
    }

    #[test]
    fn one_that_is_beyond_a_boundary_says_so_and_begins_nothing() {
        let mut rounds = Rounds::new(7);
        rounds.handle_order(1, RoundOrder::Stop(6));
        assert_eq!(
            (rounds.step(0), rounds.poll_position(true)),
            (Step::Wait, at(1, 7, Halt::Held))
        );
    }

    #[test]
    fn it_ends_only_when_what_it_kept_is_known() {
        let mut rounds = Rounds::new(4);
        rounds.handle_order(1, RoundOrder::Stop(4));
        assert_eq!(rounds.poll_position(true), at(1, 4, Halt::Stopped));
        rounds.handle_order(2, RoundOrder::Leave(4));
        assert_eq!(rounds.step(0), Step::Keep);
        rounds.poll_position(true);
        rounds.handle_kept();
        assert_eq!(
            (rounds.step(0), rounds.poll_position(true)),
            (Step::Wait, at(2, 4, Halt::Left))
        );
        // The controller is another one.
        rounds.handle_lost(9);
        rounds.handle_attached();
        assert_eq!(rounds.poll_position(true), at(2, 4, Halt::Left));
        assert_eq!(rounds.step(u64::MAX), Step::Wait);
        rounds.handle_over();
        assert_eq!(rounds.step(0), Step::End);
    }

    /// A resize was given up, the job went on, and is resized again.
    #[test]
    fn what_was_kept_counts_for_its_own_boundary_only() {
        let mut rounds = Rounds::new(4);
        rounds.handle_order(1, RoundOrder::Leave(4));
        rounds.handle_kept();
        assert_eq!(rounds.position().halt, Halt::Left);
        rounds.handle_order(2, RoundOrder::Go);
        rounds.handle_begin();
        rounds.handle_order(3, RoundOrder::Leave(5));
        assert_eq!((rounds.step(0), rounds.position().halt), (Step::Keep, Halt::Stopped));
    }

    #[test]
    fn a_controller_that_has_gone_is_waited_for_in_a_hold_and_not_beyond() {
        let mut rounds = Rounds::new(4);
        rounds.handle_order(1, RoundOrder::Hold);
        rounds.handle_lost(10);
        assert_eq!(rounds.step(9 + HOLD_TIMEOUT_NS), Step::Wait);
        assert_eq!(rounds.step(10 + HOLD_TIMEOUT_NS), Step::Begin);
        rounds.handle_order(2, RoundOrder::Stop(4));
        assert_eq!(rounds.step(u64::MAX), Step::Wait, "it was told a boundary");
    }
}
