//! What a forged frame must leave as it was (I7): all that an engine holds of groups, models and
//! updates. Counters of refused frames are none of it, nor are questions that are open.

use std::hash::{DefaultHasher, Hash, Hasher};

use weft_engine::role::push::Pusher;

use super::scenario::Scenario;
use super::topology;
use crate::engine::Engine;

/// Of a box.
#[must_use]
pub fn of_box(scenario: &Scenario, engine: &Engine) -> u64 {
    let mut hasher = DefaultHasher::new();
    let hash_bits = |hasher: &mut DefaultHasher, values: &[f32]| {
        values.iter().for_each(|value| value.to_bits().hash(hasher));
    };
    match engine {
        Engine::Aggregator(aggregator) => {
            for report in aggregator.gather().reports() {
                for (group, mask) in report.groups() {
                    (group, mask.0).hash(&mut hasher);
                    for chunk in 0..scenario.chunks {
                        let slot = report.slot(group, chunk);
                        slot.map(|(state, members)| (state as u8, members.0)).hash(&mut hasher);
                    }
                }
                let stats = report.stats();
                (stats.contributions_added, report.workers_open().0).hash(&mut hasher);
            }
        }
        Engine::Server(server) => {
            for (job, stats) in server.jobs() {
                let view = server.model(job).expect("the job is served");
                (view.version.0, view.next_order.0).hash(&mut hasher);
                hash_bits(&mut hasher, view.weights);
                let counts = [
                    stats.groups_installed,
                    stats.groups_committed,
                    stats.voids,
                    stats.dropped,
                    stats.chunks_aggregated,
                    stats.chunks_direct,
                    stats.members_closed,
                    stats.fallbacks,
                ];
                counts.hash(&mut hasher);
            }
        }
        Engine::Replica(replica) => {
            for place in 0..scenario.jobs {
                let view = replica.model(topology::job_id(place)).expect("the job is followed");
                (view.version.0, view.next_order.0).hash(&mut hasher);
                hash_bits(&mut hasher, view.weights);
            }
            for (_, stats) in replica.jobs() {
                let counts = [
                    stats.groups_applied,
                    stats.chunks_copied,
                    stats.chunks_repaired,
                    stats.snapshots,
                ];
                counts.hash(&mut hasher);
            }
        }
    }
    hasher.finish()
}

/// Of a worker.
#[must_use]
pub fn of_worker(pusher: &Pusher) -> u64 {
    let stats = pusher.stats();
    let counts = [
        stats.chunks_sent,
        stats.retransmissions,
        stats.credits,
        stats.pulls,
        stats.channels_lost,
        stats.chunks_voided,
        stats.chunks_dropped,
        stats.chunks_direct,
        stats.chunks_aggregated,
        pusher.chunks_undecided(),
    ];
    let mut hasher = DefaultHasher::new();
    counts.hash(&mut hasher);
    pusher.model().iter().for_each(|value| value.to_bits().hash(&mut hasher));
    hasher.finish()
}
