//! How a job came to its server, and whether its replica could take the server's place.
//!
//! Invariants: the epoch only grows; a replica that was left, or that its server never confirmed,
//! is not followed, and no word makes it so again; at most one promotion is under way.

use alloc::borrow::ToOwned;

use weft_control::ServerEpoch;

use crate::message::NodeId;
use crate::saved::SavedJob;

/// How it stands with the server of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promotion {
    /// How many times the job got another server.
    epoch: ServerEpoch,
    /// The server before the present one.
    former: Option<NodeId>,
    pending: Option<Pending>,
    is_replica_left: bool,
    is_replica_confirmed: bool,
    is_stranded: bool,
}

/// The replica was told to take over, and has not answered yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    order: u64,
    asked_ns: u64,
}

impl Promotion {
    /// As a controller before this one left it. What that began is asked again at once.
    pub(crate) fn restored(saved: &SavedJob, former: Option<NodeId>) -> Self {
        Self {
            epoch: ServerEpoch(saved.epoch),
            former,
            pending: saved.promoting.map(|order| Pending { order, asked_ns: 0 }),
            is_replica_left: saved.is_replica_left,
            is_replica_confirmed: saved.is_replica_confirmed || saved.promoting.is_some(),
            is_stranded: false,
        }
    }

    /// What a later controller must know of it; `server` is the job's.
    pub(crate) fn save(&self, server: &str, saved: &mut SavedJob) {
        saved.epoch = self.epoch.0;
        saved.server = self.former.map(|_| server.to_owned());
        saved.promoting = self.pending.map(|pending| pending.order);
        saved.is_replica_left = self.is_replica_left;
        saved.is_replica_confirmed = self.is_replica_confirmed;
    }

    pub(crate) const fn epoch(&self) -> ServerEpoch {
        self.epoch
    }

    /// The server before the present one.
    pub(crate) const fn former(&self) -> Option<NodeId> {
        self.former
    }

    /// True while the replica was told to take over, and has not answered.
    pub(crate) const fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// When the replica was last told to take over.
    pub(crate) fn asked_ns(&self) -> Option<u64> {
        self.pending.map(|pending| pending.asked_ns)
    }

    /// Whether an answer with this epoch and first order number is to what was asked; none while
    /// nothing was.
    pub(crate) fn is_answer(&self, epoch: ServerEpoch, order: u64) -> Option<bool> {
        let is_next = epoch.0 == self.epoch.0 + 1;
        self.pending.map(|pending| is_next && order >= pending.order)
    }

    /// Begins a promotion, or repeats it with the order number that it began with. Returns that
    /// number and whether it is the first time.
    pub(crate) fn ask(&mut self, now_ns: u64, first_order: u64) -> (u64, bool) {
        let order = self.pending.map_or(first_order, |pending| pending.order);
        let is_first = self.pending.replace(Pending { order, asked_ns: now_ns }).is_none();
        (order, is_first)
    }

    /// The replica is the server. False for an epoch that is past.
    pub(crate) fn complete(&mut self, epoch: ServerEpoch, former: NodeId) -> bool {
        if epoch <= self.epoch {
            return false;
        }
        self.former = Some(former);
        self.epoch = epoch;
        self.pending = None;
        self.is_stranded = false;
        true
    }

    /// The promotion that is under way is off.
    pub(crate) fn cancel(&mut self) {
        self.pending = None;
    }

    /// The controller was away: what was asked was asked later.
    pub(crate) fn shift(&mut self, shift: impl FnOnce(&mut u64)) {
        if let Some(pending) = &mut self.pending {
            shift(&mut pending.asked_ns);
        }
    }

    /// True when acknowledgements do not wait for the replica any more.
    pub(crate) const fn is_replica_left(&self) -> bool {
        self.is_replica_left
    }

    /// Acknowledgements do not wait for the replica any more. True when that is new.
    pub(crate) fn leave_replica(&mut self) -> bool {
        !core::mem::replace(&mut self.is_replica_left, true)
    }

    /// The server said that it has not left its replica: to this controller, or to one before it
    /// whose state this one has. True when that is new.
    pub(crate) fn confirm_replica(&mut self) -> bool {
        !core::mem::replace(&mut self.is_replica_confirmed, true)
    }

    /// True when acknowledgements wait for the replica, as its server said.
    pub(crate) const fn is_replica_followed(&self) -> bool {
        self.is_replica_confirmed && !self.is_replica_left
    }

    /// True once it was said that no box can take over.
    pub(crate) const fn is_stranded(&self) -> bool {
        self.is_stranded
    }

    /// No box can take over.
    pub(crate) fn strand(&mut self) {
        self.is_stranded = true;
    }

    /// The server is back.
    pub(crate) fn resume(&mut self) {
        self.is_stranded = false;
    }
}
