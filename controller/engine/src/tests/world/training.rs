//! Workers that train in a closed loop, as `weft run` has them: pull the model, compute for a time
//! that the seed draws, ask, send, and go on when the server has told what became of it.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weft_control::Mode;
use weft_wire::Rank;

use super::*;
use weft_plan::sample::Numbers;

/// A training run.
#[derive(Clone, Copy, Debug)]
pub(in crate::tests) struct Training {
    pub(in crate::tests) seed: u64,
    /// Computing takes from the first to below the second, uniform.
    pub(in crate::tests) compute_ms: [u64; 2],
    /// Commits after which nobody begins anew.
    pub(in crate::tests) target: u64,
}

/// What became of an update.
#[derive(Clone, Copy, Debug)]
pub(in crate::tests) struct Record {
    /// From asking to being told.
    pub(in crate::tests) took_ns: u64,
    pub(in crate::tests) is_committed: bool,
}

/// A run under way.
#[derive(Clone, Debug)]
pub(super) struct Run {
    training: Training,
    random: BTreeMap<u8, Numbers>,
    /// By rank: the version that it pulls, or works on.
    versions: BTreeMap<u8, u64>,
    asked_ns: BTreeMap<u8, u64>,
    /// Ranks that wait for a version.
    waiting: BTreeMap<u8, u64>,
    records: Vec<Record>,
}

impl World {
    /// All workers of a job begin to train.
    pub(in crate::tests) fn train(&mut self, job: u16, training: Training) {
        let ranks = 0..self.jobs[usize::from(job)].workers.len() as u8;
        let stream = |rank: u8| Numbers::new(training.seed ^ (u64::from(rank) + 1) << 32);
        let run = Run {
            training,
            random: ranks.clone().map(|rank| (rank, stream(rank))).collect(),
            versions: BTreeMap::new(),
            asked_ns: BTreeMap::new(),
            waiting: BTreeMap::new(),
            records: Vec::new(),
        };
        self.runs.insert(job, run);
        for rank in ranks {
            self.pull(job, rank);
        }
    }

    pub(in crate::tests) fn records(&self, job: u16) -> &[Record] {
        &self.runs[&job].records
    }

    fn pull(&mut self, job: u16, rank: u8) {
        let version = self.version(job).0;
        let config = &self.jobs[usize::from(job)];
        let from = self.host_of[&config.server].clone();
        let to = config.workers[usize::from(rank)].host().to_owned();
        let run = self.runs.get_mut(&job).unwrap();
        if version >= run.training.target {
            return;
        }
        run.versions.insert(rank, version);
        self.fly(Moving::Model(job, rank), (&from, &to), (job, None), Vec::new());
    }

    pub(super) fn pulled(&mut self, job: u16, rank: u8) {
        let run = self.runs.get_mut(&job).unwrap();
        let [from, to] = run.training.compute_ms.map(|ms| ms * 1_000_000);
        let compute_ns = run.random.get_mut(&rank).unwrap().within(from, to);
        self.push(self.now_ns + compute_ns, Event::Computed(job, rank));
    }

    pub(super) fn computed(&mut self, job: u16, rank: u8) {
        let id = self.update_ids.entry((job, rank)).or_default();
        *id += 1;
        let update_id = *id;
        let run = self.runs.get_mut(&job).unwrap();
        run.asked_ns.insert(rank, self.now_ns);
        let version = Version(run.versions[&rank]);
        let request =
            TransferRequest { update_id, size_bytes: 0, version, norm: 1.0, max_abs: 1.0 };
        self.ask_with(job, rank, &request).unwrap();
    }

    /// The server, or for a drop the controller, tells a worker.
    pub(super) fn tell(&mut self, job: u16, rank: Rank, committed: Option<u64>) {
        if self.runs.contains_key(&job) {
            let told = Event::Told(job, rank.index() as u8, committed);
            self.push(self.now_ns + MESSAGE_NS, told);
        }
    }

    pub(super) fn told(&mut self, job: u16, rank: u8, committed: Option<u64>) {
        let run = self.runs.get_mut(&job).unwrap();
        let took_ns = self.now_ns - run.asked_ns[&rank];
        run.records.push(Record { took_ns, is_committed: committed.is_some() });
        let config = &self.jobs[usize::from(job)];
        let round = match config.mode {
            Mode::Async => None,
            Mode::Sync => Some(config.workers.len() as u64),
            Mode::Partial => config.partial_count.map(u64::from),
        };
        let last = committed.map_or(run.versions[&rank], |version| version - 1);
        let wanted = round.map_or(0, |size| (last / size + 1) * size);
        run.waiting.insert(rank, wanted);
        self.resume(job);
    }

    /// Those whose version is there pull it.
    pub(super) fn resume(&mut self, job: u16) {
        let version = self.version(job).0;
        let Some(run) = self.runs.get_mut(&job) else { return };
        let ready: Vec<u8> =
            run.waiting.iter().filter(|(_, at)| **at <= version).map(|(rank, _)| *rank).collect();
        for rank in ready {
            self.runs.get_mut(&job).unwrap().waiting.remove(&rank);
            self.pull(job, rank);
        }
    }
}
