//! What the target counts, and what it says of a bank: compared with what a line says.

use super::*;

impl Play<'_> {
    pub(super) fn counts(
        &self,
        what: &str,
        wanted: &[(String, u64)],
        before: &Counts,
        after: &Counts,
    ) -> Played {
        if let Some((name, _)) =
            wanted.iter().find(|(name, _)| !after.iter().any(|(n, _)| n == name))
        {
            return self.fail(what, "a name that there is", name.clone());
        }
        let of =
            |name: &str| before.iter().find(|(n, _)| *n == name).map_or(0, |(_, count)| *count);
        // That a credit narrows a group is no matter of one slot.
        let is_told = |name: &str| name != "narrow" || wanted.iter().any(|(w, _)| w == name);
        let after: Counts = after.iter().filter(|(name, _)| is_told(name)).copied().collect();
        let rose = after.iter().map(|(name, count)| (*name, count - of(name)));
        let text = |counts: Vec<(&str, u64)>| {
            let all: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
            let texts: Vec<String> =
                all.iter().map(|(name, count)| format!("{name} {count}")).collect();
            if texts.is_empty() { "none".to_owned() } else { texts.join(" ") }
        };
        let named = |(name, _): &(&'static str, u64)| {
            let found = wanted.iter().find(|(wanted, _)| wanted == name);
            (*name, found.map_or(0, |(_, count)| *count))
        };
        let (expected, got) = (text(after.iter().map(named).collect()), text(rose.collect()));
        if expected == got { Ok(()) } else { self.fail(what, expected, got) }
    }

    pub(super) fn transitions(&mut self, wanted: &[(String, u64)]) -> Played {
        let Some(after) = self.all_transitions() else { return Ok(()) };
        let before: Counts = self.marked.1.iter().flatten().flatten().copied().collect();
        // Both kinds of lease have names of their own, but for a few: what they share adds up.
        self.counts("transitions", wanted, &summed(&before), &summed(&after))
    }

    fn all_transitions(&mut self) -> Option<Counts> {
        let mut all = Vec::new();
        for counts in self.read_transitions() {
            all.extend(counts?);
        }
        Some(all)
    }

    fn read_transitions(&mut self) -> Vec<Option<Counts>> {
        let leases = self.script.leases.iter();
        let mut seen_rows = false;
        let mut all = Vec::new();
        for lease in leases {
            let is_push = matches!(lease.kind, LeaseKind::Push(_));
            // Of rows there is one set of counters.
            if !is_push && std::mem::replace(&mut seen_rows, true) {
                continue;
            }
            all.push(self.target.transitions(lease.job(), is_push));
        }
        all
    }

    pub(super) fn mark(&mut self) {
        self.marked = (self.target.drops(), self.read_transitions());
    }

    pub(super) fn bank(&mut self, lease: usize, row: u16, chunk: u32, state: &str) -> Played {
        let group = match &self.groups[lease] {
            Some(group) if group.group.row() == row => group.group,
            _ => GroupId::new(row, 0),
        };
        let job = self.script.leases[lease].job();
        match self.target.bank(job, group, chunk) {
            Some(got) if got != state => self.fail("bank", state, got),
            _ => Ok(()),
        }
    }
}

/// Counts of the same name together.
fn summed(counts: &Counts) -> Counts {
    let mut all: Counts = Vec::new();
    for (name, count) in counts {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += count,
            None => all.push((name, *count)),
        }
    }
    all
}
