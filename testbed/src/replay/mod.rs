//! Frames through a node's engines again, offline: what came out is compared with what came out
//! when it was recorded.
//!
//! | module | what it does |
//! | --- | --- |
//! | `load` | reads a recording (`weft_node::record`), and refuses what is damaged or too new |
//! | `play` | makes the engines of a recording and has them meet what is in its logs |
//! | `recorded` | the frames of a lane, as a script, and what is compared with what leaves |
//! | `net_pcap` | a port of DPDK's whose frames come from a recording |
//! | `no_net_pcap` | what a build without DPDK says instead |
//! | `port` | a port whose frames come from a capture and go to a comparison |
//! | `tape` | gives drawn numbers back by their label |
//! | `difference` | says in which field a frame differs (pure) |
//! | `foreign` | captures of somebody else against a configuration |
//! | `keeps` | the engines of a recording, and what a server keeps |
//! | `member` | shakes hands where a capture does not, and in hand-made recordings |
//! | `options` | what to do, and what came of it |
//!
//! Invariants: nothing here reads a clock for an engine, or opens a port; the same input gives the
//! same output (I10). An input that is damaged is one error that names file and place.

mod difference;
mod foreign;
mod keeps;
mod load;
mod member;
#[cfg(feature = "dpdk")]
mod net_pcap;
#[cfg(not(feature = "dpdk"))]
mod no_net_pcap;
mod options;
mod play;
mod port;
mod recorded;
mod tape;

use std::path::Path;
use std::time::Instant;

#[cfg(not(feature = "dpdk"))]
use no_net_pcap as net_pcap;

pub use difference::{Difference, FieldError, Fields};
pub use foreign::{OUTER, replay_captures};
pub use load::ReplayError;
pub use member::Member;
pub use options::{Carrier, Options, Outcome, Speed};

/// Replays a recording.
///
/// # Errors
/// [`ReplayError`]: a recording that cannot be read. A difference is none.
pub fn replay(directory: &Path, options: &Options) -> Result<Outcome, ReplayError> {
    let started = Instant::now();
    let mut recording = load::Recording::read(directory, options.partial)?;
    let mut outcome = play::play(&mut recording, options)?;
    outcome.judge(started.elapsed().as_secs_f64());
    Ok(outcome)
}
