//! From the shape of a configuration to its meaning: decides what a [`NodeConfig`] stands for, or
//! which key of it cannot be. Jobs and rows are judged by [`Table`] alone; its errors are mapped
//! to the keys they came from.

use std::net::SocketAddr;
use std::sync::Arc;

use weft_config::Problem;
use weft_config::node::{Io, JobSection, NodeConfig, RowSection};
use weft_control::HoldingCommand;
use weft_engine::admit::StrangersQuota;
use weft_engine::role::model::ModelConfigError;
use weft_engine::role::replica::ReplicaJobConfig;
use weft_engine::role::server::ServerJobConfig;
use weft_engine::role::switch::Target;
use weft_engine::table::{
    ArenaConfig, BoxConfig, JOBS_MAX, JobConfig, MemberConfig, PORT_OF_FURTHER_LANE,
    PORT_OF_TWO_LANES, ParentConfig, PushConfig, ROWS_MAX, RowConfig, Table, TableError,
    is_of_another_lane, port_of_two_lanes, slot_bytes,
};
use weft_io::marks::JobMarks;
use weft_io::udp::SOCKETS_MAX;
use weft_wire::frame::{Endpoint, IPV4_LEN, IPV6_LEN, UDP_LEN};
use weft_wire::header::HEADER_LEN;
use weft_wire::hello::Integrity;
use weft_wire::{JobId, MacAddr, Rank};

use crate::LaneMap;

mod jobs;
mod marks;
mod tables;

pub use tables::KeyTable;

/// A configuration that was found good.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file, with every default filled in.
    pub config: NodeConfig,
    /// The box. Its Ethernet address is the configured one, else zero until the port is open.
    pub table: BoxConfig,
    /// What is kept free beside it for what comes at run time.
    pub arena: ArenaConfig,
    /// What strangers may cost.
    pub strangers: StrangersQuota,
    /// The jobs that are served; their initial models are still in their files.
    pub servers: Vec<ServerJobConfig>,
    /// The jobs that are followed.
    pub replicas: Vec<ReplicaJobConfig>,
    /// The tables of rows whose home the box is.
    pub tables: Vec<KeyTable>,
    /// Which lane a frame belongs to.
    pub lanes: LaneMap,
    /// The switch that the box is behind.
    pub switch: Option<Target>,
    /// What the frames of each job carry, as the file says it; an agent may change it.
    pub marks: Arc<JobMarks>,
    /// Sockets on consecutive ports that the box needs on `udp`: lane `i` sends from port + `i`.
    pub udp_sockets: usize,
}

impl Settings {
    /// True when each lane of a UDP box has a socket of its own to receive from. A capture is one
    /// port's, and a leaf's lanes may send from other ports: there lane 0 moves all frames.
    #[must_use]
    pub fn has_udp_lanes(&self) -> bool {
        let shards = usize::from(self.config.lcores.shards);
        shards > 1 && self.udp_sockets == shards && self.config.trace.is_none()
    }

    /// What a configuration means.
    ///
    /// # Errors
    /// The first key that cannot be, and what would be right.
    pub fn new(config: NodeConfig) -> Result<Self, Problem> {
        resolve(config)
    }

    /// What the jobs and leases of an aggregator come to, as a line for people; nothing of others.
    #[must_use]
    pub fn arena_text(&self) -> String {
        let ArenaConfig { jobs, leases, lease_bytes, pushes, push_bytes, pull_cache_bytes, .. } =
            self.arena;
        let is_model = !self.servers.is_empty() || !self.replicas.is_empty();
        if is_model || self.config.bench.is_some() {
            return String::new();
        }
        let own: u64 = self.table.rows.iter().map(slot_bytes).sum();
        let all = own.saturating_add(u64::from(leases).saturating_mul(lease_bytes));
        let held = &self.table.pushes;
        let bytes_of = |push: &PushConfig| push.quota_bytes.saturating_add(push.pull_cache_bytes);
        let pushed = held.iter().map(bytes_of).fold(0, u64::saturating_add);
        let each = push_bytes.saturating_add(pull_cache_bytes);
        let all_pushed = pushed.saturating_add(u64::from(pushes).saturating_mul(each));
        format!(
            "arena: {} jobs and {} leases of the file with {own} bytes of slots, room for {jobs} \
             jobs and {leases} leases of {lease_bytes} bytes more; {all} bytes of slots in all\n\
             arena: {} push jobs of the file with {pushed} bytes of slots and pulls, room for \
             {pushes} of {push_bytes} and {pull_cache_bytes} bytes more; {all_pushed} bytes in all\n",
            self.table.jobs.len(),
            self.table.rows.len(),
            held.len()
        )
    }

    /// True when payloads are protected by UDP's checksum.
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        if has_checksums(&self.table) {
            return true;
        }
        let servers = self.servers.iter().map(|job| job.model.integrity);
        let mut all = servers.chain(self.replicas.iter().map(|job| job.model.integrity));
        all.any(|integrity| integrity == Integrity::Checksum16)
    }
}

fn of_parent(row: usize, key: &str, problem: &str) -> Problem {
    Problem::new(format!("row[{row}].parent.{key}"), problem)
}

fn resolve(mut config: NodeConfig) -> Result<Settings, Problem> {
    config.check()?;
    let strangers = StrangersQuota {
        rate_bytes_per_sec: config.strangers.rate_bytes_per_sec,
        burst_bytes: config.strangers.burst_bytes,
    };
    strangers
        .check()
        .map_err(|error| Problem::new(format!("strangers.{}", error.field), error.problem))?;
    let udp_port = config.port.udp_port;
    fill_rows(&mut config);
    let rows = config.row.iter().enumerate().map(|(index, row)| resolve_row(&config, index, row));
    let table = BoxConfig {
        local: Endpoint {
            mac: config.port.mac.unwrap_or_default(),
            addr: SocketAddr::new(config.port.ip.ip, udp_port),
        },
        shards: config.lcores.shards,
        mtu: config.port.mtu,
        jobs: config.job.iter().map(share).collect(),
        rows: rows.collect::<Result<_, _>>()?,
        pushes: config.push.iter().map(jobs::push).collect(),
    };
    let table = Table::new(table).map_err(|error| place(&config, &error))?;
    let source_ports = table.config().rows.iter().filter_map(|row| Some(row.parent?.source_port));
    let sockets = source_ports.filter_map(|port| udp_sockets(&config, port));
    let udp_sockets = sockets.max().unwrap_or(0).max(usize::from(config.lcores.shards));
    let (table, arena) = resolve_arena(&config, table, udp_sockets)?;
    let lanes = LaneMap::new(&table);
    let servers = resolve_servers(&config, &table)?;
    let replicas = resolve_replicas(&config, &table)?;
    let tables = tables::resolve(&config)?;
    let switch = resolve_switch(&config, &table)?;
    let marks = marks::resolve(&config)?;
    Ok(Settings {
        config,
        table,
        arena,
        strangers,
        servers,
        replicas,
        tables,
        lanes,
        switch,
        marks,
        udp_sockets,
    })
}

/// The jobs, rows and push jobs of a file as commands to a running node, in an order in which it
/// takes them. The node checks them.
///
/// # Errors
/// A row's root that cannot be.
pub fn holdings(mut config: NodeConfig) -> Result<Vec<HoldingCommand>, Problem> {
    fill_rows(&mut config);
    let rows = config.row.iter().enumerate();
    let rows = rows.map(|(index, row)| resolve_row(&config, index, row));
    let rows = rows.map(|row| row.map(HoldingCommand::InstallLease));
    let shares = config.job.iter().map(|job| Ok(HoldingCommand::InstallJob(share(job))));
    let pushes = config.push.iter().map(|push| Ok(HoldingCommand::InstallPush(jobs::push(push))));
    shares.chain(rows).chain(pushes).collect()
}

/// Fills in what a row has by default from elsewhere in the file.
fn fill_rows(config: &mut NodeConfig) {
    let udp_port = config.port.udp_port;
    for row in &mut config.row {
        let weights = row.members.iter().fold(0u32, |sum, m| sum.saturating_add(m.weight));
        row.fan_in.get_or_insert(weights);
        if let Some(parent) = &mut row.parent {
            parent.source_port.get_or_insert(udp_port);
        }
    }
}

fn share(job: &JobSection) -> JobConfig {
    JobConfig {
        job: JobId(job.id),
        slots_max: job.slots_max,
        rate_bytes_per_sec: job.rate_bytes_per_sec,
        burst_bytes: job.burst_bytes,
    }
}

/// The switch, which must be able to do what the file asks for.
fn resolve_switch(config: &NodeConfig, table: &BoxConfig) -> Result<Option<Target>, Problem> {
    let Some(section) = &config.switch else { return Ok(None) };
    if !(config.server.is_empty() && config.replica.is_empty()) || config.bench.is_some() {
        let problem = "is an aggregator's: a server, a replica or a bench is none";
        return Err(Problem::new("switch", problem));
    }
    let target = Target {
        elements: section.elements,
        banks: SWITCH_BANKS,
        rows: SWITCH_ROWS,
        scopes: SWITCH_SCOPES,
        cpu_port: section.cpu_port,
        hosts: section.port.iter().map(|entry| (entry.ip, entry.port)).collect(),
        cpu_quota: Some((section.cpu_rate_bytes_per_sec, section.cpu_burst_bytes)),
    };
    target.check_box(table).map_err(|error| place(config, &error))?;
    Ok(Some(target))
}

/// What is kept free for jobs and leases that come at run time; nothing where none can.
fn resolve_arena(
    config: &NodeConfig,
    table: Table,
    sockets: usize,
) -> Result<(BoxConfig, ArenaConfig), Problem> {
    let is_model = !config.server.is_empty() || !config.replica.is_empty();
    if is_model || config.bench.is_some() {
        return Ok((table.config().clone(), ArenaConfig::default()));
    }
    let (section, is_udp) = (&config.arena, config.port.io == Io::Udp);
    let room = |max: usize, taken: usize| {
        let free = max.saturating_sub(taken).min(usize::from(ARENA_ENTRIES));
        u16::try_from(free).unwrap_or(ARENA_ENTRIES)
    };
    let arena = ArenaConfig {
        jobs: section.jobs.unwrap_or_else(|| room(JOBS_MAX, config.job.len())),
        leases: section.leases.unwrap_or_else(|| room(ROWS_MAX, config.row.len())),
        lease_bytes: section.lease_bytes,
        pushes: section
            .pushes
            .unwrap_or_else(|| room(JOBS_MAX, config.push.len()).min(PUSH_ENTRIES)),
        push_bytes: section.push_bytes,
        pull_cache_bytes: section.pull_cache_bytes,
        lacks_checksums: config.port.is_socket() && !has_checksums(table.config()),
        socket_count: is_udp.then(|| u16::try_from(sockets).unwrap_or(u16::MAX)),
    };
    let table = table.with_arena(arena).map_err(|error| place(config, &error))?;
    Ok((table.config().clone(), arena))
}

/// True when rows or push jobs have payloads that UDP's checksum protects.
fn has_checksums(table: &BoxConfig) -> bool {
    let rows = table.rows.iter().map(|row| row.integrity);
    let mut all = rows.chain(table.pushes.iter().map(|push| push.integrity));
    all.any(|integrity| integrity == Integrity::Checksum16)
}

/// Banks of the switch's program (`p4/sizes.p4`).
const SWITCH_BANKS: u32 = 2048;
/// Rows of the same.
const SWITCH_ROWS: u16 = 1024;
/// Scopes of the same.
const SWITCH_SCOPES: u16 = 64;
/// Jobs, and leases, that an arena has room for by default.
const ARENA_ENTRIES: u16 = 8;
/// The same of push jobs, which take much more.
const PUSH_ENTRIES: u16 = 2;

/// A node is an aggregator, or serves models, or follows servers.
fn check_role(config: &NodeConfig, section: &str, others: &[bool]) -> Result<(), Problem> {
    let problem = "needs a process of its own: start one node per role";
    if others.iter().any(|other| *other) {
        return Err(Problem::new(section, problem));
    }
    if config.lcores.shards > 1 {
        let problem = format!("must be 1 where there is a [[{section}]]");
        return Err(Problem::new("lcores.shards", problem));
    }
    Ok(())
}

fn resolve_servers(
    config: &NodeConfig,
    table: &BoxConfig,
) -> Result<Vec<ServerJobConfig>, Problem> {
    if config.server.is_empty() {
        return Ok(Vec::new());
    }
    let others = [!config.row.is_empty(), !config.push.is_empty(), !config.replica.is_empty()];
    check_role(config, "server", &others)?;
    let jobs: Vec<_> = config.server.iter().map(jobs::server).collect();
    for (index, job) in jobs.iter().enumerate() {
        check_job(config.server.iter().map(|section| section.job), "server", index)?;
        job.check(&table.local, table.mtu).map_err(|error| of_field("server", index, &error))?;
    }
    Ok(jobs)
}

fn resolve_replicas(
    config: &NodeConfig,
    table: &BoxConfig,
) -> Result<Vec<ReplicaJobConfig>, Problem> {
    if config.replica.is_empty() {
        return Ok(Vec::new());
    }
    let others = [!config.row.is_empty(), !config.push.is_empty()];
    check_role(config, "replica", &others)?;
    let jobs: Vec<_> = config.replica.iter().map(jobs::replica).collect();
    for (index, job) in jobs.iter().enumerate() {
        check_job(config.replica.iter().map(|section| section.job), "replica", index)?;
        job.check(&table.local, table.mtu).map_err(|error| of_field("replica", index, &error))?;
    }
    Ok(jobs)
}

fn check_job(jobs: impl Iterator<Item = u16>, section: &str, index: usize) -> Result<(), Problem> {
    let ids: Vec<u16> = jobs.take(index + 1).collect();
    let is_good = usize::from(ids[index]) < JOBS_MAX && !ids[..index].contains(&ids[index]);
    let problem = "must be below 256, and different for each job";
    if is_good { Ok(()) } else { Err(Problem::of_entry(section, index, "job", problem)) }
}

/// The key that a field of an engine's configuration is written as.
fn of_field(section: &str, index: usize, error: &ModelConfigError) -> Problem {
    let key = match error.field {
        "rto_min_ns" => "rto_min_us",
        "status_interval_ns" => "status_interval_us",
        "initial" => "initial_model",
        "index" => "box_index",
        field => field,
    };
    Problem::of_entry(section, index, key, error.problem.replace("_ns", "_us"))
}

fn resolve_row(config: &NodeConfig, index: usize, row: &RowSection) -> Result<RowConfig, Problem> {
    let members = row.members.iter().map(|member| MemberConfig {
        addr: member.addr,
        weight: member.weight,
        is_box: member.is_box,
    });
    let parent = row.parent.as_ref().map(|parent| {
        let source_port = parent.source_port.unwrap_or(config.port.udp_port);
        if config.port.io == Io::Udp && udp_sockets(config, source_port).is_none() {
            let problem = "must be port.udp_port, or so close above it that 64 sockets reach it";
            return Err(of_parent(index, "source_port", problem));
        }
        let rank = Rank::new(parent.rank)
            .ok_or_else(|| of_parent(index, "rank", "must be from 0 to 63"))?;
        let mac = parent.mac.unwrap_or(MacAddr::BROADCAST);
        let endpoint = Endpoint { mac, addr: parent.addr };
        Ok(ParentConfig { endpoint, row: parent.row, rank, source_port })
    });
    Ok(RowConfig {
        row: row.row,
        job: JobId(row.job),
        members: members.collect(),
        element_type: row.element_type,
        operation: row.operation,
        sum_order: row.sum_order,
        overflow: row.overflow,
        integrity: row.integrity,
        elements: row.elements.resolve(payload_len_max(config), row.element_type.len_bytes()),
        window: row.window,
        chunks_max: row.chunks_max,
        exponent: row.exponent,
        fan_in: row.fan_in.unwrap_or(0),
        parent: parent.transpose()?,
    })
}

/// Bytes of elements that one packet has room for; on a switch those that its program sums.
fn payload_len_max(config: &NodeConfig) -> usize {
    if let Some(section) = &config.switch {
        return usize::from(section.elements) * 4;
    }
    usize::from(payload_max(config)).saturating_sub(HEADER_LEN)
}

/// Bytes of UDP payload that one packet has room for.
fn payload_max(config: &NodeConfig) -> u16 {
    let ip_len = if config.port.ip.ip.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
    let len = usize::from(config.port.mtu).saturating_sub(ip_len + UDP_LEN);
    u16::try_from(len).unwrap_or(u16::MAX)
}

/// Sockets on consecutive ports from `port.udp_port` on that a box needs whose lanes send from
/// `source_port` too.
fn udp_sockets(config: &NodeConfig, source_port: u16) -> Option<usize> {
    let above = usize::from(source_port.checked_sub(config.port.udp_port)?);
    let count = above + usize::from(config.lcores.shards);
    (count <= SOCKETS_MAX).then_some(count)
}

/// The key that a [`TableError`] is about.
fn place(config: &NodeConfig, error: &TableError) -> Problem {
    let (section, number) = (error.entry, if error.entry == "row" { "row" } else { "job" });
    let numbers: Vec<u16> = match section {
        "job" => config.job.iter().map(|job| job.id).collect(),
        "row" => config.row.iter().map(|row| row.row).collect(),
        "push" => config.push.iter().map(|push| push.job).collect(),
        _ => {
            let field = match error.field {
                "leases" => "arena.leases",
                "lease_bytes" => "arena.lease_bytes",
                "pushes" => "arena.pushes",
                "push_bytes" => "arena.push_bytes",
                "pull_cache_bytes" => "arena.pull_cache_bytes",
                "jobs" if section == "arena" => "arena.jobs",
                "local" => "port.udp_port",
                "shards" => "lcores.shards",
                "jobs" => "job",
                _ => "row",
            };
            return Problem::new(field, error.problem);
        }
    };
    let is_it = |number: &u16| u32::from(*number) == error.index;
    // A number that is taken is at fault where it appears again.
    let index = match error.field == number {
        true => numbers.iter().rposition(is_it),
        false => numbers.iter().position(is_it),
    };
    let row = index.and_then(|index| config.row.get(index));
    let (key, problem) = match (section, error.field) {
        ("row", "members") => ("members", problem_of_members(config, row, error)),
        ("push", "workers") => ("workers", problem_of_workers(config, index, error)),
        ("job", "job") => ("id", error.problem.to_owned()),
        ("row", "weight") => ("members", format!("weight {}", error.problem)),
        (_, field) => (field, error.problem.to_owned()),
    };
    Problem::of_entry(section, index.unwrap_or(0), key, problem)
}

/// What is wrong with a row's members; a port that would be of two lanes is named.
fn problem_of_members(config: &NodeConfig, row: Option<&RowSection>, error: &TableError) -> String {
    let shards = config.lcores.shards;
    let rows = config.row.iter().enumerate();
    let rows: Vec<_> = rows.filter_map(|(i, row)| resolve_row(config, i, row).ok()).collect();
    let of_row = |row: &RowSection| rows.iter().find(|known| known.row == row.row);
    let port = row.and_then(of_row).and_then(|row| port_of_two_lanes(shards, row, rows.iter()));
    match port {
        // Members that are wrong in another way come first.
        Some(port) if error.problem == PORT_OF_TWO_LANES => format!(
            "UDP source port {port} would be one lane for one member or root and another lane for \
             another; give all the same port, or ports that are a multiple of the lanes apart"
        ),
        _ => error.problem.to_owned(),
    }
}

/// What is wrong with a push job's workers; a port that is a further lane's is named.
fn problem_of_workers(config: &NodeConfig, index: Option<usize>, error: &TableError) -> String {
    let rows = config.row.iter().enumerate();
    let rows: Vec<_> = rows.filter_map(|(i, row)| resolve_row(config, i, row).ok()).collect();
    let shards = config.lcores.shards;
    let is_taken = |port: &u16| rows.iter().any(|row| is_of_another_lane(shards, row, *port));
    let push = index.and_then(|index| config.push.get(index)).map(jobs::push);
    let port = push.and_then(|push| push.addresses().map(|addr| addr.port()).find(is_taken));
    match port {
        Some(port) if error.problem == PORT_OF_FURTHER_LANE => format!(
            "have the UDP source port {port}, which is a further lane's of a row's member or root: \
             push jobs are lane 0's, so give them other ports"
        ),
        _ => error.problem.to_owned(),
    }
}

#[cfg(test)]
mod tests;
