//! Topologies made from numbers instead of a file: the star of a job, and racks of unequal links.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use weft_wire::MacAddr;

use super::{Builder, Cidr, Host, Shape, Topology, TopologyError};
use crate::lab::tc::Rate;

impl Topology {
    /// Builds the lab of a job: workers `w0…` and aggregators `a0…` around one switch `s0`, every
    /// link with the same rate.
    ///
    /// # Errors
    /// When there are more boxes than the lab's address plan holds, or the MTU is out of range.
    pub fn star(star: &Star) -> Result<Self, TopologyError> {
        if star.workers > STAR_WORKERS_MAX || star.aggregators > STAR_AGGREGATORS_MAX {
            return Err(TopologyError::StarSize {
                workers: star.workers,
                aggregators: star.aggregators,
            });
        }
        let worker = |rank| (format!("w{rank}"), rank + 1);
        let aggregator = |index| (format!("a{index}"), STAR_LAST_OCTET - index);
        let boxes = (0..star.workers).map(worker).chain((0..star.aggregators).map(aggregator));
        let mut builder = Builder::default();
        builder.switch(STAR_SWITCH.to_owned())?;
        for (name, octet) in boxes {
            builder.add_host(numbered_host(&name, octet))?;
            let shape = star.rate.map(Shape::new);
            builder.connect([&name, STAR_SWITCH], [shape; 2], Duration::ZERO)?;
        }
        builder.finish(star.mtu)
    }

    /// Builds hosts with links of their own rates, in racks: the switch `r0…` of each rack hangs
    /// on the switch `s0` by an uplink. A single rack without an uplink's rate is a star around
    /// `s0`.
    ///
    /// # Errors
    /// When there are more hosts than the lab's address plan holds, or the MTU is out of range.
    pub fn racks(racks: &[Rack], mtu: u32) -> Result<Self, TopologyError> {
        let count = racks.iter().map(|rack| rack.hosts.len()).sum::<usize>();
        let workers = u8::try_from(count).ok().filter(|count| *count <= STAR_WORKERS_MAX);
        workers.ok_or_else(|| TopologyError::StarSize {
            workers: u8::try_from(count).unwrap_or(u8::MAX),
            aggregators: 0,
        })?;
        let mut builder = Builder::default();
        builder.switch(STAR_SWITCH.to_owned())?;
        let single = matches!(racks, [Rack { uplink: Rates { up: None, down: None }, .. }]);
        let mut octets = 1..;
        for (index, rack) in racks.iter().enumerate() {
            let switch = if single { STAR_SWITCH.to_owned() } else { format!("r{index}") };
            if !single {
                builder.switch(switch.clone())?;
                builder.connect([&switch, STAR_SWITCH], rack.uplink.shapes(), Duration::ZERO)?;
            }
            for ((name, rates), octet) in rack.hosts.iter().zip(&mut octets) {
                builder.add_host(numbered_host(name, octet))?;
                builder.connect([name, &switch], rates.shapes(), Duration::ZERO)?;
            }
        }
        builder.finish(mtu)
    }
}

/// What [`Topology::star`] builds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Star {
    /// Workers, at most 200.
    pub workers: u8,
    /// Aggregators, at most 50.
    pub aggregators: u8,
    /// Rate of every link.
    pub rate: Option<Rate>,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
}

/// A link's rates, seen from the node farther from the core; unlimited where none is given.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Towards the core.
    pub up: Option<Rate>,
    /// From the core.
    pub down: Option<Rate>,
}

impl Rates {
    fn shapes(self) -> [Option<Shape>; 2] {
        [self.up.map(Shape::new), self.down.map(Shape::new)]
    }
}

/// What [`Topology::racks`] builds: hosts behind one switch and its uplink.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rack {
    /// Names and rates of the hosts.
    pub hosts: Vec<(String, Rates)>,
    /// Rates of the link that they share.
    pub uplink: Rates,
}

/// A host of a built topology, with addresses from its number.
fn numbered_host(name: &str, octet: u8) -> Host {
    Host {
        name: name.to_owned(),
        ip: Some(Cidr { address: IpAddr::V4(Ipv4Addr::new(10, 87, 0, octet)), prefix: 24 }),
        mac: Some(MacAddr([0x02, 0x57, 0x45, 0x00, 0x00, octet])),
        commands: Vec::new(),
        kernel_address: true,
        control: None,
    }
}

/// The switch of a star.
pub const STAR_SWITCH: &str = "s0";
pub(super) const STAR_WORKERS_MAX: u8 = 200;
pub(super) const STAR_AGGREGATORS_MAX: u8 = 50;
const STAR_LAST_OCTET: u8 = 254;
