//! How a job is run, as far as several processes must agree on it.

use weft_wire::words;

/// Which order a server commits in.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CommitMode {
    /// The order numbers of the plan.
    #[default]
    Order,
    /// As groups are staged: for baselines without a plan. Order numbers are given at the commit.
    Arrival,
}

/// Whom a server lets send.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ConductMode {
    /// The first of the plan that can use a credit: transfers are time-shared.
    #[default]
    InOrder,
    /// All open groups in turn: transfers share the link evenly (a baseline).
    Fair,
}

/// When members are told that their update is committed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AckMode {
    /// At the commit.
    #[default]
    Commit,
    /// When the replica has it too.
    Replica,
}

/// How a job scales updates at the commit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LearningRate {
    /// As they are (equation 2 of MLfabric).
    #[default]
    Plain,
    /// By 1 / max(1, delay), as MLfabric's prototype did (derived).
    InverseDelay,
    /// By sqrt((v + 1) / (v + 1 + delay)) at version v: a step of c / sqrt(t) becomes AdaDelay's
    /// c / sqrt(t + delay) (derived).
    AdaDelay,
}

/// How updates enter the model.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// Each as it comes, at most `tau_max` versions late.
    #[default]
    Async,
    /// Rounds of all workers; no deadlines, no drops; the last commit counts.
    Sync,
    /// Rounds of the first `partial_count`; the rest of a round is dropped.
    Partial,
}

/// Order in which floating-point contributions are added (PROTOCOL section 9).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SumOrder {
    /// As they arrive: fast, not reproducible.
    #[default]
    Arrival,
    /// By rank, at completion: bit-reproducible; takes a row of memory per member and slot.
    Rank,
}

words!(CommitMode, "commit order", { Order = "order", Arrival = "arrival" });
words!(ConductMode, "conduct", { InOrder = "in_order", Fair = "fair" });
words!(AckMode, "acknowledgement", { Commit = "commit", Replica = "replica" });
words!(LearningRate, "learning rate", {
    Plain = "plain",
    InverseDelay = "inverse_delay",
    AdaDelay = "ada_delay",
});
words!(Mode, "mode", { Async = "async", Sync = "sync", Partial = "partial" });
words!(SumOrder, "order of sums", { Arrival = "arrival", Rank = "rank" });
