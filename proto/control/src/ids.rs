//! Numbers that a controller and its boxes name things by.

/// Position of an aggregator or a replica among the boxes of a job.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BoxIndex(pub u8);

/// Position of a group in a server's commit sequence. Never used twice (PROTOCOL section 5).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct OrderNumber(pub u64);

/// Version of a model: how many updates have entered it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Version(pub u64);

/// How many times a job's replica took over from its server (SPEC#promotion). Grows only.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ServerEpoch(pub u32);
