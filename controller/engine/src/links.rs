//! Decides what plans may use of every link: what the configuration says, else what is estimated,
//! else a first guess.
//!
//! Estimates come from the trains that transfers begin with, from what arrived, and from the boxes'
//! counters ([`Estimator`]). A rate in the configuration is a ceiling, and what is believed until
//! something else is measured:
//!
//! - The link's capacity goes from the configured rate to the measured one with the confidence of
//!   the measurement, all the way from [`CONFIDENCE_FULL`] on; it fades back as the measurement
//!   ages. Only a measurement below the configured rate counts that speaks of this link: other
//!   links on its paths were faster, or it was itself ([`Bound`]).
//! - What others than Weft put on the link, by the counters of its host ([`super::counters`]), is
//!   taken off, down to a tenth of the capacity.
//!
//! Invariant: every rate is at least 1 and at most what a [`Case`] takes, whatever the telemetry
//! says.

use alloc::string::String;
use alloc::vec::Vec;

use weft_config::controller::Config;
use weft_control::{Train, TrainArrival};

use weft_plan::case::{Case, Host, HostId, Rack, RackId};
use weft_plan::net::estimate::train::{Arrival, Reading};
use weft_plan::net::estimate::{
    AVAILABLE_SHARE_MIN, Bound, Context, Delivered, Estimate, Estimator, Refusal as SampleRefusal,
    Refused, TrainSample, Verdict,
};
use weft_plan::net::topology::{LinkId, Topology};

use super::check::RATE_BYTES_PER_SEC_MAX;
use super::message::{ProbeTrain, Telemetry};
use super::status::HostStatus;

/// The network and what is known of its links.
#[derive(Clone, Debug)]
pub(super) struct Links {
    topology: Topology,
    /// A case without updates: the hosts and racks of every plan.
    template: Case,
    /// By link: what the configuration says.
    configured: Vec<Option<u64>>,
    /// By link: the rates that the last plan was made with, and what it could use of them.
    planned_with: Vec<u64>,
    usable: Vec<u64>,
    initial_bytes_per_sec: u64,
    planned_share: f64,
    estimator: Estimator,
    trains: u64,
}

impl Links {
    pub(super) fn new(config: &Config) -> Self {
        let initial = config.tuning.initial_bytes_per_sec;
        let rack = |name: &String| config.racks.iter().position(|rack| rack.name == *name);
        let hosts = config.hosts.iter().map(|host| Host {
            name: host.name.clone(),
            up_bytes_per_sec: host.up_bytes_per_sec.unwrap_or(initial),
            down_bytes_per_sec: host.down_bytes_per_sec.unwrap_or(initial),
            rack: host.rack.as_ref().and_then(rack).map(RackId::from_index),
        });
        let racks = config.racks.iter().map(|rack| Rack {
            name: rack.name.clone(),
            up_bytes_per_sec: rack.up_bytes_per_sec.unwrap_or(initial),
            down_bytes_per_sec: rack.down_bytes_per_sec.unwrap_or(initial),
        });
        let template = Case {
            now_ns: 0,
            hosts: hosts.collect(),
            racks: racks.collect(),
            servers: Vec::new(),
            aggregators: Vec::new(),
            updates: Vec::new(),
            ranks: Vec::new(),
            reservations: Vec::new(),
            options: weft_plan::case::Options::default(),
        };
        let host_links =
            config.hosts.iter().flat_map(|host| [host.up_bytes_per_sec, host.down_bytes_per_sec]);
        let rack_links =
            config.racks.iter().flat_map(|rack| [rack.up_bytes_per_sec, rack.down_bytes_per_sec]);
        let configured: Vec<Option<u64>> = host_links.chain(rack_links).collect();
        let mut estimator = Estimator::new(Topology::new(&template));
        for (link, rate) in (0..).map(LinkId).zip(&configured) {
            if let Some(rate) = rate {
                // Checked: it is positive, and the link is one of the topology's.
                let _ = estimator.set_line_rate(link, *rate as f64);
            }
        }
        Self {
            topology: Topology::new(&template),
            estimator,
            trains: 0,
            planned_with: Topology::capacities(&template),
            usable: Topology::capacities(&template),
            configured,
            template,
            initial_bytes_per_sec: initial,
            planned_share: config.tuning.planned_share,
        }
    }

    pub(super) const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The host of that name.
    pub(super) fn host(&self, name: &str) -> Option<HostId> {
        self.template.hosts.iter().position(|host| host.name == name).map(HostId::from_index)
    }

    /// What a link has to give, and how sure that is.
    pub(super) fn rate(&self, now_ns: u64, link: LinkId) -> (u64, f64) {
        let estimate = self.estimator.estimate(now_ns, link);
        if let Some(Some(configured)) = self.configured.get(link.index()) {
            let background = self.estimator.background_bytes_per_sec(link);
            return believed(*configured, estimate, background);
        }
        match estimate {
            Some(estimate) => (whole(estimate.available_bytes_per_sec), estimate.confidence),
            None => (self.initial_bytes_per_sec.clamp(1, RATE_BYTES_PER_SEC_MAX), 0.0),
        }
    }

    /// A case without updates, of what plans may use now.
    pub(super) fn case(&mut self, now_ns: u64) -> Case {
        let mut case = self.template.clone();
        case.now_ns = now_ns;
        let rates: Vec<u64> = self.all().map(|link| self.rate(now_ns, link).0).collect();
        let share = |rate: u64| planned(rate, self.planned_share);
        let (hosts, racks) = rates.split_at(case.hosts.len() * 2);
        for (host, rates) in case.hosts.iter_mut().zip(hosts.chunks_exact(2)) {
            (host.up_bytes_per_sec, host.down_bytes_per_sec) = (share(rates[0]), share(rates[1]));
        }
        for (rack, rates) in case.racks.iter_mut().zip(racks.chunks_exact(2)) {
            (rack.up_bytes_per_sec, rack.down_bytes_per_sec) = (share(rates[0]), share(rates[1]));
        }
        self.usable = rates.iter().map(|rate| share(*rate)).collect();
        self.planned_with = rates;
        case
    }

    /// Whether a link differs by more than `share` from what the last plan was made with.
    pub(super) fn has_changed(&self, now_ns: u64, share: f64) -> bool {
        self.all().zip(&self.planned_with).any(|(link, then)| {
            let now = self.rate(now_ns, link).0;
            now.abs_diff(*then) as f64 > *then as f64 * share
        })
    }

    /// By link: what the last plan could use.
    pub(super) fn usable(&self) -> &[u64] {
        &self.usable
    }

    /// The ceiling for a planned rate: plans leave a margin that enforcement does not need, for
    /// gates open when transfers end and not when plans say so.
    pub(super) fn ceiling(&self, planned_bytes_per_sec: u64) -> u64 {
        whole(planned_bytes_per_sec as f64 / self.planned_share)
    }

    /// A host's counters: what others put on its links. They only grow, so the estimator takes
    /// them.
    pub(super) fn handle_counters(&mut self, host: HostId, sum: &Telemetry) {
        let down = sum.nic_rx_bytes.map(|total| (self.topology.down(host), total, sum.rx_bytes));
        let up = sum.nic_tx_bytes.map(|total| (self.topology.up(host), total, sum.tx_bytes));
        for (link, total, own) in down.into_iter().chain(up) {
            let _ = self.estimator.handle_counters(sum.at_ns, link, total, own);
        }
        while self.estimator.poll_event().is_some() {}
    }

    /// Nobody speaks for a host any more: what others put on its links is not known.
    pub(super) fn forget_counters(&mut self, host: HostId) {
        self.estimator.forget_counters(self.topology.down(host));
        self.estimator.forget_counters(self.topology.up(host));
    }

    /// A host's name.
    pub(super) fn host_name(&self, host: HostId) -> String {
        self.template.hosts.get(host.index()).map_or_else(String::new, |host| host.name.clone())
    }

    /// What every host has to give.
    pub(super) fn status(&self, now_ns: u64, probed: &[u64]) -> Vec<HostStatus> {
        let names = self.template.hosts.iter().map(|host| &host.name);
        self.statuses(now_ns, names, (0, probed))
    }

    /// What every rack has to give.
    pub(super) fn rack_status(&self, now_ns: u64, probed: &[u64]) -> Vec<HostStatus> {
        let names = self.template.racks.iter().map(|rack| &rack.name);
        self.statuses(now_ns, names, (self.template.hosts.len() * 2, probed))
    }

    /// Of pairs of links, up and down, from the `first` on; `probed` are bytes by link.
    fn statuses<'a>(
        &self,
        now_ns: u64,
        names: impl Iterator<Item = &'a String>,
        (first, probed): (usize, &[u64]),
    ) -> Vec<HostStatus> {
        let links: Vec<LinkId> = self.all().skip(first).collect();
        let status = |(name, pair): (&String, &[LinkId])| {
            let (up_bytes_per_sec, up) = self.rate(now_ns, pair[0]);
            let (down_bytes_per_sec, down) = self.rate(now_ns, pair[1]);
            let probed = |link: LinkId| probed.get(link.index()).copied().unwrap_or(0);
            HostStatus {
                name: name.clone(),
                up_bytes_per_sec,
                down_bytes_per_sec,
                confidence: up.min(down),
                probe_up_bytes: probed(pair[0]),
                probe_down_bytes: probed(pair[1]),
                carried: None,
            }
        };
        names.zip(links.chunks_exact(2)).map(status).collect()
    }

    /// A transfer has arrived: its path can do so much at least. A grant, a window or a busy host
    /// may have held it back, and only a train tells these from the network. Where there was none
    /// and nothing is configured, what stayed below `granted_bytes_per_sec` is put down to the
    /// network.
    pub(super) fn handle_delivered(
        &mut self,
        now_ns: u64,
        path: (HostId, HostId),
        (bytes, duration_ns): (u64, u64),
        granted_bytes_per_sec: Option<u64>,
    ) {
        let rate = bytes as f64 * 1e9 / duration_ns.max(1) as f64;
        let links = self.topology.path(path.0, path.1);
        let is_configured = |link: &LinkId| self.configured[link.index()].is_some();
        let limited_by_grant = links.links().iter().all(is_configured)
            || granted_bytes_per_sec.is_none_or(|granted| rate >= granted as f64 * GRANT_SHARE);
        let delivered = Delivered { bytes, duration_ns, limited_by_grant };
        // A sample that makes no sense is counted there and changes nothing.
        let _ = self.estimator.handle_delivered(now_ns, path, &delivered);
        while self.estimator.poll_event().is_some() {}
    }

    /// The train that a transfer began with has arrived. What makes no sense, or came too unevenly,
    /// is counted by the estimator and changes nothing.
    pub(super) fn handle_train(&mut self, now_ns: u64, path: (HostId, HostId), train: &Train) {
        let arrival = |a: &TrainArrival| Arrival { at_ns: a.at_ns, len_bytes: train.frame_len };
        let reading = |a: &TrainArrival| Reading { at_ns: a.at_ns, total_bytes: a.rx_bytes };
        let arrivals: Vec<Arrival> = train.arrivals.iter().map(arrival).collect();
        let readings: Vec<Reading> = train.arrivals.iter().map(reading).collect();
        match TrainSample::reduce(&arrivals, &readings) {
            Ok(sample) => {
                let taken = self.estimator.handle_train(now_ns, path, &sample, Context::Reserved);
                self.trains += u64::from(taken.is_ok());
            }
            Err(refusal) => self.estimator.refuse(refusal),
        }
        while self.estimator.poll_event().is_some() {}
    }

    /// A probe train has arrived: the rate that it showed, if any, and what was made of it.
    pub(super) fn handle_probe(
        &mut self,
        now_ns: u64,
        path: (HostId, HostId),
        train: &ProbeTrain,
    ) -> (Option<f64>, Result<Verdict, SampleRefusal>) {
        let sample = TrainSample::reduce(&train.arrivals, &train.readings);
        let judged = match &sample {
            Ok(sample) => {
                let taken = self.estimator.handle_train(now_ns, path, sample, Context::Probe);
                self.trains += u64::from(taken.is_ok());
                taken
            }
            Err(refusal) => {
                self.estimator.refuse(*refusal);
                Err(*refusal)
            }
        };
        while self.estimator.poll_event().is_some() {}
        (sample.ok().map(|sample| sample.rate_bytes_per_sec), judged)
    }

    /// What is known of all links.
    pub(super) const fn estimator(&self) -> &Estimator {
        &self.estimator
    }

    /// Trains that were used, and inputs of the estimator that were not.
    pub(super) const fn trains(&self) -> (u64, Refused) {
        (self.trains, self.estimator.refused())
    }

    fn all(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..u32::try_from(self.configured.len()).unwrap_or(u32::MAX)).map(LinkId)
    }
}

/// What a configured link has to give, and how sure that is: a capacity between what is configured
/// and what is measured, less what others take.
fn believed(configured: u64, estimate: Option<Estimate>, background: f64) -> (u64, f64) {
    let configured = configured as f64;
    let speaks = |estimate: &Estimate| {
        estimate.bound != Bound::AtLeast && estimate.capacity_bytes_per_sec < configured
    };
    let (capacity, confidence) = match estimate.filter(speaks) {
        None => (configured, 1.0),
        Some(estimate) => {
            let range = CONFIDENCE_FULL - CONFIDENCE_NONE;
            let weight = ((estimate.confidence - CONFIDENCE_NONE) / range).clamp(0.0, 1.0);
            let lost = configured - estimate.capacity_bytes_per_sec;
            (configured - weight * lost, estimate.confidence)
        }
    };
    (whole((capacity - background).max(capacity * AVAILABLE_SHARE_MIN)), confidence)
}

fn planned(rate: u64, share: f64) -> u64 {
    whole(rate as f64 * share)
}

/// A rate as plans take it. NaN becomes the least.
fn whole(rate: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and bounded by the clamp"
    )]
    let rate = rate.max(0.0) as u64;
    rate.clamp(1, RATE_BYTES_PER_SEC_MAX)
}

/// A transfer that came at this share of its grant was held back by it.
const GRANT_SHARE: f64 = 0.95;
/// What one sample comes to: not believed against a configuration. Two that agree are, wholly.
const CONFIDENCE_NONE: f64 = 0.4;
/// See above.
pub(super) const CONFIDENCE_FULL: f64 = 0.55;
