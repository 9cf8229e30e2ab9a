//! Decides which order number a group gets, and how many before it stay free.
//!
//! A server commits in sequence, so a slow update that is granted now would hold up everybody who
//! is granted while it travels. So it gets a number with *room* before it: as many free numbers as
//! the server's link can take in updates until it is there. Who comes later and ends earlier takes
//! them, never more than the delay bounds of those behind allow (I4); what is still free when the
//! update is there is skipped. *Derived*: the sources order what waits, and say nothing of what
//! comes while a transfer is under way. Switch: [`super::Tuning::order_room`].
//!
//! Invariants: a number is given once; no granted group gets more before it than it was granted
//! with.

use alloc::vec::Vec;

use weft_control::{Command, OrderNumber};
use weft_wire::JobId;

use super::Controller;
use super::job::{Group, GroupState, Job, Pending};
use super::message::TransferKey;

impl Controller {
    /// The order number of a group whose last byte is at the server at `end_ns` by plan.
    pub(super) fn give_number(
        &mut self,
        now_ns: u64,
        id: JobId,
        requests: &[Pending],
        end_ns: u64,
    ) -> u64 {
        let job = &self.jobs[&id];
        let room = match self.config.tuning.order_room && job.policy.manner().looks_ahead {
            true => self.room(now_ns, job, requests, end_ns),
            false => 0,
        };
        let floor = self.floor(job, requests.len() as u64, end_ns);
        self.jobs.get_mut(&id).expect("just seen").numbers.give(floor, room)
    }

    /// Above all granted groups that are there earlier, or that bear nobody more before them.
    fn floor(&self, job: &Job, count: u64, end_ns: u64) -> u64 {
        let mut before = job.version;
        let mut floor = 0;
        for (order, id) in &job.open {
            let Some(group) = self.groups.get(id) else { continue };
            let oldest = group
                .members
                .iter()
                .zip(before..)
                .map(|(member, at)| at.saturating_sub(member.version));
            let is_tight = oldest.max().unwrap_or(0) + count > job.config.delay_max();
            let sum = self.flights.get(TransferKey::Sum(*id)).and_then(|sum| sum.segments.last());
            let is_later =
                group.state != GroupState::Staged && sum.is_some_and(|last| last.to_ns > end_ns);
            if is_tight || !is_later {
                floor = order + 1;
            }
            before += group.members.len() as u64;
        }
        floor
    }

    /// How many updates the server's link can take in until `end_ns` beyond this group and those
    /// that are granted, as far as this group's delay bound allows.
    fn room(&self, now_ns: u64, job: &Job, requests: &[Pending], end_ns: u64) -> u64 {
        let down = self.links.topology().down(self.host_of(job.server));
        let rate = self.links.usable().get(down.index()).copied().unwrap_or(1).max(1);
        let size_bytes =
            requests.iter().map(|request| request.size_bytes).max().unwrap_or(0).max(1);
        let span_ns = end_ns.saturating_sub(now_ns);
        let fit = u128::from(span_ns) * u128::from(rate) / (u128::from(size_bytes) * 1_000_000_000);
        let fit = u64::try_from(fit).unwrap_or(u64::MAX);
        let ahead = job.open.len() as u64 + 1;
        let before = job.version + job.in_flight(&self.groups);
        let delays =
            requests.iter().zip(before..).map(|(request, at)| at.saturating_sub(request.version));
        let bearable = job.config.delay_max().saturating_sub(delays.max().unwrap_or(0));
        fit.saturating_sub(ahead).min(bearable).min(ROOM_MAX)
    }

    /// Has servers skip the lowest free numbers once the group that they are before is there, or
    /// will never be.
    pub(super) fn skip_unused(&mut self) {
        let mut skips = Vec::new();
        for job in self.jobs.values_mut() {
            let mut skipped = None;
            while let Some(lowest) = job.numbers.lowest_free() {
                let Some((order, group)) = job.open.range(lowest..).next() else { break };
                let waits = |group: &Group| {
                    group.state != GroupState::Staged && !group.is_doomed && !group.is_deserted()
                };
                if self.groups.get(group).is_none_or(waits) {
                    break;
                }
                job.numbers.forget_below(*order);
                skipped = Some(*order);
            }
            skips.extend(skipped.map(|below| (job.id, job.server, OrderNumber(below))));
        }
        for (job, server, below) in skips {
            self.command(server, Command::Skip { job, below });
        }
    }

    /// Whether a job is planned for what comes next too. Baselines are not; nor is one that shares
    /// its server's link with another job. What is granted of one job keeps its rate on that link
    /// until it has arrived, so a wait for a group, or a sum that trickles, idles what the other
    /// was promised: two jobs with the workers of `closed_loop.rs` take a quarter longer with these
    /// rules.
    pub(super) fn is_closed_loop(&self, job: &Job) -> bool {
        let shares = |other: &Job| {
            other.id != job.id && self.host_of(other.server) == self.host_of(job.server)
        };
        let looks_ahead = self.config.tuning.closed_loop && job.policy.manner().looks_ahead;
        looks_ahead && !self.jobs.values().any(shares)
    }
}

/// Most free numbers before a group.
const ROOM_MAX: u64 = 64;
