//! The engines that a recording can be of, and what they keep: a server's journal, nothing of the
//! others.

use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::replica::Replica;
use weft_engine::role::server::Server;
use weft_lane::LaneEngine;
use weft_node::stats::EngineSnapshot;
use weft_wire::JobId;

/// What a server keeps, as a recording has it.
pub(super) trait Keeps: LaneEngine + EngineSnapshot {
    /// Records became durable.
    fn durable(&mut self, job: JobId, position: u64) {
        let _ = (job, position);
    }

    /// The next record.
    fn journal(&mut self, record: &mut Vec<u8>) -> Option<(JobId, u64)> {
        let _ = record;
        None
    }

    /// There is no room for records.
    fn journal_full(&mut self) {}
}

impl Keeps for Aggregator {}
impl Keeps for Replica {}

impl Keeps for Server {
    fn durable(&mut self, job: JobId, position: u64) {
        self.handle_durable(job, position);
    }

    fn journal(&mut self, record: &mut Vec<u8>) -> Option<(JobId, u64)> {
        self.poll_journal(record)
    }

    fn journal_full(&mut self) {
        self.handle_journal_full();
    }
}
