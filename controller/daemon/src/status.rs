//! Figures for tools and people: gRPC, Prometheus, text and JSON. All from the one [`Snapshot`].

mod metrics;
mod reduces;

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};
use weft_control::JobState;
use weft_controller_engine::{BandStatus, GroupStatus, NodeStatus, WorkerStatus};
use weft_process::listener::serve_page;
use weft_process::metrics::Asked;
use weft_rpc::convert::{figures_to_proto, held_to_proto};
use weft_rpc::v1;
use weft_rpc::v1::status_server::Status as StatusService;

use crate::auth::Refusals;
use crate::core::{CoreSender, Input, Snapshot};
use crate::error::DaemonError;
pub use metrics::write_metrics;
pub(crate) use reduces::resize_to_proto;

/// The service.
#[derive(Clone, Debug)]
pub struct Reader {
    core: CoreSender,
    refusals: Arc<Refusals>,
}

impl Reader {
    /// In front of the core, and of what did not get to it.
    #[must_use]
    pub const fn new(core: CoreSender, refusals: Arc<Refusals>) -> Self {
        Self { core, refusals }
    }

    /// The figures now; none while the controller ends.
    pub async fn read(&self) -> Option<Snapshot> {
        let (answer, answered) = oneshot::channel();
        self.core.send(Input::Read(answer)).await.ok()?;
        let mut snapshot = answered.await.ok()?;
        (snapshot.connections_refused, snapshot.calls_refused) = self.refusals.read();
        Some(snapshot)
    }
}

#[tonic::async_trait]
impl StatusService for Reader {
    async fn read(
        &self,
        _request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusReply>, Status> {
        let snapshot = Self::read(self).await;
        let snapshot = snapshot.ok_or_else(|| Status::unavailable("the controller is ending"))?;
        Ok(Response::new(to_proto(&snapshot)))
    }
}

fn to_proto(snapshot: &Snapshot) -> v1::StatusReply {
    let status = &snapshot.status;
    let jobs = status.jobs.iter().map(|job| {
        let counters = &job.counters;
        v1::JobStatus {
            name: job.name.clone(),
            job: job.job.into(),
            policy: job.policy.clone(),
            requested: counters.requested,
            granted: counters.granted,
            committed: counters.committed,
            voided: counters.voided,
            dropped: counters.dropped,
            cancelled: counters.cancelled,
            aggregated: counters.aggregated,
            version: job.version,
            next_order: job.next_order,
            pending: u32::try_from(job.pending).unwrap_or(u32::MAX),
            in_flight: u32::try_from(job.in_flight).unwrap_or(u32::MAX),
            commit_mean_ns: mean(counters.commit_sum_ns, counters.committed),
            grant_mean_ns: mean(counters.grant_sum_ns, counters.granted),
            delay_max: counters.delay_max,
            replans_failure: counters.replans_failure,
            replans_words: counters.replans_words,
            replans_bands: counters.replans_bands,
            replans_late: counters.replans_late,
            replans_bandwidth: counters.replans_bandwidth,
            replica: job.replica.map(|replica| v1::ReplicaStatus {
                order: replica.order,
                divergence_bound: replica.divergence_bound,
                is_held: replica.is_held,
                is_fit: replica.is_fit,
            }),
            is_server_attached: job.is_server_attached,
            epoch: job.epoch,
            is_replica_lost: job.is_replica_lost,
            installs_refused: counters.installs_refused,
            unreachable: counters.unreachable,
            refusing: job.refusing.clone(),
            workers: job.workers.iter().map(worker_to_proto).collect(),
            groups: job.groups.iter().map(group_to_proto).collect(),
            state: v1::JobState::from(job.state).into(),
            pauses: job.pauses.pauses,
            standstill_last_ns: job.pauses.standstill_last_ns,
            standstill_max_ns: job.pauses.standstill_max_ns,
            label: job.bands.label.into(),
            band: job.bands.band.map(u32::from),
            band_changes: counters.band_changes,
            band_boxes_done: job.bands.boxes_done,
            band_boxes_awaited: job.bands.boxes_awaited,
            band_refused: job.bands.refused.clone(),
        }
    });
    let hosts = status.hosts.iter().map(|host| v1::HostStatus {
        name: host.name.clone(),
        up_bytes_per_sec: host.up_bytes_per_sec,
        down_bytes_per_sec: host.down_bytes_per_sec,
        confidence: host.confidence,
        probe_up_bytes: host.probe_up_bytes,
        probe_down_bytes: host.probe_down_bytes,
        received_bytes_per_sec: host.carried.map(|(received, _)| received),
        sent_bytes_per_sec: host.carried.map(|(_, sent)| sent),
    });
    v1::StatusReply {
        uptime_ns: snapshot.uptime_ns,
        jobs: jobs.collect(),
        hosts: hosts.collect(),
        nodes: status.nodes.iter().map(node_to_proto).collect(),
        reduces: status.reduces.iter().map(reduces::to_proto).collect(),
        plans: status.plans,
        plan_last_ns: snapshot.plan_last_ns,
        plan_max_ns: snapshot.plan_max_ns,
        refused: status
            .refused
            .iter()
            .map(|(field, count)| ((*field).to_owned(), *count))
            .collect(),
        band_policy: v1::BandPolicy::from(status.band_policy).into(),
        band_interval_ns: status.band_interval_ns,
        band_rotations: status.band_rotations,
        band_policy_changes: status.band_policy_changes,
    }
}

fn node_to_proto(node: &NodeStatus) -> v1::NodeStatus {
    let mut told = v1::Telemetry::default();
    figures_to_proto(&node.figures, &mut told);
    v1::NodeStatus {
        name: node.name.clone(),
        is_attached: node.is_attached,
        events: node.events,
        commands: node.commands,
        holdings: node.holdings.iter().map(held_to_proto).collect(),
        drops: told.drops,
        rx_dropped: told.rx_dropped,
        tx_dropped: told.tx_dropped,
        bands: told.bands,
        missing: node.missing.iter().map(held_to_proto).collect(),
    }
}

fn worker_to_proto(worker: &WorkerStatus) -> v1::WorkerStatus {
    v1::WorkerStatus {
        rank: worker.rank.into(),
        host: worker.host.clone(),
        is_attached: worker.is_attached,
        outstanding: u32::try_from(worker.outstanding).unwrap_or(u32::MAX),
        requested: worker.requested,
        committed: worker.committed,
        asked_ago_ns: worker.asked_ago_ns,
        lag_mean_ns: worker.lag_mean_ns,
    }
}

fn group_to_proto(group: &GroupStatus) -> v1::GroupStatus {
    v1::GroupStatus {
        group: group.group,
        order: group.order,
        ranks: group.ranks.iter().copied().map(u32::from).collect(),
        via: group.via.map(u32::from),
        state: group.state.to_owned(),
        age_ns: group.age_ns,
        is_late: group.is_late,
    }
}

const fn mean(sum: u64, count: u64) -> u64 {
    match sum.checked_div(count) {
        Some(mean) => mean,
        None => 0,
    }
}

/// The figures for people.
#[must_use]
pub fn write_text(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let status = &snapshot.status;
    let refused: u64 = status.refused.values().sum();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "up {:.1} s, {} plans (last {:.3} ms, longest {:.3} ms), {refused} messages refused",
        snapshot.uptime_ns as f64 / 1e9,
        status.plans,
        snapshot.plan_last_ns as f64 / 1e6,
        snapshot.plan_max_ns as f64 / 1e6,
    );
    for job in &status.jobs {
        let counters = &job.counters;
        let _ = writeln!(
            text,
            "job {} ({}): version {}, {} asked, {} granted ({} aggregated), {} committed, {} void, \
             {} dropped, {} pending, {} in flight; to grant {:.3} ms, to commit {:.3} ms; delay at \
             most {}",
            job.name,
            job.policy,
            job.version,
            counters.requested,
            counters.granted,
            counters.aggregated,
            counters.committed,
            counters.voided,
            counters.dropped,
            job.pending,
            job.in_flight,
            mean(counters.grant_sum_ns, counters.granted) as f64 / 1e6,
            mean(counters.commit_sum_ns, counters.committed) as f64 / 1e6,
            counters.delay_max,
        );
        if job.state != JobState::Running {
            let _ = writeln!(text, "  {}", job.state);
        }
        if job.pauses.pauses > 0 {
            let _ = writeln!(
                text,
                "  {} pauses, from the word to the standstill {:.3} ms, at most {:.3} ms",
                job.pauses.pauses,
                job.pauses.standstill_last_ns as f64 / 1e6,
                job.pauses.standstill_max_ns as f64 / 1e6,
            );
        }
        if !job.refusing.is_empty() {
            let count = counters.installs_refused;
            let _ = writeln!(text, "  groups are refused ({count} times) by {}", job.refusing);
        }
        let BandStatus { label, band, boxes_done, boxes_awaited, refused } = &job.bands;
        if let Some(band) = band {
            let _ = write!(
                text,
                "  band {band} for frames with DSCP {label}, at {boxes_done} boxes, {boxes_awaited} \
                 to answer, {} changes",
                counters.band_changes
            );
        } else if !refused.is_empty() {
            let _ = write!(text, "  no band");
        }
        let _ = match (band, refused.as_str()) {
            (None, "") => Ok(()),
            (Some(_), "") => writeln!(text),
            (_, refused) => writeln!(text, ": {refused}"),
        };
    }
    for job in &status.reduces {
        reduces::write_text(&mut text, job);
    }
    for host in &status.hosts {
        let _ = writeln!(
            text,
            "host {}: up {:.1} Mb/s, down {:.1} Mb/s, confidence {:.2}",
            host.name,
            host.up_bytes_per_sec as f64 / 125_000.0,
            host.down_bytes_per_sec as f64 / 125_000.0,
            host.confidence,
        );
    }
    text
}

/// The figures as one JSON object on one line.
#[must_use]
pub fn write_json(snapshot: &Snapshot) -> String {
    let mut json = serde_json::to_value(&snapshot.status).unwrap_or_default();
    json["uptime_s"] = (snapshot.uptime_ns as f64 / 1e9).into();
    json["plan_last_ns"] = snapshot.plan_last_ns.into();
    json["plan_max_ns"] = snapshot.plan_max_ns.into();
    json["slow_peers"] = snapshot.slow_peers.into();
    json["save_failures"] = snapshot.save_failures.into();
    json["connections_refused"] = snapshot.connections_refused.into();
    json["calls_refused"] = snapshot.calls_refused.into();
    json.to_string()
}

/// Serves `GET /metrics`, `/healthz` and `/readyz` until the runtime ends. A controller that has
/// read its state and listens is ready; this begins then.
///
/// # Errors
/// The address cannot be listened on.
pub async fn serve_metrics(addr: SocketAddr, reader: Reader) -> Result<SocketAddr, DaemonError> {
    let listen = |source| DaemonError::Listen { addr, what: "metrics", source };
    let listener = TcpListener::bind(addr).await.map_err(listen)?;
    let bound = listener.local_addr().map_err(listen)?;
    tokio::spawn(serve_page(listener, move |asked| {
        let reader = reader.clone();
        async move {
            let snapshot = Reader::read(&reader).await.ok_or("the controller is ending\n")?;
            Ok(match asked {
                Asked::Page => write_metrics(&snapshot),
                Asked::Health | Asked::Readiness => "ready\n".to_owned(),
            })
        }
    }));
    Ok(bound)
}
