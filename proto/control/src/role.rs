//! What a box does in a job.

/// What a box does in a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// Holds the model and commits.
    Server,
    /// Holds the second copy.
    Replica,
    /// Sums groups.
    Aggregator,
}

weft_wire::words!(Role, "role", {
    Server = "server",
    Replica = "replica",
    Aggregator = "aggregator",
});
