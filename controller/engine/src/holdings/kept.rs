//! What boxes shall hold for jobs because somebody said so: kept until it is taken back, whatever
//! becomes of boxes and controller.
//!
//! A box that begins anew holds only what its own file has; the rest it is told again, shares
//! before leases. What it refuses then is asked for again in a while. Invariants: what somebody
//! heard that it is held is kept; what somebody heard that it is not, is not; of what nobody heard
//! an answer the box's next hello decides. At most [`KEPT_MAX`] are kept (I8).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use weft_control::{Event, Holding, HoldingCommand, HoldingError};
use weft_wire::JobId;

use crate::message::NodeId;
use crate::saved::SavedHolding;

/// What it is about: whose, and what.
pub(crate) type Key = (NodeId, JobId, Holding);

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    entries: BTreeMap<Key, Entry>,
    is_unsaved: bool,
}

#[derive(Debug)]
struct Entry {
    install: HoldingCommand,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// The box was told to hold it, and has not answered.
    Told,
    Held,
    /// The box was told to hold it no more, and has not answered.
    Leaving,
    /// It has gone with the box's last life: asked for again at this time, which it once refused
    /// if `is_refused`.
    Missing {
        retry_ns: u64,
        is_refused: bool,
    },
}

impl Kept {
    /// Whether another one may be told.
    pub(crate) fn has_room(&self) -> bool {
        self.entries.len() < KEPT_MAX
    }

    /// The box is told to install or to remove it.
    pub(crate) fn tell(&mut self, node: NodeId, command: &HoldingCommand) {
        let key = (node, command.job(), command.holding());
        match (self.entries.get_mut(&key), command.is_install()) {
            (Some(entry), false) => entry.state = State::Leaving,
            (None, false) => return,
            // Of one that is there already the box says so, and keeps it as it is.
            (Some(_), true) => return,
            (None, true) => {
                let told = Entry { install: command.clone(), state: State::Told };
                self.entries.insert(key, told);
            }
        }
        self.is_unsaved = true;
    }

    /// The box answers.
    pub(crate) fn hear(&mut self, now_ns: u64, node: NodeId, job: JobId, event: &Event) {
        let Some(holding) = event.holding() else { return };
        let key = (node, job, holding);
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let before = entry.state;
        let next = match (*event, before) {
            (Event::HoldingInstalled { .. }, State::Leaving) => Some(State::Leaving),
            (Event::HoldingInstalled { .. }, _) => Some(State::Held),
            (Event::HoldingRefused { error: HoldingError::Missing, .. }, State::Leaving)
            | (Event::HoldingRemoved { .. }, _)
            | (Event::HoldingRefused { .. }, State::Told) => None,
            // Another one has it there, or its own file.
            (Event::HoldingRefused { error: HoldingError::Taken, .. }, State::Missing { .. })
            | (Event::HoldingRefused { .. }, State::Leaving | State::Held) => Some(State::Held),
            (_, State::Missing { .. }) => {
                let retry_ns = now_ns.saturating_add(RETRY_NS);
                Some(State::Missing { retry_ns, is_refused: true })
            }
            (_, state) => Some(state),
        };
        self.is_unsaved |= next != Some(before);
        match next {
            Some(state) => entry.state = state,
            None => drop(self.entries.remove(&key)),
        }
    }

    /// The box says all that it holds, on a new stream. `is_awaited`: its answer may still come.
    pub(crate) fn attach(
        &mut self,
        node: NodeId,
        holds: &BTreeSet<(JobId, Holding)>,
        is_awaited: impl Fn(&Key) -> bool,
    ) {
        let mut is_unsaved = false;
        let missing = State::Missing { retry_ns: 0, is_refused: false };
        self.entries.retain(|key, entry| {
            let (of, job, holding) = *key;
            if of != node || is_awaited(key) {
                return true;
            }
            let before = entry.state;
            let is_there = holds.contains(&(job, holding));
            let is_kept = is_there || matches!(before, State::Held | State::Missing { .. });
            entry.state = if is_there { State::Held } else { missing };
            is_unsaved |= !is_kept || before != entry.state;
            is_kept
        });
        self.is_unsaved |= is_unsaved;
    }

    /// Commands for what a box lacks and is to be asked for now. Shares come before leases.
    pub(crate) fn due(
        &self,
        now_ns: u64,
        node: NodeId,
        is_awaited: impl Fn(&Key) -> bool,
    ) -> Vec<HoldingCommand> {
        let is_due =
            |state: State| matches!(state, State::Missing { retry_ns, .. } if retry_ns <= now_ns);
        let of_node = self.of(node).filter(|(key, entry)| is_due(entry.state) && !is_awaited(key));
        of_node.map(|(_, entry)| entry.install.clone()).collect()
    }

    /// When a box that is here is to be asked again.
    pub(crate) fn due_ns(&self, is_here: impl Fn(&Key) -> bool) -> Option<u64> {
        let times = self.entries.iter().filter_map(|(key, entry)| match entry.state {
            State::Missing { retry_ns, .. } if is_here(key) => Some(retry_ns),
            _ => None,
        });
        times.min()
    }

    /// The box has all that is kept for it, or has refused it.
    pub(crate) fn is_settled(&self, node: NodeId) -> bool {
        let is_asked = |state| matches!(state, State::Missing { is_refused: false, .. });
        !self.of(node).any(|(_, entry)| is_asked(entry.state))
    }

    /// What a box is to hold and does not, as far as is known.
    pub(crate) fn missing(&self, node: NodeId) -> impl Iterator<Item = (JobId, Holding)> + '_ {
        let lacks = |(_, entry): &(&Key, &Entry)| matches!(entry.state, State::Missing { .. });
        self.of(node).filter(lacks).map(|((_, job, holding), _)| (*job, *holding))
    }

    /// Whether a box lacks this, and is to have it.
    pub(crate) fn lacks(&self, key: &Key) -> bool {
        let state = self.entries.get(key).map(|entry| entry.state);
        matches!(state, Some(State::Missing { .. }))
    }

    /// Whether a box has leases of a job, is told to have some, or is to have them again.
    pub(crate) fn has_leases(&self, node: NodeId, job: JobId) -> bool {
        let is_it = |(_, of, holding): &Key| *of == job && matches!(holding, Holding::Row(_));
        self.of(node).any(|(key, entry)| is_it(key) && entry.state != State::Leaving)
    }

    /// It makes no sense any more.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.is_unsaved |= self.entries.remove(key).is_some();
    }

    fn of(&self, node: NodeId) -> impl Iterator<Item = (&Key, &Entry)> {
        let first = (node, JobId(0), Holding::Job);
        self.entries.range(first..).take_while(move |((of, ..), _)| *of == node)
    }

    /// Something has changed that the next life must know. Asked once.
    pub(crate) fn take_unsaved(&mut self) -> bool {
        core::mem::take(&mut self.is_unsaved)
    }

    /// What is to be saved. Of a command without an answer only that it may be held.
    pub(crate) fn save(&self, name: impl Fn(NodeId) -> alloc::string::String) -> Vec<SavedHolding> {
        let saved = |((node, ..), entry): (&Key, &Entry)| SavedHolding {
            node: name(*node),
            install: entry.install.clone(),
            is_certain: matches!(entry.state, State::Held | State::Missing { .. }),
        };
        self.entries.iter().map(saved).collect()
    }

    /// What a former life saved. One of a box that is not there, or that installs nothing, is
    /// forgotten.
    pub(crate) fn restored(saved: &[SavedHolding], node: impl Fn(&str) -> Option<NodeId>) -> Self {
        let mut kept = Self::default();
        for SavedHolding { node: name, install, is_certain } in saved.iter().take(KEPT_MAX) {
            let Some(id) = node(name).filter(|_| install.is_install()) else { continue };
            let key = (id, install.job(), install.holding());
            let state = if *is_certain { State::Held } else { State::Told };
            kept.entries.insert(key, Entry { install: install.clone(), state });
        }
        kept
    }
}

/// What is kept for all boxes together.
const KEPT_MAX: usize = 4096;
/// How long a box that refused what it held before is left alone about it.
const RETRY_NS: u64 = 1_000_000_000;
