//! Decides whether the answer of a policy outside of this program can be used, and works out what
//! it may leave out.
//!
//! An answer needs only an `order`; what it does not name in `dropped` or `order` is an error, and
//! so is a delay over `tau_max` (I4). Times are not taken from it: the groups are given the links
//! in the answer's order, each as fast as what is left allows, so no link is promised twice.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weft_control::DropReason;

use super::PolicyError;
use crate::case::{Case, HostId, ServerId, UpdateId};
use crate::net::ledger::Ledger;
use crate::plan::{Group, Hop, Plan, PlanDocument, Transfer};

/// The plan that an answer means.
///
/// # Errors
/// [`PolicyError::BadAnswer`] names the field and what is wrong with it.
pub fn accept(policy: &str, case: &Case, answer: &PlanDocument) -> Result<Plan, PolicyError> {
    let mut plan = Plan::empty(policy, case);
    Reader { case, seen: vec![false; case.updates.len()], names: case.updates_by_name() }
        .read(answer, &mut plan)
        .map_err(|reason| PolicyError::BadAnswer { policy: policy.to_owned(), reason })?;
    schedule(case, &mut plan);
    Ok(plan)
}

struct Reader<'a> {
    case: &'a Case,
    seen: Vec<bool>,
    names: BTreeMap<&'a str, UpdateId>,
}

impl Reader<'_> {
    fn read(mut self, answer: &PlanDocument, plan: &mut Plan) -> Result<(), String> {
        for (index, dropped) in answer.dropped.iter().enumerate() {
            let id = self.take(&dropped.update, || format!("dropped[{index}]"))?;
            plan.dropped.push((id, DropReason::of_policy(dropped.reason.as_str())));
        }
        let mut order = Vec::with_capacity(answer.order.len());
        for (index, name) in answer.order.iter().enumerate() {
            order.push(self.take(name, || format!("order[{index}]"))?);
        }
        if let Some(missing) = self.seen.iter().position(|seen| !seen) {
            let name = &self.case.updates[missing].name;
            return Err(format!("update `{name}` is neither in `order` nor in `dropped`"));
        }
        plan.groups = self.groups(answer, &order)?;
        self.check_delays(plan)
    }

    fn take(&mut self, name: &str, field: impl Fn() -> String) -> Result<UpdateId, String> {
        let id = *self
            .names
            .get(name)
            .ok_or_else(|| format!("{}: the case has no update `{name}`", field()))?;
        if core::mem::replace(&mut self.seen[id.index()], true) {
            return Err(format!("{}: update `{name}` is named twice", field()));
        }
        Ok(id)
    }

    /// The answer's groups, or each update alone.
    fn groups(&self, answer: &PlanDocument, order: &[UpdateId]) -> Result<Vec<Group>, String> {
        if answer.groups.is_empty() {
            return Ok(order.iter().map(|id| self.group(vec![*id], None)).collect());
        }
        let mut groups = Vec::with_capacity(answer.groups.len());
        for (index, group) in answer.groups.iter().enumerate() {
            let field = |key: &str| format!("groups[{index}].{key}");
            let mut members = Vec::with_capacity(group.members.len());
            for name in &group.members {
                let id = self.names.get(name.as_str());
                members.push(*id.ok_or_else(|| {
                    format!("{}: the case has no update `{name}`", field("members"))
                })?);
            }
            let Some(first) = members.first() else {
                return Err(format!("{}: a group has at least one", field("members")));
            };
            let server = self.case.update(*first).server;
            if members.iter().any(|id| self.case.update(*id).server != server) {
                return Err(format!("{}: are of different servers", field("members")));
            }
            let via = match &group.via {
                Some(name) => Some(self.aggregator(name).ok_or_else(|| {
                    format!("{}: `{name}` is not in the case's `aggregators`", field("via"))
                })?),
                None if members.len() == 1 => None,
                None => return Err(format!("{}: a group of several needs one", field("via"))),
            };
            groups.push(self.group(members, via));
        }
        for server in self.case.server_ids() {
            let of_server = |id: &&UpdateId| self.case.update(**id).server == server;
            let in_groups = groups.iter().flat_map(|group| &group.members).filter(of_server);
            if !in_groups.eq(order.iter().filter(of_server)) {
                let name = &self.case.server(server).name;
                return Err(format!("groups: are not the updates of `order` at server `{name}`"));
            }
        }
        Ok(groups)
    }

    fn group(&self, members: Vec<UpdateId>, via: Option<HostId>) -> Group {
        let server = self.case.update(members[0]).server;
        Group { server, members, via, forward: None, commit_ns: 0 }
    }

    fn aggregator(&self, name: &str) -> Option<HostId> {
        self.case.aggregators.iter().copied().find(|id| self.case.host(*id).name == name)
    }

    fn check_delays(&self, plan: &Plan) -> Result<(), String> {
        for server in self.case.server_ids() {
            let groups = plan.groups.iter().filter(|group| group.server == server);
            for (position, id) in (0_i64..).zip(groups.flat_map(|group| &group.members)) {
                if self.case.deadline(*id) < position {
                    let name = &self.case.update(*id).name;
                    return Err(format!("order: update `{name}` would be older than tau_max"));
                }
            }
        }
        Ok(())
    }
}

/// Gives every group its links, in order; drops what can never arrive.
fn schedule(case: &Case, plan: &mut Plan) {
    let mut ledger = Ledger::new(case);
    let mut last_ns: Vec<u64> =
        case.servers.iter().map(|server| server.commit_from_ns.max(case.now_ns)).collect();
    let groups = core::mem::take(&mut plan.groups);
    for group in groups {
        let mark = ledger.mark();
        match send(case, &mut ledger, &group) {
            Some((arrivals, forward)) => {
                let arrived_ns = forward.as_ref().map_or(arrivals[0].arrival_ns, |f| f.arrival_ns);
                let commit_ns = &mut last_ns[group.server.index()];
                *commit_ns = arrived_ns.max(*commit_ns);
                let commit_ns = *commit_ns;
                for (id, hop) in group.members.iter().zip(arrivals) {
                    plan.transfers[id.index()] = Some(Transfer {
                        arrival_ns: hop.arrival_ns,
                        commit_ns,
                        via: group.via,
                        segments: hop.segments,
                    });
                }
                plan.groups.push(Group { forward, commit_ns, ..group });
            }
            None => {
                ledger.rollback(mark);
                let lost = group.members.into_iter().map(|id| (id, DropReason::NoBandwidth));
                plan.dropped.extend(lost);
            }
        }
        // Nobody goes back beyond a group.
        ledger.commit();
    }
    plan.settle();
}

/// The members' hops, and the sum's.
fn send(case: &Case, ledger: &mut Ledger, group: &Group) -> Option<(Vec<Hop>, Option<Hop>)> {
    let server: ServerId = group.server;
    let server = case.server(server).host;
    let mut hop = |from: HostId, to: HostId, ready_ns: u64, size_bytes: u64| {
        let path = ledger.path(from, to);
        let mut segments = Vec::new();
        let arrival_ns = ledger.probe_segments(&path, ready_ns, size_bytes, &mut segments)?;
        ledger.reserve(&path, &segments);
        Some(Hop { ready_ns, arrival_ns, segments })
    };
    let mut arrivals = Vec::with_capacity(group.members.len());
    for id in &group.members {
        let update = case.update(*id);
        let to = group.via.unwrap_or(server);
        arrivals.push(hop(update.host, to, case.now_ns, update.size_bytes)?);
    }
    let Some(via) = group.via else { return Some((arrivals, None)) };
    let ready_ns = arrivals.iter().map(|hop| hop.arrival_ns).max()?;
    let size_bytes = group.members.iter().map(|id| case.update(*id).size_bytes).max()?;
    let forward = hop(via, server, ready_ns, size_bytes)?;
    Some((arrivals, Some(forward)))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn case() -> Case {
        let host = r#"{"up_bytes_per_sec":10,"down_bytes_per_sec":10}"#;
        let update = |id: &str, version: u64| {
            format!(
                r#"{{"id":"{id}","server":"s0","host":"{id}","size_bytes":10,"version":{version}}}"#
            )
        };
        Case::from_json(&format!(
            r#"{{"now_ns":0,"hosts":{{"a":{host},"b":{host},"c":{host},"g":{host},"s":{host}}},
            "servers":[{{"name":"s0","host":"s","version":5,"tau_max":2}}],"aggregators":["g"],
            "updates":[{},{},{}]}}"#,
            update("a", 5),
            update("b", 4),
            update("c", 5)
        ))
        .unwrap()
    }

    fn answer(text: &str) -> Result<Plan, String> {
        let document: PlanDocument = serde_json::from_str(text).unwrap();
        accept("exec:test", &case(), &document).map_err(|error| error.to_string())
    }

    #[test]
    fn an_order_alone_is_a_plan() {
        let plan = answer(r#"{"order":["c","b","a"]}"#).unwrap();
        let commits: Vec<u64> = plan.groups.iter().map(|group| group.commit_ns).collect();
        assert_eq!(commits, [1_000_000_000, 2_000_000_000, 3_000_000_000]);
        assert_eq!(plan.policy, "exec:test");
    }

    #[test]
    fn groups_travel_through_their_aggregator() {
        let text = r#"{"order":["b","a","c"],"groups":[
            {"members":["b"]},{"members":["a","c"],"via":"g"}]}"#;
        let plan = answer(text).unwrap();
        let forward = plan.groups[1].forward.as_ref().unwrap();
        assert_eq!((forward.ready_ns, forward.arrival_ns), (2_000_000_000, 3_000_000_000));
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_field() {
        for (text, word) in [
            (r#"{"order":["a","b"]}"#, "`c` is neither"),
            (r#"{"order":["a","b","c","a"]}"#, "order[3]: update `a` is named twice"),
            (r#"{"order":["a","b","x"]}"#, "order[2]: the case has no update `x`"),
            (r#"{"order":["a","c","b"]}"#, "`b` would be older than tau_max"),
            (
                r#"{"order":["b","a","c"],"groups":[{"members":["b","a","c"]}]}"#,
                "groups[0].via: a group of several",
            ),
            (
                r#"{"order":["b","a","c"],"groups":[{"members":["b","a","c"],"via":"a"}]}"#,
                "groups[0].via: `a` is not in the case's `aggregators`",
            ),
            (
                r#"{"order":["b","a","c"],"groups":[{"members":["b","a"],"via":"g"}]}"#,
                "are not the updates of `order`",
            ),
            (r#"{"order":["b"],"dropped":[{"update":"b","reason":"x"}]}"#, "named twice"),
        ] {
            let error = answer(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn dropped_updates_keep_the_policys_words() {
        let text = r#"{"order":["b","c"],"dropped":[{"update":"a","reason":"too noisy"}]}"#;
        let plan = answer(text).unwrap();
        assert_eq!(plan.dropped[0].1.as_str(), "too noisy");
    }
}
