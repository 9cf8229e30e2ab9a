//! Ring all-reduce: the workers of a server pass parts of their sums round a ring, 2 (N - 1) steps
//! of a part each, all links of the ring at the pace of the slowest. The server takes no part; the
//! sum "commits" when the ring has ended.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weft_control::DropReason;

use super::in_time;
use crate::case::{Case, Segment, UpdateId};
use crate::net::ledger::Ledger;
use crate::net::topology::{LinkId, Path};
use crate::net::units::HORIZON_NS;
use crate::plan::{Group, Plan, Transfer};
use crate::policy::{Policy, PolicyError};

/// One ring for each server's updates, in the case's order; a later ring gets what is left.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ring;

impl Policy for Ring {
    fn name(&self) -> &str {
        "ring"
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        let mut plan = Plan::empty(self.name(), case);
        let mut ledger = Ledger::new(case);
        for server in case.server_ids() {
            let of_server = case.update_ids().filter(|id| case.update(*id).server == server);
            let mut members: Vec<UpdateId> = of_server.collect();
            members.sort_by_key(|id| (case.update(*id).version, case.ranks[id.index()]));
            let (members, old) = in_time(case, members, |id| *id);
            plan.dropped.extend(old.into_iter().map(|id| (id, DropReason::TooOld)));
            if members.is_empty() {
                continue;
            }
            let ring = self.ring(case, &ledger, &members)?;
            let Some(segments) = walk(&ledger, &ring, case.now_ns) else {
                plan.dropped.extend(members.iter().map(|id| (*id, DropReason::NoBandwidth)));
                continue;
            };
            let end_ns = segments.last().map_or(case.now_ns, |segment| segment.to_ns);
            let commit_ns = end_ns.max(case.server(server).commit_from_ns);
            for (id, path) in members.iter().zip(&ring.paths) {
                ledger.reserve(path, &segments);
                let (arrival_ns, segments) = (end_ns, segments.clone());
                let transfer = Transfer { arrival_ns, commit_ns, via: None, segments };
                plan.transfers[id.index()] = Some(transfer);
            }
            plan.groups.push(Group { server, members, via: None, forward: None, commit_ns });
        }
        plan.settle();
        Ok(plan)
    }
}

/// The hops of a ring and what each must carry.
#[derive(Debug)]
struct Hops {
    paths: Vec<Path>,
    bytes_each: u64,
}

impl Ring {
    fn ring(self, case: &Case, ledger: &Ledger, members: &[UpdateId]) -> Result<Hops, PolicyError> {
        let unsuitable =
            |reason: String| PolicyError::Unsuitable { policy: self.name().to_owned(), reason };
        let size_bytes = case.update(members[0]).size_bytes;
        if let Some(other) = members.iter().find(|id| case.update(**id).size_bytes != size_bytes) {
            let name = &case.update(*other).name;
            return Err(unsuitable(format!("update {name} has another size than the first")));
        }
        let host = |id: &UpdateId| case.update(*id).host;
        for (index, id) in members.iter().enumerate() {
            if members[..index].iter().any(|other| host(other) == host(id)) {
                let name = &case.host(host(id)).name;
                return Err(unsuitable(format!("host {name} has two updates for one server")));
            }
        }
        let next = members.iter().cycle().skip(1);
        let paths = members.iter().zip(next).map(|(from, to)| ledger.path(host(from), host(to)));
        let count = members.len() as u64;
        Ok(Hops {
            paths: paths.collect(),
            bytes_each: size_bytes.div_ceil(count) * 2 * (count - 1),
        })
    }
}

/// The pace of the ring over time: a link that several hops cross gives each an equal share.
/// `None` when it never ends.
fn walk(ledger: &Ledger, ring: &Hops, from_ns: u64) -> Option<Vec<Segment>> {
    let mut crossings: BTreeMap<_, u64> = BTreeMap::new();
    for link in ring.paths.iter().flat_map(Path::links) {
        *crossings.entry(link.index()).or_insert(0) += 1;
    }
    let links: Vec<_> = ring.paths.iter().flat_map(Path::links).copied().collect();
    let mut left = u128::from(ring.bytes_each) * 1_000_000_000;
    let mut at_ns = from_ns;
    let mut segments = Vec::new();
    while left > 0 {
        let share =
            |link: &LinkId| ledger.link(*link).residual_at(at_ns) / crossings[&link.index()];
        let rate = links.iter().map(share).min()?;
        let changes = links.iter().filter_map(|link| {
            let timeline = ledger.link(*link);
            timeline.steps().get(timeline.index_at(at_ns) + 1).map(|step| step.from_ns)
        });
        let change_ns = changes.min();
        let end_ns = (rate > 0).then(|| {
            let end_ns = u128::from(at_ns) + left.div_ceil(u128::from(rate));
            u64::try_from(end_ns).unwrap_or(u64::MAX)
        });
        let until_ns = match (end_ns, change_ns) {
            (Some(end_ns), Some(change_ns)) => end_ns.min(change_ns),
            (end_ns, change_ns) => end_ns.or(change_ns)?,
        };
        if until_ns > HORIZON_NS {
            return None;
        }
        if rate > 0 {
            left = left.saturating_sub(u128::from(rate) * u128::from(until_ns - at_ns));
            segments.push(Segment { from_ns: at_ns, to_ns: until_ns, bytes_per_sec: rate });
        }
        at_ns = until_ns;
    }
    Some(segments)
}
