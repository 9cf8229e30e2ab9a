//! The way to a P4 switch: its tables through P4Runtime, and its CPU port as a
//! [`Port`](weft_io::Port).
//!
//! | file | |
//! | --- | --- |
//! | `program.rs` | which tables and counters a compiled program has, by name; entries in its words |
//! | `client.rs` | the thread that speaks P4Runtime: arbitration, the program, writes, reads, packets |
//! | `port.rs` | packets in and out as frames of a port |
//!
//! Does I/O and decides nothing: what a switch is to hold,
//! [`Agent`](weft_engine::role::switch::Agent) decides. Between a lane and the thread are bounded
//! queues; a frame that finds one full is lost and counted.

mod client;
mod port;
mod program;
#[cfg(test)]
mod tests;

pub use client::{Link, LinkConfig, WAITING_AFTER, connect};
pub use port::SwitchPort;
pub use program::{Program, ProgramError};

/// Why there is no switch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// Nobody answers.
    #[error(
        "reaching the switch at {grpc}: {problem}; is simple_switch_grpc running, and is \
             switch.grpc its --grpc-server-addr?"
    )]
    Unreachable {
        /// Where it was looked for.
        grpc: String,
        /// The last answer.
        problem: String,
    },
    /// Another controller is the switch's primary.
    #[error(
        "the switch at {grpc} has another primary with an election id above or equal to \
             {election_id}: {problem}; stop it, or give switch.election_id a higher number"
    )]
    OtherPrimary {
        /// The switch.
        grpc: String,
        /// The id that was tried.
        election_id: u64,
        /// The switch's words.
        problem: String,
    },
    /// It does not take the program.
    #[error(
        "the switch at {grpc} does not take the program: {problem}; was {program} built for \
             it?"
    )]
    Refused {
        /// The switch.
        grpc: String,
        /// The program.
        program: String,
        /// The switch's words.
        problem: String,
    },
    /// The program's files.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The thread.
    #[error("starting the thread that speaks to the switch: {0}")]
    Thread(#[source] std::io::Error),
    /// The node is to end.
    #[error("told to end before the switch was there")]
    Stopped,
}
