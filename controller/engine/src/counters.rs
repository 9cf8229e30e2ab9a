//! Decides what the counters of a host say of others: what its interface has carried less what the
//! workers and boxes on it have.
//!
//! Several may report for a host, each when it pleases. One of them is the *reader*, a box before a
//! worker: its readings of the interface count. What the rest had carried by then lies between
//! their reports before and after, so a reading waits for the latter. Whoever is attached and does
//! not report keeps the whole host silent, for its bytes would pass for others'.
//!
//! Invariants: nobody speaks of another host's links than its own; what an estimator is told only
//! grows; a report that makes no sense changes nothing but where its next interval begins. A report
//! costs O(reporters of the host).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weft_wire::{JobId, Rank};

use weft_plan::case::HostId;

use super::Controller;
use super::message::{NodeId, Refusal, Reporter, Telemetry};

/// What all hosts' reporters have said.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    hosts: Vec<HostCounters>,
}

#[derive(Clone, Debug, Default)]
struct HostCounters {
    reports: BTreeMap<Reporter, Report>,
    /// The reader's, which waits for what the others had carried by then.
    waiting: Option<Point>,
    /// Who read last, and what.
    read: Option<(Reporter, Telemetry)>,
    /// All that was read so far: what the estimator knows.
    sum: Telemetry,
}

/// What one of them has said.
#[derive(Clone, Copy, Debug)]
struct Report {
    before: Point,
    last: Point,
    /// In and out: what is in the sum already.
    counted: (u64, u64),
}

#[derive(Clone, Copy, Debug)]
struct Point {
    /// By the controller's clock, for reporters have clocks of their own.
    heard_ns: u64,
    said: Telemetry,
}

impl Counters {
    pub(super) fn new(hosts: usize) -> Self {
        Self { hosts: vec![HostCounters::default(); hosts] }
    }

    /// Whoever begins to talk, or stops, begins anew: what it carries meanwhile is not known. True
    /// when nobody is left who speaks for the host.
    fn forget(&mut self, host: HostId, reporter: Reporter) -> bool {
        let Some(known) = self.hosts.get_mut(host.index()) else { return false };
        known.reports.remove(&reporter);
        (known.waiting, known.read) = (None, None);
        known.reports.is_empty()
    }

    /// Takes in a report. What comes out is the host's own account, once all `reporters` of it have
    /// spoken since the last reading of its interface.
    ///
    /// # Errors
    /// A clock or counter that went backwards, or grows faster than any link is.
    fn handle(
        &mut self,
        now_ns: u64,
        (host, reporter): (HostId, Reporter),
        said: &Telemetry,
        reporters: &[Reporter],
    ) -> Result<Option<Telemetry>, Refusal> {
        let Some(known) = self.hosts.get_mut(host.index()) else { return Ok(None) };
        let point = Point { heard_ns: now_ns, said: *said };
        let last = known.reports.get(&reporter).map(|report| report.last);
        if let Some(problem) = last.and_then(|last| problem(&last.said, said)) {
            self.forget(host, reporter);
            return Err(Refusal::new("telemetry", problem));
        }
        let first = Report { before: point, last: point, counted: (said.rx_bytes, said.tx_bytes) };
        let report = known.reports.entry(reporter).or_insert(first);
        (report.before, report.last) = (report.last, point);
        let can_read = |report: &Report| {
            let said = &report.last.said;
            said.nic_rx_bytes.is_some() || said.nic_tx_bytes.is_some()
        };
        let reader = known.reports.iter().find(|(_, report)| can_read(report));
        let Some(reader) = reader.map(|(reader, _)| *reader) else { return Ok(None) };
        if reader == reporter {
            known.waiting.get_or_insert(point);
        }
        Ok(known.settle(reader, reporters))
    }

    /// What all on a host have carried lately, in and out, bytes per second; none where somebody
    /// has not said it twice.
    pub(super) fn own_rates(&self, host: HostId, reporters: &[Reporter]) -> Option<(f64, f64)> {
        let known = self.hosts.get(host.index())?;
        let rates = reporters.iter().map(|reporter| known.reports.get(reporter)?.rates());
        rates.sum::<Option<Sum>>().map(|sum| (sum.0, sum.1))
    }
}

impl HostCounters {
    /// Adds the reading that waits, if all have spoken since.
    fn settle(&mut self, reader: Reporter, reporters: &[Reporter]) -> Option<Telemetry> {
        let waiting = self.waiting?;
        let has_spoken = |reporter: &Reporter| {
            self.reports.get(reporter).is_some_and(|r| r.last.heard_ns >= waiting.heard_ns)
        };
        if !reporters.iter().all(has_spoken) {
            return None;
        }
        self.waiting = None;
        // One of which nothing is known from before the reading: the next will do.
        if self.reports.values().any(|report| report.before.heard_ns > waiting.heard_ns) {
            return None;
        }
        let mut own = (0, 0);
        for report in self.reports.values_mut() {
            let then = report.carried_at(waiting.heard_ns);
            own.0 += then.0.saturating_sub(report.counted.0);
            own.1 += then.1.saturating_sub(report.counted.1);
            report.counted = then;
        }
        let said = waiting.said;
        // Another one's clock: the first interval begins here.
        let read = self.read.replace((reader, said)).filter(|(before, _)| *before == reader);
        let before = read.map_or(said, |(_, before)| before);
        if read.is_none() {
            own = (0, 0);
        }
        let grown = |now: Option<u64>, then: Option<u64>, sum: Option<u64>| {
            let (now, sum) = (now?, sum.unwrap_or(0));
            Some(sum.saturating_add(now.saturating_sub(then.unwrap_or(now))))
        };
        let sum = &mut self.sum;
        sum.at_ns = sum.at_ns.saturating_add(said.at_ns.saturating_sub(before.at_ns));
        sum.rx_bytes = sum.rx_bytes.saturating_add(own.0);
        sum.tx_bytes = sum.tx_bytes.saturating_add(own.1);
        sum.nic_rx_bytes = grown(said.nic_rx_bytes, before.nic_rx_bytes, sum.nic_rx_bytes);
        sum.nic_tx_bytes = grown(said.nic_tx_bytes, before.nic_tx_bytes, sum.nic_tx_bytes);
        Some(*sum)
    }
}

impl Report {
    /// What it had carried at an instant, in and out: on the line between its last two reports.
    fn carried_at(&self, at_ns: u64) -> (u64, u64) {
        let (before, last) = (&self.before, &self.last);
        let span_ns = last.heard_ns.saturating_sub(before.heard_ns);
        let after_ns = at_ns.saturating_sub(before.heard_ns).min(span_ns);
        if span_ns == 0 {
            return (last.said.rx_bytes, last.said.tx_bytes);
        }
        let between = |from: u64, to: u64| {
            let grown = u128::from(to.saturating_sub(from)) * u128::from(after_ns);
            from + u64::try_from(grown / u128::from(span_ns)).unwrap_or(0)
        };
        (
            between(before.said.rx_bytes, last.said.rx_bytes),
            between(before.said.tx_bytes, last.said.tx_bytes),
        )
    }

    fn rates(&self) -> Option<Sum> {
        let (before, last) = (&self.before.said, &self.last.said);
        let span_ns = last.at_ns.checked_sub(before.at_ns).filter(|span_ns| *span_ns > 0)?;
        let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 * 1e9 / span_ns as f64;
        Some(Sum(rate(before.rx_bytes, last.rx_bytes), rate(before.tx_bytes, last.tx_bytes)))
    }
}

/// Two rates that add up.
struct Sum(f64, f64);

impl core::iter::Sum for Sum {
    fn sum<I: Iterator<Item = Self>>(rates: I) -> Self {
        rates.fold(Self(0.0, 0.0), |sum, more| Self(sum.0 + more.0, sum.1 + more.1))
    }
}

/// What is wrong with a report after another one of the same stream.
fn problem(last: &Telemetry, said: &Telemetry) -> Option<&'static str> {
    let span_ns = said.at_ns.checked_sub(last.at_ns);
    let counters = [
        (Some(last.rx_bytes), Some(said.rx_bytes)),
        (Some(last.tx_bytes), Some(said.tx_bytes)),
        (last.nic_rx_bytes, said.nic_rx_bytes),
        (last.nic_tx_bytes, said.nic_tx_bytes),
    ];
    let mut grown = counters.into_iter().filter_map(|(last, said)| Some((last?, said?)));
    let span_ns = span_ns.filter(|_| grown.clone().all(|(last, said)| said >= last));
    let Some(span_ns) = span_ns else { return Some("a clock or counter went backwards") };
    let most = u128::from(span_ns.max(INTERVAL_NS_MIN)) * RATE_BYTES_PER_NS_MAX;
    grown
        .any(|(last, said)| u128::from(said - last) > most)
        .then_some("a counter grows faster than any link")
}

impl Controller {
    /// A box reports its counters.
    ///
    /// # Errors
    /// A clock or counter that makes no sense.
    pub fn handle_telemetry(
        &mut self,
        now_ns: u64,
        node: NodeId,
        telemetry: &Telemetry,
    ) -> Result<(), Refusal> {
        let Some(host) = self.nodes.get(node.index()).map(|node| node.host()) else {
            return self.checked(Err(Refusal::new("name", "attach before reporting")));
        };
        self.nodes[node.index()].hear(now_ns);
        self.take_counters(now_ns, (host, Reporter::Box(node)), telemetry)
    }

    /// A worker reports its counters.
    ///
    /// # Errors
    /// No such job or rank, one that has no stream, a clock or counter that makes no sense.
    pub fn handle_worker_telemetry(
        &mut self,
        now_ns: u64,
        job: JobId,
        rank: Rank,
        telemetry: &Telemetry,
    ) -> Result<(), Refusal> {
        let host = self.attached_worker_host(job, rank);
        let host = self.checked(host)?;
        self.take_counters(now_ns, (host, Reporter::Worker(job, rank)), telemetry)
    }

    /// Somebody who reports comes or goes.
    pub(super) fn count_anew(&mut self, host: HostId, reporter: Reporter) {
        self.probes.forget(reporter);
        if self.counters.forget(host, reporter) {
            self.links.forget_counters(host);
        }
    }

    fn take_counters(
        &mut self,
        now_ns: u64,
        from: (HostId, Reporter),
        telemetry: &Telemetry,
    ) -> Result<(), Refusal> {
        let reporters = self.reporters_on(from.0);
        let taken = self.counters.handle(now_ns, from, telemetry, &reporters);
        if let Some(sum) = self.checked(taken)? {
            self.links.handle_counters(from.0, &sum);
            self.check_bandwidth(now_ns);
        }
        Ok(())
    }

    /// Who moves bytes over a host's links, as far as the controller knows: also a box that has
    /// just lost its stream, which serves on.
    pub(super) fn reporters_on(&self, host: HostId) -> Vec<Reporter> {
        let is_here = |node: &super::Node| node.host() == host && node.is_counted_on();
        let boxes = (0u16..).zip(&self.nodes).filter(|(_, node)| is_here(node));
        let workers = self.jobs.values().flat_map(|job| {
            let ranks = (0u8..).zip(&job.workers);
            let here = ranks.filter(|(_, worker)| worker.host() == host && worker.is_attached());
            here.filter_map(|(rank, _)| Some(Reporter::Worker(job.id, Rank::new(rank)?)))
        });
        boxes.map(|(index, _)| Reporter::Box(NodeId(index))).chain(workers).collect()
    }
}

/// 8 Tbit/s: faster than any link there is.
const RATE_BYTES_PER_NS_MAX: u128 = 1000;
/// Two reports that a busy host sent at once are of no known distance.
const INTERVAL_NS_MIN: u64 = 10_000_000;
