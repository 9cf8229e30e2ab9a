//! How far the heuristics are from the best plan there is, on cases so small that all can be tried:
//! every order that the deadlines allow, every cut into groups, every choice of aggregators.
//! `cargo test -p weft-plan --test optimum -- --nocapture` prints the table.

use weft_plan::case::{Case, HostId, Objective, UpdateId};
use weft_plan::net::ledger::Ledger;
use weft_plan::policy::Policy;
use weft_plan::policy::mlfabric::Mlfabric;
use weft_plan::sample::{Numbers, Shape};

/// The best cost of any plan in which transfers reserve in commit order.
struct Oracle<'a> {
    case: &'a Case,
    ledger: Ledger,
    best: u128,
    sent: Vec<bool>,
}

impl Oracle<'_> {
    fn best(case: &Case) -> u128 {
        let sent = vec![false; case.updates.len()];
        let mut oracle = Oracle { case, ledger: Ledger::new(case), best: u128::MAX, sent };
        let from_ns = case.servers[0].commit_from_ns;
        oracle.extend(0, 0, from_ns);
        oracle.best
    }

    fn cost(&self, sum: u128, last_ns: u64) -> u128 {
        match self.case.options.objective {
            Objective::Mean => sum,
            Objective::Last => u128::from(last_ns),
        }
    }

    /// Goes on with every update that may be next: direct, or as the first of a group.
    fn extend(&mut self, slot: usize, sum: u128, last_ns: u64) {
        let left = (self.sent.len() - slot) as u128;
        if self.cost(sum + left * u128::from(last_ns), last_ns) >= self.best {
            return;
        }
        if left == 0 {
            self.best = self.cost(sum, last_ns);
            return;
        }
        for id in self.case.update_ids() {
            if !self.may_go(id, slot) {
                continue;
            }
            self.sent[id.index()] = true;
            let mark = self.ledger.mark();
            let update = self.case.update(id);
            let arrival_ns =
                self.send(update.host, self.server(), self.case.now_ns, update.size_bytes);
            let commit_ns = last_ns.max(arrival_ns);
            self.extend(slot + 1, sum + u128::from(commit_ns), commit_ns);
            self.ledger.rollback(mark);
            for aggregator in self.case.aggregators.clone() {
                let arrival_ns =
                    self.send(update.host, aggregator, self.case.now_ns, update.size_bytes);
                self.join(aggregator, slot + 1, 1, arrival_ns, update.size_bytes, sum, last_ns);
                self.ledger.rollback(mark);
            }
            self.sent[id.index()] = false;
        }
    }

    /// Adds every update that may be next to a group, or closes it.
    #[expect(clippy::too_many_arguments, reason = "the state of a search, spelt out")]
    fn join(
        &mut self,
        aggregator: HostId,
        slot: usize,
        members: u64,
        ready_ns: u64,
        size_bytes: u64,
        sum: u128,
        last_ns: u64,
    ) {
        let mark = self.ledger.mark();
        if members > 1 {
            let arrival_ns = self.send(aggregator, self.server(), ready_ns, size_bytes);
            let commit_ns = last_ns.max(arrival_ns);
            let sum = sum + u128::from(commit_ns) * u128::from(members);
            self.extend(slot, sum, commit_ns);
            self.ledger.rollback(mark);
        }
        for id in self.case.update_ids() {
            if !self.may_go(id, slot) {
                continue;
            }
            self.sent[id.index()] = true;
            let update = self.case.update(id);
            let arrival_ns =
                self.send(update.host, aggregator, self.case.now_ns, update.size_bytes);
            let ready_ns = ready_ns.max(arrival_ns);
            let size_bytes = size_bytes.max(update.size_bytes);
            self.join(aggregator, slot + 1, members + 1, ready_ns, size_bytes, sum, last_ns);
            self.ledger.rollback(mark);
            self.sent[id.index()] = false;
        }
    }

    fn may_go(&self, id: UpdateId, slot: usize) -> bool {
        !self.sent[id.index()] && self.case.deadline(id) >= i64::try_from(slot).unwrap()
    }

    fn server(&self) -> HostId {
        self.case.servers[0].host
    }

    fn send(&mut self, from: HostId, to: HostId, from_ns: u64, size_bytes: u64) -> u64 {
        let path = self.ledger.path(from, to);
        let mut segments = Vec::new();
        let arrival_ns = self.ledger.probe_segments(&path, from_ns, size_bytes, &mut segments);
        self.ledger.reserve(&path, &segments);
        arrival_ns.expect("links are never full for ever")
    }
}

/// A small case: unequal links, sizes and ages.
fn case(seed: u64, updates: u32, aggregators: u32, deadlines: bool, objective: Objective) -> Case {
    let shape = Shape {
        updates,
        hosts: updates + aggregators + 1,
        servers: 1,
        replicas: false,
        aggregators,
        reservations: 2,
        racks: 0,
        equal: seed.is_multiple_of(4),
        deadlines: false,
    };
    let mut spec = shape.spec(seed);
    let mut numbers = Numbers::new(seed);
    for (i, update) in spec.updates.iter_mut().enumerate() {
        // One update per worker, and with deadlines one slot to spare.
        update.host = format!("w{i:05}");
        update.version = 100 - numbers.within(0, 3);
    }
    spec.servers[0].version = 100;
    spec.servers[0].tau_max = Some(if deadlines { u64::from(updates) + 1 } else { 1_000 });
    if deadlines {
        let oldest = numbers.index(spec.updates.len());
        spec.updates[oldest].version = 100 - u64::from(updates);
    }
    spec.options.no_drop = true;
    spec.options.objective = objective;
    Case::new(&spec).expect("a small case")
}

struct Row {
    name: &'static str,
    updates: u32,
    aggregators: u32,
    deadlines: bool,
    objective: Objective,
    cases: u64,
    /// Mean and largest ratio to the optimum that are accepted: what was measured, and a little.
    mean_max: f64,
    worst_max: f64,
}

const ROWS: [Row; 6] = [
    row("order, mean", (6, 0), false, Objective::Mean, 60, (1.03, 1.15)),
    row("order, deadlines, mean", (6, 0), true, Objective::Mean, 60, (1.03, 1.15)),
    row("order, last", (6, 0), false, Objective::Last, 60, (1.02, 1.12)),
    row("groups, mean", (5, 2), false, Objective::Mean, 40, (1.05, 1.2)),
    row("groups, deadlines, mean", (5, 2), true, Objective::Mean, 40, (1.05, 1.2)),
    row("groups, last", (5, 2), false, Objective::Last, 40, (1.04, 1.25)),
];

const fn row(
    name: &'static str,
    (updates, aggregators): (u32, u32),
    deadlines: bool,
    objective: Objective,
    cases: u64,
    (mean_max, worst_max): (f64, f64),
) -> Row {
    Row { name, updates, aggregators, deadlines, objective, cases, mean_max, worst_max }
}

#[test]
fn the_heuristics_are_near_the_optimum() {
    println!("{:26} {:>5} {:>8} {:>8} {:>8}", "plan", "cases", "optimal", "mean", "worst");
    for row in &ROWS {
        let (mut sum, mut worst, mut optimal) = (0.0, 1.0_f64, 0);
        for seed in 0..row.cases {
            let case = case(seed, row.updates, row.aggregators, row.deadlines, row.objective);
            let plan = Mlfabric.plan(&case).expect("a plan");
            assert!(plan.dropped.is_empty(), "all can commit in time");
            let commits = plan.transfers.iter().flatten().map(|t| t.commit_ns);
            let cost = match row.objective {
                Objective::Mean => commits.map(u128::from).sum(),
                Objective::Last => u128::from(commits.max().unwrap_or(0)),
            };
            let best = Oracle::best(&case);
            assert!(cost >= best, "{}: seed {seed} beats the optimum", row.name);
            // Time from the plan's start, not from the clock's zero.
            let count = match row.objective {
                Objective::Mean => u128::from(row.updates),
                Objective::Last => 1,
            };
            let zero = u128::from(case.now_ns) * count;
            let ratio = (cost - zero) as f64 / (best - zero) as f64;
            sum += ratio;
            worst = worst.max(ratio);
            optimal += u64::from(cost == best);
        }
        let mean = sum / row.cases as f64;
        println!("{:26} {:5} {optimal:8} {mean:8.3} {worst:8.3}", row.name, row.cases);
        assert!(mean <= row.mean_max && worst <= row.worst_max, "{}: {mean} {worst}", row.name);
    }
}
