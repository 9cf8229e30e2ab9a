//! `[lab]`: the links, and the network that a scenario needs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_config::Problem;

use super::{Scenario, refuse};
use crate::lab::tc::Rate;
use crate::lab::topology::{DELAY_MAX, Rack, Rates, Star, Topology, TopologyError};

/// `[lab]`: the links.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LabSection {
    /// Rate of every link in each direction, Mbit/s; not shaped without it.
    pub rate_mbit: Option<f64>,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// How long a frame takes over each host's link in each direction, in milliseconds, to 1000;
    /// 0 without it. Made by netem where the kernel has it, else by the fault ports of workers and
    /// boxes, for Weft's datagrams alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<f64>,
    /// Delays of their own, by host.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub delays_ms: BTreeMap<String, f64>,
    /// Links of their own rate, by host; `[push]` only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, LinkRate>,
    /// Racks, whose hosts share an uplink; the rest have the core for a switch. `[push]` only.
    #[serde(rename = "rack", skip_serializing_if = "Vec::is_empty")]
    pub racks: Vec<RackSection>,
}

/// `[[lab.rack]]`: the hosts behind one switch, `r0` for the first rack, `r1` and so on.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RackSection {
    /// Names of its hosts.
    pub hosts: Vec<String>,
    /// From the rack to the others, Mbit/s; not shaped without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<f64>,
    /// To the rack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<f64>,
}

impl RackSection {
    /// Rates of its uplink.
    #[must_use]
    pub fn rates(&self) -> [Option<Rate>; 2] {
        [self.up, self.down].map(|mbit| mbit.and_then(Rate::from_mbit))
    }
}

impl Default for LabSection {
    fn default() -> Self {
        Self {
            rate_mbit: None,
            mtu: 1500,
            delay_ms: None,
            delays_ms: BTreeMap::new(),
            links: BTreeMap::new(),
            racks: Vec::new(),
        }
    }
}

/// Rate of one host's link, Mbit/s.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum LinkRate {
    /// The same in each direction.
    Both(f64),
    /// From the host, and to it.
    Each {
        /// From the host.
        up: f64,
        /// To the host.
        down: f64,
    },
}

impl LinkRate {
    /// From the host and to it, Mbit/s.
    #[must_use]
    pub const fn up_down(self) -> [f64; 2] {
        match self {
            Self::Both(rate) => [rate; 2],
            Self::Each { up, down } => [up, down],
        }
    }
}

/// `[[rate_step]]`: a host's link that gets another rate while the job runs; `[push]` in a lab
/// only.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RateStepSection {
    /// Name of the host.
    #[serde(rename = "box")]
    pub name: String,
    /// When the model has taken in this round's last update, counted from 0.
    pub after_round: u32,
    /// From the host, Mbit/s.
    pub up: f64,
    /// To the host, Mbit/s.
    pub down: f64,
}

impl RateStepSection {
    /// From the host and to it.
    #[must_use]
    pub fn rates(&self) -> [Option<Rate>; 2] {
        [self.up, self.down].map(Rate::from_mbit)
    }

    pub(super) fn validate(&self, section: &str, scenario: &Scenario) -> Result<(), Problem> {
        let refused = |key: &str, reason: String| refuse(section, key, reason);
        let is_shaped = scenario.lab.rates(&self.name).iter().all(Option::is_some);
        if scenario.push.is_none() || !scenario.hosts().contains(&self.name) || !is_shaped {
            let reason = "names no host of a [push] job whose link has a rate";
            return refused("box", format!("{reason}: {}", self.name));
        }
        let rounds = scenario.job.rounds;
        if self.after_round >= rounds {
            let reason = format!("is {}; the last round is {}", self.after_round, rounds - 1);
            return refused("after_round", reason);
        }
        for (key, mbit) in [("up", self.up), ("down", self.down)] {
            if Rate::from_mbit(mbit).is_none() {
                return refused(key, format!("is {mbit}; expected 0.01 to 100000 Mbit/s"));
            }
        }
        Ok(())
    }
}

impl LabSection {
    /// Rates of a host's link from it and to it; `None` where it is not shaped.
    #[must_use]
    pub fn rates(&self, host: &str) -> [Option<Rate>; 2] {
        match self.links.get(host) {
            Some(rate) => rate.up_down().map(Rate::from_mbit),
            None => [self.rate_mbit.and_then(Rate::from_mbit); 2],
        }
    }

    /// How long a frame takes over a host's link in each direction.
    #[must_use]
    pub fn delay(&self, host: &str) -> Duration {
        let delay_ms = self.delays_ms.get(host).copied().or(self.delay_ms).unwrap_or(0.0);
        Duration::try_from_secs_f64(delay_ms / 1e3).unwrap_or_default()
    }

    fn validate_delays(&self, hosts: &[String]) -> Result<(), Problem> {
        let most_ms = DELAY_MAX.as_secs_f64() * 1e3;
        let expected = |delay_ms: f64| {
            let in_range = (0.0..=most_ms).contains(&delay_ms);
            (!in_range).then(|| format!("is {delay_ms}; expected 0 to {most_ms} ms"))
        };
        if let Some(reason) = self.delay_ms.and_then(expected) {
            return refuse("lab", "delay_ms", reason);
        }
        for (host, delay_ms) in &self.delays_ms {
            if !hosts.contains(host) {
                let reason = format!("names no host; there are {}", hosts.join(", "));
                return refuse("lab.delays_ms", host, reason);
            }
            if let Some(reason) = expected(*delay_ms) {
                return refuse("lab.delays_ms", host, reason);
            }
        }
        Ok(())
    }

    pub(super) fn validate(&self, hosts: &[String]) -> Result<(), Problem> {
        self.validate_delays(hosts)?;
        let out_of_range = |mbit: f64| {
            let reason = format!("is {mbit}; expected 0.01 to 100000 Mbit/s");
            Rate::from_mbit(mbit).is_none().then_some(reason)
        };
        if let Some(reason) = self.rate_mbit.and_then(out_of_range) {
            return refuse("lab", "rate_mbit", reason);
        }
        for (host, rate) in &self.links {
            if !hosts.contains(host) {
                return refuse(
                    "lab.links",
                    host,
                    format!("names no host; there are {}", hosts.join(", ")),
                );
            }
            if let Some(reason) = rate.up_down().into_iter().find_map(out_of_range) {
                return refuse("lab.links", host, reason);
            }
        }
        let mut placed = BTreeSet::new();
        for (index, rack) in self.racks.iter().enumerate() {
            let refuse =
                |key: &str, reason: String| refuse(&format!("lab.rack[{index}]"), key, reason);
            let misplaced =
                rack.hosts.iter().find(|host| !hosts.contains(host) || !placed.insert(*host));
            if let Some(host) = misplaced {
                let reason = format!("has {host}, which is no host, or in a rack already");
                return refuse("hosts", reason);
            }
            for (key, mbit) in [("up", rack.up), ("down", rack.down)] {
                if let Some(reason) = mbit.and_then(out_of_range) {
                    return refuse(key, reason);
                }
            }
        }
        Ok(())
    }
}

impl Scenario {
    /// The lab of this scenario: the one that a run of it builds, whoever builds it.
    ///
    /// # Errors
    /// When the lab's address plan is too small.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        // Where there is a controller, every host has its own link, on one switch, or on its
        // rack's.
        let is_called = self.push.is_some() || self.resize.as_ref().is_some_and(|it| it.lab);
        let mut topology =
            if is_called { topology_of(&self.lab, self.hosts()) } else { self.star() }?;
        for (host, delay) in self.delays() {
            topology.set_delay(&host, delay);
        }
        Ok(topology)
    }

    /// The hosts whose links have a delay, by name.
    #[must_use]
    pub fn delays(&self) -> BTreeMap<String, Duration> {
        let delayed = self.hosts().into_iter().map(|host| (self.lab.delay(&host), host));
        delayed.filter(|(delay, _)| !delay.is_zero()).map(|(delay, host)| (host, delay)).collect()
    }

    fn star(&self) -> Result<Topology, TopologyError> {
        let boxes = self.aggregation.boxes().len();
        Topology::star(&Star {
            workers: self.job.workers,
            aggregators: u8::try_from(boxes).unwrap_or(u8::MAX),
            rate: self.lab.rate_mbit.and_then(Rate::from_mbit),
            mtu: self.lab.mtu,
        })
    }
}

/// Hosts with links of their own, on one switch, or on their racks'.
pub(super) fn topology_of(
    lab: &LabSection,
    mut hosts: Vec<String>,
) -> Result<Topology, TopologyError> {
    let link = |host: String| {
        let [up, down] = lab.rates(&host);
        (host, Rates { up, down })
    };
    let racks = lab.racks.iter().map(|rack| {
        let [up, down] = rack.rates();
        hosts.retain(|host| !rack.hosts.contains(host));
        let own = rack.hosts.iter().cloned().map(link).collect();
        Rack { hosts: own, uplink: Rates { up, down } }
    });
    let mut racks: Vec<Rack> = racks.collect();
    let rest = hosts.into_iter().map(link).collect();
    racks.push(Rack { hosts: rest, uplink: Rates::default() });
    Topology::racks(&racks, lab.mtu)
}
