//! Slow updates that go through an aggregator alone (*derived*).

use crate::case::UpdateId;
use crate::plan::{Group, Hop, Transfer};

use super::{Cutter, Record};

impl Cutter<'_> {
    /// Its own uplink is below the share of the server's downlink that `relay_share` says.
    pub(super) fn is_slow(&self, id: UpdateId) -> bool {
        let options = &self.case.options;
        let down = self.case.host(self.case.server(self.server).host).down_bytes_per_sec;
        let up = self.case.host(self.case.update(id).host).up_bytes_per_sec;
        options.stream_sums && (up as f64) < options.relay_share * down as f64
    }

    /// Sends a slow update alone through an aggregator, where it keeps no piece of the server's
    /// link for long; false if it would be there much later than on its own.
    pub(super) fn relay(
        &mut self,
        id: UpdateId,
        direct_ns: u64,
        record: Option<&mut Record>,
    ) -> bool {
        let aggregator = self.choose();
        let mark = self.ledger.mark();
        let update = self.case.update(id);
        let (size_bytes, host) = (update.size_bytes, self.case.server(self.server).host);
        let link_ns = self.link_ns(size_bytes);
        let Some(last_ns) = self.send(update.host, aggregator, self.case.now_ns, size_bytes) else {
            return false;
        };
        let own = self.segments.clone();
        let ready_ns = last_ns.saturating_sub(link_ns).max(self.case.now_ns);
        let arrival = self.send(aggregator, host, ready_ns, size_bytes);
        let Some(arrival_ns) = arrival.filter(|at_ns| *at_ns <= direct_ns + link_ns) else {
            self.ledger.rollback(mark);
            return false;
        };
        let arrival_ns = arrival_ns.max(last_ns);
        self.sum += self.price(size_bytes);
        let commit_ns = self.commit(1, arrival_ns);
        if let Some(record) = record {
            let (server, members, via) = (self.server, vec![id], Some(aggregator));
            let transfer = Transfer { arrival_ns: last_ns, commit_ns, via, segments: own };
            record.transfers.push((id, transfer));
            let forward = Some(Hop { ready_ns, arrival_ns, segments: self.segments.clone() });
            record.groups.push(Group { server, members, via, forward, commit_ns });
        }
        true
    }
}
