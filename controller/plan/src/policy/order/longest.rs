//! Orders longest transfer first, as a synchronous round wants it: the transfers that take longest
//! start first, and the short ones fill what they leave.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::case::{Case, UpdateId};
use crate::net::ledger::Ledger;
use crate::plan::Transfer;

use super::{Ordered, direct_path};

/// The updates that `shortest` sends, in the opposite order; none if that breaks a deadline.
pub(super) fn order(case: &Case, ledger: &mut Ledger, shortest: &Ordered) -> Option<Ordered> {
    let mut ids: Vec<UpdateId> = shortest.sequences.iter().flatten().copied().collect();
    ids.sort_by_cached_key(|id| {
        let update = case.update(*id);
        let path = direct_path(case, ledger, update);
        let finish = ledger.probe(&path, case.now_ns, update.size_bytes);
        (Reverse(finish), case.ranks[id.index()])
    });
    let mut out = Ordered {
        sequences: vec![Vec::new(); case.servers.len()],
        dropped: shortest.dropped.clone(),
        transfers: vec![None; case.updates.len()],
    };
    let mut commits: Vec<u64> = case.servers.iter().map(|s| s.commit_from_ns).collect();
    for id in ids {
        let update = case.update(id);
        let sequence = &mut out.sequences[update.server.index()];
        if i64::try_from(sequence.len()).ok()? > case.deadline(id) {
            return None;
        }
        sequence.push(id);
        let path = direct_path(case, ledger, update);
        let mut segments = Vec::new();
        let arrival_ns =
            ledger.probe_segments(&path, case.now_ns, update.size_bytes, &mut segments)?;
        ledger.reserve(&path, &segments);
        let last_ns = &mut commits[update.server.index()];
        *last_ns = arrival_ns.max(*last_ns);
        let commit_ns = *last_ns;
        out.transfers[id.index()] = Some(Transfer { arrival_ns, commit_ns, via: None, segments });
    }
    ledger.commit();
    Some(out)
}
