//! How it stands with the server of a job, and with the replica that could take its place.

use weft_control::ServerEpoch;

use crate::message::NodeId;

/// How it stands with the server of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Succession {
    /// How many times the job got another server.
    pub(crate) epoch: ServerEpoch,
    /// The server before the present one.
    pub(crate) former: Option<NodeId>,
    /// The replica was told to take over, and has not answered yet.
    pub(crate) asked: Option<Asked>,
    /// Acknowledgements do not wait for the replica any more.
    pub(crate) is_replica_left: bool,
    /// The server said that it has not left its replica: to this controller, or to one before it
    /// whose state this one has.
    pub(crate) is_vouched: bool,
    /// It was said that nobody can take over.
    pub(crate) is_stranded: bool,
}

/// A promotion under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Asked {
    pub(crate) order: u64,
    pub(crate) asked_ns: u64,
}

impl Asked {
    /// One that a former controller began; it is asked again at once.
    pub(crate) const fn again(order: u64) -> Self {
        Self { order, asked_ns: 0 }
    }
}
