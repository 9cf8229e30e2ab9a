//! Decides what plans may use of every link: what the configuration says, else what is estimated,
//! else a first guess.
//!
//! Estimates come from what arrived ([`Estimator`]). A link that the configuration gives a rate is
//! believed to have it, whatever is measured: leave the rate out where others share the link.
//!
//! Invariant: every rate is at least 1 and at most what a [`Case`] takes, whatever the telemetry
//! says.

use crate::case::{Case, Host, HostId, Rack, RackId};
use crate::net::estimate::{Delivered, Estimator};
use crate::net::topology::{LinkId, Topology};

use super::check::RATE_BYTES_PER_SEC_MAX;
use super::config::Config;
use super::message::{Refusal, Telemetry};
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
            options: crate::case::Options::default(),
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
        if let Some(Some(rate)) = self.configured.get(link.index()) {
            return (*rate, 1.0);
        }
        match self.estimator.estimate(now_ns, link) {
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

    /// A box's counters: what others put on its host's links.
    pub(super) fn handle_counters(
        &mut self,
        host: HostId,
        telemetry: &Telemetry,
    ) -> Result<(), Refusal> {
        let Telemetry { at_ns, rx_bytes, tx_bytes, nic_rx_bytes, nic_tx_bytes } = *telemetry;
        let down = nic_rx_bytes.map(|total| (self.topology.down(host), total, rx_bytes));
        let up = nic_tx_bytes.map(|total| (self.topology.up(host), total, tx_bytes));
        for (link, total, own) in down.into_iter().chain(up) {
            let taken = self.estimator.handle_counters(at_ns, link, total, own.min(total));
            taken.map_err(|refusal| Refusal::new("telemetry", refusal.to_string()))?;
        }
        Ok(())
    }

    /// What every host has to give.
    pub(super) fn status(&self, now_ns: u64) -> Vec<HostStatus> {
        let hosts = self.template.hosts.iter().enumerate().map(|(i, host)| {
            let id = HostId::from_index(i);
            let (up_bytes_per_sec, up) = self.rate(now_ns, self.topology.up(id));
            let (down_bytes_per_sec, down) = self.rate(now_ns, self.topology.down(id));
            let name = host.name.clone();
            HostStatus { name, up_bytes_per_sec, down_bytes_per_sec, confidence: up.min(down) }
        });
        hosts.collect()
    }

    /// A transfer has arrived: a sample of its path. What was slower than its grant was held back
    /// by the network.
    pub(super) fn handle_delivered(
        &mut self,
        now_ns: u64,
        path: (HostId, HostId),
        (bytes, duration_ns): (u64, u64),
        granted_bytes_per_sec: Option<u64>,
    ) {
        let rate = bytes as f64 * 1e9 / duration_ns.max(1) as f64;
        let limited_by_grant =
            granted_bytes_per_sec.is_some_and(|granted| rate >= granted as f64 * GRANT_SHARE);
        let delivered = Delivered { bytes, duration_ns, limited_by_grant };
        // A sample that makes no sense is counted there and changes nothing.
        let _ = self.estimator.handle_delivered(now_ns, path, &delivered);
        while self.estimator.poll_event().is_some() {}
    }

    fn all(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..u32::try_from(self.configured.len()).unwrap_or(u32::MAX)).map(LinkId)
    }
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
