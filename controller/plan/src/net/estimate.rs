//! Decides how much bandwidth each link has to give: one estimate per host and direction, and per
//! rack uplink, from packet trains, delivered transfers and NIC counters. Sans-IO, no clock.
//!
//! *Available* is capacity less the background, which is what others than Weft put on the link.
//!
//! | question | answered from | where |
//! | --- | --- | --- |
//! | how fast does a train leave the bottleneck | arrival times, the shaper's burst cut off | [`train`] |
//! | what is a link's capacity | the fastest peers' samples, pooled | [`capacity`] |
//! | did it change | a clipped two-sided CUSUM | [`change`] |
//! | how much is taken by others | NIC counters less own bytes, EWMA | [`background`] |
//! | what did a link carry beside a train | counters of its receiver, stamps of its sender | `carried` |
//! | which link does a sample speak of | whether another link on the path explains it | this file |
//! | when may whom be probed | 1 % of each link's time | [`budget`], [`probe`] |
//!
//! A train crosses up to four links and shows the slowest. So a sample below a link's estimate says
//! nothing of that link while another one on the path is saturated; where none is, all of them are
//! suspects, and trains to other peers tell which (the innocent ones look as ever). Losses that
//! several hosts of a rack have at once are put down to the rack's uplink.
//!
//! Invariants: no input panics; what makes no sense is refused and counted; an estimate is finite
//! and not negative. MLfabric leaves the method open ("How: not found"); every constant is derived.
//! A sample costs O(log peers + samples kept), no allocation once a link has met its peers.

pub mod background;
pub mod budget;
pub mod capacity;
mod carried;
pub mod change;
pub mod probe;
pub mod train;
mod types;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::topology::{LinkId, Topology};
use crate::case::{HostId, RackId};
use background::Background;
use capacity::{Capacity, Judgement};
use carried::{Carried, Shows};
pub use train::TrainSample;
pub use types::{Bound, Changed, Context, Delivered, Estimate, Refusal, Refused, Verdict};

/// The share of an estimate on which a plan builds; the rest is for its error (derived).
pub const PLANNED_SHARE: f64 = 0.9;

/// The estimates of all links.
#[derive(Clone, Debug)]
pub struct Estimator {
    topology: Topology,
    links: Vec<Link>,
    events: VecDeque<Changed>,
    refused: Refused,
}

/// What is known of a link.
#[derive(Clone, Debug, Default)]
struct Link {
    capacity: Capacity,
    background: Background,
    line_rate_bytes_per_sec: Option<f64>,
    /// It has carried its line rate.
    has_shown_line_rate: bool,
    /// The last unexplained loss on a rack's link: when, and which of its hosts had it.
    shared_loss: Option<(u64, HostId)>,
    /// What the last event said is available.
    announced_bytes_per_sec: Option<f64>,
}

impl Estimator {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        let links = vec![Link::default(); topology.link_count()];
        Self { topology, links, events: VecDeque::new(), refused: Refused::default() }
    }

    /// The topology.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Sets the line rate, above which no estimate goes.
    ///
    /// # Errors
    /// When there is no such link or the rate is not positive.
    pub fn set_line_rate(&mut self, link: LinkId, bytes_per_sec: f64) -> Result<(), Refusal> {
        if !is_positive(bytes_per_sec) {
            return Err(self.refused.count(Refusal::Absurd));
        }
        let Some(link) = self.links.get_mut(link.index()) else {
            return Err(self.refused.count(Refusal::NoPath));
        };
        link.line_rate_bytes_per_sec = Some(bytes_per_sec);
        Ok(())
    }

    /// Takes in what a train from `from` to `to` showed.
    ///
    /// # Errors
    /// Why the sample was not used.
    pub fn handle_train(
        &mut self,
        now_ns: u64,
        (from, to): (HostId, HostId),
        sample: &TrainSample,
        context: Context,
    ) -> Result<Verdict, Refusal> {
        self.check_path(from, to)?;
        let (own, received) = sample.rates().map_err(|refusal| self.refused.count(refusal))?;
        let carried = match context {
            Context::Probe => self.carried((from, to), (own, received), sample),
            Context::Reserved => {
                let down = own.max(received) + self.foreign((from, to), own);
                Carried::path(own, down)
            }
        };
        // Beside others and without a reading, who knows how much of the link was left to it.
        let unknown = received == 0.0 && self.background_matters(to, own);
        Ok(self.judge(now_ns, (from, to), carried, unknown))
    }

    /// Takes in the rate at which a transfer arrived. Where the network held it back, each link
    /// also carried its background meanwhile.
    ///
    /// # Errors
    /// Why it was not used.
    pub fn handle_delivered(
        &mut self,
        now_ns: u64,
        (from, to): (HostId, HostId),
        delivered: &Delivered,
    ) -> Result<Verdict, Refusal> {
        self.check_path(from, to)?;
        if delivered.bytes == 0 || delivered.duration_ns < DELIVERED_NS_MIN {
            return Err(self.refused.count(Refusal::Absurd));
        }
        let own = delivered.bytes as f64 * 1e9 / delivered.duration_ns as f64;
        let down = self.topology.down(to).index();
        let carried = Carried::path(own, own + self.links[down].background.bytes_per_sec());
        Ok(self.judge(now_ns, (from, to), carried, delivered.limited_by_grant))
    }

    /// Takes in a NIC's counters: all bytes and Weft's own, since any start. `total_bytes` must
    /// count frames as the link does, Ethernet headers included.
    ///
    /// # Errors
    /// When a counter or the clock went backwards; the next reading starts afresh.
    pub fn handle_counters(
        &mut self,
        now_ns: u64,
        link: LinkId,
        total_bytes: u64,
        own_bytes: u64,
    ) -> Result<(), Refusal> {
        let Some(known) = self.links.get_mut(link.index()) else {
            return Err(self.refused.count(Refusal::NoPath));
        };
        let outcome = known.background.handle(now_ns, total_bytes, own_bytes);
        outcome.map_err(|refusal| self.refused.count(refusal))?;
        self.announce(now_ns, link);
        Ok(())
    }

    /// Nobody reads a link's counters any more: what others put on it is taken to be nothing.
    pub fn forget_counters(&mut self, link: LinkId) {
        if let Some(known) = self.links.get_mut(link.index()) {
            known.background = Background::default();
        }
    }

    /// What the link has to give; `None` before the first sample.
    #[must_use]
    pub fn estimate(&self, now_ns: u64, link: LinkId) -> Option<Estimate> {
        let known = self.links.get(link.index())?;
        let seen = known.capacity.bytes_per_sec()?;
        let capacity = seen.min(known.line_rate_bytes_per_sec.unwrap_or(f64::INFINITY));
        let background = known.background.bytes_per_sec().min(capacity);
        Some(Estimate {
            available_bytes_per_sec: (capacity - background).max(capacity * AVAILABLE_SHARE_MIN),
            capacity_bytes_per_sec: capacity,
            background_bytes_per_sec: background,
            confidence: known.capacity.confidence(now_ns),
            bound: self.bound(link, capacity),
        })
    }

    /// The next change that nobody has been told yet.
    pub fn poll_event(&mut self) -> Option<Changed> {
        self.events.pop_front()
    }

    /// How many inputs were refused.
    #[must_use]
    pub const fn refused(&self) -> Refused {
        self.refused
    }

    /// Counts an input that was found useless before it came here.
    pub fn refuse(&mut self, refusal: Refusal) {
        self.refused.count(refusal);
    }

    /// What others put on a link; 0 where nobody tells.
    #[must_use]
    pub fn background_bytes_per_sec(&self, link: LinkId) -> f64 {
        self.links.get(link.index()).map_or(0.0, |link| link.background.bytes_per_sec())
    }

    fn check_path(&mut self, from: HostId, to: HostId) -> Result<(), Refusal> {
        let hosts = self.topology.host_count();
        if from == to || from.index() >= hosts || to.index() >= hosts {
            return Err(self.refused.count(Refusal::NoPath));
        }
        Ok(())
    }

    /// Gives a sample to the links that it speaks of.
    fn judge(
        &mut self,
        now_ns: u64,
        (from, to): (HostId, HostId),
        carried: Carried,
        lower_bound: bool,
    ) -> Verdict {
        let path = self.topology.path(from, to);
        let (up, down) = (self.topology.up(from), self.topology.down(to));
        let rate_on = |link: LinkId| match link {
            _ if link == up => carried.up,
            _ if link == down => carried.down,
            _ => carried.own,
        };
        // What nothing has been seen of is believed to have its line rate.
        let known = |link: LinkId| {
            let link = &self.links[link.index()];
            link.capacity.bytes_per_sec().or(link.line_rate_bytes_per_sec)
        };
        let explains = |link: LinkId| match carried.up_shows {
            Shows::Itself if link == up => carried.own >= carried.up * LIKE,
            Shows::Least if link == up => false,
            _ => known(link).is_none_or(|rate| rate_on(link) >= rate * LIKE),
        };
        let explained = lower_bound || path.links().iter().any(|link| explains(*link));
        let shared = !explained && self.is_shared(now_ns, from, to);
        let mut verdict = Verdict::InLine;
        for &link in path.links() {
            let rate = rate_on(link);
            let at_rack = link.index() >= self.topology.host_count() * 2;
            let known = self.links[link.index()].capacity.bytes_per_sec().unwrap_or(0.0);
            let line = self.links[link.index()].line_rate_bytes_per_sec;
            // Another link held it back, and of this one nothing more is known.
            let is_empty = explained && known == 0.0 && rate < line.unwrap_or(0.0) * LIKE;
            let shows = if link == up { carried.up_shows } else { Shows::Path };
            let speaks_of_it = match shows {
                Shows::Itself => true,
                Shows::Least => rate > known,
                Shows::Path if explained => rate > known || (!lower_bound && rate >= known * LIKE),
                Shows::Path => at_rack || !shared,
            };
            if !speaks_of_it || (is_empty && shows != Shows::Itself) {
                continue;
            }
            self.links[link.index()].has_shown_line_rate |=
                line.is_some_and(|line| rate >= line * LIKE);
            let peer = if link == down { from } else { to };
            let peer = if at_rack { from } else { peer };
            let judgement = self.links[link.index()].capacity.handle(now_ns, peer, rate, at_rack);
            verdict = match (judgement, verdict) {
                (Judgement::Changed, _) | (_, Verdict::Changed) => Verdict::Changed,
                (Judgement::Suspect, _) | (_, Verdict::Suspect) => Verdict::Suspect,
                (Judgement::InLine, Verdict::InLine) => Verdict::InLine,
            };
            self.announce(now_ns, link);
        }
        verdict
    }

    /// Whether an unexplained loss between racks was just seen by another host of the same rack
    /// too, at either end; notes this one.
    fn is_shared(&mut self, now_ns: u64, from: HostId, to: HostId) -> bool {
        let path = self.topology.path(from, to);
        let host_links = self.topology.host_count() * 2;
        let mut shared = false;
        for link in path.links().iter().filter(|link| link.index() >= host_links) {
            let host = if link.0.is_multiple_of(2) { from } else { to };
            let loss = &mut self.links[link.index()].shared_loss;
            shared |= loss.is_some_and(|(at_ns, other)| {
                other != host && now_ns.saturating_sub(at_ns) <= SHARED_WINDOW_NS
            });
            *loss = Some((now_ns, host));
        }
        shared
    }

    /// A link was the slowest of a path when what it leads to has shown more: some peer's link for
    /// a host's, some pair's for a rack's. Links of equal rates are each at least that fast, and
    /// no path can tell more.
    fn bound(&self, link: LinkId, capacity: f64) -> Bound {
        let hosts = u32::try_from(self.topology.host_count()).unwrap_or(u32::MAX);
        let index = link.0;
        let all = || (0..hosts).map(HostId);
        let best = |links: &mut dyn Iterator<Item = LinkId>| {
            // Less what others take: beside them a train shows less than the link has.
            let free = |link: &Link| {
                Some(link.capacity.bytes_per_sec()? - link.background.bytes_per_sec())
            };
            links.filter_map(|link| free(&self.links[link.index()])).fold(0.0, f64::max)
        };
        let limit = if index < hosts * 2 {
            let (own, upwards) = (HostId(index / 2), index.is_multiple_of(2));
            let far =
                |host| if upwards { self.topology.down(host) } else { self.topology.up(host) };
            best(&mut all().filter(|host| *host != own).map(far)) * CLEARLY_LESS
        } else {
            let rack = RackId((index - hosts * 2) / 2);
            let (inside, outside): (Vec<_>, Vec<_>) =
                all().partition(|host| self.topology.rack(*host) == Some(rack));
            let (senders, receivers) =
                if index.is_multiple_of(2) { (inside, outside) } else { (outside, inside) };
            let up = best(&mut senders.into_iter().map(|host| self.topology.up(host)));
            let down = best(&mut receivers.into_iter().map(|host| self.topology.down(host)));
            // A rack that carries what one pair can is no bottleneck that anyone has seen.
            up.min(down) * CLEARLY_LESS
        };
        if capacity < limit {
            return Bound::Measured;
        }
        let link = &self.links[index as usize];
        let line = link.line_rate_bytes_per_sec.filter(|_| link.has_shown_line_rate);
        if line.is_some_and(|line| capacity < line * LIKE) { Bound::Fallen } else { Bound::AtLeast }
    }

    /// Queues an event once what is available has moved by a fifth.
    fn announce(&mut self, now_ns: u64, link: LinkId) {
        let Some(estimate) = self.estimate(now_ns, link) else { return };
        let after = estimate.available_bytes_per_sec;
        let known = &mut self.links[link.index()];
        let Some(before) = known.announced_bytes_per_sec else {
            known.announced_bytes_per_sec = Some(after);
            return;
        };
        if (after - before).abs() <= before * ANNOUNCED_CHANGE {
            return;
        }
        known.announced_bytes_per_sec = Some(after);
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(Changed {
            link,
            before_bytes_per_sec: before,
            after_bytes_per_sec: after,
        });
    }
}

fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

/// A rate this close to a link's estimate saturates it.
const LIKE: f64 = 0.9;
/// A link that shows less than this share of another's rate is the slower one.
const CLEARLY_LESS: f64 = 0.93;
/// An elastic flow that fills a link gives way to another one: never plan on nothing at all.
pub const AVAILABLE_SHARE_MIN: f64 = 0.1;
/// Losses of two hosts of one rack within this time are the rack's.
const SHARED_WINDOW_NS: u64 = 1_000_000_000;
/// Smallest relative change that is an event: the lateness at which plans are made anew.
const ANNOUNCED_CHANGE: f64 = 0.2;
/// Events kept for a reader who does not come; the oldest go first.
const EVENTS_MAX: usize = 1024;
/// Shorter transfers are over within a shaper's burst.
const DELIVERED_NS_MIN: u64 = 1_000_000;

#[cfg(test)]
mod tests;
