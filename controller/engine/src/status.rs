//! What a controller counts, for reports.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;
use weft_control::figures::BoxFigures;
use weft_control::{BandPolicy, Holding, JobState};
use weft_plan::case::HostId;
use weft_wire::JobId;

use super::Controller;
use super::bands::BandStatus;
use super::job::JobCounters;
use super::message::{NodeId, explain};
use super::reduce::ReduceStatus;
use super::steered::PauseStatus;

mod work;

pub use work::{GroupStatus, WorkerStatus};

/// All figures at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Jobs by index.
    pub jobs: Vec<JobStatus>,
    /// Allreduce jobs by index.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reduces: Vec<ReduceStatus>,
    /// Hosts by name.
    pub hosts: Vec<HostStatus>,
    /// Racks by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub racks: Vec<HostStatus>,
    /// Boxes as configured.
    pub nodes: Vec<NodeStatus>,
    /// Plans computed.
    pub plans: u64,
    /// Refused messages, by field.
    pub refused: BTreeMap<&'static str, u64>,
    /// Trains that links were estimated from.
    pub trains: u64,
    /// Probe trains sent over idle links.
    pub probes: u64,
    /// Trains, transfers and counters that showed nothing: uneven, too short, absurd.
    pub samples_refused: u64,
    /// The policy of bands, and how often it was set at run time.
    pub band_policy: BandPolicy,
    /// Time between two rotations.
    pub band_interval_ns: u64,
    /// Rotations since the policy was set.
    pub band_rotations: u64,
    /// How often an operator has set the policy.
    pub band_policy_changes: u64,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobStatus {
    /// Its name.
    pub name: String,
    /// Its index.
    pub job: u16,
    /// Its policy.
    pub policy: String,
    /// What its updates came to.
    #[serde(flatten)]
    pub counters: JobCounters,
    /// Version of its model.
    pub version: u64,
    /// The next order number.
    pub next_order: u64,
    /// Requests not granted.
    pub pending: usize,
    /// Updates granted and not decided.
    pub in_flight: u64,
    /// Its replica, if any.
    pub replica: Option<ReplicaStatus>,
    /// How many times its replica took over from its server, this controller's life or before.
    pub epoch: u32,
    /// It had a replica, which is its server now, or is gone.
    pub is_replica_lost: bool,
    /// The server has a stream to the controller.
    pub is_server_attached: bool,
    /// The box that refused its last group and took none since, and why; empty: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub refusing: String,
    /// Its band on its server's host.
    pub bands: BandStatus,
    /// Whether it runs.
    pub state: JobState,
    /// Its pauses.
    #[serde(flatten)]
    pub pauses: PauseStatus,
    /// Its workers by rank.
    #[serde(skip)]
    pub workers: Vec<WorkerStatus>,
    /// Its first groups that are not decided, in their order.
    #[serde(skip)]
    pub groups: Vec<GroupStatus>,
}

/// A replica.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReplicaStatus {
    /// The next order number that it wants.
    pub order: u64,
    /// Bound of its distance.
    pub divergence_bound: f64,
    /// Whether the bound is held.
    pub is_held: bool,
    /// It has all that workers were told of, and could take its server's place.
    pub is_fit: bool,
}

/// A host or a rack.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// What it can send.
    pub up_bytes_per_sec: u64,
    /// What it can receive.
    pub down_bytes_per_sec: u64,
    /// 0 to 1; 1 where it was configured and nothing less was measured.
    pub confidence: f64,
    /// Bytes of probe trains sent over its uplink.
    pub probe_up_bytes: u64,
    /// And over its downlink.
    pub probe_down_bytes: u64,
    /// What its workers and boxes have received and sent lately, bytes per second; none where not
    /// all of them have said so, and for a rack.
    #[serde(skip)]
    pub carried: Option<(u64, u64)>,
}

/// A box.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// It has a stream to the controller.
    pub is_attached: bool,
    /// Events taken from it.
    pub events: u64,
    /// Commands given to it.
    pub commands: u64,
    /// What it holds for jobs.
    #[serde(skip)]
    pub holdings: Vec<(JobId, Holding)>,
    /// What it has counted, over all its lives that this controller heard of.
    #[serde(skip)]
    pub figures: BoxFigures,
    /// What it was told to hold, lost when it began anew, and does not hold again yet.
    #[serde(skip)]
    pub missing: Vec<(JobId, Holding)>,
}

impl Controller {
    fn host_status(&self, now_ns: u64, probed: &[u64]) -> Vec<HostStatus> {
        let mut hosts = self.links.status(now_ns, probed);
        for (index, host) in (0..).zip(&mut hosts) {
            let id = HostId(index);
            let rates = self.counters.own_rates(id, &self.reporters_on(id));
            host.carried = rates.map(|(received, sent)| (whole(received), whole(sent)));
        }
        hosts
    }

    /// Figures for reports.
    #[must_use]
    pub fn status(&self, now_ns: u64) -> Status {
        let jobs = self.jobs.values().map(|job| JobStatus {
            name: job.config.name.clone(),
            job: job.id.0,
            policy: job.policy.name().to_owned(),
            counters: job.counters,
            version: job.version,
            next_order: job.numbers.next(),
            pending: job.pending.len(),
            in_flight: job.in_flight(&self.groups),
            replica: job.replica.map(|_| ReplicaStatus {
                order: job.replica_progress.order(),
                divergence_bound: job.replica_progress.divergence_bound(),
                is_held: job.replica_progress.is_held(),
                is_fit: self.is_fit(job.id),
            }),
            is_server_attached: self.nodes[job.server.index()].is_attached(),
            epoch: job.promotion.epoch().0,
            refusing: match (job.lost, job.refusing) {
                (Some(lost), _) => format!("{lost}"),
                (None, Some((node, error))) => {
                    format!("{}: {}", self.nodes[node.index()].name(), explain(error))
                }
                (None, None) => String::new(),
            },
            is_replica_lost: job.promotion.is_replica_left() || job.promotion.epoch().0 > 0,
            workers: self.worker_status(now_ns, job),
            groups: work::open_groups(now_ns, job, &self.groups),
            state: job.pause.state(),
            pauses: job.pause.status(),
            bands: self.band_status(job.id),
        });
        let nodes = self.nodes.iter().zip(0..).map(|(node, id)| NodeStatus {
            name: node.name().to_owned(),
            is_attached: node.is_attached(),
            events: node.counts().0,
            commands: node.counts().1,
            holdings: node.holdings().collect(),
            figures: node.told().sum(),
            missing: self.kept.missing(NodeId(id)).collect(),
        });
        let (band_policy, band_interval_ns, band_rotations) = self.bands.policy();
        let (probes, probe_bytes) = self.probes.sent();
        Status {
            jobs: jobs.collect(),
            reduces: self.reduce_status(),
            hosts: self.host_status(now_ns, &probe_bytes),
            racks: self.links.rack_status(now_ns, &probe_bytes),
            nodes: nodes.collect(),
            plans: self.plans,
            refused: self.refusals.clone(),
            trains: self.links.trains().0,
            probes,
            samples_refused: self.links.trains().1.total(),
            band_policy,
            band_interval_ns,
            band_rotations,
            band_policy_changes: self.bands.changes(),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate that is not negative"
)]
const fn whole(rate: f64) -> u64 {
    rate as u64
}
