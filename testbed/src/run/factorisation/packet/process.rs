//! A process and its threads: what each does, what it waits for, and how long calls took.

use weft_client::keys::Histogram;
use weft_wire::Nanos;

use super::call::{Call, Wish, parts};
use crate::run::factorisation::message::TableSummary;
use crate::run::factorisation::script::Action;
use crate::workload::factorisation::Entry;

pub(super) struct Process<'a> {
    pub(super) has_joined: bool,
    pub(super) threads: Vec<Thread<'a>>,
    /// Threads at the gate.
    pub(super) waiting: usize,
    /// All are, and the clock's adds are not all at their rows yet.
    pub(super) is_settling: bool,
    pub(super) times: Times,
    /// When the epoch began, and the bytes of the link when the first one did and the last ended.
    pub(super) begun: Nanos,
    pub(super) carried: [Option<(u64, u64)>; 2],
}

/// How long calls took, by key, of rows that were not here.
#[derive(Default)]
pub(super) struct Times {
    pub(super) pull: Histogram,
    pub(super) push: Histogram,
    pub(super) localize: Histogram,
}

pub(super) struct Thread<'a> {
    pub(super) script: Box<dyn Iterator<Item = Action<'a>> + 'a>,
    pub(super) doing: Doing<'a>,
    /// Localizes that come meanwhile.
    pub(super) coming: Vec<Call>,
    /// Calls of a long list of keys that are still to be made.
    pub(super) later: Vec<Vec<u64>>,
    /// When it runs again, if it does not wait for anybody.
    pub(super) due: Option<Nanos>,
    pub(super) is_over: bool,
}

pub(super) enum Doing<'a> {
    Next,
    Calling(Call, Then<'a>),
    /// Goes through an entry, and pushes then.
    Learning(Call, &'a Entry),
    Awaiting,
}

/// What a call is for.
#[derive(Clone, Copy)]
pub(super) enum Then<'a> {
    Nothing,
    Learn(&'a Entry),
    Keep,
}

/// When a thread of a process runs: when, of which, which.
pub(super) type Run = (Nanos, usize, usize);

impl Thread<'_> {
    /// Runs again at this time, unless it is to run anyway.
    pub(super) fn wake(&mut self, (place, thread): (usize, usize), at: Nanos, next: &mut Vec<Run>) {
        if self.due.is_none() {
            self.due = Some(at);
            next.push((at, place, thread));
        }
    }

    /// What it waits for is done, or the engine may have room for more of it.
    pub(super) fn can_go_on(&self) -> bool {
        match &self.doing {
            Doing::Calling(call, _) => call.is_done() || call.is_held_up(),
            Doing::Awaiting => {
                let mut coming = self.coming.iter();
                coming.all(Call::is_done) || self.coming.iter().any(Call::is_held_up)
            }
            _ => false,
        }
    }
}

impl Process<'_> {
    pub(super) fn wake_all(&mut self, place: usize, at: Nanos, next: &mut Vec<Run>) {
        for (number, thread) in self.threads.iter_mut().enumerate() {
            thread.wake((place, number), at, next);
        }
    }

    /// A key is done.
    pub(super) fn take_done(&mut self, name: u64, value: Option<Vec<f32>>, now: Nanos) {
        let (place, of) = parts(name);
        let Times { pull, push, localize } = &mut self.times;
        let worker = &mut self.threads[place];
        let call = match (of.checked_sub(1), &mut worker.doing) {
            (Some(of), _) => &mut worker.coming[of],
            (None, Doing::Calling(call, _)) => call,
            // Of a call that has failed.
            (None, _) => return,
        };
        let times = match call.wish {
            Wish::Pull => pull,
            Wish::Push | Wish::Set => push,
            Wish::Localize => localize,
        };
        call.done(name, value, Some(times), now);
    }

    pub(super) fn summary(&self) -> TableSummary {
        let classes = |histogram: &Histogram| histogram.classes().collect();
        let [first, last] = self.carried.map(Option::unwrap_or_default);
        TableSummary {
            pull_remote: classes(&self.times.pull),
            push_remote: classes(&self.times.push),
            localize: classes(&self.times.localize),
            rx_bytes: last.0.saturating_sub(first.0),
            tx_bytes: last.1.saturating_sub(first.1),
            ..TableSummary::default()
        }
    }
}
