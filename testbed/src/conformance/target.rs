//! What a script is played to: a box with a port for each peer.

mod bmv2;
mod json;
mod names;
mod rust;
mod switch;
mod swx;

use std::path::PathBuf;

use weft_control::{Command, Event, PushConfig, RowConfig};
use weft_wire::frame::Endpoint;
use weft_wire::hello::Integrity;
use weft_wire::{GroupId, JobId, Nanos};

pub use bmv2::Bmv2;
pub use json::Interpreted;
pub use rust::RustBox;
pub use switch::{Sent, Switch, SwitchBox};
pub use swx::Swx;

/// What a box is to be, and who is at its ports.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The box.
    pub local: Endpoint,
    /// Leases of the file.
    pub rows: Vec<RowConfig>,
    /// Push jobs of the file.
    pub pushes: Vec<PushConfig>,
    /// The peer at each port.
    pub peers: Vec<Endpoint>,
    /// Where compiled P4 programs are.
    pub programs: PathBuf,
}

/// Why a target does not play a script.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refused {
    /// It cannot: not here, or not this.
    Skipped(String),
    /// It should be able to.
    Failed(String),
}

/// Counts by name, in the order of their enumeration.
pub type Counts = Vec<(&'static str, u64)>;

/// A box.
pub trait Target {
    /// The integrity of its push jobs, which a script does not name.
    fn push_integrity(&self) -> Integrity;

    /// Gives it a frame at a port.
    ///
    /// # Errors
    ///
    /// It did what no box may do.
    fn handle(&mut self, now: Nanos, port: usize, frame: &[u8]) -> Result<(), String>;

    /// Lets it do what is due.
    ///
    /// # Errors
    ///
    /// It did what no box may do.
    fn poll(&mut self, now: Nanos) -> Result<(), String>;

    /// The frames that left it since, with their ports.
    fn take(&mut self) -> Vec<(usize, Vec<u8>)>;

    /// Gives it a controller's word.
    ///
    /// # Errors
    ///
    /// It did what no box may do.
    fn command(&mut self, now: Nanos, command: Command) -> Result<(), String>;

    /// What it tells a controller.
    fn event(&mut self) -> Option<(JobId, Event)>;

    /// Frames refused, by reason.
    fn drops(&mut self) -> Counts;

    /// What slots of a job went through; `None` where that cannot be seen.
    fn transitions(&mut self, job: JobId, is_push: bool) -> Option<Counts>;

    /// The state of a chunk's bank; `None` where that cannot be seen.
    fn bank(&mut self, job: JobId, group: GroupId, chunk: u32) -> Option<&'static str>;

    /// Begins anew.
    ///
    /// # Errors
    ///
    /// It could not.
    fn restart(&mut self, now: Nanos) -> Result<(), String>;
}

/// The kinds of target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The Rust engine.
    Rust,
    /// The compiled P4 program in the interpreter, with its agent.
    Json,
    /// The same in `simple_switch`.
    Bmv2,
    /// The program for DPDK's SWX pipeline, with the same agent.
    Swx,
}

impl Kind {
    /// Each with its name.
    pub const ALL: [(Self, &'static str); 4] =
        [(Self::Rust, "rust"), (Self::Json, "json"), (Self::Bmv2, "bmv2"), (Self::Swx, "swx")];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Why it cannot be had here, if it cannot.
    #[must_use]
    pub fn absence(self) -> Option<String> {
        match self {
            Self::Rust | Self::Json => None,
            Self::Bmv2 => Bmv2::absence(),
            Self::Swx => Swx::absence(),
        }
    }

    /// Makes the box of a script.
    ///
    /// # Errors
    ///
    /// It cannot be had here, or cannot do what the script asks for.
    pub fn start(self, setup: &Setup) -> Result<Box<dyn Target>, Refused> {
        if let Some(reason) = self.absence() {
            return Err(Refused::Skipped(reason));
        }
        match self {
            Self::Rust => Ok(Box::new(RustBox::start(setup)?)),
            Self::Json => Ok(Box::new(SwitchBox::<Interpreted>::start(setup)?)),
            Self::Bmv2 => Ok(Box::new(SwitchBox::<Bmv2>::start(setup)?)),
            Self::Swx => Ok(Box::new(SwitchBox::<Swx>::start(setup)?)),
        }
    }
}

/// Where a program is.
#[must_use]
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Room for a frame.
pub const FRAME_LEN_MAX: usize = 1514;
