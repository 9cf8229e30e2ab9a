//! Plans a few transfers to one server ahead: shortest first under their deadlines, as the ordering
//! would, if there were no others.

use alloc::vec::Vec;

use crate::case::{Case, UpdateId};
use crate::net::ledger::Ledger;
use crate::net::topology::Path;

use super::super::direct_path;
use super::super::line::{Line, Offer};

/// Transfers to one server.
pub(super) struct Ahead<'a> {
    case: &'a Case,
    /// By deadline.
    others: Vec<Other>,
    /// What their paths share, by the rack that they start in.
    lines: Vec<Line>,
}

#[derive(Clone, Copy, Debug)]
struct Other {
    deadline: i64,
    rank: u32,
    offer: Offer,
    /// The part of its path that others of these come to cross.
    shared: Path,
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
        let host = |id: UpdateId| case.update(id).host;
        let is_alone =
            |id: UpdateId| others.iter().filter(|(_, other)| host(*other) == host(id)).count() == 1;
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
                    deadline: case.deadline(*id),
                    rank: case.ranks[id.index()],
                    offer: Offer::new(
                        ledger.topology().up(update.host),
                        case.host(update.host).up_bytes_per_sec,
                        update.size_bytes,
                    ),
                    shared: if is_alone(*id) { path.behind() } else { path },
                    line,
                    time_ns: *time_ns,
                    least_ns: case.now_ns,
                }
            })
            .collect();
        others.sort_unstable_by_key(|other| (other.deadline, other.rank));
        Self { case, others, lines }
    }

    /// Sum of the commit instants, from a slot and the commit before it on; once it is certain to
    /// be over `most`, what is certain of it. Leaves in the ledger what others would meet of the
    /// transfers.
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
            let Other { offer, line, shared, .. } = waiting.remove(at);
            let finish_ns = line.map_or(Some(self.case.now_ns), |line| {
                let finish_ns = self.lines[line].send(ledger, &offer, &mut segments)?;
                ledger.reserve(&shared, &segments);
                Some(finish_ns)
            });
            last_commit_ns = last_commit_ns.max(finish_ns.unwrap_or(u64::MAX));
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
        self.limit(best.0);
        for (at, other) in choice.iter_mut().enumerate() {
            if at == best_at || other.least_ns > best.0 {
                continue;
            }
            let is_late = |line: usize| !self.lines[line].admits(&other.offer);
            if other.line.is_some_and(is_late) {
                other.least_ns = best.0 + 1;
                continue;
            }
            let key = self.ask(ledger, other);
            if key < best {
                (best, best_at) = (key, at);
                self.limit(best.0);
            }
        }
        best_at
    }

    fn limit(&mut self, by_ns: u64) {
        for line in &mut self.lines {
            line.limit(by_ns);
        }
    }

    /// When a transfer would end, as its line was looked up last, and its rank.
    fn ask(&self, ledger: &Ledger, other: &mut Other) -> (u64, u32) {
        if let Some(line) = other.line {
            other.least_ns = self.lines[line].ask(ledger, &other.offer);
        }
        (other.least_ns, other.rank)
    }
}
