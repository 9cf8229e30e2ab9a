//! What the controller knows of a worker: its stream, its life, and the updates that it asked for.
//!
//! Invariant: update ids of one life grow; a new life begins with none, and with no update under
//! way.

use weft_plan::case::HostId;

/// A worker.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    host: HostId,
    life: Option<u64>,
    is_attached: bool,
    last_update_id: Option<u64>,
    /// Updates asked for that have not come to their end.
    outstanding: usize,
    /// Its last update was dropped.
    is_dropped_before: bool,
    pace: Pace,
}

/// How a worker gets on, for reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Updates asked for.
    pub(crate) requested: u64,
    /// Of these, in the model.
    pub(crate) committed: u64,
    /// When it asked last.
    pub(crate) asked_ns: Option<u64>,
    /// How long after the first worker with the same version it asked, over all requests.
    pub(crate) lag_sum_ns: u64,
}

/// When the newest version was first asked with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FirstAsked {
    version: u64,
    at_ns: Option<u64>,
}

impl FirstAsked {
    /// How far behind the first one a request with this version is.
    pub(crate) fn lag_ns(&mut self, now_ns: u64, version: u64) -> u64 {
        match self.at_ns {
            Some(first_ns) if version <= self.version => now_ns.saturating_sub(first_ns),
            _ => {
                *self = Self { version, at_ns: Some(now_ns) };
                0
            }
        }
    }
}

impl Worker {
    /// A worker that was never here.
    pub(crate) const fn new(host: HostId, is_dropped_before: bool) -> Self {
        let (life, last_update_id) = (None, None);
        let pace = Pace { requested: 0, committed: 0, asked_ns: None, lag_sum_ns: 0 };
        let is_attached = false;
        Self { host, life, is_attached, last_update_id, outstanding: 0, is_dropped_before, pace }
    }

    pub(crate) const fn host(&self) -> HostId {
        self.host
    }

    /// True while it has a stream.
    pub(crate) const fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// It attaches in this life. True when another one was here before.
    pub(crate) fn attach(&mut self, life: u64) -> bool {
        let is_new = self.life.replace(life).is_some_and(|before| before != life);
        self.is_attached = true;
        if is_new {
            self.last_update_id = None;
            self.outstanding = 0;
        }
        is_new
    }

    /// Its stream has ended.
    pub(crate) fn detach(&mut self) {
        self.is_attached = false;
    }

    /// True when this life asked for an update with this id, or a later one.
    pub(crate) fn has_used(&self, update_id: u64) -> bool {
        self.last_update_id.is_some_and(|last| update_id <= last)
    }

    /// Updates asked for that have not come to their end.
    pub(crate) const fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// It asks for an update.
    pub(crate) fn ask(&mut self, update_id: u64) {
        self.last_update_id = Some(update_id);
        self.outstanding += 1;
    }

    /// How it gets on.
    pub(crate) const fn pace(&self) -> Pace {
        self.pace
    }

    /// It asked now, so long after the first with the same version.
    pub(crate) fn note_request(&mut self, now_ns: u64, lag_ns: u64) {
        self.pace.requested += 1;
        self.pace.asked_ns = Some(now_ns);
        self.pace.lag_sum_ns = self.pace.lag_sum_ns.saturating_add(lag_ns);
    }

    /// An update of it is in the model.
    pub(crate) fn note_commit(&mut self) {
        self.pace.committed += 1;
    }

    /// An update has come to its end.
    pub(crate) fn end_update(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    /// True when its last update was dropped.
    pub(crate) const fn is_dropped_before(&self) -> bool {
        self.is_dropped_before
    }

    /// A plan grants its update, or drops it.
    pub(crate) fn note_decision(&mut self, is_drop: bool) {
        self.is_dropped_before = is_drop;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_after_the_first_of_its_version_lags_behind() {
        let mut first = FirstAsked::default();
        let lags = [(10, 0), (14, 0), (20, 1), (25, 0), (29, 1)];
        let found = lags.map(|(now_ns, version)| first.lag_ns(now_ns, version));
        // One that still has version 0 is as late as its model is old.
        assert_eq!(found, [0, 4, 0, 5, 9]);
    }

    #[test]
    fn a_new_life_begins_without_updates_and_with_its_last_decision() {
        let mut worker = Worker::new(HostId(3), false);
        assert!(!worker.attach(1) && worker.is_attached());
        worker.ask(4);
        worker.ask(6);
        worker.end_update();
        assert_eq!((worker.host(), worker.outstanding()), (HostId(3), 1));
        assert!(worker.has_used(6) && worker.has_used(5) && !worker.has_used(7));
        worker.note_decision(true);
        worker.detach();
        assert!(!worker.attach(1), "the same life");
        assert_eq!((worker.outstanding(), worker.has_used(6)), (1, true));
        assert!(worker.attach(2));
        assert_eq!((worker.outstanding(), worker.has_used(6)), (0, false));
        assert!(worker.is_dropped_before());
        worker.note_decision(false);
        assert!(!worker.is_dropped_before() && Worker::new(HostId(0), true).is_dropped_before());
    }
}
