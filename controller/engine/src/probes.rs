//! Decides when a host sends another one a probe train (SPEC#probe-trains): where nothing has told
//! of a link for a while, and nothing is planned or in flight over it.
//!
//! Who probes whom, how long a train is and that probes stay within 1 % of every link is
//! [`ProbePlan`]'s to decide; this file says which links need it and which are free. A link needs
//! it while its estimate is not wholly believed: nothing was measured, or that has aged. It is free
//! while no job has asked for, planned or been granted anything that would cross it, and the
//! processes on its host move next to nothing over it by themselves (a model that is pulled is not
//! planned). One train at a time, in the whole network, so that trains never meet.
//!
//! A grant does not wait for a train that was sent before it was asked for: that is 3 ms of the
//! link's time, and the train, beside which something else went, shows nothing.
//!
//! Invariants: only who said where it receives trains is named in one; a report is taken from the
//! receiver alone, once; what makes no sense changes nothing but a counter. A look costs O(links x
//! hosts) while a link needs a train, O(links) otherwise, at most every [`LOOK_NS`].

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_config::controller::Config;
use weft_plan::case::HostId;
use weft_plan::net::estimate::Refusal as SampleRefusal;
use weft_plan::net::estimate::probe::{FLIGHT_NS_MAX, ProbePlan, TrainOrder};
use weft_plan::net::estimate::train::PACKETS_MAX;
use weft_plan::net::topology::LinkId;
use weft_wire::frame::is_host;

use super::Controller;
use super::links::CONFIDENCE_FULL;
use super::message::{Action, ProbeTrain, Refusal, Reporter};

/// The trains of a controller.
#[derive(Clone, Debug)]
pub(super) struct Probes {
    /// None: no probes.
    plan: Option<ProbePlan>,
    /// Who can receive trains, and where.
    ports: BTreeMap<Reporter, (HostId, SocketAddr)>,
    underway: Option<Underway>,
    /// By link: bytes of trains sent over it, and when the last one was.
    sent: Vec<(u64, Option<u64>)>,
    trains: u64,
    look_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Underway {
    order: TrainOrder,
    receiver: Reporter,
    sent_ns: u64,
}

impl Probes {
    pub(super) fn new(config: &Config, links: &super::Links) -> Self {
        let is_known =
            |up: &Option<u64>, down: &Option<u64>| [up, down].iter().all(|rate| rate.is_some());
        let hosts = config.hosts.iter();
        let racks = config.racks.iter();
        let all_known = { hosts }.all(|h| is_known(&h.up_bytes_per_sec, &h.down_bytes_per_sec))
            && { racks }.all(|r| is_known(&r.up_bytes_per_sec, &r.down_bytes_per_sec));
        let topology = links.topology();
        let plan = || ProbePlan::new(topology, 1, FRAME_BYTES);
        Self {
            plan: config.tuning.idle_probes.unwrap_or(!all_known).then(plan),
            ports: BTreeMap::new(),
            underway: None,
            sent: vec![(0, None); topology.link_count()],
            trains: 0,
            look_ns: 0,
        }
    }

    /// Who reports no more receives no more.
    pub(super) fn forget(&mut self, reporter: Reporter) {
        self.ports.remove(&reporter);
    }

    /// Trains sent, and bytes of them by link.
    pub(super) fn sent(&self) -> (u64, Vec<u64>) {
        (self.trains, self.sent.iter().map(|(bytes, _)| *bytes).collect())
    }

    /// The first, by preference a box's, on a host.
    fn port(&self, host: HostId) -> Option<(Reporter, SocketAddr)> {
        let here = self.ports.iter().find(|(_, (at, _))| *at == host);
        here.map(|(reporter, (_, address))| (*reporter, *address))
    }

    fn can_pair(&self) -> bool {
        let mut hosts = self.ports.values().map(|(host, _)| *host);
        let first = hosts.next();
        self.plan.is_some() && hosts.any(|host| Some(host) != first)
    }

    /// When to look again whether a train is due.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.can_pair().then_some(self.look_ns)
    }
}

impl Controller {
    /// Whether links may be probed: then those who attach are to say where they receive trains.
    #[must_use]
    pub const fn wants_probes(&self) -> bool {
        self.probes.plan.is_some()
    }

    /// A box or a worker says where it receives trains.
    ///
    /// # Errors
    /// It has no stream, or that is no host's address.
    pub fn handle_probe_port(
        &mut self,
        from: Reporter,
        address: SocketAddr,
    ) -> Result<(), Refusal> {
        let host = self.reporter_host(from);
        let host = self.checked(host)?;
        if !is_host(address.ip()) || address.port() == 0 {
            let problem = format!("{address} is no host's own \"address:port\"");
            return self.checked(Err(Refusal::new("address", problem)));
        }
        self.probes.ports.insert(from, (host, address));
        Ok(())
    }

    /// A train has come. One that nobody waits for any more is taken without effect.
    ///
    /// # Errors
    /// It has no stream, is not the one that the train went to, the frames are longer than any, or
    /// came later than now.
    pub fn handle_probe_train(
        &mut self,
        now_ns: u64,
        from: Reporter,
        train: &ProbeTrain,
    ) -> Result<(), Refusal> {
        let known = self.reporter_host(from);
        self.checked(known)?;
        let Some(underway) = self.probes.underway.filter(|u| u.order.id == train.train) else {
            return Ok(());
        };
        if underway.receiver != from {
            let problem = format!("{} went to somebody else", train.train);
            return self.checked(Err(Refusal::new("train", problem)));
        }
        let is_long = train.arrivals.iter().any(|arrival| arrival.len_bytes > FRAME_BYTES);
        if is_long || train.arrivals.len() > PACKETS_MAX as usize {
            let problem = format!("a train has at most {PACKETS_MAX} frames of {FRAME_BYTES}");
            return self.checked(Err(Refusal::new("frame_bytes", problem)));
        }
        let span_ns = train.arrivals.first().zip(train.arrivals.last());
        let span_ns = span_ns.map_or(0, |(first, last)| last.at_ns.saturating_sub(first.at_ns));
        if span_ns > now_ns.saturating_sub(underway.sent_ns) {
            let problem = "it took longer than it is since it was sent";
            return self.checked(Err(Refusal::new("at_ns", problem)));
        }
        self.probes.underway = None;
        self.probes.look_ns = now_ns;
        let path = (underway.order.from, underway.order.to);
        let busy = self.busy_links(None);
        let links = self.links.topology().path(path.0, path.1);
        let is_alone = !links.links().iter().any(|link| busy[link.index()]);
        let (rate, judged) = match is_alone {
            true => self.links.handle_probe(now_ns, path, train),
            false => (None, Err(SampleRefusal::Uneven)),
        };
        let estimator = self.links.estimator();
        if let Some(plan) = &mut self.probes.plan {
            let _ = plan.handle_outcome(estimator, underway.order.id, span_ns, rate, judged);
        }
        self.check_bandwidth(now_ns);
        Ok(())
    }

    fn reporter_host(&self, reporter: Reporter) -> Result<HostId, Refusal> {
        match reporter {
            Reporter::Box(node) => {
                let node = self.nodes.get(node.index()).filter(|node| node.is_attached());
                node.map(|node| node.host())
                    .ok_or_else(|| Refusal::new("name", "attach before reporting"))
            }
            Reporter::Worker(job, rank) => self.attached_worker_host(job, rank),
        }
    }

    /// Has a train sent, if one is due.
    pub(super) fn send_probes(&mut self, now_ns: u64) {
        if now_ns < self.probes.look_ns || !self.probes.can_pair() {
            return;
        }
        self.probes.look_ns = now_ns + LOOK_NS;
        let is_lost =
            |underway: &mut Underway| now_ns.saturating_sub(underway.sent_ns) >= FLIGHT_NS_MAX;
        self.probes.underway.take_if(is_lost);
        let estimator = self.links.estimator();
        let topology = estimator.topology();
        let sent = &self.probes.sent;
        let is_due = |link: LinkId| {
            let known = estimator.estimate(now_ns, link);
            let rested = |last_ns: u64| now_ns.saturating_sub(last_ns) >= REST_NS;
            known.is_none_or(|known| known.confidence < CONFIDENCE_FULL)
                && sent[link.index()].1.is_none_or(rested)
        };
        let mut links = (0..u32::try_from(sent.len()).unwrap_or(u32::MAX)).map(LinkId);
        if self.probes.underway.is_some() || !links.any(is_due) {
            return;
        }
        let busy = self.busy_links(Some(now_ns));
        let ports = &self.probes.ports;
        let has_port = |host: HostId| ports.values().any(|(at, _)| *at == host);
        let has_port: Vec<bool> =
            (0..topology.host_count()).map(|host| has_port(HostId::from_index(host))).collect();
        let may = |(from, to): (HostId, HostId)| {
            has_port[from.index()]
                && has_port[to.index()]
                && !topology.path(from, to).links().iter().any(|link| busy[link.index()])
        };
        let Some(plan) = &mut self.probes.plan else { return };
        if let Some(order) = plan.poll_train_over(now_ns, estimator, may, is_due) {
            self.send_probe(now_ns, order);
        }
    }

    fn send_probe(&mut self, now_ns: u64, order: TrainOrder) {
        let TrainOrder { id, from, to, packets } = order;
        let ports = (self.probes.port(from), self.probes.port(to));
        // The plan was told that there are such.
        let (Some((sender, _)), Some((receiver, target))) = ports else { return };
        for link in self.links.topology().path(from, to).links() {
            let sent = &mut self.probes.sent[link.index()];
            *sent = (sent.0 + u64::from(packets) * u64::from(FRAME_BYTES), Some(now_ns));
        }
        self.probes.trains += 1;
        self.probes.underway = Some(Underway { order, receiver, sent_ns: now_ns });
        self.actions.push_back(Action::Probe { from: sender, train: id, target, packets });
    }

    /// By link: whether something is planned or in flight over it, or, `by_counters`, its host has
    /// lately moved something over it unplanned.
    fn busy_links(&self, by_counters: Option<u64>) -> Vec<bool> {
        let topology = self.links.topology();
        let mut busy = vec![false; topology.link_count()];
        let mut mark = |from: HostId, to: HostId| {
            for link in topology.path(from, to).links() {
                busy[link.index()] = true;
            }
        };
        for (from, to) in self.flights.paths() {
            mark(from, to);
        }
        for job in self.jobs.values() {
            let boxes = job.aggregators.iter().chain([&job.server]).chain(&job.replica);
            let boxes: Vec<HostId> = boxes.map(|node| self.host_of(*node)).collect();
            let asked = job.pending.values().map(|pending| pending.rank);
            let granted = job.open.values().filter_map(|group| self.groups.get(group));
            let granted = granted.flat_map(|group| group.members.iter().map(|member| member.rank));
            let mut is_idle = true;
            for rank in asked.chain(granted) {
                is_idle = false;
                let Some(worker) = job.workers.get(rank.index()) else { continue };
                boxes.iter().for_each(|at| mark(worker.host(), *at));
            }
            if !is_idle {
                boxes.iter().for_each(|from| boxes.iter().for_each(|to| mark(*from, *to)));
            }
        }
        let Some(now_ns) = by_counters else { return busy };
        for host in (0..topology.host_count()).map(HostId::from_index) {
            let rates = self.counters.own_rates(host, &self.reporters_on(host));
            let (down, up) = (topology.down(host), topology.up(host));
            for (link, rate) in [(down, rates.map(|r| r.0)), (up, rates.map(|r| r.1))] {
                let quiet = self.links.rate(now_ns, link).0 as f64 * QUIET_SHARE;
                busy[link.index()] |= rate.is_some_and(|rate| rate > quiet);
            }
        }
        busy
    }
}

/// Longest frame of a train, Ethernet header included: agents keep to an MTU of 1500.
const FRAME_BYTES: u32 = 1514;
/// How often it is looked whether a train is due.
const LOOK_NS: u64 = 20_000_000;
/// Between two routine trains over a link: one that another link always holds back never comes to
/// be believed.
const REST_NS: u64 = 250_000_000;
/// A link whose host moves less than this share of it is idle: handshakes and keepalives.
const QUIET_SHARE: f64 = 0.05;
