//! Counts what slots went through. It only counts: a sum is complete when its bitmap equals the
//! mask, never by a count (PROTOCOL section 11).

use weft_wire::Nanos;

/// What can happen to a bank. A simulation that never hit one of them proves too little.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Transition {
    /// EMPTY or an old step -> COLLECTING.
    Claim,
    /// COLLECTING -> COLLECTING, one more rank.
    Add,
    /// COLLECTING -> ANSWERED at the root.
    CompleteRoot,
    /// COLLECTING -> SENT at a leaf.
    CompleteLeaf,
    /// SENT -> ANSWERED: the root's answer came.
    AnswerFromRoot,
    /// -> ANSWERED by hand-over after a restart.
    HandOver,
    /// A repeat found COLLECTING.
    RepeatCollecting,
    /// A repeat found SENT.
    RepeatSent,
    /// A repeat found SENT and made the leaf send up again.
    ResendUp,
    /// A repeat found ANSWERED and got the kept answer.
    RepeatAnswered,
    /// A step that may not claim its bank.
    RefuseForeign,
    /// A STATUS for a step that nobody has sent yet.
    StatusUnclaimed,
    /// A formation seeded the slots for fresh members.
    SeedFresh,
    /// A formation seeded the slots for members that resume.
    SeedResumed,
}

impl Transition {
    /// Number of transitions.
    pub const COUNT: usize = Self::ALL.len();

    /// Every transition with its name in reports, in the order of the enum.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Claim, "claim"),
        (Self::Add, "add"),
        (Self::CompleteRoot, "complete_root"),
        (Self::CompleteLeaf, "complete_leaf"),
        (Self::AnswerFromRoot, "answer_from_root"),
        (Self::HandOver, "hand_over"),
        (Self::RepeatCollecting, "repeat_collecting"),
        (Self::RepeatSent, "repeat_sent"),
        (Self::ResendUp, "resend_up"),
        (Self::RepeatAnswered, "repeat_answered"),
        (Self::RefuseForeign, "refuse_foreign"),
        (Self::StatusUnclaimed, "status_unclaimed"),
        (Self::SeedFresh, "seed_fresh"),
        (Self::SeedResumed, "seed_resumed"),
    ];
}

const _: () = {
    let mut index = 0;
    while index < Transition::COUNT {
        assert!(Transition::ALL[index].0 as usize == index, "ALL is in the order of the enum");
        index += 1;
    }
};

/// One counter per [`Transition`].
#[derive(Clone, Debug)]
pub struct TransitionCounters([u64; Transition::COUNT]);

impl Default for TransitionCounters {
    fn default() -> Self {
        Self([0; Transition::COUNT])
    }
}

impl TransitionCounters {
    /// Counts one transition.
    pub fn count(&mut self, transition: Transition) {
        self.0[transition as usize] += 1;
    }

    /// Counts the same transition of `count` frames.
    pub fn count_many(&mut self, transition: Transition, count: u64) {
        self.0[transition as usize] += count;
    }

    /// How often `transition` happened.
    #[must_use]
    pub fn of(&self, transition: Transition) -> u64 {
        self.0[transition as usize]
    }

    /// Transitions and counts, in the order of the enum.
    pub fn iter(&self) -> impl Iterator<Item = (Transition, u64)> + '_ {
        Transition::ALL.iter().map(|(transition, _)| (*transition, self.of(*transition)))
    }
}

/// How late a member's contributions come after the first of their step: the straggler report.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Lag {
    /// Contributions counted.
    pub count: u64,
    /// Sum of lags.
    pub total: Nanos,
    /// Largest lag.
    pub max: Nanos,
}

impl Lag {
    /// Counts one contribution that came `lag` after its step's first.
    pub fn count(&mut self, lag: Nanos) {
        self.count += 1;
        // None within a burst, whose frames all came at once.
        if lag > Nanos(0) {
            self.total = self.total.saturating_add(lag);
            self.max = self.max.max(lag);
        }
    }
}
