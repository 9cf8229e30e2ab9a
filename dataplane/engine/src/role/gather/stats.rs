//! What a job's pushes are counted by (I11). Plain numbers; nothing decides on them.

use crate::figures::figures;

/// What can happen to a whole lease, its slots, or a relayed pull. A simulation that never hit one
/// of them proves too little.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Transition {
    /// A group was installed.
    Install,
    /// A group was refused.
    Refuse,
    /// A lease was freed by the server's ACK.
    FreeByAck,
    /// A lease was freed by the controller.
    FreeByController,
    /// A member left a group by the controller's word, a new life, or a smaller mask.
    Narrow,
    /// EMPTY -> COLLECTING.
    Store,
    /// COLLECTING -> COLLECTING, one more rank.
    Add,
    /// A contribution filled a slot that has its credit: SENT.
    SendOnContribution,
    /// A repeat found COLLECTING.
    RepeatCollecting,
    /// A repeat found SENT.
    RepeatSent,
    /// A frame of a group that is not open, or not with this member.
    RefuseStale,
    /// A credit for an EMPTY slot.
    CreditEmpty,
    /// A credit for a slot that is not full.
    CreditCollecting,
    /// A credit for a full slot: SENT.
    SendOnCredit,
    /// A credit for a SENT slot: the sum again.
    SendAgain,
    /// A credit for a slot that holds a rank outside the mask, or for no slot.
    CreditStale,
    /// First request for a chunk of a version.
    PullAsk,
    /// A further member asked for it.
    PullJoin,
    /// A member asked again before the answer came.
    PullAskAgain,
    /// Answered from memory.
    PullKept,
    /// The server's answer went to all who asked.
    PullAnswer,
    /// The server does not have the version any more.
    PullGone,
}

impl Transition {
    /// Number of transitions.
    pub const COUNT: usize = Self::ALL.len();

    /// Every transition with its name in reports, in the order of the enum.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Install, "install"),
        (Self::Refuse, "refuse"),
        (Self::FreeByAck, "free_by_ack"),
        (Self::FreeByController, "free_by_controller"),
        (Self::Narrow, "narrow"),
        (Self::Store, "store"),
        (Self::Add, "add"),
        (Self::SendOnContribution, "send_on_contribution"),
        (Self::RepeatCollecting, "repeat_collecting"),
        (Self::RepeatSent, "repeat_sent"),
        (Self::RefuseStale, "refuse_stale"),
        (Self::CreditEmpty, "credit_empty"),
        (Self::CreditCollecting, "credit_collecting"),
        (Self::SendOnCredit, "send_on_credit"),
        (Self::SendAgain, "send_again"),
        (Self::CreditStale, "credit_stale"),
        (Self::PullAsk, "pull_ask"),
        (Self::PullJoin, "pull_join"),
        (Self::PullAskAgain, "pull_ask_again"),
        (Self::PullKept, "pull_kept"),
        (Self::PullAnswer, "pull_answer"),
        (Self::PullGone, "pull_gone"),
    ];
}

const _: () = {
    let mut index = 0;
    while index < Transition::COUNT {
        assert!(Transition::ALL[index].0 as usize == index, "ALL is in the order of the enum");
        index += 1;
    }
};

figures! {
    /// Counters of a push job at an aggregator.
    #[derive(Clone, Debug)]
    pub struct PushStats {
        /// Contributions that entered a sum.
        counter contributions_added,
        /// Contributions that were already in the sum.
        counter duplicates,
        /// Contributions with at least one clamped element.
        counter contributions_clamped,
        /// Contributions that met congestion on their way.
        counter contributions_marked,
        /// Chunks whose sum was completed here.
        counter chunks_completed,
        /// Sums sent to the server, repeats included.
        counter sums_sent,
        /// Sums that a replica was to get and did not, because it has no channel.
        counter copies_skipped,
        /// Bytes of frames accepted into slots.
        counter bytes_accepted,
        /// Frames refused by the job's token bucket.
        counter over_quota,
        /// Chunks of the model that members got, each copy counted.
        counter pulls_answered,
        /// Acknowledgements not sent because too many were owed; the member repeats.
        counter haves_lost,
        /// Events that nobody fetched in time.
        counter events_lost,
    }
    besides {
        transitions: [u64; Transition::COUNT] = [0; Transition::COUNT],
    }
}

impl PushStats {
    pub(super) fn count(&mut self, transition: Transition) {
        self.count_many(transition, 1);
    }

    /// Counts what happened elsewhere.
    pub fn count_many(&mut self, transition: Transition, count: u64) {
        self.transitions[transition as usize] += count;
    }

    /// How often `transition` happened.
    #[must_use]
    pub fn of(&self, transition: Transition) -> u64 {
        self.transitions[transition as usize]
    }

    /// Transitions by name, in the order of the enum.
    pub fn transitions(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Transition::ALL.iter().map(|(transition, name)| (*name, self.of(*transition)))
    }
}
