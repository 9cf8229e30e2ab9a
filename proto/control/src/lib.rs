//! What a controller and its boxes tell each other: commands and events, the groups that they are
//! about, ids and limits. No encoding, no I/O; `weft-rpc` turns it into messages.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod band;
mod command;
mod divergence;
mod dropped;
mod event;
pub mod figures;
mod group;
mod hello;
mod holding;
mod ids;
mod limits;
mod modes;
mod role;
mod rounds;
mod steer;
mod train;

pub use band::{BandError, BandPolicy, JOB_BANDS, LABEL_MAX, LABELS, REST_BAND};
pub use command::{Command, InstallError};
pub use divergence::divergence_bound;
pub use dropped::DropReason;
pub use event::Event;
pub use group::{Decision, GroupDescriptor, GroupMember, is_pushed};
pub use hello::{NodeHello, OpenGroup, RoleState};
pub use holding::{
    Holding, HoldingCommand, HoldingError, JobConfig, MemberConfig, ParentConfig, PushConfig,
    RowConfig,
};
pub use ids::{BoxIndex, OrderNumber, ServerEpoch, Version};
pub use limits::{GROUPS_OPEN_MAX, TRAIN_CHUNKS_MAX, UPDATE_CHUNKS_MAX};
pub use modes::{AckMode, CommitMode, ConductMode, LearningRate, Mode, SumOrder};
pub use role::Role;
pub use rounds::{Cohort, CohortId, Halt, Messages, RoundOrder, RoundPosition, RoundWord};
pub use steer::JobState;
pub use train::{Train, TrainArrival};
