//! Made-up planning problems from a seed, for tests, benches and examples: a cluster with unequal
//! links, workers with updates of unequal sizes, and some that lag behind.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;

use crate::spec::{
    CaseSpec, HostSpec, LinksSpec, RackSpec, ReservationSpec, ServerSpec, UpdateSpec,
};

/// How large a made-up problem is. Unused hosts are workers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shape {
    /// Updates that wait.
    pub updates: u32,
    /// Hosts, all roles together.
    pub hosts: u32,
    /// Parameter servers, on hosts of their own.
    pub servers: u32,
    /// Whether every server has a replica on a host of its own, and a bound.
    pub replicas: bool,
    /// Hosts that sum.
    pub aggregators: u32,
    /// Transfers that are under way.
    pub reservations: u32,
    /// Racks that hosts are dealt to; 0 for none.
    pub racks: u32,
    /// Whether all links and all sizes are equal.
    pub equal: bool,
    /// Whether some updates are so old that their deadlines force them to the front.
    pub deadlines: bool,
}

/// The shape that planning time is promised for: 1,000 updates on 128 hosts.
pub const THOUSAND: Shape = Shape {
    updates: 1_000,
    hosts: 128,
    servers: 4,
    replicas: true,
    aggregators: 16,
    reservations: 1_000,
    racks: 0,
    equal: false,
    deadlines: true,
};

/// And for 10,000 updates on 1,024 hosts.
pub const TEN_THOUSAND: Shape = Shape { updates: 10_000, hosts: 1_024, ..THOUSAND };

/// A stream of numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.within(0, len as u64)).unwrap_or(0)
    }

    /// A number between 0 and 1 and neither, of the upper 53 bits of the next one.
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// One of `from..to`.
    pub const fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from)
    }
}

const MB: u64 = 1_000_000;
const MS_NS: u64 = 1_000_000;

impl Shape {
    /// The problem of a seed.
    ///
    /// # Panics
    /// If there are not enough hosts for the roles and one worker.
    #[must_use]
    pub fn spec(&self, seed: u64) -> CaseSpec {
        let mut numbers = Numbers::new(seed);
        let special = self.servers * (1 + u32::from(self.replicas)) + self.aggregators;
        assert!(self.hosts > special, "no host is left for a worker");
        let workers = self.hosts - special;
        let mut spec = CaseSpec { schema: 1, now_ns: 1_000 * MS_NS, ..CaseSpec::default() };
        for rack in 0..self.racks {
            let rack_spec = RackSpec {
                up_bytes_per_sec: 2_000 * MB,
                down_bytes_per_sec: 2_000 * MB,
                hosts: Vec::new(),
            };
            spec.links.racks.insert(format!("rack{rack}"), rack_spec);
        }
        let mut hosts = 0;
        let mut add = |spec: &mut CaseSpec, name: &str, rate: u64| {
            let rack = (self.racks > 0).then(|| format!("rack{}", hosts % self.racks));
            hosts += 1;
            let host = HostSpec { up_bytes_per_sec: rate, down_bytes_per_sec: rate, rack };
            spec.hosts.insert(name.to_owned(), host);
        };
        for i in 0..self.servers {
            add(&mut spec, &format!("s{i}"), 1_250 * MB);
            if self.replicas {
                add(&mut spec, &format!("r{i}"), 1_250 * MB);
            }
        }
        for i in 0..self.aggregators {
            let name = format!("a{i:03}");
            add(&mut spec, &name, 1_250 * MB);
            spec.aggregators.push(name);
        }
        for i in 0..workers {
            let rate = if self.equal { 1_250 * MB } else { numbers.within(100, 1_250) * MB };
            add(&mut spec, &format!("w{i:05}"), rate);
        }
        self.fill(&mut spec, workers, &mut numbers);
        spec
    }

    fn fill(&self, spec: &mut CaseSpec, workers: u32, numbers: &mut Numbers) {
        let per_server = u64::from(self.updates / self.servers) + 1;
        let tau_max = per_server * 2;
        for i in 0..self.servers {
            let replica = self.replicas.then(|| format!("r{i}"));
            spec.servers.push(ServerSpec {
                name: format!("s{i}"),
                host: format!("s{i}"),
                version: 10 * per_server,
                tau_max: Some(tau_max),
                momentum: 0.9,
                div_max: self.replicas.then_some(400.0),
                replica,
                h_norm: 1.0,
                ..ServerSpec::default()
            });
        }
        for i in 0..self.updates {
            let old = self.deadlines && numbers.within(0, 10) == 0;
            let age = numbers.within(0, if old { tau_max } else { per_server / 8 + 1 });
            let size_bytes = if self.equal { 4 * MB } else { numbers.within(MB, 16 * MB) };
            spec.updates.push(UpdateSpec {
                id: format!("u{i:05}"),
                server: format!("s{}", numbers.within(0, u64::from(self.servers))),
                host: format!("w{:05}", numbers.within(0, u64::from(workers))),
                size_bytes,
                version: 10 * per_server - age,
                norm: Some(1.0 + f64::from(u32::from(numbers.within(0, 4) == 0))),
                ..UpdateSpec::default()
            });
        }
        for _ in 0..self.reservations {
            let from_ns = spec.now_ns + numbers.within(0, 50) * MS_NS;
            spec.reservations.push(ReservationSpec {
                from: Some(format!("w{:05}", numbers.within(0, u64::from(workers)))),
                to: Some(format!("s{}", numbers.within(0, u64::from(self.servers)))),
                from_ns,
                to_ns: from_ns + numbers.within(1, 50) * MS_NS,
                bytes_per_sec: numbers.within(1, 20) * MB,
            });
        }
        if self.racks == 0 {
            spec.links = LinksSpec::default();
        }
    }
}
