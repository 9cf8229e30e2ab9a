//! Transfers in virtual time: at the ceiling that was granted, in the server's order, or fairly
//! shared.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weft_control::ConductMode;

use super::*;

/// What moves.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Moving {
    /// A part of a push.
    Push(TransferKey),
    /// The model, to this rank of this job.
    Model(u16, u8),
}

#[derive(Clone, Debug)]
pub(super) struct Flow {
    links: [String; 2],
    left: f64,
    rate: u64,
    since_ns: u64,
    version: u64,
    pub(super) rates: Vec<(bool, u64)>,
    job: u16,
    /// Into a server that calls its senders in order: its place.
    order: Option<u64>,
    /// It gets its max-min fair share, whatever was granted.
    is_fair: bool,
}

impl World {
    /// Starts what may go into the server: groups that are granted, when the one that they come
    /// after is staged. A sum is no faster than its members.
    pub(super) fn start_sums(&mut self, job: u16) {
        let config = self.jobs[usize::from(job)].clone();
        let server = self.servers.get_mut(&job).unwrap();
        let mut starts = Vec::new();
        for group in server.groups.values() {
            let id = group.group;
            if server.started.contains(&id) || server.removed.contains(&id) {
                continue;
            }
            let is_open = group.after.is_none_or(|after| {
                server.staged.contains(&after)
                    || server.removed.contains(&after)
                    || server.groups.values().all(|other| other.group != after)
            });
            let granted = server.granted.get(&id).copied().unwrap_or(0) == group.members.len();
            if is_open && granted {
                starts.push(group.clone());
            }
        }
        for group in starts {
            self.servers.get_mut(&job).unwrap().started.insert(group.group);
            let from = match group.via {
                Some(via) => self.host_of[&config.aggregators[usize::from(via.0)]].clone(),
                None => config.workers[group.members[0].rank.index()].host().to_owned(),
            };
            let to = self.host_of[&config.server].clone();
            let rates = vec![(true, group.rate_bytes_per_sec.unwrap_or(u64::MAX))];
            let order = (!self.is_fair(job)).then_some(group.order.0);
            self.fly(
                Moving::Push(TransferKey::Sum(group.group)),
                (&from, &to),
                (job, order),
                rates,
            );
        }
    }

    /// A server without a plan calls all senders in turn, and commits what is there.
    pub(super) fn is_fair(&self, job: u16) -> bool {
        let job = self.controller.jobs.get(&JobId(job));
        job.is_some_and(|job| job.policy.manner().conduct == ConductMode::Fair)
    }

    pub(super) fn fly(
        &mut self,
        key: Moving,
        path: (&str, &str),
        (job, order): (u16, Option<u64>),
        rates: Vec<(bool, u64)>,
    ) {
        if let Moving::Push(key) = key {
            self.begin_train(key, path, job);
        }
        let links = [format!("{}.up", path.0), format!("{}.down", path.1)];
        let left = self.jobs[usize::from(job)].update_bytes() as f64;
        let is_fair = match key {
            Moving::Push(TransferKey::Sum(_)) => order.is_none(),
            Moving::Push(_) => false,
            Moving::Model(..) => true,
        };
        let flow = Flow {
            links,
            left,
            rate: 0,
            since_ns: self.now_ns,
            version: 0,
            rates,
            job,
            order,
            is_fair,
        };
        self.flows.insert(key, flow);
        if is_fair {
            self.share();
        } else {
            self.set_rate(key);
            self.conduct(job);
        }
    }

    /// Gives a server's link to its transfers in order.
    pub(super) fn conduct(&mut self, job: u16) {
        let of_it = self.flows.iter().filter(|(_, flow)| flow.job == job);
        let mut keys: Vec<_> = of_it.filter_map(|(key, flow)| Some((flow.order?, *key))).collect();
        keys.sort_unstable();
        for (_, key) in keys {
            self.set_rate(key);
        }
        self.measure();
    }

    /// Gives every flow that shares its max-min fair share.
    fn share(&mut self) {
        let mut left = self.capacity.clone();
        let fair = self.flows.iter().filter(|(_, flow)| flow.is_fair);
        let mut open: BTreeMap<Moving, [String; 2]> =
            fair.map(|(key, flow)| (*key, flow.links.clone())).collect();
        while !open.is_empty() {
            let on = |link: &String| open.values().filter(|links| links.contains(link)).count();
            let shares = left.iter().filter_map(|(link, left)| {
                let count = on(link) as u64;
                (count > 0).then(|| (left / count, link.clone()))
            });
            let (rate, link) = shares.min().unwrap();
            let fixed: Vec<Moving> = (open.iter())
                .filter(|(_, links)| links.contains(&link))
                .map(|(key, _)| *key)
                .collect();
            for key in fixed {
                for link in open.remove(&key).unwrap() {
                    *left.get_mut(&link).unwrap() -= rate;
                }
                self.run_at(key, rate);
            }
        }
    }

    /// Notes how full the links are.
    fn measure(&mut self) {
        let links = self.flows.values().flat_map(|flow| flow.links.clone());
        let links: BTreeSet<String> = links.collect();
        for link in links {
            let on_it = self.flows.values().filter(|flow| flow.links.contains(&link));
            let load =
                on_it.map(|flow| flow.rate).sum::<u64>() as f64 / self.capacity[&link] as f64;
            if load > self.load_max {
                self.load_max = load;
                let on_it = self.flows.iter().filter(|(_, flow)| flow.links.contains(&link));
                let on_it =
                    on_it.map(|(key, flow)| format!("{key:?} {} at {}", flow.job, flow.rate));
                let on_it: Vec<String> = on_it.collect();
                self.fullest = format!("{link} at {}: {}", self.now_ns, on_it.join(", "));
            }
        }
    }

    pub(super) fn set_rate(&mut self, key: Moving) {
        let flow = &self.flows[&key];
        let open = flow.rates.iter().rev().find(|(is_open, _)| *is_open);
        let granted = open.map_or(0, |(_, rate)| *rate);
        let host = flow.links[0].trim_end_matches(".up");
        let slow = self.slow.get(host).copied().unwrap_or(1.0);
        // A server pulls what its link takes, in order; what the first cannot use goes to the next.
        let mut rate = (granted as f64 * slow) as u64;
        let truth = flow.links.iter().filter_map(|link| self.truth.get(link)).min();
        rate = rate.min(truth.copied().unwrap_or(u64::MAX));
        if let Some(order) = flow.order {
            let link = &flow.links[1];
            let before = self.flows.values().filter(|other| {
                other.job == flow.job
                    && other.links[1] == *link
                    && other.order.is_some_and(|o| o < order)
            });
            let taken: u64 = before.map(|other| other.rate).sum();
            rate = rate.min(self.capacity[link].saturating_sub(taken));
        }
        let mut catches_up_ns = None;
        if let Moving::Push(TransferKey::Sum(group)) = key {
            let sent = self.sent(&self.flows[&key]);
            for (member_sent, member_rate) in self.members_sent(group) {
                let ahead = member_sent - sent;
                if ahead < 2.0 {
                    rate = rate.min(member_rate);
                } else if rate > member_rate {
                    let span_ns = (ahead * 1e9 / (rate - member_rate) as f64) as u64 + 1;
                    catches_up_ns = Some(catches_up_ns.unwrap_or(u64::MAX).min(span_ns));
                }
            }
        }
        self.run_at(key, rate);
        if let Some(span_ns) = catches_up_ns {
            let version = self.flows[&key].version;
            self.push(self.now_ns + span_ns, Event::CaughtUp(key, version));
        }
    }

    /// A sum has as much as has come in of its slowest member.
    pub(super) fn caught_up(&mut self, key: Moving, version: u64) {
        if let Some(flow) = self.flows.get(&key).filter(|flow| flow.version == version) {
            self.conduct(flow.job);
        }
    }

    fn sent(&self, flow: &Flow) -> f64 {
        let moved = flow.rate as f64 * (self.now_ns - flow.since_ns) as f64 / 1e9;
        self.jobs[usize::from(flow.job)].update_bytes() as f64 - flow.left + moved
    }

    /// What has come in of a group's members that are not all in, and how fast it comes.
    fn members_sent(&self, id: GroupId) -> Vec<(f64, u64)> {
        let (server, group) = (self.servers.values())
            .find_map(|server| Some((server, server.groups.values().find(|g| g.group == id)?)))
            .unwrap();
        let is_in =
            |rank: &Rank| server.gathered.get(&id).is_some_and(|in_it| in_it.contains(rank));
        let ranks = group.members.iter().map(|member| member.rank);
        let late = ranks.filter(|rank| group.via.is_some() && !is_in(rank));
        late.map(|rank| match self.flows.get(&Moving::Push(TransferKey::Member(id, rank))) {
            Some(flow) => (self.sent(flow), flow.rate),
            None => (0.0, 0),
        })
        .collect()
    }

    fn run_at(&mut self, key: Moving, rate: u64) {
        let now_ns = self.now_ns;
        let flow = self.flows.get_mut(&key).unwrap();
        flow.left -= flow.rate as f64 * (now_ns - flow.since_ns) as f64 / 1e9;
        flow.since_ns = now_ns;
        flow.rate = rate;
        flow.version += 1;
        if flow.rate > 0 {
            let need_ns = (flow.left.max(0.0) * 1e9 / flow.rate as f64).ceil() as u64;
            let version = flow.version;
            self.push(now_ns + need_ns, Event::Arrived(key, version));
        }
    }

    pub(super) fn arrived(&mut self, moved: Moving, version: u64) {
        use weft_control::Event as Report;
        if self.flows.get(&moved).is_none_or(|flow| flow.version != version) {
            return;
        }
        let is_fair = self.flows.remove(&moved).unwrap().is_fair;
        if is_fair {
            self.share();
        }
        let key = match moved {
            Moving::Push(key) => key,
            Moving::Model(job, rank) => return self.pulled(job, rank),
        };
        let id = key.group();
        let of_it = |server: &Server| server.groups.values().find(|g| g.group == id).cloned();
        let Some(group) = self.servers.values().find_map(of_it) else { return };
        let job = group.job.0;
        let config = self.jobs[usize::from(job)].clone();
        match key {
            TransferKey::Member(_, rank) => {
                let server = self.servers.get_mut(&job).unwrap();
                server.gathered.entry(id).or_default().insert(rank);
                let via = &config.aggregators[usize::from(group.via.unwrap().0)];
                self.report(via, job, Report::Gathered { group: id, rank });
                self.conduct(job);
            }
            TransferKey::Sum(_) => {
                self.bytes_into_server += config.update_bytes();
                self.servers.get_mut(&job).unwrap().staged.insert(id);
                self.report(&config.server, job, Report::Staged { group: id });
                self.conduct(job);
                self.decide(job);
                self.start_sums(job);
            }
            TransferKey::Copy(_) => {}
        }
    }
}
