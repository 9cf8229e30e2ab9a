//! Words that a server's section chooses from.

use serde::{Deserialize, Serialize};
use weft_control::{AckMode, CommitMode, ConductMode, LearningRate};

names! {
    /// How delays scale updates at the commit.
    LearningRateName => LearningRate {
        /// They do not.
        #[default]
        Plain,
        /// By 1 / max(1, delay) (derived).
        InverseDelay,
        /// By sqrt((v + 1) / (v + 1 + delay)) at version v (derived).
        AdaDelay,
    }
}

names! {
    /// Which order a server commits in.
    CommitName => CommitMode {
        /// The order numbers of the plan.
        #[default]
        Order,
        /// As groups are staged: for baselines.
        Arrival,
    }
}

names! {
    /// Whom a server lets send.
    ConductName => ConductMode {
        /// The first of the plan that can use a credit.
        #[default]
        InOrder,
        /// All open groups in turn: for baselines.
        Fair,
    }
}

names! {
    /// When updates are acknowledged.
    AckName => AckMode {
        /// At the commit.
        #[default]
        Commit,
        /// When the replica has it too.
        Replica,
    }
}
