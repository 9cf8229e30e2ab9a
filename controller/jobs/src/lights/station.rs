//! What several tasks share: a link, or the cores of a host.
//!
//! Invariant: the highest band that has tasks is served alone, and shares the whole rate in
//! proportion to the tasks' weights, none above `each_max`. Nothing is lost by going from band to
//! band: the work that is left goes along. A task costs O(log tasks).

use alloc::collections::BinaryHeap;
use core::array;
use core::cmp::Reverse;

use weft_plan::float::ceil;

use crate::bands::BANDS;

/// A task: of which job, and on which host the worker is that it belongs to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Task {
    pub(super) job: usize,
    pub(super) host: usize,
}

/// A link or the cores of a host.
#[derive(Clone, Debug)]
pub(super) struct Station {
    /// What it does in a nanosecond.
    rate: f64,
    /// The most that it does in a nanosecond for a task of weight 1.
    each_max: f64,
    bands: [Band; BANDS as usize],
    now_ns: u64,
    entered: u64,
}

/// The tasks of one band. `served` is what a task of weight 1 would have had since the band was
/// last empty; a task ends when that reaches its `ends_at`.
#[derive(Clone, Debug, Default)]
struct Band {
    tasks: BinaryHeap<Reverse<Entry>>,
    weight: f64,
    served: f64,
}

/// The first to end comes first; of those that end together, the first that entered.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Entry {
    ends_at: Positive,
    order: u64,
    task: Task,
    weight: Positive,
}

/// The bits of a float above 0, which are in the order of their values.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Positive(u64);

impl Positive {
    const fn of(value: f64) -> Self {
        Self(value.to_bits())
    }

    const fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl Station {
    pub(super) fn new(rate: f64, each_max: f64) -> Self {
        let bands = array::from_fn(|_| Band::default());
        Self { rate, each_max, bands, now_ns: 0, entered: 0 }
    }

    /// Begins a task now.
    pub(super) fn enter(&mut self, now_ns: u64, task: Task, band: u8, work: f64, weight: f64) {
        self.advance(now_ns);
        self.entered += 1;
        let order = self.entered;
        self.bands[usize::from(band)].push(task, order, work, weight);
    }

    /// The next instant at which a task ends.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let band = self.bands.iter().find(|band| !band.tasks.is_empty())?;
        let Reverse(first) = band.tasks.peek()?;
        let left = (first.ends_at.value() - band.served).max(0.0);
        Some(self.now_ns + whole_ns(left / self.speed(band)))
    }

    /// Ends the task whose instant [`Station::next_ns`] said, which is now.
    pub(super) fn leave(&mut self, now_ns: u64) -> Option<Task> {
        self.advance(now_ns);
        let band = self.bands.iter_mut().find(|band| !band.tasks.is_empty())?;
        let Reverse(first) = band.tasks.pop()?;
        band.weight -= first.weight.value();
        if band.tasks.is_empty() {
            (band.weight, band.served) = (0.0, 0.0);
        }
        Some(first.task)
    }

    /// Gives every task the band of its job.
    pub(super) fn reband(&mut self, now_ns: u64, band_of: impl Fn(usize) -> u8) {
        self.advance(now_ns);
        let before = core::mem::take(&mut self.bands);
        for band in before {
            for Reverse(entry) in band.tasks {
                let weight = entry.weight.value();
                let work = (entry.ends_at.value() - band.served).max(0.0) * weight;
                let to = usize::from(band_of(entry.task.job));
                self.bands[to].push(entry.task, entry.order, work, weight);
            }
        }
    }

    fn advance(&mut self, now_ns: u64) {
        let span_ns = (now_ns - self.now_ns) as f64;
        self.now_ns = now_ns;
        let Some(at) = self.bands.iter().position(|band| !band.tasks.is_empty()) else { return };
        let speed = self.speed(&self.bands[at]);
        self.bands[at].served += span_ns * speed;
    }

    /// What a task of weight 1 gets in a nanosecond.
    fn speed(&self, band: &Band) -> f64 {
        (self.rate / band.weight).min(self.each_max)
    }
}

impl Band {
    fn push(&mut self, task: Task, order: u64, work: f64, weight: f64) {
        let ends_at = Positive::of(self.served + work / weight);
        self.tasks.push(Reverse(Entry { ends_at, order, task, weight: Positive::of(weight) }));
        self.weight += weight;
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a span of the simulation, which is not negative"
)]
fn whole_ns(span_ns: f64) -> u64 {
    ceil(span_ns) as u64
}
