//! Decides what a policy is asked that is another program, and what its answer is worth when it
//! comes: the controller goes on meanwhile.
//!
//! A job has at most one question under way. It waits for the answer until `policy_timeout_ms`;
//! from then on the default policy plans for it, which counts as a failure, until the program has
//! answered the old question, or is known not to. An answer in time is taken for its order and
//! groups alone: these get the links as they are by then ([`outside::accept`]), so that nothing is
//! promised twice. Updates that were taken back meanwhile are left out of it.

use alloc::vec::Vec;

use weft_wire::JobId;

use weft_plan::case::Case;
use weft_plan::plan::{GroupDocument, PlanDocument};
use weft_plan::policy::{AnyPolicy, PolicyError, outside};

use super::Controller;
use super::job::{Asked, Ticket};

/// A question to a policy that may wait. Any thread may ask it.
#[derive(Debug)]
pub struct Question {
    job: JobId,
    number: u64,
    policy: AnyPolicy,
    case: Case,
}

/// What came of a [`Question`].
#[derive(Debug)]
pub struct Answer {
    /// Whose policy was asked.
    pub job: JobId,
    number: u64,
    /// Its plan.
    pub plan: Result<PlanDocument, PolicyError>,
}

impl Question {
    /// Asks the policy and waits for its answer.
    #[must_use]
    pub fn answer(self) -> Answer {
        let plan = self.policy.plan(&self.case).map(|plan| plan.document(&self.case));
        Answer { job: self.job, number: self.number, plan }
    }
}

impl Controller {
    /// The next question for a policy; its answer goes to [`Controller::handle_answer`].
    pub fn poll_question(&mut self) -> Option<Question> {
        self.questions.pop_front()
    }

    pub(super) fn ask(&mut self, id: JobId, tickets: &[Ticket], case: &Case) {
        let late_ns = case.now_ns.saturating_add(self.config.tuning.policy_timeout_ns());
        let job = self.jobs.get_mut(&id).expect("who has a turn is there");
        self.asked += 1;
        let number = self.asked;
        job.asked = Some(Asked { number, tickets: tickets.to_vec(), late_ns, is_late: false });
        let (policy, case) = (job.policy.clone(), case.clone());
        self.questions.push_back(Question { job: id, number, policy, case });
    }

    /// Takes in what a policy answered. One that is late, or of a job that has ended, changes
    /// nothing.
    pub fn handle_answer(&mut self, now_ns: u64, answer: Answer) {
        let Answer { job: id, number, plan } = answer;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let asked = job.asked.take_if(|asked| asked.number == number);
        let Some(asked) = asked.filter(|asked| !asked.is_late) else { return };
        self.drop_stale();
        let job = &self.jobs[&id];
        let is_there = |ticket: &Ticket| job.pending.contains_key(ticket);
        let tickets: Vec<Ticket> = asked.tickets.into_iter().filter(is_there).collect();
        if tickets.is_empty() {
            return;
        }
        if !self.can_plan(job) {
            let job = self.jobs.get_mut(&id).expect("just seen");
            job.unplanned_since_ns.get_or_insert(now_ns);
            return;
        }
        let mut case = self.links.case(now_ns);
        self.flights.reservations(now_ns, &mut case.reservations);
        self.reserve_planned(&mut case.reservations, |other| other.id != id);
        let mut turn = self.begin_turn(now_ns, id, Vec::new());
        self.fill_case(&turn, &tickets, &mut case);
        let is_failure = plan.is_err();
        let plan = plan.and_then(|mut plan| {
            fit(&mut plan, &case);
            outside::accept(self.jobs[&id].policy.name(), &case, &plan)
        });
        self.take_plan(&mut turn, &tickets, &mut case, (plan.ok(), is_failure));
    }
}

/// Takes out of an answer what is gone by now: updates, and aggregators, without which each update
/// goes for itself.
fn fit(plan: &mut PlanDocument, case: &Case) {
    let names = case.updates_by_name();
    plan.order.retain(|name| names.contains_key(name.as_str()));
    plan.dropped.retain(|dropped| names.contains_key(dropped.update.as_str()));
    let sums = |via: &str| case.aggregators.iter().any(|id| case.host(*id).name == via);
    for mut group in core::mem::take(&mut plan.groups) {
        group.members.retain(|name| names.contains_key(name.as_str()));
        if group.via.as_deref().is_none_or(sums) {
            plan.groups.extend((!group.members.is_empty()).then_some(group));
            continue;
        }
        group.via = None;
        for name in core::mem::take(&mut group.members) {
            plan.groups.push(GroupDocument { members: vec![name], ..group.clone() });
        }
    }
}
