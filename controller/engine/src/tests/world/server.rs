//! The server of a simulated job: stages, decides, tells.

use alloc::collections::{BTreeMap, BTreeSet};

use weft_control::{Decision, GroupDescriptor, Mode, OrderNumber, Version};
use weft_wire::{Members, Rank};

use super::*;

#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    pub(super) version: u64,
    pub(super) next_order: u64,
    /// Order numbers below this that no group has are VOID.
    pub(super) skip_below: u64,
    pub(super) groups: BTreeMap<u64, GroupDescriptor>,
    pub(super) started: BTreeSet<GroupId>,
    pub(super) staged: BTreeSet<GroupId>,
    pub(super) removed: BTreeSet<GroupId>,
    pub(super) granted: BTreeMap<GroupId, usize>,
    pub(super) gathered: BTreeMap<GroupId, BTreeSet<Rank>>,
}

impl World {
    /// Decides order numbers in sequence.
    pub(super) fn decide(&mut self, job: u16) {
        use weft_control::Event as Report;
        let config = self.jobs[usize::from(job)].clone();
        let is_fair = self.is_fair(job);
        loop {
            let server = self.servers.get_mut(&job).unwrap();
            if !is_fair {
                let installed = server.groups.first_key_value().map(|(order, _)| *order);
                let hole =
                    installed.map_or(server.next_order, |order| order.min(server.skip_below));
                server.next_order = server.next_order.max(hole);
            }
            let is_there = |id: &GroupId| server.staged.contains(id) || server.removed.contains(id);
            let next = match is_fair {
                false => server.groups.get(&server.next_order).filter(|g| is_there(&g.group)),
                true => server.groups.values().find(|group| is_there(&group.group)),
            };
            let Some(group) = next.cloned() else { break };
            let id = group.group;
            let is_void = server.removed.contains(&id);
            server.groups.remove(&group.order.0);
            let order = OrderNumber(server.next_order);
            server.next_order += 1;
            let too_old = group.members.iter().zip(server.version..).any(|(member, before)| {
                before.saturating_sub(member.version.0) > config.delay_max()
            });
            let decision = if is_void {
                Decision::Void
            } else if too_old && config.mode == Mode::Async {
                Decision::Dropped
            } else {
                server.version += group.members.len() as u64;
                Decision::Committed(Version(server.version))
            };
            let members = if matches!(decision, Decision::Committed(_)) {
                group.mask()
            } else {
                Members::EMPTY
            };
            let report = Report::Decided {
                group: id,
                order,
                decision,
                members,
                norm: 1.0,
                momentum_norm: 1.0,
            };
            self.flows.retain(|key, _| !matches!(key, Moving::Push(key) if key.group() == id));
            self.report(&config.server, job, report);
            let committed = match decision {
                Decision::Committed(version) => Some(version.0),
                Decision::Void | Decision::Dropped => None,
            };
            for member in &group.members {
                self.tell(job, member.rank, committed);
            }
            self.resume(job);
        }
    }
}
