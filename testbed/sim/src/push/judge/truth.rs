//! What a job's model must be, by plain loops over what its workers offered.

use std::collections::{BTreeMap, BTreeSet};

use weft_control::OrderNumber;
use weft_wire::{GroupId, Members};

use super::{Offer, Uid};
use crate::push::scenario::Scenario;
use crate::push::topology;

/// A job.
#[derive(Debug)]
pub(super) struct Truth {
    pub(super) version: u64,
    pub(super) next_order: u64,
    pub(super) w: Vec<f32>,
    pub(super) h: Vec<f32>,
    /// Version, weights and momentum term by order number that is next.
    pub(super) history: BTreeMap<u64, (u64, Vec<f32>, Vec<f32>)>,
    pub(super) committed: BTreeMap<Uid, u64>,
    /// Whose workers know.
    pub(super) told: BTreeSet<Uid>,
    /// The newest version that a worker has.
    pub(super) shown: u64,
    pub(super) refused: BTreeSet<Uid>,
    /// Too old, or dropped by a plan: these may be told that they are dropped.
    pub(super) dropped: BTreeSet<Uid>,
    pub(super) groups: BTreeMap<GroupId, PlannedGroup>,
    /// The order numbers that the controller of now gave away.
    pub(super) orders: BTreeSet<OrderNumber>,
    /// The replica serves it.
    pub(super) is_succeeded: bool,
    /// Nobody does, nor will.
    pub(super) is_stranded: bool,
    /// Updates come without units: models are judged by somebody else.
    pub(super) is_blind: bool,
}

/// A group as it was planned, and what its members sent.
#[derive(Clone, Debug)]
pub(super) struct PlannedGroup {
    /// None for a direct update: the server decides.
    pub(super) order: Option<OrderNumber>,
    /// Ranks in the group's order.
    pub(super) ranks: Vec<usize>,
    pub(super) mask: Members,
    pub(super) offers: Vec<Offer>,
    /// Members that have not been told to send, and the versions that they were planned with.
    pub(super) ungranted: BTreeMap<usize, u64>,
    /// It was judged for the age of a member, at this version.
    pub(super) dropped_at: Option<u64>,
}

impl PlannedGroup {
    /// A group of which nobody has sent anything.
    pub(super) fn new(order: Option<OrderNumber>, ranks: Vec<usize>) -> Self {
        let bit = |rank: &usize| topology::rank(*rank).bit();
        let mask = ranks.iter().map(bit).fold(Members::EMPTY, Members::union);
        Self {
            order,
            ranks,
            mask,
            offers: Vec::new(),
            ungranted: BTreeMap::new(),
            dropped_at: None,
        }
    }

    /// True when a member with an update of this version was too old when the group was judged.
    pub(super) fn is_old(&self, scenario: &Scenario, rank: usize, of: u64) -> bool {
        let before = self.ranks.iter().position(|other| *other == rank).unwrap_or(0);
        self.dropped_at.is_some_and(|version| {
            let delay = (version + before as u64).checked_sub(of);
            delay.is_none_or(|delay| delay > scenario.tau_max)
        })
    }
}

impl Truth {
    /// A job.
    pub(super) fn new(scenario: &Scenario) -> Self {
        let is_blind = scenario.site.as_ref().is_some_and(|site| !site.judges_models);
        let len = if is_blind { 0 } else { scenario.dimension() };
        Self {
            version: 0,
            next_order: 0,
            w: vec![0.0; len],
            h: vec![0.0; len],
            history: BTreeMap::from([(0, (0, vec![0.0; len], vec![0.0; len]))]),
            committed: BTreeMap::new(),
            told: BTreeSet::new(),
            shown: 0,
            refused: BTreeSet::new(),
            dropped: BTreeSet::new(),
            groups: BTreeMap::new(),
            orders: BTreeSet::new(),
            is_succeeded: false,
            is_stranded: false,
            is_blind,
        }
    }

    /// Members of a group that is not committed because of their age.
    pub(super) fn note_old(&mut self, scenario: &Scenario, group: GroupId) {
        let Some(known) = self.groups.get_mut(&group) else { return };
        known.dropped_at = Some(self.version);
        let is_old = |offer: &&Offer| known.is_old(scenario, offer.uid.rank, offer.version);
        self.dropped.extend(known.offers.iter().filter(is_old).map(|offer| offer.uid));
    }

    /// True, once, when a group was dropped for the age of this member before it was told to send:
    /// it hears of the drop alone.
    pub(super) fn take_ungranted(&mut self, scenario: &Scenario, rank: usize) -> bool {
        self.groups.values_mut().any(|known| {
            let version = known.ungranted.get(&rank).copied();
            let is_old = version.is_some_and(|version| known.is_old(scenario, rank, version));
            is_old && known.ungranted.remove(&rank).is_some()
        })
    }

    /// Applies a committed group by plain loops; what is wrong with the commit, if something is.
    pub(super) fn commit(
        &mut self,
        scenario: &Scenario,
        group: GroupId,
        members: Members,
        version: u64,
        norm: f64,
    ) -> Option<String> {
        let Some(known) = self.groups.get(&group).cloned() else {
            return Some("nobody offered it".to_owned());
        };
        let is_in = |rank: &&usize| members.contains(topology::rank(**rank).bit());
        let offer_of = |rank: &usize| known.offers.iter().find(|offer| offer.uid.rank == *rank);
        let entered: Vec<Offer> =
            known.ranks.iter().filter(is_in).filter_map(offer_of).cloned().collect();
        let mut problem = None;
        if entered.len() != members.len() || entered.is_empty() {
            problem = Some(format!("members {members} were not offered"));
        }
        for (position, offer) in (0..).zip(&entered) {
            let delay = (self.version + position).checked_sub(offer.version);
            if delay.is_none_or(|delay| delay > scenario.tau_max) {
                problem = Some(format!("{:?} has the delay {delay:?}", offer.uid));
            }
            if self.refused.contains(&offer.uid) {
                problem = Some(format!("{:?} was told that it never would be", offer.uid));
            }
            if self.committed.insert(offer.uid, version).is_some() {
                problem = Some(format!("{:?} is committed twice", offer.uid));
            }
        }
        let unit = f32::from(topology::EXPONENT).exp2();
        let mut squares = 0.0_f64;
        for (element, (w, h)) in self.w.iter_mut().zip(&mut self.h).enumerate() {
            let sum: i32 = entered.iter().map(|offer| offer.values[element]).sum();
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let scaled = sum as f32 * unit;
            squares += f64::from(scaled) * f64::from(scaled);
            let kept = scenario.momentum * *h;
            *h = kept + scaled;
            *w += *h;
        }
        if !self.is_blind && (norm - squares.sqrt()).abs() > 1e-6 * squares.sqrt() + 1e-9 {
            problem = Some(format!("norm {norm}, not {}", squares.sqrt()));
        }
        self.version += entered.len() as u64;
        if version != self.version {
            problem = Some(format!("version {version}, not {}", self.version));
        }
        problem
    }
}
