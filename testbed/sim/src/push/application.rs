//! What workers compute, and who watches the system: of a seed, small numbers that must come out
//! exactly; of a run, a training.

use weft_control::{Command, Decision, Event, GroupDescriptor, Version};
use weft_engine::role::push::Values;
use weft_wire::{JobId, Nanos};

use super::node::BoxNode;
use super::scenario::{Action, Control, Scenario};
use super::topology;
use super::worker::{WorkerNode, WorkerOutput};
use crate::hash;
use crate::links::Links;

/// Which worker, and how it stands.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Its job.
    pub job: usize,
    /// Its rank.
    pub rank: usize,
    /// Its life.
    pub life: u64,
    /// Its updates that are in the model.
    pub committed: u32,
    /// Its updates that are not decided.
    pub under_way: usize,
}

/// What a worker does that has no model under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// It pulls a model, newer than a version.
    Pull(Option<Version>),
    /// It leaves.
    Leave,
    /// It waits for the outcome of an update.
    Wait,
}

/// An update.
#[derive(Clone, Debug)]
pub struct Update {
    /// How long it took to compute.
    pub span: Nanos,
    /// What is sent.
    pub values: Values,
    /// The same, in units of 2^[`topology::EXPONENT`]; empty where somebody else judges models.
    pub units: Vec<i32>,
    /// Euclidean norm, and largest magnitude.
    pub norm: f64,
    /// Largest magnitude.
    pub max_abs: f64,
}

/// What the system works for.
pub trait Application {
    /// What a worker does next.
    fn next(&mut self, now: Nanos, worker: Standing) -> Next;

    /// A worker has this version of the model: the update that it computes on it, under a number,
    /// if it wants to go on.
    fn compute(
        &mut self,
        now: Nanos,
        worker: Standing,
        number: u64,
        model: (Version, &[f32]),
    ) -> Option<Update>;

    /// A worker says something, to whomever. By default nobody listens.
    fn said(&mut self, now: Nanos, worker: Standing, said: &WorkerOutput) {
        let _ = (now, worker, said);
    }

    /// A worker hears what became of an update, before anything follows from it. By default
    /// nobody listens.
    fn decided(&mut self, now: Nanos, worker: Standing, decision: Decision) {
        let _ = (now, worker, decision);
    }

    /// The first chunk of a worker's update leaves. By default nobody wants to know.
    fn started(&mut self, now: Nanos, worker: Standing, number: u64) {
        let _ = (now, worker, number);
    }

    /// A box, whose link has brought so many bytes, reports. By default nobody listens.
    fn box_event(&mut self, now: Nanos, node: usize, rx_bytes: u64, about: (JobId, &Event)) {
        let _ = (now, node, rx_bytes, about);
    }

    /// A box hears a command. By default nobody listens.
    fn box_command(&mut self, node: usize, command: &Command) {
        let _ = (node, command);
    }

    /// The controller has a group installed at a box. By default nobody listens.
    fn planned(&mut self, now: Nanos, group: &GroupDescriptor) {
        let _ = (now, group);
    }

    /// What is to be done to a node now. By default the scenario's cues are all.
    fn poll_action(&mut self, now: Nanos) -> Option<Action> {
        let _ = now;
        None
    }

    /// True to end the run before its workers have. By default they end it.
    fn is_over(&mut self, now: Nanos) -> bool {
        let _ = now;
        false
    }

    /// The run has ended; what it leaves. By default nobody looks.
    fn end(&mut self, now: Nanos, boxes: &[BoxNode], workers: &[WorkerNode], links: &Links) {
        let _ = (now, boxes, workers, links);
    }
}

/// The workers of a seed: each commits a number of updates of small integers, and needs no time.
#[derive(Debug)]
pub(super) struct Seeded<'a>(pub(super) &'a Scenario);

impl Application for Seeded<'_> {
    fn next(&mut self, _: Nanos, worker: Standing) -> Next {
        let Scenario { updates, in_flight, .. } = *self.0;
        let under_way = u32::try_from(worker.under_way).expect("few");
        if worker.committed >= updates && under_way == 0 {
            Next::Leave
        } else if worker.under_way < in_flight && worker.committed + under_way < updates {
            Next::Pull(None)
        } else {
            Next::Wait
        }
    }

    fn compute(
        &mut self,
        _: Nanos,
        worker: Standing,
        number: u64,
        _: (Version, &[f32]),
    ) -> Option<Update> {
        let scenario = self.0;
        let words = |element: usize| {
            let word = hash(&[scenario.seed, 9, worker.job as u64, number, element as u64]);
            i32::try_from(word % 17).expect("small") - 8
        };
        let units: Vec<i32> = (0..scenario.dimension()).map(words).collect();
        let unit = f32::from(topology::EXPONENT).exp2();
        // A plan chooses the exponent; integers have theirs.
        let values = if scenario.is_fixed && scenario.control != Control::Engine {
            Values::Integers(units.clone())
        } else {
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let real = |value: &i32| *value as f32 * unit;
            Values::Reals(units.iter().map(real).collect())
        };
        let unit = f64::from(unit);
        let reals = units.iter().map(|value| f64::from(*value) * unit);
        let norm = reals.clone().map(|value| value * value).sum::<f64>().sqrt();
        let max_abs = reals.fold(0.0, |most: f64, value| most.max(value.abs()));
        Some(Update { span: Nanos(0), values, units, norm, max_abs })
    }
}
