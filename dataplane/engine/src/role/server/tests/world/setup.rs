//! What a world is made of: how many workers, which job, which faults; the engines for it.

use alloc::vec;
use alloc::vec::Vec;

use weft_kernel::Kernels;
use weft_wire::header::ElementType;
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{Nanos, Rank};

use super::{
    AGGREGATOR, BOX, ELEMENTS, EXPONENT, JOB, REPLICA, REPLICA_BOX, SERVER, addr, endpoint, learnt,
};
use crate::role::aggregator::Aggregator;
use crate::role::gather::PushConfig;
use crate::role::model::ModelConfig;
use crate::role::push::{Pusher, PusherConfig};
use crate::role::replica::{Replica, ReplicaJobConfig};
use crate::role::server::{Server, ServerJobConfig};
use crate::table::{BoxConfig, Table};

/// How often each fault happens, in parts of 1024.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) duplication: u64,
    pub(crate) corruption: u64,
    pub(crate) jitter_ns: u64,
}

impl Faults {
    pub(crate) const HEAVY: Self =
        Self { loss: 120, duplication: 100, corruption: 40, jitter_ns: 2_000_000 };
}

/// What a world is made of.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) workers: u8,
    pub(crate) updates: u64,
    pub(crate) dimension: usize,
    pub(crate) faults: Faults,
    pub(crate) has_controller: bool,
    pub(crate) group_max: usize,
    pub(crate) element_type: ElementType,
    /// Numbers whose sums depend on the order of addition: the judge compares bits only.
    pub(crate) is_inexact: bool,
    pub(crate) tau_max: u64,
    /// What the test changes about the job.
    pub(crate) adjust: fn(&mut ServerJobConfig),
}

impl Setup {
    pub(crate) fn new(workers: u8) -> Self {
        Self {
            workers,
            updates: 6,
            dimension: 37,
            faults: Faults::default(),
            has_controller: true,
            group_max: usize::from(workers),
            element_type: ElementType::I32,
            is_inexact: false,
            tau_max: 1000,
            adjust: |_| {},
        }
    }

    pub(crate) fn model(&self) -> ModelConfig {
        ModelConfig {
            elements: ELEMENTS,
            exponent: EXPONENT,
            momentum: 0.5,
            ..ModelConfig::new(JOB, self.dimension)
        }
    }

    pub(crate) fn job(&self) -> ServerJobConfig {
        let workers = (1..=self.workers).map(addr).collect();
        let mut job = ServerJobConfig {
            boxes: vec![Some(addr(AGGREGATOR)), Some(addr(REPLICA))],
            replica: Some(REPLICA_BOX),
            tau_max: self.tau_max,
            staging_bytes_max: 1 << 20,
            log_bytes_max: 1 << 20,
            ..ServerJobConfig::new(self.model(), workers)
        };
        (self.adjust)(&mut job);
        job
    }

    fn replica_job(&self) -> ReplicaJobConfig {
        let job = self.job();
        let workers = job.workers.clone();
        ReplicaJobConfig {
            boxes: vec![Some(addr(AGGREGATOR))],
            staging_bytes_max: 1 << 20,
            tau_max: job.tau_max,
            ..ReplicaJobConfig::new(job.model, REPLICA_BOX, learnt(SERVER), workers)
        }
    }

    pub(crate) fn server(&self, seed: u64) -> Server {
        Server::new(endpoint(SERVER), 1500, &[self.job()], seed, Kernels::detect()).unwrap()
    }

    pub(crate) fn replica(&self, seed: u64) -> Replica {
        let job = self.replica_job();
        Replica::new(endpoint(REPLICA), 1500, &[job], seed, Kernels::detect()).unwrap()
    }

    pub(crate) fn push(&self) -> PushConfig {
        PushConfig {
            job: JOB,
            box_index: BOX,
            workers: (1..=self.workers).map(addr).collect(),
            server: learnt(SERVER),
            replica: Some(learnt(REPLICA)),
            quota_bytes: 1 << 20,
            pull_cache_bytes: 1 << 16,
            chunks: self.model().chunks(),
            elements: ELEMENTS,
            element_type: self.element_type,
            overflow: Overflow::Wrap,
            integrity: Integrity::Crc32c,
            exponent: Some(EXPONENT),
            rate_bytes_per_sec: None,
            burst_bytes: 1 << 20,
        }
    }

    pub(crate) fn aggregator(&self, seed: u64) -> Aggregator {
        let table = BoxConfig {
            local: endpoint(AGGREGATOR),
            shards: 1,
            mtu: 1500,
            jobs: Vec::new(),
            rows: Vec::new(),
            pushes: vec![self.push()],
        };
        Aggregator::new(&Table::new(table).unwrap(), 0, seed, Kernels::detect())
    }

    pub(crate) fn pusher(&self, rank: u8, seed: u64) -> Pusher {
        let own = Rank::new(rank).unwrap();
        let mut config = PusherConfig::new(JOB, own, endpoint(rank + 1), learnt(SERVER));
        config.element_type = self.element_type;
        config.updates_max = 2;
        let mut pusher = Pusher::new(config, seed, Nanos(0)).unwrap();
        pusher.add_box(Nanos(0), BOX, learnt(AGGREGATOR), false).unwrap();
        pusher.add_box(Nanos(0), REPLICA_BOX, learnt(REPLICA), true).unwrap();
        pusher
    }
}
