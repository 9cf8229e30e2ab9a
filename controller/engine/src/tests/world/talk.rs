//! What boxes and workers do with what the controller tells them.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;

use weft_wire::Rank;

use super::*;

impl World {
    pub(super) fn obey(&mut self, node: NodeId, command: Command) {
        use weft_control::Event as Report;
        let name = self.names[&node].clone();
        self.commands.push((name.clone(), command.clone()));
        if self.dead.contains(&name) {
            return;
        }
        match command {
            Command::Install(group) => {
                let (id, job) = (group.group, group.job.0);
                if self.refusing.contains(&name) {
                    let error = weft_control::InstallError::Full;
                    self.report(&name, job, Report::Refused { group: id, error });
                    return;
                }
                let is_again = !self.installed.insert((name.clone(), id));
                let server = self.servers.get_mut(&job).unwrap();
                if self.jobs[usize::from(job)].server == name && !is_again {
                    let is_new = self.orders.entry(job).or_default().insert(group.order.0);
                    assert!(is_new, "an order number was given twice");
                    assert!(group.order.0 >= server.next_order, "an order number came again");
                    server.groups.insert(group.order.0, group);
                }
                self.report(&name, job, Report::Installed { group: id });
                self.start_sums(job);
            }
            Command::Remove { job, group } => {
                self.installed.remove(&(name.clone(), group));
                let server = self.servers.get_mut(&job.0).unwrap();
                if self.jobs[usize::from(job.0)].server == name {
                    server.removed.insert(group);
                }
                self.decide(job.0);
            }
            Command::CloseMember { job, rank, .. } => {
                if self.jobs[usize::from(job.0)].server == name {
                    self.lose(job.0, rank);
                }
            }
            // Nobody dies for good here.
            Command::SetRate { .. }
            | Command::Promote { .. }
            | Command::MoveServer { .. }
            | Command::StandDown { .. }
            | Command::LeaveReplica { .. }
            | Command::Holding(_)
            | Command::SetBands { .. }
            | Command::SetLabel { .. } => {}
            Command::Skip { job, below } => {
                let server = self.servers.get_mut(&job.0).unwrap();
                server.skip_below = server.skip_below.max(below.0);
                self.decide(job.0);
            }
        }
    }

    /// Groups that wait for this member are VOID.
    pub(super) fn lose(&mut self, job: u16, rank: Rank) {
        let server = self.servers.get_mut(&job).unwrap();
        let of_it = server.groups.values().filter(|group| group.mask().contains(rank.bit()));
        let groups: Vec<GroupId> =
            of_it.map(|group| group.group).filter(|id| !server.staged.contains(id)).collect();
        server.removed.extend(groups);
        self.decide(job);
    }

    pub(super) fn hear(&mut self, job: JobId, rank: Rank, reply: Reply) {
        let rank_number = rank.index() as u8;
        match reply {
            Reply::Grant(grant) => {
                let key = (job.0, rank_number, grant.update_id);
                assert!(self.granted.insert(key), "granted twice");
                assert!(!self.ended.contains(&key), "granted after its end");
                self.first_grant_ns.get_or_insert(self.now_ns);
                self.check_installed(job.0, &grant);
                let server = self.servers.get_mut(&job.0).unwrap();
                *server.granted.entry(grant.group).or_default() += 1;
                if let Some(via) = grant.via {
                    let config = &self.jobs[usize::from(job.0)];
                    let to = config.aggregators[usize::from(via.0)].clone();
                    let from = config.workers[rank.index()].host().to_owned();
                    let rates = grant.segments.iter();
                    let rates =
                        rates.map(|s| (s.gate == Gate::Open, s.rate_bytes_per_sec)).collect();
                    let key = Moving::Push(TransferKey::Member(grant.group, rank));
                    self.fly(key, (&from, &to), (job.0, None), rates);
                }
                self.grants.push(grant);
                self.grant_jobs.push((job.0, rank));
                self.start_sums(job.0);
            }
            Reply::Release { update_id, segment } => {
                self.releases += 1;
                let of_job = self.grants.iter().zip(&self.grant_jobs);
                let grant = of_job.filter(|(_, of)| **of == (job.0, rank)).map(|(grant, _)| grant);
                let grant = { grant }.find(|grant| {
                    grant.update_id == update_id
                        && grant.via.is_some()
                        && self
                            .flows
                            .contains_key(&Moving::Push(TransferKey::Member(grant.group, rank)))
                });
                if let Some(grant) = grant {
                    let key = Moving::Push(TransferKey::Member(grant.group, rank));
                    self.flows.get_mut(&key).unwrap().rates[segment as usize].0 = true;
                    self.set_rate(key);
                    self.conduct(job.0);
                }
            }
            Reply::Drop { update_id, reason } => {
                let key = (job.0, rank_number, update_id);
                assert!(!self.granted.contains(&key), "dropped after its grant");
                assert!(self.ended.insert(key), "ended twice");
                self.drops.push(reason);
                self.tell(job.0, rank, None);
                self.again(job.0, rank_number);
            }
            Reply::Delivered { update_id, decision } => {
                let key = (job.0, rank_number, update_id);
                assert!(self.granted.contains(&key), "ended without a grant");
                assert!(self.ended.insert(key), "ended twice");
                self.delivered.push((update_id, decision));
                self.again(job.0, rank_number);
            }
            Reply::ServerMoved { .. } => {}
        }
    }

    fn again(&mut self, job: u16, rank: u8) {
        if let Some(worker) = self.loops.get(&job) {
            self.push(self.now_ns + worker.compute_ns + MESSAGE_NS, Event::Ask(job, rank));
        }
    }

    fn check_installed(&self, job: u16, grant: &Grant) {
        let config = &self.jobs[usize::from(job)];
        let aggregator = grant.via.map(|via| &config.aggregators[usize::from(via.0)]);
        for name in [Some(&config.server), aggregator].into_iter().flatten() {
            let is_installed = self.installed.contains(&(name.clone(), grant.group));
            assert!(is_installed, "{name} does not know the group of a grant");
        }
    }
}
