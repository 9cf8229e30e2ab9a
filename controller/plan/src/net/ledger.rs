//! What is left of all links: where transfers are tried, promised and taken back.
//!
//! A transfer is as fast as the narrowest link of its path at every instant (it reserves the
//! bottleneck), from the instant that it may start. Invariant: no link is promised beyond its
//! capacity. Instants round up to the nanosecond, so a transfer gets at least the bytes it needs.

use crate::case::{Case, HostId, Segment};

use super::timeline::{Step, Timeline};
use super::topology::{LinkId, Path, Topology};

/// The residual bandwidth of a network.
#[derive(Clone, Debug)]
pub struct Ledger {
    topology: Topology,
    links: Vec<Timeline>,
    /// Promises that can be taken back: where, and up to which of the segments.
    journal: Vec<(Path, usize)>,
    journal_segments: Vec<Segment>,
    scratch: Vec<Step>,
    changes: u64,
}

/// A point that a ledger can go back to.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

/// A link has less left than was asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Overbooked {
    /// Where.
    pub at_ns: u64,
}

/// Beyond this nothing is planned.
pub const HORIZON_NS: u64 = 1 << 62;

const NS_PER_SEC: u64 = 1_000_000_000;

impl Ledger {
    /// The network of a case, less what it says is promised.
    #[must_use]
    pub fn new(case: &Case) -> Self {
        let links = Topology::capacities(case).into_iter().map(Timeline::new).collect();
        let mut ledger = Self {
            topology: Topology::new(case),
            links,
            journal: Vec::new(),
            journal_segments: Vec::new(),
            scratch: Vec::new(),
            changes: 0,
        };
        for reservation in &case.reservations {
            let path = ledger.topology.half_open_path(reservation.from, reservation.to);
            for link in path.links() {
                ledger.links[link.index()].occupy(reservation.segment);
            }
        }
        ledger
    }

    /// Where hosts are attached.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// One link.
    #[must_use]
    pub fn link(&self, link: LinkId) -> &Timeline {
        &self.links[link.index()]
    }

    /// The links between two hosts.
    #[must_use]
    pub fn path(&self, from: HostId, to: HostId) -> Path {
        self.topology.path(from, to)
    }

    /// When a transfer would end; none if never.
    #[must_use]
    pub fn probe(&self, path: &Path, from_ns: u64, size_bytes: u64) -> Option<u64> {
        self.walk(path, from_ns, size_bytes, |_| {})
    }

    /// Like [`Ledger::probe`], and appends the transfer's rates to `segments`.
    pub fn probe_segments(
        &self,
        path: &Path,
        from_ns: u64,
        size_bytes: u64,
        segments: &mut Vec<Segment>,
    ) -> Option<u64> {
        let first = segments.len();
        self.walk(path, from_ns, size_bytes, |segment| match segments[first..].last_mut() {
            Some(last)
                if last.to_ns == segment.from_ns && last.bytes_per_sec == segment.bytes_per_sec =>
            {
                last.to_ns = segment.to_ns;
            }
            _ => segments.push(segment),
        })
    }

    /// Promises rates on every link of a path.
    pub fn reserve(&mut self, path: &Path, segments: &[Segment]) {
        self.changes += 1;
        for link in path.links() {
            self.links[link.index()].reserve(segments, &mut self.scratch);
        }
        self.journal_segments.extend_from_slice(segments);
        self.journal.push((*path, self.journal_segments.len()));
    }

    /// Like [`Ledger::reserve`] for segments that somebody else has made.
    ///
    /// # Errors
    /// [`Overbooked`] says where a link has less left; then nothing is promised.
    pub fn try_reserve(&mut self, path: &Path, segments: &[Segment]) -> Result<(), Overbooked> {
        for link in path.links() {
            for segment in segments {
                let steps = self.link(*link).steps();
                let first = self.link(*link).index_at(segment.from_ns);
                let inside = steps[first..].iter().take_while(|s| s.from_ns < segment.to_ns);
                if let Some(step) =
                    inside.into_iter().find(|s| s.bytes_per_sec < segment.bytes_per_sec)
                {
                    return Err(Overbooked { at_ns: step.from_ns.max(segment.from_ns) });
                }
            }
        }
        self.reserve(path, segments);
        Ok(())
    }

    /// Takes promises back, for good.
    pub fn release(&mut self, path: &Path, segments: &[Segment]) {
        debug_assert!(self.journal.is_empty(), "a release cannot be undone");
        self.changes += 1;
        for link in path.links() {
            self.links[link.index()].release(segments, &mut self.scratch);
        }
    }

    /// A point to go back to.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.journal.len())
    }

    /// Takes back every promise since `mark`.
    pub fn rollback(&mut self, mark: Mark) {
        self.changes += 1;
        while self.journal.len() > mark.0
            && let Some((path, end)) = self.journal.pop()
        {
            let start = self.journal.last().map_or(0, |(_, end)| *end);
            for link in path.links() {
                let segments = &self.journal_segments[start..end];
                self.links[link.index()].release(segments, &mut self.scratch);
            }
            self.journal_segments.truncate(start);
        }
    }

    /// Forgets how to go back.
    pub fn commit(&mut self) {
        self.journal.clear();
        self.journal_segments.clear();
    }

    /// Counts changes: as long as it stays, so does every answer.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Writes what is left of several links together, from their first free instant on; false if
    /// that never comes.
    pub(crate) fn profile(&self, links: &[LinkId], from_ns: u64, profile: &mut Profile) -> bool {
        profile.steps.clear();
        let mut at_ns = from_ns;
        for link in links {
            match self.link(*link).first_free_ns(from_ns) {
                Some(free_ns) => at_ns = at_ns.max(free_ns),
                None => return false,
            }
        }
        let mut cursors: [&[Step]; 4] = [&[]; 4];
        for (cursor, link) in cursors.iter_mut().zip(links) {
            let timeline = self.link(*link);
            *cursor = &timeline.steps()[timeline.index_at(at_ns)..];
        }
        let cursors = &mut cursors[..links.len()];
        loop {
            let bytes_per_sec =
                cursors.iter().map(|c| c[0].bytes_per_sec).min().unwrap_or(u64::MAX);
            if !profile.steps.is_empty() || bytes_per_sec > 0 {
                profile.steps.push(Step { from_ns: at_ns, bytes_per_sec });
            }
            let Some(next_ns) = cursors.iter().filter_map(|c| Some(c.get(1)?.from_ns)).min() else {
                return !profile.steps.is_empty();
            };
            at_ns = next_ns;
            for cursor in cursors.iter_mut() {
                if cursor.get(1).is_some_and(|s| s.from_ns == next_ns) {
                    *cursor = &cursor[1..];
                }
            }
        }
    }

    fn walk(
        &self,
        path: &Path,
        from_ns: u64,
        size_bytes: u64,
        mut note: impl FnMut(Segment),
    ) -> Option<u64> {
        let count = path.links().len();
        if count == 0 {
            return Some(from_ns);
        }
        let mut cursors: [&[Step]; 4] = [&[]; 4];
        let mut at_ns = from_ns;
        for link in path.links() {
            at_ns = at_ns.max(self.links[link.index()].first_free_ns(from_ns)?);
        }
        for (cursor, link) in cursors.iter_mut().zip(path.links()) {
            let timeline = &self.links[link.index()];
            *cursor = &timeline.steps()[timeline.index_at(at_ns)..];
        }
        let cursors = &mut cursors[..count];
        let mut left = u128::from(size_bytes) * u128::from(NS_PER_SEC);
        loop {
            let rate = cursors.iter().map(|c| c[0].bytes_per_sec).min()?;
            let until_ns = cursors.iter().filter_map(|c| Some(c.get(1)?.from_ns)).min();
            if rate > 0 {
                let need_ns = div_up(left, rate);
                let finish_ns = u128::from(at_ns) + need_ns;
                if until_ns.is_none_or(|until_ns| finish_ns <= u128::from(until_ns)) {
                    let to_ns = u64::try_from(finish_ns).ok().filter(|t| *t <= HORIZON_NS)?;
                    note(Segment { from_ns: at_ns, to_ns, bytes_per_sec: rate });
                    return Some(to_ns);
                }
            }
            let until_ns = until_ns?;
            if rate > 0 {
                left -= u128::from(rate) * u128::from(until_ns - at_ns);
                note(Segment { from_ns: at_ns, to_ns: until_ns, bytes_per_sec: rate });
            }
            at_ns = until_ns;
            for cursor in cursors.iter_mut() {
                if cursor.get(1).is_some_and(|s| s.from_ns == until_ns) {
                    *cursor = &cursor[1..];
                }
            }
        }
    }
}

/// What several links have left together. The first step starts where something is left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profile {
    steps: Vec<Step>,
}

impl Profile {
    /// Where it starts.
    pub(crate) fn start_ns(&self) -> u64 {
        self.steps.first().map_or(u64::MAX, |s| s.from_ns)
    }

    /// How much can be carried by an instant.
    pub(crate) fn reach(&self, by_ns: u64) -> Reach {
        let mut total: u128 = 0;
        for (i, step) in self.steps.iter().enumerate() {
            if step.from_ns >= by_ns {
                break;
            }
            let until_ns = self.steps.get(i + 1).map_or(by_ns, |s| s.from_ns.min(by_ns));
            total += u128::from(step.bytes_per_sec) * u128::from(until_ns - step.from_ns);
        }
        Reach { by_ns, time_ns: by_ns.saturating_sub(self.start_ns()), total }
    }

    /// Whether a sender of that capacity gets the bytes across in time.
    pub(crate) fn covers(&self, reach: &Reach, capacity: u64, size_bytes: u64) -> bool {
        let size = u128::from(size_bytes) * u128::from(NS_PER_SEC);
        if size > reach.total || size > u128::from(capacity) * u128::from(reach.time_ns) {
            return false;
        }
        let mut carried: u128 = 0;
        for (i, step) in self.steps.iter().enumerate() {
            if step.from_ns >= reach.by_ns {
                return false;
            }
            let until_ns =
                self.steps.get(i + 1).map_or(reach.by_ns, |s| s.from_ns.min(reach.by_ns));
            let rate = step.bytes_per_sec.min(capacity);
            carried += u128::from(rate) * u128::from(until_ns - step.from_ns);
            if carried >= size {
                return true;
            }
        }
        false
    }

    /// When a sender of that capacity would end; none if never.
    pub(crate) fn finish_ns(&self, capacity: u64, size_bytes: u64) -> Option<u64> {
        self.finish_by(capacity, size_bytes, HORIZON_NS)
    }

    fn finish_by(&self, capacity: u64, size_bytes: u64, by_ns: u64) -> Option<u64> {
        let mut left = u128::from(size_bytes) * u128::from(NS_PER_SEC);
        for (i, step) in self.steps.iter().enumerate() {
            if step.from_ns >= by_ns {
                return None;
            }
            let rate = step.bytes_per_sec.min(capacity);
            let until_ns = self.steps.get(i + 1).map_or(by_ns, |s| s.from_ns.min(by_ns));
            let carried = u128::from(rate) * u128::from(until_ns - step.from_ns);
            if carried >= left {
                return Some(step.from_ns + u64::try_from(div_up(left, rate)).ok()?);
            }
            left -= carried;
        }
        None
    }
}

/// How far an instant reaches in a [`Profile`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    pub(crate) by_ns: u64,
    /// Since the profile's start.
    time_ns: u64,
    /// Bytes times 1e9 if only the profile limits.
    total: u128,
}

/// Division that rounds up; 64-bit where that is enough, which is much faster.
fn div_up(value: u128, by: u64) -> u128 {
    match u64::try_from(value) {
        Ok(value) => u128::from(value.div_ceil(by)),
        Err(_) => value.div_ceil(u128::from(by)),
    }
}
