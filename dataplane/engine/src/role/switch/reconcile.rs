//! What the switch is to hold, and what follows once it holds it, refuses it or lets it go.

use super::*;

impl Agent {
    /// Works out what the switch is to hold.
    pub(super) fn reconcile(&mut self) {
        self.mirror.want_base(wishes::of_box(&self.target, &self.aggregator));
        let mut there: Vec<Owner> = Vec::new();
        for lease in self.aggregator.views().filter(LeaseView::is_formed) {
            let owner = wishes::owner_of_lease(&lease);
            let Some(scope) = self.mirror.scope_of(owner) else {
                self.refusals.push(String::from(NO_SCOPE));
                continue;
            };
            there.push(owner);
            let job = self.aggregator.job_config(lease.job());
            let (support, rows) = wishes::of_lease(&self.target, &lease, job, scope);
            self.mirror.want(scope, support, rows);
        }
        for push in self.aggregator.gather().views() {
            let owner = Owner::Push(push.config().job);
            let Some(scope) = self.mirror.scope_of(owner) else {
                self.refusals.push(String::from(NO_SCOPE));
                continue;
            };
            there.push(owner);
            let (support, rows) = wishes::of_push(&self.target, &push, scope);
            self.mirror.want(scope, support, rows);
        }
        self.mirror.keep(|owner| there.contains(&owner));
        let gather = self.aggregator.gather();
        self.installing.retain(|(job, group)| gather.has_group(*job, *group));
        self.take_told();
    }

    /// Does what the switch's answers let happen.
    pub(super) fn take_told(&mut self) {
        while let Some(told) = self.mirror.poll_told() {
            match told {
                Told::Ready(key) => self.open(key),
                Told::Refused(key, reason) => self.refuse(key, reason),
                Told::Gone(index) => self.counters.end(index),
            }
        }
        for answer in core::mem::take(&mut self.answers) {
            // Of a lease that was formed anew, or is gone, nobody waits for answers.
            let view = self.aggregator.view(answer.0);
            if view.is_formed() && !view.is_waiting() {
                self.answers.push_back(answer);
            }
        }
    }

    /// The switch serves a row.
    fn open(&mut self, key: RowKey) {
        if let Some(lease) = self.aggregator.view_of(key.job, key.row) {
            let index = lease.index;
            return self.aggregator.open_behind(index);
        }
        self.release(key, |group| Event::Installed { group });
        self.counters.begin(key, &self.mirror, &self.aggregator);
    }

    /// The switch does not take a row. A group is refused; the members of a lease hear that it is
    /// not served.
    fn refuse(&mut self, key: RowKey, reason: String) {
        self.stats.rows_refused += 1;
        self.note_refusal(reason);
        if self.aggregator.view_of(key.job, key.row).is_some() {
            self.aggregator.drop_lease(key.job, key.row);
            return self.reconcile();
        }
        self.release(key, |group| Event::Refused { group, error: InstallError::Full });
        let open = self.aggregator.gather().group_in(key.job, key.row);
        if let Some(group) = open {
            self.aggregator.gather_mut().handle_command(&Command::Remove { job: key.job, group });
            self.reconcile();
        }
    }

    fn release(&mut self, key: RowKey, event: impl Fn(GroupId) -> Event) {
        self.take_events();
        let is_it = |it: &mut (JobId, GroupId)| it.0 == key.job && it.1.row() == key.row;
        for (job, group) in self.installing.extract_if(.., is_it) {
            self.events.push_back((job, event(group)));
        }
    }

    pub(super) fn note_refusal(&mut self, reason: String) {
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push(reason);
        }
    }
}
