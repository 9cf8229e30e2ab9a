//! What a program must not do, with the place where it did.

use core::fmt;

use thiserror::Error;

/// A frame made the program do what a switch does not define.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{place}: {kind}")]
pub struct Fault {
    /// What it did.
    pub kind: FaultKind,
    /// Where in the program.
    pub place: Place,
}

/// Where in a program: the action, table or parser state, and the line of its source.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Place {
    /// Name as in the JSON.
    pub name: String,
    /// File and line, where the compiler says it.
    pub line: Option<(String, u64)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        match &self.line {
            Some((file, line)) => write!(f, " ({file}:{line})"),
            None => Ok(()),
        }
    }
}

/// What a program must not do.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum FaultKind {
    /// BMv2 would give what an earlier packet left there.
    #[error("reads {0}, whose header is invalid")]
    InvalidRead(String),
    /// BMv2 would lose it when the header is made valid.
    #[error("writes {0}, whose header is invalid")]
    InvalidWrite(String),
    /// BMv2 ignores it, or reaches beyond the array.
    #[error("uses index {index} of {array}, which has {size} entries")]
    Index {
        /// Name of the register, counter or meter array.
        array: String,
        /// The index.
        index: u64,
        /// Entries of the array.
        size: u64,
    },
    /// BMv2 aborts, or writes beyond its buffer.
    #[error("the frame grows by {0} bytes; a switch has room for {GROWTH_MAX}")]
    Growth(usize),
    /// BMv2 reads beyond the frame.
    #[error("looks {needed} bytes ahead where {left} are left")]
    LookAhead {
        /// Bytes looked at.
        needed: usize,
        /// Bytes left of the frame.
        left: usize,
    },
    /// The parser, or an action's jumps, would not end.
    #[error("takes more than {STEPS_MAX} steps")]
    Endless,
    /// An `assert` or `assume` of the program.
    #[error("an assertion fails")]
    Assertion,
    /// A shift by a negative number, or a jump to where nothing is.
    #[error("{0} is no count")]
    Count(String),
}

/// Bytes by which a frame may grow in `simple_switch`.
pub(crate) const GROWTH_MAX: usize = 512;

/// Parser states, primitives of an action, or nodes of a pipeline for one frame. An action of a
/// program for 256 elements has some thousands of primitives.
pub(crate) const STEPS_MAX: usize = 65_536;
