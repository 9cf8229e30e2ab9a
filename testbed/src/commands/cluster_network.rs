//! The network of `weft cluster`: what links carry and aggregators hold.

use clap::Args;
use weft_jobs::place::network::Network;

use super::Failure;
use super::cluster_choice::usage;

/// The network between nodes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct NetworkArgs {
    /// Let jobs on several nodes share links and aggregators, which slows their steps. Needs a
    /// placement other than count.
    #[arg(long)]
    network: bool,
    /// A node's link, Gb/s each direction.
    #[arg(
        long,
        value_name = "GBPS",
        default_value_t = 10.0,
        requires = "network",
        allow_negative_numbers = true
    )]
    node_gbps: f64,
    /// A rack's link to the others, Gb/s each direction; a switch is a rack.
    #[arg(
        long,
        value_name = "GBPS",
        default_value_t = 20.0,
        requires = "network",
        allow_negative_numbers = true
    )]
    rack_gbps: f64,
    /// Slots of an aggregator; there is one at each switch and one between racks.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2_048,
        requires = "network",
        allow_negative_numbers = true
    )]
    slots: u32,
    /// Slots that a job on several nodes needs; without them its nodes sum around a ring.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 512,
        requires = "network",
        allow_negative_numbers = true
    )]
    slots_per_job: u32,
}

impl NetworkArgs {
    pub(crate) fn network(&self) -> Result<Option<Network>, Failure> {
        if !self.network {
            return Ok(None);
        }
        let rate = |option, gbps: f64| {
            if !(0.001..=100_000.0).contains(&gbps) {
                let why = "expected Gb/s between 0.001 and 100,000";
                return Err(usage(option, format!("{why}, not {gbps}")));
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
            Ok((gbps * 125e6) as u64)
        };
        Ok(Some(Network {
            node_bytes_per_sec: rate("--node-gbps", self.node_gbps)?,
            rack_bytes_per_sec: rate("--rack-gbps", self.rack_gbps)?,
            slots: self.slots,
            slots_per_job: self.slots_per_job,
        }))
    }
}
