//! Workers: pull, compute by seed, push, until all their updates are decided.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use weft_control::{Decision, Version};
use weft_wire::Nanos;
use weft_wire::header::ElementType;

use super::controller::{GATHER_NS, Request};
use super::{Setup, World};
use crate::random::SplitMix64;
use crate::role::push::{self, NewUpdate, Pusher, Values};

/// A worker and what it is about.
pub(crate) struct Worker {
    pub(crate) pusher: Pusher,
    pub(super) stage: Stage,
    /// Numbers of updates are used once.
    next_number: u64,
    pub(crate) done: u64,
    version: Version,
    /// Updates sent without a controller, whose group the judge does not know yet.
    pub(super) sent_direct: VecDeque<(u64, Version)>,
    seed: u64,
}

impl Worker {
    pub(super) fn new(setup: &Setup, rank: u8, seed: u64) -> Self {
        Self {
            pusher: setup.pusher(rank, seed ^ (u64::from(rank) << 32) ^ 0xabcd),
            stage: Stage::Connecting,
            next_number: 0,
            done: 0,
            version: Version(0),
            sent_direct: VecDeque::new(),
            seed: u64::from(rank) << 40,
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    Connecting,
    Pulling,
    Pushing(u64),
    Done,
}

impl World {
    pub(super) fn poll_worker(&mut self, rank: u8) {
        let now = self.now;
        let place = usize::from(rank);
        while let Some(event) = self.workers[place].pusher.poll_event() {
            match event {
                push::Event::Connected => self.pull(rank),
                push::Event::Pulled { version } => {
                    let dimension = self.setup.dimension;
                    let pulled = self.workers[place].pusher.model()[..dimension].to_vec();
                    let initial = vec![0.0; dimension];
                    let known = self.history.get(&version.0).unwrap_or(&initial);
                    assert_eq!(&pulled, known, "version {version:?} as pulled by {rank}");
                    self.workers[place].version = version;
                    self.begin(rank);
                }
                push::Event::Decided { number, decision } => {
                    self.told.insert((rank, number), decision);
                    let worker = &mut self.workers[place];
                    if decision == Decision::Void {
                        let fresh = worker.next_number;
                        worker.next_number += 1;
                        worker.pusher.renew(number, fresh).unwrap();
                        // The same values go under the fresh number.
                        let version = worker.version;
                        worker.stage = Stage::Pushing(fresh);
                        self.renamed(rank, number, fresh);
                        self.send(rank, fresh, version);
                    } else {
                        worker.pusher.finish(number);
                        worker.done += 1;
                        self.pull(rank);
                    }
                }
                push::Event::Failed(fault) => panic!("worker {rank} at {now:?}: {fault}"),
                _ => {}
            }
        }
    }

    /// A renewed update keeps its values: the judge must find them.
    fn renamed(&mut self, rank: u8, old: u64, fresh: u64) {
        let origin = self.origin(rank, old);
        self.origins.insert((rank, fresh), origin);
    }

    /// The number under which an update was first sent.
    pub(crate) fn origin(&self, rank: u8, number: u64) -> u64 {
        self.origins.get(&(rank, number)).copied().unwrap_or(number)
    }

    /// The values of an update: known to the judge from rank and number alone.
    pub(crate) fn values(&self, rank: u8, number: u64) -> Vec<i32> {
        let mut random = SplitMix64::new(self.workers[usize::from(rank)].seed ^ number);
        let value = |_| i32::try_from(random.next_u64() % 200).unwrap() - 100;
        (0..self.setup.dimension).map(value).collect()
    }

    fn pull(&mut self, rank: u8) {
        let worker = &mut self.workers[usize::from(rank)];
        if worker.done >= self.setup.updates {
            worker.stage = Stage::Done;
            return;
        }
        worker.stage = Stage::Pulling;
        let dimension = self.setup.dimension;
        worker.pusher.begin_pull(self.now, dimension, None, None).unwrap();
    }

    fn begin(&mut self, rank: u8) {
        let place = usize::from(rank);
        let number = self.workers[place].next_number;
        self.workers[place].next_number += 1;
        let integers = self.values(rank, number);
        let values = match self.setup.element_type {
            ElementType::F32 => {
                let unit = if self.setup.is_inexact { 0.1 } else { 1.0 };
                let real = |v: &i32| f32::from(i16::try_from(*v).unwrap()) * unit;
                Values::Reals(integers.iter().map(real).collect())
            }
            _ => Values::Integers(integers),
        };
        let version = self.workers[place].version;
        self.workers[place].stage = Stage::Pushing(number);
        let update = NewUpdate { number, version, values };
        self.workers[place].pusher.begin_update(update).unwrap();
        self.send(rank, number, version);
    }

    fn send(&mut self, rank: u8, number: u64, version: Version) {
        if self.setup.has_controller {
            self.requests.push_back(Request { rank, number, version });
            self.plan_at = self.plan_at.min(self.now.saturating_add(Nanos(GATHER_NS)));
        } else {
            let worker = &mut self.workers[usize::from(rank)];
            worker.pusher.send_direct(self.now, number).unwrap();
            worker.sent_direct.push_back((number, version));
        }
    }

    /// A worker is gone, and comes back never.
    pub(crate) fn kill_worker(&mut self, rank: u8) {
        let mute = self.setup.pusher(rank, 1);
        let worker = &mut self.workers[usize::from(rank)];
        worker.pusher = mute;
        worker.pusher.close(self.now);
        worker.stage = Stage::Done;
        self.requests.retain(|request| request.rank != rank);
    }

    /// A worker begins a new life, with what is left of its updates.
    pub(crate) fn restart_worker(&mut self, rank: u8, seed: u64) {
        let pusher = self.setup.pusher(rank, seed);
        let worker = &mut self.workers[usize::from(rank)];
        worker.pusher = pusher;
        worker.stage = Stage::Connecting;
        worker.sent_direct.clear();
        self.requests.retain(|request| request.rank != rank);
    }
}
