//! A compiled program: what its p4info calls by which number, and entries in these numbers.
//!
//! Names are those of the last component (`WeftIngress.identity.rows` is `rows`), which are unique
//! in the program. Whatever an agent may write is tried when the program is loaded, so a p4info
//! that does not fit is one error that says what is missing. Files that were not made together are
//! refused by their sums: a switch takes the JSON of another size without a word, and some that is
//! none ends it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use weft_engine::role::switch::{Counter, Entry, Field, Rendered, TableEntry, Target, Write};
use weft_rpc::p4::config::v1::{P4Info, Preamble};
use weft_rpc::p4::v1 as p4;
use weft_rpc::p4info;

/// Why a program is not the one that is needed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// A file cannot be read.
    #[error("reading {}: {source}; switch.program names the folder of the compiled program, \
             with files for {elements} elements", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What it was to be for.
        elements: u16,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// A file is not the one that was compiled with the others.
    #[error("{}: not the file whose sum {SUMS_NAME} beside it has: take all files of one \
             p4/build, or make -C p4", .path.display())]
    Stranger {
        /// The file.
        path: PathBuf,
    },
    /// The text is no p4info.
    #[error("{}: no p4info: {problem}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        problem: String,
    },
    /// It is another program's, or one of another version.
    #[error("{}: the program does not fit this weft-node: {problem}; build both from the same \
             sources", .path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// What is missing.
        problem: String,
    },
}

/// A compiled program.
#[derive(Clone, Debug)]
pub struct Program {
    name: PathBuf,
    pub(crate) info: P4Info,
    /// What the switch loads.
    pub(crate) device: Vec<u8>,
    tables: BTreeMap<String, Table>,
    meters: BTreeMap<String, (u32, i64)>,
    counters: BTreeMap<String, (u32, i64)>,
}

#[derive(Clone, Debug)]
struct Table {
    id: u32,
    size: i64,
    keys: BTreeMap<String, (u32, i32)>,
    /// Those that it may have: others may bear the same name.
    actions: BTreeMap<String, Action>,
}

#[derive(Clone, Debug)]
struct Action {
    id: u32,
    params: BTreeMap<String, (u32, i32)>,
}

impl Program {
    /// Reads `weft-v1model-E.json` and `weft-v1model-E.p4info.txtpb` of a folder, and holds both
    /// against the folder's sums.
    ///
    /// # Errors
    /// [`ProgramError`].
    pub fn load(folder: &Path, target: &Target) -> Result<Self, ProgramError> {
        let elements = target.elements;
        let path = |end: &str| folder.join(format!("weft-v1model-{elements}.{end}"));
        let unreadable = |path: &PathBuf, source| {
            let path = path.clone();
            ProgramError::Unreadable { path, elements, source }
        };
        let (json, text, sums) = (path("json"), path("p4info.txtpb"), folder.join(SUMS_NAME));
        let device = std::fs::read(&json).map_err(|source| unreadable(&json, source))?;
        let info = std::fs::read_to_string(&text).map_err(|source| unreadable(&text, source))?;
        let sums = std::fs::read_to_string(&sums).map_err(|source| unreadable(&sums, source))?;
        for (path, bytes) in [(json, &device[..]), (text.clone(), info.as_bytes())] {
            if !has_sum(&sums, &path, bytes) {
                return Err(ProgramError::Stranger { path });
            }
        }
        Self::new(&text, &info, device, target)
    }

    /// A program of this p4info, which was read from `name`.
    ///
    /// # Errors
    /// [`ProgramError::Malformed`], [`ProgramError::Unfit`].
    pub fn new(
        name: &Path,
        info: &str,
        device: Vec<u8>,
        target: &Target,
    ) -> Result<Self, ProgramError> {
        let path = name.to_path_buf();
        let info = match p4info::parse(info) {
            Ok(info) => info,
            Err(problem) => return Err(ProgramError::Malformed { path, problem }),
        };
        let program = Self::resolve(path, info, device);
        match program.check(target) {
            Ok(()) => Ok(program),
            Err(problem) => Err(ProgramError::Unfit { path: program.name, problem }),
        }
    }

    fn resolve(name: PathBuf, info: P4Info, device: Vec<u8>) -> Self {
        let table = |table: &weft_rpc::p4::config::v1::Table| {
            let keys = table.match_fields.iter();
            let keys = keys.map(|key| (last(&key.name), (key.id, key.bitwidth))).collect();
            let own = |(_, id): &(String, u32)| table.action_refs.iter().any(|it| it.id == *id);
            let actions = info.actions.iter().map(|it| (named(it.preamble.as_ref()), it));
            let actions = actions.filter(|(named, _)| own(named)).map(|((name, id), action)| {
                let params = action.params.iter();
                let params = params.map(|it| (last(&it.name), (it.id, it.bitwidth))).collect();
                (name, Action { id, params })
            });
            let actions = actions.collect();
            let (name, id) = named(table.preamble.as_ref());
            (name, Table { id, size: table.size, keys, actions })
        };
        let meters = info.meters.iter().map(|meter| {
            let (name, id) = named(meter.preamble.as_ref());
            (name, (id, meter.size))
        });
        let counters = info.counters.iter().map(|counter| {
            let (name, id) = named(counter.preamble.as_ref());
            (name, (id, counter.size))
        });
        Self {
            name,
            tables: info.tables.iter().map(table).collect(),
            meters: meters.collect(),
            counters: counters.collect(),
            device,
            info,
        }
    }

    /// Tries whatever an agent may write and read.
    fn check(&self, target: &Target) -> Result<(), String> {
        for entry in Entry::samples() {
            self.update(&Write::Insert(entry))?;
        }
        for counter in [Counter::Drops, Counter::Transitions, Counter::Progress] {
            self.counter(counter, 0)?;
        }
        let sizes = [
            ("table `rows`", self.tables["rows"].size, u64::from(target.rows)),
            ("table `servers`", self.tables["servers"].size, u64::from(target.scopes)),
            ("meter `job_meter`", self.meters["job_meter"].1, u64::from(target.scopes)),
            (
                "counter `transitions`",
                self.counters["transitions"].1,
                32 * u64::from(target.scopes),
            ),
            ("counter `progress`", self.counters["progress"].1, 64 * u64::from(target.rows)),
        ];
        for (what, has, needs) in sizes {
            if has.unsigned_abs() < needs {
                return Err(format!("{what} has {has} places, and {needs} are needed"));
            }
        }
        let registers =
            self.info.registers.iter().map(|it| (named(it.preamble.as_ref()).0, it.size));
        for (name, size) in registers.filter(|(name, _)| name == "bank_members") {
            if size.unsigned_abs() < target.banks {
                let banks = target.banks;
                return Err(format!("register `{name}` has {size} places, not {banks}"));
            }
        }
        Ok(())
    }

    /// A write in this program's numbers.
    ///
    /// # Errors
    /// What the program lacks.
    pub(crate) fn update(&self, write: &Write) -> Result<p4::Update, String> {
        use p4::update::Type;
        let rendered = write.entry().render();
        let update = match (write, &rendered) {
            // A meter is always there: a quota that goes is one without bounds.
            (_, Rendered::Meter { .. }) => Type::Modify,
            (Write::Insert(_), _) => Type::Insert,
            (Write::Modify(_), _) => Type::Modify,
            (Write::Delete(_), _) => Type::Delete,
        };
        let is_delete = matches!(write, Write::Delete(_));
        let entity = match rendered {
            Rendered::Table(entry) => p4::entity::Entity::TableEntry(self.table(&entry)?),
            Rendered::Group { id, nodes } => group(id, nodes),
            Rendered::Meter { name, index, rate_bytes_per_sec, burst_bytes } => {
                let (meter_id, _) =
                    *self.meters.get(name).ok_or_else(|| format!("it has no meter `{name}`"))?;
                let config = p4::MeterConfig {
                    cir: bounded(rate_bytes_per_sec),
                    cburst: bounded(burst_bytes),
                    pir: bounded(rate_bytes_per_sec),
                    pburst: bounded(burst_bytes),
                    ..Default::default()
                };
                p4::entity::Entity::MeterEntry(p4::MeterEntry {
                    meter_id,
                    index: Some(p4::Index { index: i64::from(index) }),
                    config: (!is_delete).then_some(config),
                    ..Default::default()
                })
            }
        };
        Ok(p4::Update { r#type: update.into(), entity: Some(p4::Entity { entity: Some(entity) }) })
    }

    fn table(&self, entry: &TableEntry) -> Result<p4::TableEntry, String> {
        let table = entry.table;
        let known = self.tables.get(table).ok_or_else(|| format!("it has no table `{table}`"))?;
        let fits = |what: &str, names: &BTreeMap<String, (u32, i32)>, field: &Field| {
            let name = field.name;
            let (id, bits) = *names.get(name).ok_or_else(|| format!("{what} has no `{name}`"))?;
            if bits != i32::from(field.bits) {
                let needs = field.bits;
                return Err(format!("`{name}` of {what} has {bits} bits, not {needs}"));
            }
            Ok(id)
        };
        let key = |field: &Field| {
            let field_id = fits(&format!("table `{table}`"), &known.keys, field)?;
            let exact = p4::field_match::Exact { value: octets(field.value) };
            let kind = Some(p4::field_match::FieldMatchType::Exact(exact));
            Ok(p4::FieldMatch { field_id, field_match_type: kind })
        };
        if known.keys.len() != entry.keys.len() {
            return Err(format!("table `{table}` has other keys"));
        }
        let name = entry.action;
        let action = known.actions.get(name);
        let action = action.ok_or_else(|| format!("table `{table}` has no action `{name}`"))?;
        if action.params.len() != entry.params.len() {
            return Err(format!("action `{name}` has other parameters"));
        }
        let param = |field: &Field| {
            let param_id = fits(&format!("action `{name}`"), &action.params, field)?;
            Ok(p4::action::Param { param_id, value: octets(field.value) })
        };
        let params = entry.params.iter().map(param).collect::<Result<_, String>>()?;
        let action = p4::Action { action_id: action.id, params };
        Ok(p4::TableEntry {
            table_id: known.id,
            r#match: entry.keys.iter().map(key).collect::<Result<_, String>>()?,
            action: Some(p4::TableAction { r#type: Some(p4::table_action::Type::Action(action)) }),
            ..Default::default()
        })
    }

    /// A cell of a counter.
    ///
    /// # Errors
    /// What the program lacks.
    pub(crate) fn counter(&self, counter: Counter, cell: u32) -> Result<p4::Entity, String> {
        let name = counter.name();
        let (counter_id, _) =
            *self.counters.get(name).ok_or_else(|| format!("it has no counter `{name}`"))?;
        let index = Some(p4::Index { index: i64::from(cell) });
        let entry = p4::CounterEntry { counter_id, index, data: None };
        Ok(p4::Entity { entity: Some(p4::entity::Entity::CounterEntry(entry)) })
    }

    /// Where it was read from.
    #[must_use]
    pub fn name(&self) -> &Path {
        &self.name
    }
}

#[expect(deprecated, reason = "older switches know no other field for the port")]
fn group(id: u16, nodes: &[(u16, u16)]) -> p4::entity::Entity {
    let replica = |(port, instance): &(u16, u16)| p4::Replica {
        port_kind: Some(p4::replica::PortKind::EgressPort(u32::from(*port))),
        instance: u32::from(*instance),
        ..Default::default()
    };
    let group = p4::MulticastGroupEntry {
        multicast_group_id: u32::from(id),
        replicas: nodes.iter().map(replica).collect(),
        ..Default::default()
    };
    let kind = p4::packet_replication_engine_entry::Type::MulticastGroupEntry(group);
    let entry = p4::PacketReplicationEngineEntry { r#type: Some(kind) };
    p4::entity::Entity::PacketReplicationEngineEntry(entry)
}

fn named(preamble: Option<&Preamble>) -> (String, u32) {
    preamble.map_or_else(Default::default, |preamble| (last(&preamble.name), preamble.id))
}

fn last(name: &str) -> String {
    name.rsplit('.').next().unwrap_or(name).to_owned()
}

/// The shortest octets of a value, as P4Runtime has it.
fn octets(value: u64) -> Vec<u8> {
    let octets = value.to_be_bytes();
    let first = octets.iter().position(|octet| *octet != 0).unwrap_or(octets.len() - 1);
    octets[first..].to_vec()
}

fn bounded(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// True when the sums have that of these bytes under the name of the file.
fn has_sum(sums: &str, path: &Path, bytes: &[u8]) -> bool {
    let sum: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    sums.lines().any(|line| line == format!("{sum}  {name}"))
}

/// What `make -C p4` was made of and what it made, as sha256sum writes it.
const SUMS_NAME: &str = "SOURCES.sha256";
