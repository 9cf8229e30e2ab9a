//! Takes in boxes: who attached, what it still knows, who is gone.
//!
//! The boxes hold the truth: order numbers continue where the server is, groups that a server still
//! knows are adopted, groups that it lost are installed again (PROTOCOL section 5: a restarted
//! controller first asks servers for next order and open groups).

use alloc::vec::Vec;

use weft_control::{Command, Event, GROUPS_OPEN_MAX, GroupDescriptor, OrderNumber, Role, Version};
use weft_wire::{GroupId, JobId, Members};

use super::accounts::ROLES_MAX;
use super::bands::BANDS_HELD_MAX;
use super::check;
use super::job::{Group, GroupState, Member, Offers};
use super::message::{NodeHello, NodeId, OpenGroup, Refusal, Reporter, RoleState};
use super::node::{Arrival, HOLDINGS_MAX};
use super::{Controller, Why};

impl Controller {
    /// A box attaches.
    ///
    /// # Errors
    /// A name that the configuration lacks, or a role that it does not have there.
    pub fn handle_node(&mut self, now_ns: u64, hello: &NodeHello) -> Result<NodeId, Refusal> {
        let checked = self.check_hello(hello);
        let id = self.checked(checked)?;
        self.count_anew(self.host_of(id), Reporter::Box(id));
        let node = &mut self.nodes[id.index()];
        let Arrival { is_new_life, is_new_here } = node.attach(now_ns, hello.life);
        node.set_holdings(&hello.holdings);
        node.set_bands(hello.bands.is_some());
        let addresses = hello.roles.iter().map(|state| &state.address);
        addresses.filter(|address| !address.is_empty()).for_each(|at| node.set_address(at));
        self.accounts.begin(id, hello, is_new_life);
        self.bands.attach(id, hello.bands.as_deref());
        for state in &hello.roles {
            // The account: what it says again of a life may be older than its events.
            if let Some(state) = self.accounts.get(id, state.job).cloned()
                && self.jobs.contains_key(&state.job)
            {
                self.take_role(now_ns, id, &state, is_new_here);
            }
        }
        if is_new_life {
            self.forget_holdings(id);
            self.need_plan(Why::Failure);
        }
        self.restore_holdings(now_ns, id);
        self.attach_reduce_box(id);
        Ok(id)
    }

    /// Takes in what a box has in a job, which was checked.
    pub(super) fn take_role(
        &mut self,
        now_ns: u64,
        id: NodeId,
        state: &RoleState,
        is_new_here: bool,
    ) {
        match state.role {
            Role::Server => self.take_server(now_ns, id, state),
            Role::Aggregator => {
                self.move_aggregator(state.job, id);
                self.reconcile_aggregator(id, state);
            }
            Role::Replica => {
                self.take_replica(now_ns, id, state, is_new_here);
                self.reconcile_replica(id, state);
            }
        }
    }

    /// A box's stream broke. It counts as failed after a time.
    pub fn handle_node_gone(&mut self, now_ns: u64, id: NodeId) {
        let Some(node) = self.nodes.get_mut(id.index()) else { return };
        node.detach(now_ns);
        let host = node.host();
        self.count_anew(host, Reporter::Box(id));
        self.forget_holdings(id);
        self.detach_reduce_box(id);
        self.bands.detach(id);
        self.need_plan(Why::Failure);
    }

    fn check_hello(&self, hello: &NodeHello) -> Result<NodeId, Refusal> {
        let position = self.nodes.iter().position(|node| node.name() == hello.name);
        let Some(id) = position.and_then(|i| u16::try_from(i).ok()).map(NodeId) else {
            let name = check::shown(&hello.name);
            let problem = format!("there is no node `{name}`; add a [[node]] or [[host]]");
            return Err(Refusal::new("name", problem));
        };
        if hello.roles.len() > ROLES_MAX {
            return Err(Refusal::new("roles", format!("are more than {ROLES_MAX}")));
        }
        if hello.holdings.len() > HOLDINGS_MAX {
            return Err(Refusal::new("holdings", format!("are more than {HOLDINGS_MAX}")));
        }
        if hello.bands.as_ref().is_some_and(|bands| bands.len() > BANDS_HELD_MAX) {
            return Err(Refusal::new("bands", format!("are of more than {BANDS_HELD_MAX} jobs")));
        }
        for (i, state) in hello.roles.iter().enumerate() {
            if hello.roles[..i].iter().any(|other| other.job == state.job) {
                let problem = format!("job {} is given twice", state.job.0);
                return Err(Refusal::new("roles", problem));
            }
            check_figures(state)?;
            self.check_role(id, state)?;
        }
        Ok(id)
    }

    /// Whether a box is in a job what it says; nothing is said against a job that is not here.
    pub(super) fn check_role(&self, id: NodeId, state: &RoleState) -> Result<(), Refusal> {
        let Some(job) = self.jobs.get(&state.job) else { return Ok(()) };
        let index = usize::from(state.box_index.0);
        let is_right = match state.role {
            Role::Server => {
                let is_successor = job.replica == Some(id) && state.epoch > job.promotion.epoch();
                job.server == id || job.promotion.former() == Some(id) || is_successor
            }
            Role::Replica => job.replica == Some(id) && index == usize::from(job.replica_box()),
            Role::Aggregator => job.aggregators.get(index) == Some(&id),
        };
        if !is_right {
            let problem = format!(
                "`{}` is not the {} with box index {index} of job `{}`",
                self.name(id),
                state.role,
                job.config.name
            );
            return Err(Refusal::new("roles", problem));
        }
        let workers = u32::try_from(job.workers.len()).unwrap_or(u32::MAX);
        let ranks = Members(u64::MAX.checked_shr(64 - workers).unwrap_or(0));
        if state.open_groups.iter().any(|open| !ranks.contains(open.members)) {
            let problem = format!("names a member that job `{}` does not have", job.config.name);
            return Err(Refusal::new("open_groups", problem));
        }
        Ok(())
    }

    pub(super) fn reconcile_server(&mut self, now_ns: u64, node: NodeId, state: &RoleState) {
        let life = self.nodes[node.index()].life();
        let job = self.jobs.get_mut(&state.job).expect("checked");
        let beyond = state.open_groups.iter().map(|open| open.order.0 + 1);
        let next = beyond.max().unwrap_or(0).max(state.next_order.0);
        job.learn((node, life), state.version, next, state.momentum_norm);
        let known: Vec<(u64, GroupId)> = job.open.iter().map(|(o, g)| (*o, *g)).collect();
        for (order, id) in known {
            if order < state.next_order.0 {
                self.end_unknown(now_ns, id);
            } else if state.open_groups.iter().all(|open| open.group != id) {
                self.install_again(id, node);
            }
        }
        for open in &state.open_groups {
            match self.groups.get(&open.group) {
                None => self.adopt(now_ns, state.job, *open),
                // It missed the word that takes the group back.
                Some(group) if group.is_doomed && group.job == state.job => {
                    let (job, group) = (state.job, open.group);
                    self.command(node, Command::Remove { job, group });
                }
                Some(_) => {}
            }
        }
        self.acknowledge_open(node, state);
        let job = self.jobs.get_mut(&state.job).expect("checked");
        job.told_rate_bytes_per_sec = 0;
        if !job.pending.is_empty() {
            job.unplanned_since_ns.get_or_insert(now_ns);
        }
        self.tell_rates(now_ns);
    }

    fn install_again(&mut self, id: GroupId, node: NodeId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if group.state == GroupState::Installing && !group.waiting.contains(&node) {
            group.waiting.push(node);
        }
        let descriptor = group.descriptor.clone();
        self.command(node, Command::Install(descriptor));
    }

    /// Takes over a group that a former controller installed. What its members were granted is not
    /// known here; the server ends it, by commit or by its lateness bound.
    fn adopt(&mut self, now_ns: u64, id: JobId, open: OpenGroup) {
        let job = self.jobs.get_mut(&id).expect("checked");
        if job.open.contains_key(&open.order.0) || !self.rows.claim(open.group) {
            return;
        }
        job.open.insert(open.order.0, open.group);
        let version = job.version;
        let member =
            |rank| Member { rank, request: None, is_gone: false, version, segments: Vec::new() };
        let members: Vec<Member> = open.members.iter().map(member).collect();
        let descriptor = GroupDescriptor {
            job: id,
            group: open.group,
            order: open.order,
            members: Vec::new(),
            chunks: 0,
            element_type: job.config.element,
            elements: job.config.elements(),
            exponent: 0,
            via: None,
            replicate: job.replica.is_some(),
            rate_bytes_per_sec: None,
            after: None,
            train_chunks: 0,
            lateness_ns: 0,
        };
        let group = Group {
            job: id,
            descriptor,
            members,
            state: GroupState::Granted,
            waiting: Vec::new(),
            installed_ns: now_ns,
            late_ns: u64::MAX,
            is_doomed: false,
            retry_ns: None,
            offers: Offers::default(),
        };
        self.groups.insert(open.group, group);
    }

    fn reconcile_aggregator(&mut self, node: NodeId, state: &RoleState) {
        let is_known =
            |id: GroupId| self.groups.get(&id).is_some_and(|group| group.job == state.job);
        let stale: Vec<GroupId> = (state.open_groups.iter().map(|open| open.group))
            .filter(|group| !is_known(*group))
            .collect();
        for group in stale {
            self.command(node, Command::Remove { job: state.job, group });
        }
        self.install_missing(node, state, false);
    }

    fn reconcile_replica(&mut self, node: NodeId, state: &RoleState) {
        let job = self.jobs.get_mut(&state.job).expect("checked");
        job.replica_progress.begin(state.next_order.0, state.momentum_norm);
        self.install_missing(node, state, true);
    }

    /// Gives a box the groups that it should have and has not: all open ones for a replica, those
    /// not yet granted for an aggregator. (What was granted goes direct when the server asks.)
    fn install_missing(&mut self, node: NodeId, state: &RoleState, even_granted: bool) {
        let has = |id: GroupId| state.open_groups.iter().any(|open| open.group == id);
        let job = &self.jobs[&state.job];
        let missing = job.open.values().filter_map(|id| self.groups.get(id)).filter(|group| {
            let is_due =
                even_granted && group.descriptor.replicate || group.waiting.contains(&node);
            // An adopted group has no descriptor to give.
            is_due && group.descriptor.chunks > 0 && !has(group.descriptor.group)
        });
        let missing: Vec<GroupDescriptor> = missing.map(|g| g.descriptor.clone()).collect();
        for descriptor in missing {
            self.command(node, Command::Install(descriptor));
        }
        self.acknowledge_open(node, state);
    }

    /// What a box has, it has acknowledged, even if that was lost on its way.
    fn acknowledge_open(&mut self, node: NodeId, state: &RoleState) {
        for open in &state.open_groups {
            let is_awaited =
                |group: &Group| group.job == state.job && group.waiting.contains(&node);
            if self.groups.get(&open.group).is_some_and(is_awaited) {
                let installed = Event::Installed { group: open.group };
                self.acknowledged.push_back((node, installed));
            }
        }
    }

    /// Deals with boxes that have been gone for too long.
    pub(super) fn fail_nodes(&mut self, now_ns: u64) {
        let timeout_ns = self.config.tuning.node_timeout_ns();
        for i in 0..self.nodes.len() {
            let fails_ns = self.nodes[i].fails_ns(timeout_ns);
            if fails_ns.is_none_or(|fails_ns| fails_ns > now_ns) {
                continue;
            }
            self.nodes[i].fail();
            let Ok(id) = u16::try_from(i).map(NodeId) else { continue };
            let waiting = self.groups.iter().filter(|(_, group)| group.waiting.contains(&id));
            let waiting: Vec<GroupId> = waiting.map(|(group, _)| *group).collect();
            for group in waiting {
                self.give_up_on(now_ns, group, id);
            }
            for job in self.jobs.values_mut().filter(|job| job.replica == Some(id)) {
                job.replica_progress.release();
            }
            self.need_plan(Why::Failure);
        }
    }

    /// A box does not acknowledge a group. Without an aggregator the group ends and its members
    /// are planned anew; without a replica it goes on; the server is waited for.
    pub(super) fn give_up_on(&mut self, now_ns: u64, id: GroupId, node: NodeId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let job = &self.jobs[&group.job];
        if job.replica == Some(node) {
            group.waiting.retain(|waiting| *waiting != node);
            self.grant_if_ready(now_ns, id);
        } else if job.server != node {
            self.abort(now_ns, id, Why::Failure);
        }
    }

    /// Where a server is and what it had decided, for reports and tests.
    #[must_use]
    pub fn server_state(&self, job: JobId) -> Option<(Version, OrderNumber)> {
        let job = self.jobs.get(&job)?;
        job.is_known.then_some((Version(job.version), OrderNumber(job.numbers.next())))
    }
}

/// Whether a box's figures can be counted with.
fn check_figures(state: &RoleState) -> Result<(), Refusal> {
    if state.address.len() > ADDRESS_LEN_MAX {
        let problem = format!("has more than {ADDRESS_LEN_MAX} bytes");
        return Err(Refusal::new("address", problem));
    }
    if !(state.momentum_norm.is_finite() && state.momentum_norm >= 0.0) {
        return Err(Refusal::new("momentum_norm", "is finite and not negative"));
    }
    if state.version.0 > COUNT_MAX || state.next_order.0 > COUNT_MAX {
        return Err(Refusal::new("next_order", "is beyond anything that can be counted"));
    }
    if state.open_groups.len() > usize::from(GROUPS_OPEN_MAX) {
        return Err(Refusal::new("open_groups", format!("are more than {GROUPS_OPEN_MAX}")));
    }
    if state.open_groups.iter().any(|open| open.order.0 > COUNT_MAX || open.members.is_empty()) {
        return Err(Refusal::new("open_groups", "have an order number and members"));
    }
    Ok(())
}

/// Versions and order numbers, as the planner takes them.
pub(super) const COUNT_MAX: u64 = 1 << 62;
/// Bytes of an "address:port", with some to spare for a name.
const ADDRESS_LEN_MAX: usize = 256;
