//! What is left of all links: where transfers are tried, promised and taken back.
//!
//! A transfer is as fast as the narrowest link of its path at every instant (it reserves the
//! bottleneck), from the instant that it may start. Invariant: no link is promised beyond its
//! capacity. Instants round up to the nanosecond, so a transfer gets at least the bytes it needs.

use alloc::vec::Vec;
use core::ops::Range;

use crate::case::{Case, HostId, Reservation, Segment};

use super::profile::Profile;
use super::timeline::{Edge, Step, Timeline, index_from};
use super::topology::{LinkId, Path, Topology};
use super::units::{HORIZON_NS, NS_PER_SEC, div_up};

#[cfg(test)]
mod tests;

/// The residual bandwidth of a network.
#[derive(Clone, Debug)]
pub struct Ledger {
    topology: Topology,
    links: Vec<Timeline>,
    /// Since somebody has marked a point to go back to: what was changed, and what was there.
    is_marked: bool,
    journal: Vec<Changed>,
    journal_steps: Vec<Step>,
    scratch: Vec<Step>,
    changes: u64,
    /// By link: what `changes` was after its last one.
    stamps: Vec<u64>,
}

/// Steps of a link that were put in the place of others.
#[derive(Clone, Debug)]
struct Changed {
    link: LinkId,
    new: Range<usize>,
    /// Where the journal's steps of this change begin.
    old: usize,
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

impl Ledger {
    /// The network of a case, less what it says is promised.
    #[must_use]
    pub fn new(case: &Case) -> Self {
        let topology = Topology::new(case);
        let mut edges = Vec::with_capacity(case.reservations.len() * 4);
        for Reservation { from, to, segment } in &case.reservations {
            let change = i64::try_from(segment.bytes_per_sec).unwrap_or(i64::MAX);
            for link in topology.half_open_path(*from, *to).links() {
                edges.push((*link, Edge { at_ns: segment.from_ns, change }));
                edges.push((*link, Edge { at_ns: segment.to_ns, change: -change }));
            }
        }
        edges.sort_unstable_by_key(|(link, edge)| (*link, edge.at_ns));
        let mut links: Vec<Timeline> =
            Topology::capacities(case).into_iter().map(Timeline::new).collect();
        for taken in edges.chunk_by(|(a, _), (b, _)| a == b) {
            links[taken[0].0.index()].take(taken.iter().map(|(_, edge)| *edge));
        }
        Self {
            topology,
            stamps: vec![0; links.len()],
            links,
            is_marked: false,
            journal: Vec::new(),
            journal_steps: Vec::new(),
            scratch: Vec::new(),
            changes: 0,
        }
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

    /// Like [`Ledger::probe`], and writes the transfer's rates to `segments`, which is empty.
    pub fn probe_segments(
        &self,
        path: &Path,
        from_ns: u64,
        size_bytes: u64,
        segments: &mut Vec<Segment>,
    ) -> Option<u64> {
        self.walk(path, from_ns, size_bytes, |segment| append(segments, segment))
    }

    /// Promises rates on every link of a path.
    pub fn reserve(&mut self, path: &Path, segments: &[Segment]) {
        self.changes += 1;
        for link in path.links() {
            let (timeline, old) = (&mut self.links[link.index()], self.journal_steps.len());
            let journal = self.is_marked.then_some(&mut self.journal_steps);
            let new = timeline.reserve(segments, &mut self.scratch, journal);
            self.stamps[link.index()] = self.changes;
            if self.is_marked {
                self.journal.push(Changed { link: *link, new, old });
            }
        }
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
            self.stamps[link.index()] = self.changes;
        }
    }

    /// A point to go back to, as often as one likes, until [`Ledger::commit`].
    pub const fn mark(&mut self) -> Mark {
        self.is_marked = true;
        Mark(self.journal.len())
    }

    /// Takes back every promise since `mark`. What is promised after that can be taken back too:
    /// the mark stays, and with it the cost of remembering, until [`Ledger::commit`].
    pub fn rollback(&mut self, mark: Mark) {
        self.changes += 1;
        while self.journal.len() > mark.0
            && let Some(Changed { link, new, old }) = self.journal.pop()
        {
            self.links[link.index()].replace(new, &self.journal_steps[old..]);
            self.journal_steps.truncate(old);
            self.stamps[link.index()] = self.changes;
        }
    }

    /// Forgets how to go back, and remembers nothing more before the next [`Ledger::mark`].
    pub fn commit(&mut self) {
        self.is_marked = false;
        self.journal.clear();
        self.journal_steps.clear();
    }

    /// Counts changes: as long as it stays, so does every answer.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether a link of the path has changed since [`Ledger::changes`] was `seen`.
    pub(crate) fn has_changed(&self, path: &Path, seen: u64) -> bool {
        path.links().iter().any(|link| self.stamps[link.index()] > seen)
    }

    /// Writes what is left of several links together, from their first free instant on; false if
    /// that never comes.
    pub(crate) fn profile(&self, links: &[LinkId], from_ns: u64, profile: &mut Profile) -> bool {
        profile.clear();
        match links {
            [] => false,
            [link] => profile.copy(&self.links[link.index()], from_ns),
            [a, b] => self.merged([*a, *b], from_ns, profile),
            [a, b, c, ..] => self.merged([*a, *b, *c], from_ns, profile),
        }
    }

    fn merged<const N: usize>(
        &self,
        links: [LinkId; N],
        from_ns: u64,
        profile: &mut Profile,
    ) -> bool {
        let Some(mut cursors) = self.cursors(links, from_ns) else { return false };
        loop {
            profile.push(cursors.at_ns, cursors.rate());
            if !cursors.advance() {
                return !profile.is_empty();
            }
        }
    }

    /// Like [`Ledger::probe`] on an uplink and what the links behind it have left together, from
    /// the first instant at which that is something.
    pub(crate) fn probe_behind(
        &self,
        up: &Timeline,
        profile: &Profile,
        size_bytes: u64,
        note: impl FnMut(Segment),
    ) -> Option<u64> {
        let at_ns = profile.start_ns();
        let up = Cursor::at(up.steps(), up.late_index_at(at_ns));
        let cursors = [up, Cursor::at(profile.steps(), 0)];
        Cursors { at_ns, cursors }.walk(size_bytes, note)
    }

    /// The links from the first instant on at which each has been free once.
    fn cursors<const N: usize>(&self, links: [LinkId; N], from_ns: u64) -> Option<Cursors<'_, N>> {
        let timelines = links.map(|link| &self.links[link.index()]);
        let mut at_ns = from_ns;
        let mut free = [0; N];
        for (free, timeline) in free.iter_mut().zip(timelines) {
            *free = timeline.free_from(from_ns)?;
            at_ns = at_ns.max(timeline.steps()[*free].from_ns);
        }
        let mut free = free.into_iter();
        let cursors = timelines
            .map(|timeline| Cursor::new(timeline.steps(), free.next().unwrap_or_default(), at_ns));
        Some(Cursors { at_ns, cursors })
    }

    fn walk(
        &self,
        path: &Path,
        from_ns: u64,
        size_bytes: u64,
        note: impl FnMut(Segment),
    ) -> Option<u64> {
        match *path.links() {
            [] => Some(from_ns),
            [a] => self.cursors([a], from_ns)?.walk(size_bytes, note),
            [a, b] => self.cursors([a, b], from_ns)?.walk(size_bytes, note),
            [a, b, c] => self.cursors([a, b, c], from_ns)?.walk(size_bytes, note),
            [a, b, c, d, ..] => self.cursors([a, b, c, d], from_ns)?.walk(size_bytes, note),
        }
    }
}

/// An instant on several links.
struct Cursors<'a, const N: usize> {
    at_ns: u64,
    cursors: [Cursor<'a>; N],
}

/// An instant on one link.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    bytes_per_sec: u64,
    /// Until when; [`u64::MAX`] for ever.
    until_ns: u64,
    rest: &'a [Step],
}

impl<'a> Cursor<'a> {
    #[inline]
    fn new(steps: &'a [Step], first: usize, at_ns: u64) -> Self {
        Self::at(steps, index_from(steps, first, at_ns))
    }

    #[inline]
    fn at(steps: &'a [Step], index: usize) -> Self {
        let (step, rest) = steps[index..].split_first().expect("a step");
        let until_ns = rest.first().map_or(u64::MAX, |next| next.from_ns);
        Self { bytes_per_sec: step.bytes_per_sec, until_ns, rest }
    }
}

impl<const N: usize> Cursors<'_, N> {
    /// What all of them have left.
    fn rate(&self) -> u64 {
        self.cursors.iter().fold(u64::MAX, |rate, cursor| rate.min(cursor.bytes_per_sec))
    }

    fn until_ns(&self) -> u64 {
        self.cursors.iter().fold(u64::MAX, |until_ns, cursor| until_ns.min(cursor.until_ns))
    }

    /// On to the next change of any of them; false if there is none.
    fn advance(&mut self) -> bool {
        let until_ns = self.until_ns();
        self.at_ns = until_ns;
        for cursor in &mut self.cursors {
            if cursor.until_ns == until_ns
                && let Some((step, rest)) = cursor.rest.split_first()
            {
                let until_ns = rest.first().map_or(u64::MAX, |next| next.from_ns);
                *cursor = Cursor { bytes_per_sec: step.bytes_per_sec, until_ns, rest };
            }
        }
        until_ns < u64::MAX
    }

    /// Sends a size from here on at all that is left; its end, none if that never comes.
    fn walk(mut self, size_bytes: u64, mut note: impl FnMut(Segment)) -> Option<u64> {
        let mut left = u128::from(size_bytes) * u128::from(NS_PER_SEC);
        loop {
            let (from_ns, bytes_per_sec) = (self.at_ns, self.rate());
            let until_ns = self.until_ns();
            let carried = u128::from(bytes_per_sec) * u128::from(until_ns - from_ns);
            if carried >= left {
                let finish_ns = u128::from(from_ns) + div_up(left, bytes_per_sec);
                let to_ns = u64::try_from(finish_ns).ok().filter(|t| *t <= HORIZON_NS)?;
                note(Segment { from_ns, to_ns, bytes_per_sec });
                return Some(to_ns);
            }
            if !self.advance() {
                return None;
            }
            if bytes_per_sec > 0 {
                left -= carried;
                note(Segment { from_ns, to_ns: until_ns, bytes_per_sec });
            }
        }
    }
}

/// Appends the next rate of a transfer.
#[inline]
pub(crate) fn append(segments: &mut Vec<Segment>, next: Segment) {
    match segments.last_mut() {
        Some(last) if last.to_ns == next.from_ns && last.bytes_per_sec == next.bytes_per_sec => {
            last.to_ns = next.to_ns;
        }
        _ => segments.push(next),
    }
}
