//! Decides whose a tree is: a mark that the kernel keeps with it, made of the node's name. By it
//! the next life of a node finds what an earlier one left in another place, because its file was
//! changed meanwhile, and nobody has to keep a record. No I/O.
//!
//! Weft's own root has the mark as its `r2q`, which says nothing where each class has a quantum of
//! its own; under somebody else's class a class of an own number has it.
//!
//! Invariant: of a tree without the mark, and of one whose node has another name, nothing is said.

use serde_json::Value;
use weft_control::{BandError, REST_BAND};

use super::{ClassId, OWN_MAJOR, Problem, read};

/// Whose a tree is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::bands) struct Mark(u32);

impl Mark {
    /// Of the node of this name: FNV-1a, the same in every version.
    #[must_use]
    pub(in crate::bands) fn of(name: &str) -> Self {
        let fold = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
        Self(name.bytes().fold(2_166_136_261, fold))
    }

    /// As the `r2q` of a root: 29 bits, and never what others have there.
    pub(super) const fn r2q(self) -> u32 {
        self.0 & 0x1fff_ffff | 0x2000_0000
    }

    /// Whether a root of this `r2q` was made by a node, of whatever name.
    pub(super) const fn is_one(r2q: u64) -> bool {
        r2q & 0xe000_0000 == 0x2000_0000
    }

    /// As the number of a class: 15 bits, above all those of jobs.
    pub(super) const fn minor(self) -> u16 {
        (self.0 & 0x7fff) as u16 | 0x8000
    }

    /// The class that the mark hangs on, from `tc class show`.
    #[must_use]
    pub(in crate::bands) fn parent(self, classes: &str, major: u16) -> Option<ClassId> {
        let id = ClassId { major, minor: self.minor() };
        let mut lines = classes.lines().filter_map(read::class);
        let class = lines.find(|class| class.id == id && class.is_of(REST_BAND))?;
        class.parent
    }
}

/// Where an earlier life may have left something.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::bands) enum Trace {
    /// A root of its own on this interface.
    Own(String),
    /// Perhaps classes under a root of somebody else, with this handle.
    Perhaps(String, u16),
}

/// Reads all roots of the host from `tc -j qdisc show`.
///
/// # Errors
/// The words are not `tc`'s.
pub(in crate::bands) fn traces(qdiscs: &str, mark: Mark) -> Result<Vec<Trace>, Problem> {
    let failed = |error| Problem::new(BandError::Failed, format!("`tc -j qdisc show`: {error}"));
    let listed: Vec<Value> = serde_json::from_str(qdiscs).map_err(failed)?;
    let trace = |qdisc: &Value| {
        if qdisc["root"] != true || qdisc["kind"] != "htb" {
            return None;
        }
        let device = qdisc["dev"].as_str()?.to_owned();
        let major = qdisc["handle"].as_str().and_then(ClassId::parse)?.major;
        let has_mark = qdisc["options"]["r2q"].as_u64() == Some(mark.r2q().into());
        match major {
            OWN_MAJOR => has_mark.then_some(Trace::Own(device)),
            major => Some(Trace::Perhaps(device, major)),
        }
    };
    Ok(listed.iter().filter_map(trace).collect())
}
