//! The checks behind [`Case::new`], field by field.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::net::topology::Topology;
use crate::spec::{CaseSpec, ReservationSpec, ServerSpec, UpdateSpec};

use super::{
    Case, CaseError, Host, HostId, Options, Rack, RackId, Reservation, Segment, Server, ServerId,
    Update, UpdateId,
};

/// 80 Tb/s: beyond any link there is.
const RATE_BYTES_PER_SEC_MAX: u64 = 10_000_000_000_000;
/// 1 PiB, beyond any model.
const SIZE_BYTES_MAX: u64 = 1 << 50;
/// About 73 years from the clock's zero; twice that is the planner's horizon.
const INSTANT_NS_MAX: u64 = 1 << 61;
/// Versions and delays; their sums fit 64 bits.
const VERSION_MAX: u64 = 1 << 62;

type Checked<T> = Result<T, CaseError>;

impl Case {
    /// Checks a problem and turns its names into indices.
    ///
    /// # Errors
    /// [`CaseError`] names the first field that makes no sense.
    pub fn new(spec: &CaseSpec) -> Result<Self, CaseError> {
        case(spec)
    }

    /// Checks that no reservation is larger than a link of its path, as in a case that is written
    /// down; a live one may be, since the estimate of a link sinks.
    ///
    /// # Errors
    /// [`CaseError`] names the first that is.
    pub fn check_reservations(&self) -> Result<(), CaseError> {
        let (topology, rates) = (Topology::new(self), Topology::capacities(self));
        for (i, Reservation { from, to, segment }) in self.reservations.iter().enumerate() {
            let path = topology.half_open_path(*from, *to);
            let narrowest = path.links().iter().map(|link| rates[link.index()]).min();
            if let Some(rate) = narrowest.filter(|rate| *rate < segment.bytes_per_sec) {
                let field = format!("reservations[{i}].bytes_per_sec");
                let expected = format!("the narrowest link of its path has {rate}");
                return Err(value(&field, segment.bytes_per_sec, expected));
            }
        }
        Ok(())
    }
}

fn case(spec: &CaseSpec) -> Checked<Case> {
    if spec.schema != 1 {
        return Err(value("schema", spec.schema, "this planner reads schema 1"));
    }
    instant("now_ns", spec.now_ns)?;
    options(&spec.options)?;
    let (racks, hosts) = network(spec)?;
    let host_ids: BTreeMap<&str, HostId> =
        spec.hosts.keys().enumerate().map(|(i, n)| (n.as_str(), HostId::from_index(i))).collect();
    let servers = servers(spec, &host_ids)?;
    let updates = updates(spec, &host_ids, &servers)?;
    tau_is_feasible(spec, &servers, &updates)?;
    let mut by_name: Vec<UpdateId> = (0..updates.len()).map(UpdateId::from_index).collect();
    by_name.sort_unstable_by_key(|id| updates[id.index()].name.as_str());
    let mut ranks = vec![0; updates.len()];
    for (rank, id) in by_name.into_iter().enumerate() {
        ranks[id.index()] = UpdateId::from_index(rank).0;
    }
    let mut seen = BTreeSet::new();
    let aggregators = spec.aggregators.iter().enumerate().map(|(i, name)| {
        let field = format!("aggregators[{i}]");
        if !seen.insert(name) {
            return Err(CaseError::Duplicate { field, kind: "aggregator", name: name.clone() });
        }
        host(&field, name, &host_ids)
    });
    let aggregators = aggregators.collect::<Checked<_>>()?;
    let reservations =
        spec.reservations.iter().enumerate().map(|(i, r)| reservation(i, r, &host_ids));
    let reservations = reservations.collect::<Checked<_>>()?;
    Ok(Case {
        now_ns: spec.now_ns,
        hosts,
        racks,
        servers,
        aggregators,
        updates,
        ranks,
        reservations,
        options: spec.options.clone(),
    })
}

fn network(spec: &CaseSpec) -> Checked<(Vec<Rack>, Vec<Host>)> {
    let mut racks = Vec::with_capacity(spec.links.racks.len());
    let mut rack_ids = BTreeMap::new();
    let mut rack_of: BTreeMap<&str, RackId> = BTreeMap::new();
    for (i, (name, rack)) in spec.links.racks.iter().enumerate() {
        let field = format!("links.racks.{name}");
        rate(&format!("{field}.up_bytes_per_sec"), rack.up_bytes_per_sec)?;
        rate(&format!("{field}.down_bytes_per_sec"), rack.down_bytes_per_sec)?;
        let id = RackId::from_index(i);
        rack_ids.insert(name.as_str(), id);
        for (j, member) in rack.hosts.iter().enumerate() {
            let field = format!("{field}.hosts[{j}]");
            if !spec.hosts.contains_key(member) {
                let remedy = "list it under `hosts`";
                return Err(CaseError::Unknown {
                    field,
                    kind: "host",
                    name: member.clone(),
                    remedy,
                });
            }
            if rack_of.insert(member, id).is_some() {
                return Err(CaseError::Duplicate { field, kind: "host", name: member.clone() });
            }
        }
        racks.push(Rack {
            name: name.clone(),
            up_bytes_per_sec: rack.up_bytes_per_sec,
            down_bytes_per_sec: rack.down_bytes_per_sec,
        });
    }
    let mut hosts = Vec::with_capacity(spec.hosts.len());
    for (name, host) in &spec.hosts {
        let field = format!("hosts.{name}");
        rate(&format!("{field}.up_bytes_per_sec"), host.up_bytes_per_sec)?;
        rate(&format!("{field}.down_bytes_per_sec"), host.down_bytes_per_sec)?;
        let listed = rack_of.get(name.as_str()).copied();
        let rack = match &host.rack {
            None => listed,
            Some(rack) => {
                let field = format!("{field}.rack");
                let remedy = "list it under `links.racks`";
                let id = rack_ids.get(rack.as_str()).copied().ok_or_else(|| {
                    let (field, name) = (field.clone(), rack.clone());
                    CaseError::Unknown { field, kind: "rack", name, remedy }
                })?;
                if listed.is_some_and(|other| other != id) {
                    return Err(value(&field, rack, "another rack lists this host"));
                }
                Some(id)
            }
        };
        hosts.push(Host {
            name: name.clone(),
            up_bytes_per_sec: host.up_bytes_per_sec,
            down_bytes_per_sec: host.down_bytes_per_sec,
            rack,
        });
    }
    Ok((racks, hosts))
}

fn servers(spec: &CaseSpec, hosts: &BTreeMap<&str, HostId>) -> Checked<Vec<Server>> {
    let mut names = BTreeSet::new();
    let mut out = Vec::with_capacity(spec.servers.len());
    for (i, s) in spec.servers.iter().enumerate() {
        let at = |leaf: &str| format!("servers[{i}].{leaf}");
        if !names.insert(s.name.as_str()) {
            let (field, name) = (at("name"), s.name.clone());
            return Err(CaseError::Duplicate { field, kind: "server", name });
        }
        out.push(server(spec, s, &at, hosts)?);
    }
    Ok(out)
}

fn server(
    spec: &CaseSpec,
    s: &ServerSpec,
    at: &dyn Fn(&str) -> String,
    hosts: &BTreeMap<&str, HostId>,
) -> Checked<Server> {
    bounded(&at("version"), s.version, VERSION_MAX)?;
    bounded(&at("in_flight"), s.in_flight, VERSION_MAX)?;
    if !(0.0..1.0).contains(&s.momentum) {
        return Err(value(&at("momentum"), s.momentum, "momentum lies from 0 to below 1"));
    }
    norm(&at("h_norm"), s.h_norm)?;
    for (j, lag) in s.lag_norms.iter().enumerate() {
        norm(&at(&format!("lag_norms[{j}]")), *lag)?;
    }
    if let Some(div_max) = s.div_max
        && !(div_max.is_finite() && div_max > 0.0)
    {
        return Err(value(&at("div_max"), div_max, "a divergence bound is finite and above 0"));
    }
    let host_id = host(&at("host"), &s.host, hosts)?;
    let replica = s.replica.as_deref().map(|r| host(&at("replica"), r, hosts)).transpose()?;
    if replica == Some(host_id) {
        let expected = "the second copy needs another host than the first";
        return Err(value(&at("replica"), &s.host, expected));
    }
    let workers: BTreeSet<&str> =
        spec.updates.iter().filter(|u| u.server == s.name).map(|u| u.host.as_str()).collect();
    let workers = s.workers.unwrap_or(workers.len() as u64);
    let tau_max = s.tau_max.unwrap_or_else(|| workers.saturating_mul(2));
    bounded(&at("tau_max"), tau_max, VERSION_MAX)?;
    if s.workers.is_some_and(|workers| tau_max.saturating_add(1) < workers) {
        let expected = format!("a round of {workers} workers needs at least {}", workers - 1);
        return Err(value(&at("tau_max"), tau_max, expected));
    }
    let until_ns = s.in_flight_until_ns.unwrap_or(spec.now_ns);
    instant(&at("in_flight_until_ns"), until_ns)?;
    Ok(Server {
        name: s.name.clone(),
        host: host_id,
        version: s.version + s.in_flight,
        tau_max,
        momentum: s.momentum,
        div_max: s.div_max,
        replica,
        job: s.job.clone(),
        h_norm: s.h_norm,
        lag_norms: s.lag_norms.clone(),
        commit_from_ns: until_ns.max(spec.now_ns),
    })
}

fn updates(
    spec: &CaseSpec,
    hosts: &BTreeMap<&str, HostId>,
    servers: &[Server],
) -> Checked<Vec<Update>> {
    let server_ids: BTreeMap<&str, usize> =
        servers.iter().enumerate().map(|(i, s)| (s.name.as_str(), i)).collect();
    let mut names = BTreeSet::new();
    let mut out = Vec::with_capacity(spec.updates.len());
    for (i, u) in spec.updates.iter().enumerate() {
        let at = |leaf: &str| format!("updates[{i}].{leaf}");
        if !names.insert(u.id.as_str()) {
            let (field, name) = (at("id"), u.id.clone());
            return Err(CaseError::Duplicate { field, kind: "update", name });
        }
        let index = *server_ids.get(u.server.as_str()).ok_or_else(|| CaseError::Unknown {
            field: at("server"),
            kind: "server",
            name: u.server.clone(),
            remedy: "list it under `servers`",
        })?;
        out.push(update(u, &at, index, &spec.servers[index], hosts)?);
    }
    Ok(out)
}

fn update(
    u: &UpdateSpec,
    at: &dyn Fn(&str) -> String,
    index: usize,
    server: &ServerSpec,
    hosts: &BTreeMap<&str, HostId>,
) -> Checked<Update> {
    if u.size_bytes == 0 || u.size_bytes > SIZE_BYTES_MAX {
        let expected = format!("a size lies from 1 to {SIZE_BYTES_MAX} bytes");
        return Err(value(&at("size_bytes"), u.size_bytes, expected));
    }
    if u.version > server.version {
        let expected = format!("server `{}` is at version {}", server.name, server.version);
        return Err(value(&at("version"), u.version, expected));
    }
    if let Some(n) = u.norm {
        norm(&at("norm"), n)?;
    } else if server.div_max.is_some() && server.replica.is_some() {
        let why = format!("server `{}` bounds divergence, which needs norms", server.name);
        return Err(CaseError::Missing { field: at("norm"), why });
    }
    if let (Some(job), Some(server_job)) = (&u.job, &server.job)
        && job != server_job
    {
        let expected = format!("server `{}` serves job `{server_job}`", server.name);
        return Err(value(&at("job"), job, expected));
    }
    Ok(Update {
        name: u.id.clone(),
        server: ServerId::from_index(index),
        host: host(&at("host"), &u.host, hosts)?,
        size_bytes: u.size_bytes,
        version: u.version,
        norm: u.norm.unwrap_or(0.0),
        dropped_before: u.dropped_before,
    })
}

/// With a bound of 0 only one of several fresh updates can ever commit: a mistake, not a plan.
fn tau_is_feasible(spec: &CaseSpec, servers: &[Server], updates: &[Update]) -> Checked<()> {
    for (i, server) in servers.iter().enumerate() {
        let own = updates.iter().filter(|u| u.server.index() == i);
        let workers: BTreeSet<HostId> = own.map(|u| u.host).collect();
        if server.tau_max == 0 && workers.len() > 1 {
            let expected = format!(
                "a round of {} workers needs at least {}",
                workers.len(),
                workers.len() - 1
            );
            return Err(value(&format!("servers[{i}].tau_max"), 0, expected));
        }
        debug_assert_eq!(server.name, spec.servers[i].name);
    }
    Ok(())
}

fn reservation(
    i: usize,
    r: &ReservationSpec,
    hosts: &BTreeMap<&str, HostId>,
) -> Checked<Reservation> {
    let at = |leaf: &str| format!("reservations[{i}].{leaf}");
    if r.from.is_none() && r.to.is_none() {
        let why = "a reservation has a sender, a receiver or both".to_owned();
        return Err(CaseError::Missing { field: at("from"), why });
    }
    let end = |leaf: &str, name: &Option<String>| {
        name.as_deref().map(|name| host(&at(leaf), name, hosts)).transpose()
    };
    rate(&at("bytes_per_sec"), r.bytes_per_sec)?;
    instant(&at("to_ns"), r.to_ns)?;
    if r.from_ns >= r.to_ns {
        let expected = format!("it starts before it ends, at {}", r.to_ns);
        return Err(value(&at("from_ns"), r.from_ns, expected));
    }
    Ok(Reservation {
        from: end("from", &r.from)?,
        to: end("to", &r.to)?,
        segment: Segment { from_ns: r.from_ns, to_ns: r.to_ns, bytes_per_sec: r.bytes_per_sec },
    })
}

fn options(o: &Options) -> Checked<()> {
    let share = |name: &str, v: f64| {
        if (0.0..=1.0).contains(&v) {
            return Ok(());
        }
        Err(value(&format!("options.{name}"), v, "a share lies from 0 to 1"))
    };
    share("drop_limit", o.drop_limit)?;
    share("thin_flow_share", o.thin_flow_share)?;
    share("relay_share", o.relay_share)?;
    if !(o.theta.is_finite() && o.theta >= 0.0) {
        return Err(value("options.theta", o.theta, "it is finite and not negative"));
    }
    for (name, times) in [("idle_max", o.idle_max), ("link_price", o.link_price)] {
        if !(0.0..=1000.0).contains(&times) {
            return Err(value(&format!("options.{name}"), times, "it lies from 0 to 1000"));
        }
    }
    if o.direct_search == 0 {
        return Err(value("options.direct_search", 0, "at least one plan must be tried"));
    }
    let counts = [
        ("best_of", o.best_of),
        ("outstanding_max", Some(o.outstanding_max)),
        ("chain_every", Some(o.chain_every)),
    ];
    if let Some((name, _)) = counts.iter().find(|(_, count)| *count == Some(0)) {
        return Err(value(&format!("options.{name}"), 0, "at least 1"));
    }
    Ok(())
}

fn host(field: &str, name: &str, hosts: &BTreeMap<&str, HostId>) -> Checked<HostId> {
    hosts.get(name).copied().ok_or_else(|| CaseError::Unknown {
        field: field.to_owned(),
        kind: "host",
        name: name.to_owned(),
        remedy: "list it under `hosts`",
    })
}

fn rate(field: &str, bytes_per_sec: u64) -> Checked<()> {
    if bytes_per_sec == 0 || bytes_per_sec > RATE_BYTES_PER_SEC_MAX {
        let expected = format!("a rate lies from 1 to {RATE_BYTES_PER_SEC_MAX} bytes per second");
        return Err(value(field, bytes_per_sec, expected));
    }
    Ok(())
}

fn norm(field: &str, norm: f64) -> Checked<()> {
    if norm.is_finite() && norm >= 0.0 {
        return Ok(());
    }
    Err(value(field, norm, "a norm is finite and not negative"))
}

fn instant(field: &str, at_ns: u64) -> Checked<()> {
    bounded(field, at_ns, INSTANT_NS_MAX)
}

fn bounded(field: &str, v: u64, max: u64) -> Checked<()> {
    if v <= max {
        return Ok(());
    }
    Err(value(field, v, format!("it is at most {max}")))
}

fn value(field: &str, v: impl ToString, expected: impl Into<String>) -> CaseError {
    CaseError::Value { field: field.to_owned(), value: v.to_string(), expected: expected.into() }
}
