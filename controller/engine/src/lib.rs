//! The controller, without a socket or a clock: decides who may send what, where, when and how
//! fast.
//!
//! Workers ask ([`Controller::handle_request`]), boxes report ([`Controller::handle_event`]), both
//! measure ([`Controller::handle_telemetry`], [`Controller::handle_train`]), time passes
//! ([`Controller::handle_timeout`]); what is to be told to whom comes out of
//! [`Controller::poll_action`], what a policy that is another program is to be asked out of
//! [`Controller::poll_question`], and when to come back without news out of
//! [`Controller::poll_timeout`].
//!
//! | file | decides |
//! | --- | --- |
//! | `bands` | whose frames leave a host first |
//! | `requests` | which requests make sense |
//! | `batch` | when plans are made, whose turn it is, what a policy is asked |
//! | `question` | what a policy is asked that is another program, and what its answer is worth later |
//! | `answer` | what a plan means for the groups |
//! | `grants` | when a planned group is installed; who is granted |
//! | `gates` | what a granted segment waits for |
//! | `numbers` | which order number a group gets |
//! | `flights` | what is promised of the network, which arrival opens which gate |
//! | `events` | what an event of a box means |
//! | `refusals` | what becomes of a group that a box refuses |
//! | `endings` | what becomes of a group and its updates when it ends |
//! | `nodes` | what boxes that attach still know; which have failed |
//! | `promote` | when a replica takes over from its server |
//! | `links` | what plans may use of every link |
//! | `counters` | what a host's counters say of others |
//! | `probes` | when a link that is idle is probed |
//! | `accounts` | what each box has in each of its jobs, as it told |
//! | `pause` | when a job that is to pause stands still |
//! | `reduce` | before which round the workers of an allreduce stop, and who goes on |
//! | `unregister` | what becomes of a job that ends at run time |
//! | `rows` | group ids |
//! | `node`, `job/worker` | what is known of a box, and of a worker |
//! | `job/promotion`, `job/replica` | which server a job has; how far its replica is |
//! | `job/round`, `job/numbers` | which updates a round has room for; which order numbers are free |
//! | `check` | whether a configuration makes sense |
//!
//! Invariants: no order number is given twice; a granted update is never planned again (no
//! pre-emption), and a new plan comes before it only with numbers that its grant left free, never
//! so that its delay bound breaks; a member is granted after every box on its path acknowledged the
//! group; granted ceilings fit the links as they were known; a bad message changes nothing but a
//! counter (PROTOCOL sections 5 to 7, MLfabric as in facts of the planners).

#![no_std]
#![forbid(unsafe_code)]

#[macro_use]
extern crate alloc;
#[cfg(test)]
extern crate std;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use weft_control::{Command, Event, Holding, Train};
use weft_wire::{GroupId, JobId};

use weft_plan::case::HostId;
use weft_plan::policy::{self, AnyPolicy};

mod accounts;
mod answer;
mod bands;
mod batch;
mod check;
mod counters;
mod endings;
mod events;
mod figures;
mod flights;
mod gates;
mod grants;
mod holdings;
mod job;
mod links;
mod message;
mod node;
mod nodes;
mod numbers;
mod pause;
mod probes;
mod promote;
mod question;
mod reduce;
mod refusals;
mod requests;
mod rows;
mod saved;
mod setup;
mod status;
mod steered;
#[cfg(test)]
mod tests;
mod unregister;

pub use bands::{BandStatus, BandsSet};
pub use check::{ConfigError, shown};
pub use job::JobCounters;
pub use message::{
    Action, Gate, Grant, GrantSegment, LostCommits, NodeHello, NodeId, NotHeld, Notice, OpenGroup,
    ProbeTrain, Refusal, Reply, Reporter, RoleState, Telemetry, TransferKey, TransferRequest,
};
pub use question::{Answer, Question};
pub use reduce::{BegunRound, ReduceStatus, SavedReduce};
pub use saved::{Saved, SavedHolding, SavedJob};
pub use status::{
    GroupStatus, HostStatus, JobStatus, NodeStatus, ReplicaStatus, Status, WorkerStatus,
};
pub use steered::{PauseStatus, Resize, SteerError, Steerer};
pub use unregister::{UnregisterError, Unregistered};
pub use weft_config::controller::{
    BandsConfig, Config, HostConfig, JobConfig, NodeConfig, PlaceConfig, Placement, RackConfig,
    ReduceConfig, Tuning, WorkerConfig,
};

use accounts::Accounts;
use bands::Bands;
use counters::Counters;
use flights::Flights;
use holdings::Kept;
use job::{Group, Job};
use links::Links;
use node::Node;
use probes::Probes;
use reduce::Reduce;
use rows::Rows;

/// Finds a policy by the name in a configuration.
pub type PolicySource = Box<dyn Fn(&str) -> Result<AnyPolicy, String> + Send>;

/// The controller's state and rules.
pub struct Controller {
    config: Config,
    policies: PolicySource,
    links: Links,
    counters: Counters,
    probes: Probes,
    flights: Flights,
    nodes: Vec<Node>,
    accounts: Accounts,
    bands: Bands,
    jobs: BTreeMap<JobId, Job>,
    reduces: BTreeMap<JobId, Reduce>,
    groups: BTreeMap<GroupId, Group>,
    rows: Rows,
    registered: Vec<JobConfig>,
    tickets: u64,
    /// Why everything is to be planned anew.
    replan: Option<Why>,
    /// Acknowledgements that a hello implied.
    acknowledged: VecDeque<(NodeId, Event)>,
    /// What boxes were told to hold, or no more, and have not answered.
    holdings: BTreeSet<(NodeId, JobId, Holding)>,
    /// What boxes shall hold because somebody said so.
    kept: Kept,
    actions: VecDeque<Action>,
    questions: VecDeque<Question>,
    /// Questions so far.
    asked: u64,
    plans: u64,
    refusals: BTreeMap<&'static str, u64>,
    /// False when [`Controller::poll_saved`] has something new.
    is_saved: bool,
    /// When boxes were last looked at for their silence.
    leases_at_ns: u64,
    /// A server was replaced, or is about to be, and that is not saved.
    is_promotion_unsaved: bool,
    /// Somebody paused or resumed a job, or a job was granted something for the first time, and
    /// that is not saved.
    is_steering_unsaved: bool,
    saved_ceiling: u32,
    saved_jobs: usize,
}

/// Why a plan is made anew.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Why {
    Failure,
    /// Somebody paused, resumed or ended a job.
    Word,
    Late,
    Bandwidth,
    Bands,
}

impl Controller {
    /// The next thing to tell somebody.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Controller::handle_timeout`] is due; none while nothing can become due by itself. An
    /// instant that has passed means at once.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let tuning = &self.config.tuning;
        let groups = self.groups.values().flat_map(|group| {
            let installing = (!group.waiting.is_empty())
                .then(|| group.installed_ns.saturating_add(tuning.install_timeout_ns()));
            let late = (group.state == job::GroupState::Granted && group.late_ns < u64::MAX)
                .then_some(group.late_ns);
            [installing, late, group.retry_ns].into_iter().flatten()
        });
        let nodes = self.nodes.iter().filter_map(|node| node.fails_ns(tuning.node_timeout_ns()));
        let acknowledged = (!self.acknowledged.is_empty()).then_some(0);
        groups
            .chain(nodes)
            .chain(self.plan_due_ns())
            .chain(self.grant_due_ns())
            .chain(acknowledged)
            .chain(self.lease_due_ns(self.leases_at_ns))
            .chain(self.probes.due_ns())
            .chain(self.reduce_due_ns())
            .chain(self.pause_due_ns())
            .chain(self.holdings_due_ns())
            .chain(self.bands.due_ns())
            .min()
    }

    /// Does what is due. Call it after every batch of messages too: requests are planned here.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        while let Some((node, Event::Installed { group })) = self.acknowledged.pop_front() {
            let Some(job) = self.groups.get(&group).map(|group| group.job) else { continue };
            // A hello said so, which was checked.
            let _ = self.handle_event(now_ns, node, job, &Event::Installed { group });
        }
        self.forgive_pause(now_ns);
        self.check_bands(now_ns);
        self.fail_nodes(now_ns);
        self.check_leases(now_ns);
        self.leases_at_ns = now_ns;
        self.check_groups(now_ns);
        if self.plan_due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.plan(now_ns);
        }
        // What nobody waits for needs no new plan; the next one is of the changed links.
        self.replan = self.replan.filter(|why| *why == Why::Bandwidth);
        self.install_due(now_ns);
        self.skip_unused();
        self.note_standstills(now_ns);
        self.check_reduces(now_ns);
        self.check_holdings(now_ns);
        self.send_probes(now_ns);
        if self.bands.is_active() {
            self.tell_rates(now_ns);
        }
    }

    /// A box reports the train that a transfer began with. One of a group that is over is taken
    /// without effect.
    ///
    /// # Errors
    /// A job that is not there, a box without a role in it, a group of another job.
    pub fn handle_train(
        &mut self,
        now_ns: u64,
        node: NodeId,
        train: &Train,
    ) -> Result<(), Refusal> {
        // It says of a transfer what its arrival will say: the same may report it.
        let (group, rank) = (train.group, train.rank);
        let event =
            Event::Transferred { group, rank, bytes: 0, duration_ns: 0, wait_ns: 0, idle_ns: 0 };
        let checked = self.check_event(node, train.job, &event);
        self.checked(checked)?;
        if let Some(path) = self.path_into(node, group, rank) {
            self.links.handle_train(now_ns, path, train);
            self.check_bandwidth(now_ns);
        }
        Ok(())
    }

    fn check_bandwidth(&mut self, now_ns: u64) {
        if self.links.has_changed(now_ns, self.config.tuning.bandwidth_change_share) {
            self.need_plan(Why::Bandwidth);
            self.tell_rates(now_ns);
        }
    }

    /// Late groups, groups that nobody acknowledges, groups to be offered again.
    fn check_groups(&mut self, now_ns: u64) {
        let install_ns = self.config.tuning.install_timeout_ns();
        let mut silent = Vec::new();
        let mut retries = Vec::new();
        let mut is_late = false;
        for (id, group) in &mut self.groups {
            if group.state == job::GroupState::Granted && group.late_ns <= now_ns {
                group.late_ns = u64::MAX;
                is_late = true;
            }
            if group.retry_ns.is_some_and(|at_ns| at_ns <= now_ns) {
                group.retry_ns = None;
                group.installed_ns = now_ns;
                retries.push((self.jobs[&group.job].server, group.descriptor.clone()));
            } else if !group.waiting.is_empty()
                && group.installed_ns.saturating_add(install_ns) <= now_ns
            {
                group.installed_ns = now_ns;
                silent.extend(group.waiting.iter().map(|node| (*id, *node)));
            }
        }
        let held = self.groups.iter().filter(|(_, group)| self.is_ready(group));
        let held: Vec<GroupId> = held.map(|(id, _)| *id).collect();
        for id in held {
            self.grant(now_ns, id);
        }
        for (server, descriptor) in retries {
            self.command(server, Command::Install(descriptor));
        }
        for (group, node) in silent {
            self.give_up_on(now_ns, group, node);
        }
        if is_late {
            self.need_plan(Why::Late);
        }
    }

    /// Asks for a new plan, for the gravest reason.
    fn need_plan(&mut self, why: Why) {
        let gravity = |why: Why| match why {
            Why::Late => 0,
            Why::Bands => 1,
            Why::Word => 2,
            Why::Bandwidth => 3,
            Why::Failure => 4,
        };
        if self.replan.is_none_or(|known| gravity(why) >= gravity(known)) {
            self.replan = Some(why);
        }
    }

    /// Counts a refusal.
    fn checked<T>(&mut self, checked: Result<T, Refusal>) -> Result<T, Refusal> {
        if let Err(refusal) = &checked {
            *self.refusals.entry(refusal.field).or_default() += 1;
        }
        checked
    }

    fn command(&mut self, node: NodeId, command: Command) {
        let known = &mut self.nodes[node.index()];
        // What a box misses while it is away is settled when it is back.
        if known.is_attached() {
            known.count_command();
            self.accounts.note_command(node, &command);
            self.actions.push_back(Action::Command { node, command });
        }
    }

    fn host_of(&self, node: NodeId) -> HostId {
        self.nodes[node.index()].host()
    }

    /// Tells servers what their link may receive for each job, where that has changed.
    fn tell_rates(&mut self, now_ns: u64) {
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in jobs {
            let job = &self.jobs[&id];
            let (node, host) = (job.server, self.host_of(job.server));
            if !self.nodes[node.index()].is_attached() || !job.is_known {
                continue;
            }
            let down = self.links.topology().down(host);
            let (link_bytes_per_sec, _) = self.links.rate(now_ns, down);
            let rate_bytes_per_sec = self.rate_beside_better(id, host, link_bytes_per_sec);
            let job = self.jobs.get_mut(&id).expect("just listed");
            let told = job.told_rate_bytes_per_sec;
            if rate_bytes_per_sec.abs_diff(told) > told / RATE_NEWS {
                job.told_rate_bytes_per_sec = rate_bytes_per_sec;
                self.command(node, Command::SetRate { job: id, rate_bytes_per_sec });
            }
        }
    }

    /// Plans computed so far.
    #[must_use]
    pub const fn plans(&self) -> u64 {
        self.plans
    }
}

impl core::fmt::Debug for Controller {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Controller")
            .field("jobs", &self.jobs)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

/// The planners of this crate, by name.
#[must_use]
pub fn built_in_policies() -> PolicySource {
    Box::new(|name| match policy::by_name(name) {
        Some(policy) => Ok(AnyPolicy::BuiltIn(policy)),
        None => {
            let names: Vec<&str> = policy::names().collect();
            Err(format!("there is no policy `{name}`; there are {}", names.join(", ")))
        }
    })
}

/// A server is told a rate that differs by more than one part in so many.
const RATE_NEWS: u64 = 20;
