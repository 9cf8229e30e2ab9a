//! The links of the hosts: what a frame waits for before it is through. Work conserving, first come
//! first served, one queue for each host and direction, and for each rack's; nothing is lost here.

use weft_wire::Nanos;

/// A host's link.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostLink {
    /// From the host and to it, bytes of Ethernet frames per second; `None`: no limit.
    pub rates: [Option<u64>; 2],
    /// How long a frame takes over it, in each direction, besides.
    pub delay: Nanos,
    /// The rack whose uplink it shares; `None`: the core is its switch.
    pub rack: Option<usize>,
}

/// All links, by host.
#[derive(Clone, Debug, Default)]
pub struct Links {
    hosts: Vec<Host>,
    racks: Vec<[Link; 2]>,
}

#[derive(Clone, Copy, Debug)]
struct Host {
    links: [Link; 2],
    delay: Nanos,
    rack: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    rate_bytes_per_sec: Option<u64>,
    free_at: Nanos,
    carried_bytes: u64,
}

const UP: usize = 0;
const DOWN: usize = 1;

impl Links {
    /// Idle links of hosts, and of racks from and to the core.
    #[must_use]
    pub fn new(hosts: &[HostLink], racks: &[[Option<u64>; 2]]) -> Self {
        let links = |rates: [Option<u64>; 2]| rates.map(Link::new);
        let host = |host: &HostLink| {
            let HostLink { rates, delay, rack } = *host;
            Host { links: links(rates), delay, rack }
        };
        Self {
            hosts: hosts.iter().map(host).collect(),
            racks: racks.iter().copied().map(links).collect(),
        }
    }

    /// Sends a frame from a host to another; when it is through all links between them. At once
    /// where the run has none.
    pub fn pass(&mut self, now: Nanos, from: usize, to: usize, len_bytes: usize) -> Nanos {
        let len_bytes = len_bytes as u64;
        let rack_of = |host: usize| self.hosts.get(host).and_then(|host| host.rack);
        let (near, far) = (rack_of(from), rack_of(to));
        let mut at = now;
        if let Some(host) = self.hosts.get_mut(from) {
            at = host.links[UP].pass(at, len_bytes).saturating_add(host.delay);
        }
        for (rack, way) in [(near, UP), (far, DOWN)] {
            if let Some(rack) = rack.filter(|_| near != far) {
                at = self.racks[rack][way].pass(at, len_bytes);
            }
        }
        if let Some(host) = self.hosts.get_mut(to) {
            at = host.links[DOWN].pass(at, len_bytes).saturating_add(host.delay);
        }
        at
    }

    /// Gives a host's link other rates.
    pub fn set_rates(&mut self, host: usize, rates: [Option<u64>; 2]) {
        for (link, rate) in self.hosts[host].links.iter_mut().zip(rates) {
            link.rate_bytes_per_sec = rate;
        }
    }

    /// Bytes that a host has received and sent.
    #[must_use]
    pub fn carried(&self, host: usize) -> (u64, u64) {
        self.hosts
            .get(host)
            .map_or((0, 0), |host| (host.links[DOWN].carried_bytes, host.links[UP].carried_bytes))
    }
}

impl Link {
    const fn new(rate_bytes_per_sec: Option<u64>) -> Self {
        Self { rate_bytes_per_sec, free_at: Nanos(0), carried_bytes: 0 }
    }

    fn pass(&mut self, now: Nanos, len_bytes: u64) -> Nanos {
        self.carried_bytes += len_bytes;
        let Some(rate) = self.rate_bytes_per_sec else { return now };
        let span_ns = len_bytes * 1_000_000_000 / rate.max(1);
        self.free_at = self.free_at.max(now).saturating_add(Nanos(span_ns));
        self.free_at
    }
}
