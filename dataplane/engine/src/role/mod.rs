//! What a box or a process is to a group.

pub mod worker;
