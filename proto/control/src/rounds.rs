//! What a controller and the workers of an allreduce tell each other of their rounds, so that all
//! stop before the same one.

/// The workers that a job runs with between two resizes; the first one is 0.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct CohortId(pub u32);

/// What the workers of a cohort are told first: their lease is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cohort {
    /// Which.
    pub id: CohortId,
    /// How many they are.
    pub workers: u16,
    /// How many the job began with: the learning rate is the job's, times `workers` over this.
    pub workers_first: u16,
    /// The round that they begin with; above 0 they begin from the checkpoint of that round.
    pub from_round: u64,
}

/// What a worker may do about its rounds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RoundOrder {
    /// Begin one after the other.
    Go,
    /// Begin none any more, and say which would be the next.
    Hold,
    /// Begin those before this one, and say when none of them is left.
    Stop(u64),
    /// As `Stop`; then keep a checkpoint, and say so. The cohort is over.
    Leave(u64),
    /// The cohort is over, and what it kept is known: end.
    Bye,
}

/// What a worker is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RoundWord {
    /// Who its cohort is: first, and once on each stream.
    Cohort(Cohort),
    /// What it may do, with the number of the order.
    Order(u32, RoundOrder),
}

/// How far a worker has come with its order.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Halt {
    /// It begins rounds.
    #[default]
    None,
    /// It begins none before it hears more.
    Held,
    /// It has all rounds before the one that it was told, and begins no other.
    Stopped,
    /// And has kept its checkpoint.
    Left,
}

/// Where a worker is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RoundPosition {
    /// Number of the order that it follows, on this stream; 0: none yet.
    pub turn: u32,
    /// The round that it begins next. All before have begun, and all but the last have ended.
    pub next: u64,
    /// How far it has come.
    pub halt: Halt,
}
