//! From what a box serves to what its switch is to hold: one scope for each windowed lease and each
//! push job.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use weft_wire::header::{ElementType, Flags, Operation};
use weft_wire::{Members, Rank};

use super::entry::{
    Address, CPU_METER, Entry, FLOOD_GROUP, JOB_METER, REPLICA_ID, RowKey, SERVER_ID, group_of,
};
use super::scope::{Owner, Wish, WishKind};
use super::target::Target;
use crate::role::aggregator::{Aggregator, LeaseView};
use crate::role::gather::PushView;
use crate::role::way::Way;
use crate::table::JobConfig;

/// Who has a scope.
pub(super) fn owner_of_lease(lease: &LeaseView<'_>) -> Owner {
    Owner::Lease(RowKey { job: lease.job(), row: lease.group().row() })
}

/// What a formed lease is to have.
pub(super) fn of_lease(
    target: &Target,
    lease: &LeaseView<'_>,
    job: Option<&JobConfig>,
    scope: u16,
) -> (Vec<Entry>, Vec<Wish>) {
    let mut support = Support::new(target, scope);
    for (rank, way) in lease.members() {
        support.member(rank, &way, Flags::NONE);
    }
    support.meter(job.and_then(|job| Some((job.rate_bytes_per_sec?, job.burst_bytes))));
    let (element_type, operation) = lease.kind();
    let wish = Wish {
        key: RowKey { job: lease.job(), row: lease.group().row() },
        installation: u64::from(lease.epoch().0),
        generation: lease.group().generation(),
        mask: lease.mask(),
        banks: lease.window() * 2,
        chunks: lease.chunks(),
        type_op: type_op(element_type, operation),
        kind: WishKind::Windowed { exponent: lease.exponent() },
        seeds: lease.seeds().collect(),
    };
    (support.finish(), Vec::from([wish]))
}

/// What a push job is to have.
pub(super) fn of_push(target: &Target, push: &PushView<'_>, scope: u16) -> (Vec<Entry>, Vec<Wish>) {
    let config = push.config();
    let mut support = Support::new(target, scope);
    support.entries.push(Entry::PushJob { job: config.job, scope });
    for (rank, way) in push.workers() {
        support.member(rank, &way, Flags::NONE);
    }
    if let Some(way) = push.server() {
        support.server(&way);
    }
    if let Some(way) = push.replica() {
        support.copy(REPLICA_ID, Members::EMPTY, &way, Flags::REPLICA);
    }
    support.meter(config.rate_bytes_per_sec.map(|rate| (rate, config.burst_bytes)));
    let wishes = push.groups().map(|group| Wish {
        key: RowKey { job: config.job, row: group.id.row() },
        installation: u64::from(group.installation) << 16 | u64::from(group.id.generation()),
        generation: group.id.generation(),
        mask: group.mask,
        banks: group.chunks,
        chunks: group.chunks,
        type_op: type_op(config.element_type, Operation::Sum),
        kind: WishKind::Whole { exponent: group.exponent, replicate: group.replicate },
        seeds: Vec::new(),
    });
    (support.finish(), wishes.collect())
}

/// What belongs to no lease: the box itself, where hosts are, and what strangers may cost.
pub(super) fn of_box(target: &Target, aggregator: &Aggregator) -> Vec<Entry> {
    let local = aggregator.local();
    let IpAddr::V4(ip) = local.addr.ip() else { return Vec::new() };
    let mut entries = Vec::from([
        Entry::Group {
            id: FLOOD_GROUP,
            nodes: target.ports().into_iter().map(|port| (port, 0)).collect(),
        },
        Entry::Bridge { mac: local.mac, port: target.cpu_port },
        Entry::Local { ip, port: local.addr.port() },
    ]);
    if let Some((rate_bytes_per_sec, burst_bytes)) = target.cpu_quota {
        let (name, index) = (CPU_METER, 0);
        entries.push(Entry::Meter { name, index, rate_bytes_per_sec, burst_bytes });
    }
    let jobs = aggregator.job_configs().map(|config| config.job);
    entries.extend(jobs.map(|job| Entry::ReducedJob { job }));
    let leases = aggregator.views().filter(LeaseView::is_formed);
    let members = leases.flat_map(|lease| lease.members().map(|(_, way)| way));
    let pushes = aggregator.gather().views().flat_map(|push| {
        let ends = push.server().into_iter().chain(push.replica());
        push.workers().map(|(_, way)| way).chain(ends)
    });
    for way in members.chain(pushes) {
        let Some((mac, port)) = host_of(target, &way) else { continue };
        let is_known = |entry: &Entry| matches!(entry, Entry::Bridge { mac: it, .. } if *it == mac);
        if !entries.iter().any(is_known) {
            entries.push(Entry::Bridge { mac, port });
        }
    }
    entries
}

/// A host's Ethernet address, once it is known, and the port that it is at.
fn host_of(target: &Target, way: &Way<'_>) -> Option<(weft_wire::MacAddr, u16)> {
    let end = way.encap.target();
    // Of one host, not of a group.
    let is_host = end.mac.0[0] & 1 == 0 && end.mac.0 != [0; 6];
    is_host.then_some((end.mac, target.port_of(ipv4(end.addr.ip())?)?))
}

/// The entries of a scope beside its rows.
struct Support<'a> {
    target: &'a Target,
    scope: u16,
    entries: Vec<Entry>,
    nodes: Vec<(u16, u16)>,
}

impl<'a> Support<'a> {
    fn new(target: &'a Target, scope: u16) -> Self {
        Self { target, scope, entries: Vec::new(), nodes: Vec::new() }
    }

    fn member(&mut self, rank: Rank, way: &Way<'_>, flags: Flags) {
        let end = way.encap.target().addr;
        let Some(ip) = ipv4(end.ip()) else { return };
        let (scope, members) = (self.scope, rank.bit());
        let (cookie, port) = (way.cookie_up, end.port());
        self.entries.push(Entry::Member { scope, members, cookie, ip, port });
        self.copy(u16::from(rank.number()), members, way, flags);
    }

    fn server(&mut self, way: &Way<'_>) {
        let end = way.encap.target().addr;
        let Some(ip) = ipv4(end.ip()) else { return };
        let (scope, cookie, port) = (self.scope, way.cookie_up, end.port());
        self.entries.push(Entry::Server { scope, cookie, ip, port });
        self.copy(SERVER_ID, Members::EMPTY, way, Flags::NONE);
    }

    fn copy(&mut self, id: u16, bit: Members, way: &Way<'_>, flags: Flags) {
        let (to, from) = (way.encap.target(), way.encap.source());
        let (Some(dst_ip), Some(src_ip)) = (ipv4(to.addr.ip()), ipv4(from.addr.ip())) else {
            return;
        };
        let Some(port) = self.target.port_of(dst_ip) else { return };
        let address = Address {
            bit,
            dst_mac: to.mac,
            src_mac: from.mac,
            dst_ip,
            src_ip,
            dst_port: to.addr.port(),
            src_port: from.addr.port(),
            cookie: way.cookie_down,
            flags,
        };
        self.entries.push(Entry::Copy { scope: self.scope, id, to: address });
        self.nodes.push((port, id));
    }

    fn meter(&mut self, quota: Option<(u64, u64)>) {
        if let Some((rate_bytes_per_sec, burst_bytes)) = quota {
            let (name, index) = (JOB_METER, u32::from(self.scope));
            self.entries.push(Entry::Meter { name, index, rate_bytes_per_sec, burst_bytes });
        }
    }

    fn finish(mut self) -> Vec<Entry> {
        let id = group_of(self.scope);
        self.entries.push(Entry::Group { id, nodes: self.nodes });
        self.entries
    }
}

fn type_op(element_type: ElementType, operation: Operation) -> u8 {
    (element_type as u8) << 4 | operation as u8
}

fn ipv4(ip: IpAddr) -> Option<Ipv4Addr> {
    match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}
