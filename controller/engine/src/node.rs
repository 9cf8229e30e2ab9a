//! What the controller knows of a box: its stream, its lives, and whether it takes groups.
//!
//! Invariants: the present stream began when the box was last heard, or before; a box that is
//! attached is not gone; one that refused a group is left alone for a time that grows until it
//! takes one, or comes anew.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;

use weft_config::controller::NodeConfig;
use weft_control::Holding;
use weft_plan::case::HostId;
use weft_wire::JobId;

use super::figures::Told;

/// A box.
#[derive(Clone, Debug)]
pub(super) struct Node {
    name: String,
    host: HostId,
    address: String,
    life: Option<u64>,
    is_attached: bool,
    /// When it last said anything; none before it ever did.
    heard_ns: Option<u64>,
    /// When its present stream began.
    came_ns: Option<u64>,
    /// When its stream broke; none while it is attached, and once that has been dealt with.
    gone_ns: Option<u64>,
    /// It refused a group and is left alone until then.
    refuses_until_ns: u64,
    /// Groups that it refused since it took one.
    refusals: u32,
    events: u64,
    commands: u64,
    /// What it holds for jobs, as it says: at most [`HOLDINGS_MAX`].
    holdings: BTreeSet<(JobId, Holding)>,
    applies_bands: bool,
    /// It was told, on this stream, that it holds all that there is for it.
    is_settled: bool,
    told: Told,
}

/// What a hello of a box says of its lives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// It was here before, in another life.
    pub(super) is_new_life: bool,
    /// This life was not here before.
    pub(super) is_new_here: bool,
}

impl Node {
    /// A box that was never here.
    pub(super) fn new(config: &NodeConfig, host: HostId) -> Self {
        Self {
            name: config.name.clone(),
            host,
            address: config.address.clone(),
            life: None,
            is_attached: false,
            heard_ns: None,
            came_ns: None,
            gone_ns: None,
            refuses_until_ns: 0,
            refusals: 0,
            events: 0,
            commands: 0,
            holdings: BTreeSet::new(),
            applies_bands: false,
            is_settled: false,
            told: Told::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) const fn host(&self) -> HostId {
        self.host
    }

    /// "address:port" of its data port; empty while that is not known.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Takes in where its data port is.
    pub(super) fn set_address(&mut self, address: &str) {
        address.clone_into(&mut self.address);
    }

    /// The life that was last here.
    pub(super) const fn life(&self) -> Option<u64> {
        self.life
    }

    /// True while it has a stream.
    pub(super) const fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// True while it has a stream, or lost it lately.
    pub(super) const fn is_counted_on(&self) -> bool {
        self.is_attached || self.gone_ns.is_some()
    }

    /// When it last said anything; none before it ever did.
    pub(super) const fn heard_ns(&self) -> Option<u64> {
        self.heard_ns
    }

    /// When its present stream began.
    pub(super) const fn came_ns(&self) -> Option<u64> {
        self.came_ns
    }

    /// Events that it told, and commands that it was given.
    pub(super) const fn counts(&self) -> (u64, u64) {
        (self.events, self.commands)
    }

    /// What it holds for jobs.
    pub(super) fn holdings(&self) -> impl Iterator<Item = (JobId, Holding)> + '_ {
        self.holdings.iter().copied()
    }

    /// It says all that it holds.
    pub(super) fn set_holdings(&mut self, holdings: &[(JobId, Holding)]) {
        self.holdings = holdings.iter().copied().collect();
    }

    /// It holds this from now on, or no more.
    pub(super) fn note_holding(&mut self, job: JobId, holding: Holding, is_held: bool) {
        if !is_held {
            self.holdings.remove(&(job, holding));
        } else if self.holdings.len() < HOLDINGS_MAX {
            self.holdings.insert((job, holding));
        }
    }

    /// Whether it gives jobs their bands on its host's link.
    pub(super) const fn applies_bands(&self) -> bool {
        self.applies_bands
    }

    /// It says whether it does.
    pub(super) const fn set_bands(&mut self, applies_bands: bool) {
        self.applies_bands = applies_bands;
    }

    /// It holds all that there is for it; true if it is to be told so.
    pub(super) const fn settle(&mut self) -> bool {
        self.is_attached && !core::mem::replace(&mut self.is_settled, true)
    }

    /// What it has counted.
    pub(super) const fn told(&self) -> &Told {
        &self.told
    }

    /// What it has counted.
    pub(super) const fn told_mut(&mut self) -> &mut Told {
        &mut self.told
    }

    /// It attaches, in this life.
    pub(super) fn attach(&mut self, now_ns: u64, life: u64) -> Arrival {
        let before = self.life.replace(life);
        (self.heard_ns, self.came_ns) = (Some(now_ns), Some(now_ns));
        (self.is_attached, self.gone_ns) = (true, None);
        self.is_settled = false;
        (self.refuses_until_ns, self.refusals) = (0, 0);
        let is_new_life = before.is_some_and(|before| before != life);
        if is_new_life {
            self.told.begin();
        }
        Arrival { is_new_life, is_new_here: before.is_none() || is_new_life }
    }

    /// Its stream broke.
    pub(super) fn detach(&mut self, now_ns: u64) {
        (self.is_attached, self.gone_ns) = (false, Some(now_ns));
        self.told.end();
    }

    /// When it counts as failed, if it does not come back.
    pub(super) fn fails_ns(&self, timeout_ns: u64) -> Option<u64> {
        Some(self.gone_ns?.saturating_add(timeout_ns))
    }

    /// It counts as failed, and that is dealt with.
    pub(super) fn fail(&mut self) {
        self.gone_ns = None;
    }

    /// It says something.
    pub(super) fn hear(&mut self, now_ns: u64) {
        self.heard_ns = Some(now_ns);
    }

    /// It tells an event.
    pub(super) fn count_event(&mut self, now_ns: u64) {
        self.events += 1;
        self.hear(now_ns);
    }

    /// It is given a command.
    pub(super) fn count_command(&mut self) {
        self.commands += 1;
    }

    /// The controller was away: all that it knows of was later.
    pub(super) fn shift(&mut self, shift: impl FnMut(&mut u64)) {
        let times = [&mut self.heard_ns, &mut self.came_ns, &mut self.gone_ns];
        times.into_iter().flatten().for_each(shift);
    }

    /// True when it has a stream and would take a group.
    pub(super) const fn takes_groups(&self, now_ns: u64) -> bool {
        self.is_attached && self.refuses_until_ns <= now_ns
    }

    /// It refused a group; it is left alone for what `pause_ns` says of how often it did.
    pub(super) fn refuse(&mut self, now_ns: u64, pause_ns: impl FnOnce(u32) -> u64) {
        self.refusals = self.refusals.saturating_add(1);
        self.refuses_until_ns = now_ns.saturating_add(pause_ns(self.refusals));
    }

    /// It took a group.
    pub(super) fn accept(&mut self) {
        self.refusals = 0;
    }
}

/// More than any box may hold: a share or the pushes of each of 256 jobs, and 1024 leases.
pub(super) const HOLDINGS_MAX: usize = 4096;
