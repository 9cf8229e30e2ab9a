//! Plans a few transfers to one server ahead: shortest first under their deadlines, as the ordering
//! would, if there were no others.

use crate::case::{Case, Segment, UpdateId};
use crate::net::ledger::Ledger;

use super::super::direct_path;
use super::super::line::{Bound, Line, Offer};

/// Transfers to one server.
pub(super) struct Ahead<'a> {
    case: &'a Case,
    /// By deadline.
    others: Vec<Other>,
    /// What their paths share, by the rack that they start in.
    lines: Vec<Line>,
    /// What beats the best, by line.
    bounds: Vec<Bound>,
}

#[derive(Clone, Copy, Debug)]
struct Other {
    id: UpdateId,
    deadline: i64,
    rank: u32,
    offer: Offer,
    /// Which line; none on the server's host.
    line: Option<usize>,
    /// On links of its own.
    time_ns: u64,
    /// It does not end before this: residuals only shrink.
    least_ns: u64,
}

impl<'a> Ahead<'a> {
    /// `others` are those to be sent, with the time that each takes on links of its own.
    pub(super) fn new(case: &'a Case, ledger: &Ledger, others: &[(u64, UpdateId)]) -> Self {
        let mut lines: Vec<Line> = Vec::new();
        let mut others: Vec<Other> = others
            .iter()
            .map(|(time_ns, id)| {
                let update = case.update(*id);
                let path = direct_path(case, ledger, update);
                let line = path.links().split_first().map(|(_, common)| {
                    let known = lines.iter().position(|line| line.common() == common);
                    known.unwrap_or_else(|| {
                        lines.push(Line::new(common));
                        lines.len() - 1
                    })
                });
                Other {
                    id: *id,
                    deadline: case.deadline(*id),
                    rank: case.ranks[id.index()],
                    offer: Offer::new(
                        ledger.topology().up(update.host),
                        case.host(update.host).up_bytes_per_sec,
                        update.size_bytes,
                    ),
                    line,
                    time_ns: *time_ns,
                    least_ns: case.now_ns,
                }
            })
            .collect();
        others.sort_unstable_by_key(|other| (other.deadline, other.rank));
        Self { case, others, lines, bounds: Vec::new() }
    }

    /// Sum of the commit instants, from a slot and the commit before it on; once it is certain to be
    /// over `most`, what is certain of it. Leaves the transfers in the ledger.
    pub(super) fn commits(
        &mut self,
        ledger: &mut Ledger,
        first_slot: i64,
        mut last_commit_ns: u64,
        most: u128,
    ) -> u128 {
        let mut waiting = self.others.clone();
        let mut segments = Vec::new();
        let mut sum = 0;
        let mut slot = first_slot;
        while !waiting.is_empty() {
            // No commit is before the one before it.
            let least = sum + waiting.len() as u128 * u128::from(last_commit_ns);
            if least > most {
                return least;
            }
            let tight = (0..waiting.len()).find(|n| waiting[*n].deadline - slot <= *n as i64);
            let choice = tight.map_or(waiting.len(), |n| n + 1);
            let at = self.briefest(ledger, &mut waiting[..choice]);
            let id = waiting.remove(at).id;
            last_commit_ns = last_commit_ns.max(send(self.case, ledger, id, &mut segments));
            sum += u128::from(last_commit_ns);
            slot += 1;
        }
        sum
    }

    /// Which of some transfers would end first. Only what could is asked about.
    fn briefest(&mut self, ledger: &Ledger, choice: &mut [Other]) -> usize {
        let case = self.case;
        for line in &mut self.lines {
            line.look_up(case, ledger);
        }
        for other in &mut *choice {
            if let Some(line) = other.line {
                let alone_ns = self.lines[line].start_ns().saturating_add(other.time_ns);
                other.least_ns = other.least_ns.max(alone_ns);
            }
        }
        let keyed = choice.iter().enumerate();
        let guess = keyed.min_by_key(|(_, other)| (other.least_ns, other.rank));
        let mut best_at = guess.map_or(0, |(at, _)| at);
        let mut best = self.ask(ledger, &mut choice[best_at]);
        self.bound(best);
        for (at, other) in choice.iter_mut().enumerate() {
            if at == best_at || other.least_ns > best.0 {
                continue;
            }
            let is_late = |line: usize| !self.lines[line].admits(&self.bounds[line], &other.offer);
            if other.line.is_some_and(is_late) {
                other.least_ns = best.0 + 1;
                continue;
            }
            let key = self.ask(ledger, other);
            if key < best {
                (best, best_at) = (key, at);
                self.bound(best);
            }
        }
        best_at
    }

    fn bound(&mut self, best: (u64, u32)) {
        self.bounds.clear();
        self.bounds.extend(self.lines.iter().map(|line| line.bound(best)));
    }

    /// When a transfer would end, as its line was looked up last, and its rank.
    fn ask(&self, ledger: &Ledger, other: &mut Other) -> (u64, u32) {
        if let Some(line) = other.line {
            other.least_ns = self.lines[line].ask(self.case, ledger, &other.offer);
        }
        (other.least_ns, other.rank)
    }
}

/// Reserves an update's transfer and returns its finish; [`u64::MAX`] for never.
pub(super) fn send(
    case: &Case,
    ledger: &mut Ledger,
    id: UpdateId,
    segments: &mut Vec<Segment>,
) -> u64 {
    let update = case.update(id);
    let path = direct_path(case, ledger, update);
    segments.clear();
    let finish = ledger.probe_segments(&path, case.now_ns, update.size_bytes, segments);
    if finish.is_some() {
        ledger.reserve(&path, segments);
    }
    finish.unwrap_or(u64::MAX)
}
