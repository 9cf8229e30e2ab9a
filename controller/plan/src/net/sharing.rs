//! Flows that share links as TCP does in theory: every link's bandwidth is divided max-min fairly
//! (progressive filling) among the flows that cross it, anew whenever a flow begins or ends or a
//! link's residual changes.
//!
//! What baselines without a schedule do to the network. No link carries more than its residual:
//! shares round down. One division costs O(n log n) for n flows and their links.
//!
//! Dividing anew at each end would take n divisions, and n segments for each flow. So among more
//! than [`EACH_END_MAX`] flows the links are divided anew when one in [`ENDS_PER_DIVISION`] of them
//! has ended, and what these had is unused until then: under 2 % of a link.

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::case::Segment;

use super::ledger::Ledger;
use super::topology::{LinkId, Path};
use super::units::{HORIZON_NS, NS_PER_SEC};

/// Index of a flow, in the order of [`Sharing::start`].
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct FlowId(pub usize);

/// Flows under way on what a ledger has left.
#[derive(Clone, Debug)]
pub struct Sharing<'a> {
    ledger: &'a Ledger,
    now_ns: u64,
    flows: Vec<Flow>,
    active: Vec<FlowId>,
    /// Ended at once: from a host to itself.
    local: Vec<FlowId>,
    /// Links that some flow crosses, and their places.
    links: Vec<Shared>,
    places: BTreeMap<usize, usize>,
}

/// Flows under way up to which the end of each gives the others new rates.
const EACH_END_MAX: usize = 256;
/// Above that, the share of them that ends before the others get new rates: one in so many.
const ENDS_PER_DIVISION: usize = 64;

/// A link that flows share.
#[derive(Clone, Debug)]
struct Shared {
    link: LinkId,
    /// What rates that are settled leave.
    left: u64,
    /// Flows whose rates are not.
    open: u64,
    /// Flows that cross it now.
    flows: Vec<FlowId>,
}

impl Shared {
    /// What it gives to each flow whose rate is not settled; then its number, for a fixed order.
    fn share(&self) -> Option<(u64, usize)> {
        Some((self.left.checked_div(self.open)?, self.link.index()))
    }
}

#[derive(Clone, Debug)]
struct Flow {
    /// Of its links among those that are shared.
    places: Vec<usize>,
    /// Bytes x 10^9.
    left: u128,
    /// `None` while the links are divided.
    rate_bytes_per_sec: Option<u64>,
    segments: Vec<Segment>,
}

impl Flow {
    /// When it ends at its rate, if it does.
    fn end_ns(&self, now_ns: u64) -> Option<u64> {
        let rate = self.rate_bytes_per_sec.filter(|rate| *rate > 0)?;
        let end_ns = u128::from(now_ns) + self.left.div_ceil(u128::from(rate));
        Some(u64::try_from(end_ns).unwrap_or(u64::MAX))
    }
}

impl<'a> Sharing<'a> {
    /// No flows yet.
    #[must_use]
    pub fn new(ledger: &'a Ledger, now_ns: u64) -> Self {
        Self {
            ledger,
            now_ns,
            flows: Vec::new(),
            active: Vec::new(),
            local: Vec::new(),
            links: Vec::new(),
            places: BTreeMap::new(),
        }
    }

    /// The instant that the simulation has reached.
    #[must_use]
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Begins a flow now.
    pub fn start(&mut self, path: Path, size_bytes: u64) -> FlowId {
        let id = FlowId(self.flows.len());
        let left = u128::from(size_bytes) * u128::from(NS_PER_SEC);
        let places: Vec<usize> = path.links().iter().map(|link| self.place(*link)).collect();
        match places.is_empty() {
            true => self.local.push(id),
            false => self.active.push(id),
        }
        self.flows.push(Flow { places, left, rate_bytes_per_sec: None, segments: Vec::new() });
        id
    }

    fn place(&mut self, link: LinkId) -> usize {
        let links = &mut self.links;
        *self.places.entry(link.index()).or_insert_with(|| {
            links.push(Shared { link, left: 0, open: 0, flows: Vec::new() });
            links.len() - 1
        })
    }

    /// Goes on to the next instant at which the links are divided anew because flows have ended,
    /// and says which; none when no flow is left that ever ends.
    pub fn next_ended(&mut self) -> Option<Vec<FlowId>> {
        if !self.local.is_empty() {
            return Some(core::mem::take(&mut self.local));
        }
        while !self.active.is_empty() {
            self.fill();
            let change_ns = self.next_change_ns();
            let end_ns = self.next_end_ns();
            let until_ns = match (end_ns, change_ns) {
                (Some(end_ns), Some(change_ns)) => end_ns.min(change_ns),
                (end_ns, change_ns) => end_ns.or(change_ns)?,
            };
            if until_ns > HORIZON_NS {
                return None;
            }
            let ended = self.advance(until_ns);
            if !ended.is_empty() {
                return Some(ended);
            }
        }
        None
    }

    /// The rates of a flow so far.
    #[must_use]
    pub fn segments(&self, id: FlowId) -> &[Segment] {
        &self.flows[id.0].segments
    }

    /// When a flow ended; until then its last segment lasts.
    #[must_use]
    pub fn ended_ns(&self, id: FlowId) -> u64 {
        self.segments(id).last().map_or(self.now_ns, |segment| segment.to_ns)
    }

    /// When so many flows will have ended that the links are divided anew.
    fn next_end_ns(&self) -> Option<u64> {
        let ends = self.active.iter().filter_map(|id| self.flows[id.0].end_ns(self.now_ns));
        if self.active.len() <= EACH_END_MAX {
            return ends.min();
        }
        let mut ends: Vec<u64> = ends.collect();
        let last = (self.active.len() / ENDS_PER_DIVISION).min(ends.len()).checked_sub(1)?;
        Some(*ends.select_nth_unstable(last).1)
    }

    /// The next instant at which a link in use has another residual.
    fn next_change_ns(&self) -> Option<u64> {
        let in_use = self.links.iter().filter(|shared| !shared.flows.is_empty());
        let next = in_use.filter_map(|shared| {
            let timeline = self.ledger.link(shared.link);
            timeline.steps().get(timeline.index_at(self.now_ns) + 1).map(|step| step.from_ns)
        });
        next.min()
    }

    fn advance(&mut self, until_ns: u64) -> Vec<FlowId> {
        let mut ended = Vec::new();
        for id in &self.active {
            let flow = &mut self.flows[id.0];
            let rate = flow.rate_bytes_per_sec.unwrap_or(0);
            if rate == 0 {
                continue;
            }
            let to_ns = flow.end_ns(self.now_ns).map_or(until_ns, |end_ns| end_ns.min(until_ns));
            let sent = u128::from(rate) * u128::from(to_ns - self.now_ns);
            flow.left = flow.left.saturating_sub(sent);
            match flow.segments.last_mut() {
                Some(last) if last.to_ns == self.now_ns && last.bytes_per_sec == rate => {
                    last.to_ns = to_ns;
                }
                _ => {
                    flow.segments.push(Segment { from_ns: self.now_ns, to_ns, bytes_per_sec: rate })
                }
            }
            if flow.left == 0 {
                ended.push(*id);
            }
        }
        self.now_ns = until_ns;
        self.active.retain(|id| self.flows[id.0].left > 0);
        ended
    }

    /// Progressive filling: the link that gives least to each of its flows settles their rates,
    /// then the next one with what is left. Settling one never lowers another's share, so a share
    /// in the heap is at most the link's present one.
    fn fill(&mut self) {
        let Self { ledger, now_ns, flows, active, links, .. } = self;
        for shared in links.iter_mut() {
            shared.flows.clear();
        }
        for id in active.iter() {
            let flow = &mut flows[id.0];
            flow.rate_bytes_per_sec = None;
            flow.places.iter().for_each(|place| links[*place].flows.push(*id));
        }
        let mut narrowest = BinaryHeap::new();
        for (place, shared) in links.iter_mut().enumerate() {
            shared.open = shared.flows.len() as u64;
            if shared.open > 0 {
                shared.left = ledger.link(shared.link).residual_at(*now_ns);
                narrowest.extend(shared.share().map(|share| Reverse((share, place))));
            }
        }
        while let Some(Reverse((share, place))) = narrowest.pop() {
            let Some(present) = links[place].share() else { continue };
            if present != share {
                narrowest.push(Reverse((present, place)));
                continue;
            }
            let (rate, _) = share;
            let settled = core::mem::take(&mut links[place].flows);
            for id in &settled {
                let flow = &mut flows[id.0];
                if flow.rate_bytes_per_sec.is_some() {
                    continue;
                }
                flow.rate_bytes_per_sec = Some(rate);
                for place in &flow.places {
                    links[*place].left -= rate;
                    links[*place].open -= 1;
                }
            }
            links[place].flows = settled;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Case, HostId};

    fn case() -> Case {
        Case::from_json(
            r#"{"now_ns":0,"hosts":{
                "a":{"up_bytes_per_sec":10,"down_bytes_per_sec":10},
                "b":{"up_bytes_per_sec":2,"down_bytes_per_sec":10},
                "s":{"up_bytes_per_sec":10,"down_bytes_per_sec":10}},
                "reservations":[{"to":"s","from_ns":0,"to_ns":1000000000,"bytes_per_sec":4}],
                "servers":[],"updates":[]}"#,
        )
        .unwrap()
    }

    #[test]
    fn a_slow_flow_leaves_its_share_to_the_other() {
        let case = case();
        let ledger = Ledger::new(&case);
        let mut sharing = Sharing::new(&ledger, 0);
        let [a, b, s] = [0, 1, 2].map(HostId);
        let of_a = sharing.start(ledger.path(a, s), 12);
        let of_b = sharing.start(ledger.path(b, s), 6);
        let local = sharing.start(ledger.path(a, a), 1_000);
        assert_eq!(sharing.next_ended(), Some(vec![local]));
        assert_eq!(sharing.now_ns(), 0);
        // One second at 6 left of 10: b has its 2, a the other 4; then 8 and 2.
        assert_eq!(sharing.next_ended(), Some(vec![of_a]));
        assert_eq!(sharing.now_ns(), 2_000_000_000);
        let rates: Vec<u64> = sharing.segments(of_a).iter().map(|s| s.bytes_per_sec).collect();
        assert_eq!(rates, [4, 8]);
        assert_eq!(sharing.next_ended(), Some(vec![of_b]));
        assert_eq!(sharing.now_ns(), 3_000_000_000);
        assert_eq!(sharing.next_ended(), None);
    }

    #[test]
    fn equal_flows_end_together() {
        let case = case();
        let ledger = Ledger::new(&case);
        let mut sharing = Sharing::new(&ledger, 1_000_000_000);
        let flows: Vec<FlowId> =
            (0..4).map(|_| sharing.start(ledger.path(HostId(0), HostId(2)), 10)).collect();
        assert_eq!(sharing.next_ended(), Some(flows));
        assert_eq!(sharing.now_ns(), 6_000_000_000, "2 of 10 for each: 5 s");
    }

    #[test]
    fn many_flows_lose_little_to_rare_divisions() {
        let case = Case::from_json(
            r#"{"now_ns":0,"servers":[],"updates":[],"hosts":{
                "a":{"up_bytes_per_sec":4000000,"down_bytes_per_sec":1},
                "s":{"up_bytes_per_sec":1,"down_bytes_per_sec":4000000}}}"#,
        )
        .unwrap();
        let ledger = Ledger::new(&case);
        let mut sharing = Sharing::new(&ledger, 0);
        let sizes: Vec<u64> = (0..4_000).map(|flow| 1_000 + 7_919 * flow % 4_000).collect();
        for size in &sizes {
            sharing.start(ledger.path(HostId(0), HostId(1)), *size * 1_000);
        }
        let mut last_ns = 0;
        while let Some(ended) = sharing.next_ended() {
            last_ns = ended.iter().map(|id| sharing.ended_ns(*id)).fold(last_ns, u64::max);
        }
        let sent = |segment: &Segment| {
            u128::from(segment.bytes_per_sec) * u128::from(segment.to_ns - segment.from_ns)
        };
        for (flow, size) in sizes.iter().enumerate() {
            let sent: u128 = sharing.segments(FlowId(flow)).iter().map(sent).sum();
            assert!(sent >= u128::from(*size * 1_000) * u128::from(NS_PER_SEC), "{flow}");
        }
        let segments: usize = (0..4_000).map(|flow| sharing.segments(FlowId(flow)).len()).sum();
        assert!(segments < 4_000 * 250, "{segments}: not one for each end");
        let whole = sizes.iter().sum::<u64>() as f64 * 1_000.0 / 4e6;
        let took = last_ns as f64 / 1e9;
        assert!((1.0..1.03).contains(&(took / whole)), "{took} s, and {whole} without pauses");
    }
}
