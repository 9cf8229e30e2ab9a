//! Flows that share links as TCP does in theory: every link's bandwidth is divided max-min fairly
//! (progressive filling) among the flows that cross it, anew whenever a flow begins or ends or a
//! link's residual changes.
//!
//! What baselines without a schedule do to the network. No link carries more than its residual:
//! shares round down. One event costs O(flows + links x bottlenecks).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

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

/// A link that flows share.
#[derive(Clone, Copy, Debug)]
struct Shared {
    link: LinkId,
    /// What rates that are settled leave.
    left: u64,
    /// Flows whose rates are not.
    open: u64,
    is_in_use: bool,
}

#[derive(Clone, Debug)]
struct Flow {
    /// Of its links among those that are shared.
    places: Vec<usize>,
    /// Bytes x 10^9.
    left: u128,
    rate_bytes_per_sec: u64,
    segments: Vec<Segment>,
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
        self.flows.push(Flow { places, left, rate_bytes_per_sec: 0, segments: Vec::new() });
        id
    }

    fn place(&mut self, link: LinkId) -> usize {
        let links = &mut self.links;
        *self.places.entry(link.index()).or_insert_with(|| {
            links.push(Shared { link, left: 0, open: 0, is_in_use: false });
            links.len() - 1
        })
    }

    /// Goes on to the next instant at which flows end, and says which; none when no flow is left
    /// that ever ends.
    pub fn next_ended(&mut self) -> Option<Vec<FlowId>> {
        if !self.local.is_empty() {
            return Some(core::mem::take(&mut self.local));
        }
        while !self.active.is_empty() {
            self.fill();
            let change_ns = self.next_change_ns();
            let end_ns = self.active.iter().filter_map(|id| self.end_of(*id)).min();
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

    fn end_of(&self, id: FlowId) -> Option<u64> {
        let flow = &self.flows[id.0];
        let rate = u128::from(flow.rate_bytes_per_sec);
        (rate > 0).then(|| {
            u64::try_from(u128::from(self.now_ns) + flow.left.div_ceil(rate)).unwrap_or(u64::MAX)
        })
    }

    /// The next instant at which a link in use has another residual.
    fn next_change_ns(&self) -> Option<u64> {
        let next = self.links.iter().filter(|shared| shared.is_in_use).filter_map(|shared| {
            let timeline = self.ledger.link(shared.link);
            timeline.steps().get(timeline.index_at(self.now_ns) + 1).map(|step| step.from_ns)
        });
        next.min()
    }

    fn advance(&mut self, until_ns: u64) -> Vec<FlowId> {
        let span_ns = u128::from(until_ns - self.now_ns);
        let mut ended = Vec::new();
        for id in &self.active {
            let flow = &mut self.flows[id.0];
            let rate = flow.rate_bytes_per_sec;
            if rate == 0 {
                continue;
            }
            flow.left = flow.left.saturating_sub(u128::from(rate) * span_ns);
            match flow.segments.last_mut() {
                Some(last) if last.to_ns == self.now_ns && last.bytes_per_sec == rate => {
                    last.to_ns = until_ns;
                }
                _ => flow.segments.push(Segment {
                    from_ns: self.now_ns,
                    to_ns: until_ns,
                    bytes_per_sec: rate,
                }),
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
    /// then the next one with what is left.
    fn fill(&mut self) {
        let Self { ledger, now_ns, flows, active, links, .. } = self;
        for shared in links.iter_mut() {
            (shared.open, shared.is_in_use) = (0, false);
        }
        for place in active.iter().flat_map(|id| &flows[id.0].places) {
            let shared = &mut links[*place];
            if !shared.is_in_use {
                shared.left = ledger.link(shared.link).residual_at(*now_ns);
                shared.is_in_use = true;
            }
            shared.open += 1;
        }
        let mut open = active.clone();
        while !open.is_empty() {
            let shares = links.iter().enumerate().filter(|(_, shared)| shared.open > 0);
            let narrowest = shares
                .map(|(place, shared)| (shared.left / shared.open, shared.link.index(), place));
            let Some((share, _, narrowest)) = narrowest.min() else { return };
            open.retain(|id| {
                let flow = &mut flows[id.0];
                if !flow.places.contains(&narrowest) {
                    return true;
                }
                flow.rate_bytes_per_sec = share;
                for place in &flow.places {
                    links[*place].left -= share;
                    links[*place].open -= 1;
                }
                false
            });
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
}
