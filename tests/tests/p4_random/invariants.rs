//! What holds of the P4 program whatever frame comes: from the registers before a frame and after
//! it, and from what left. Whatever state a frame finds is one that frames before led to, so this
//! is an induction over the frames of every script, random ones included.
//!
//! - **Lanes**: a lane changes only by the element of a vector that came whole.
//! - **Result**: a result leaves exactly when its bitmap becomes full, and a bitmap that is full
//!   and has to be answered is of a bank that says so.
//! - **Others**: a frame changes one bank at most, that of its job, row and chunk; what it enters
//!   is the bit of the member whose cookie it has.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weft_engine::role::switch::{Counter, ETHERTYPE_OP, Field, Rendered, Write};
use weft_testbed::conformance::target::{
    Interpreted, Kind as TargetKind, Refused, Sent, Switch, SwitchBox,
};
use weft_testbed::conformance::{Script, observe_on, parse};
use weft_wire::frame::Udp;
use weft_wire::header::{HEADER_LEN, Header, Kind, Packet};

/// The program in the interpreter, watched.
struct Watched {
    inner: Interpreted,
    /// By job and row.
    rows: BTreeMap<(u64, u64), Row>,
    /// By scope and bit.
    cookies: BTreeMap<(u64, u64), u64>,
    lanes: Vec<String>,
    state: State,
    frames: u32,
}

/// A row as the agent wrote it.
#[derive(Clone, Debug)]
struct Row {
    epoch: u64,
    scope: u64,
    mask: u64,
    base: u64,
    /// 0 of a whole lease.
    window: u64,
    row_index: u64,
}

#[derive(Debug, Default)]
struct State {
    banks: Vec<Bank>,
    /// By row index: who is gone, and of which installation.
    gone: Vec<(u64, u64)>,
    life: u64,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Bank {
    epoch: u64,
    step: u64,
    members: u64,
    state: u64,
    exponent: u64,
    flags: u64,
    credit: u64,
    lanes: Vec<u32>,
}

/// A data frame, as its bytes say.
struct Heard {
    header: Header,
    elements: Vec<u32>,
}

impl Heard {
    fn read(frame: &[u8]) -> Option<Self> {
        let udp = Udp::parse(frame).ok()?;
        let mut bytes = frame.get(udp.payload_range())?.to_vec();
        let packet = Packet::new_checked(&mut bytes[..]).ok()?;
        let header = Header::parse(&packet).ok()?;
        let words = bytes[HEADER_LEN..].chunks_exact(4);
        let elements = words.map(|word| u32::from_be_bytes(word.try_into().expect("4 bytes")));
        Some(Self { header, elements: elements.collect() })
    }
}

type Judged = Result<(), String>;

impl Watched {
    fn cells(&self, array: &str, banks: &Range<usize>) -> impl Iterator<Item = u64> {
        let cells = self.inner.program().registers(array);
        let cells = cells.skip(banks.start).take(banks.len());
        cells.map(|value| u64::try_from(value).expect("at most 64 bits"))
    }

    fn banks(&self, range: Range<usize>) -> Vec<Bank> {
        let mut banks = vec![Bank::default(); range.len()];
        let mut column = |array: &str, set: fn(&mut Bank, u64)| {
            let cells = self.cells(array, &range);
            banks.iter_mut().zip(cells).for_each(|(bank, cell)| set(bank, cell));
        };
        column("tag_epoch", |bank, cell| bank.epoch = cell);
        column("tag_step", |bank, cell| bank.step = cell);
        column("bank_members", |bank, cell| bank.members = cell);
        column("bank_state", |bank, cell| bank.state = cell);
        column("bank_exponent", |bank, cell| bank.exponent = cell);
        column("bank_flags", |bank, cell| bank.flags = cell);
        column("bank_credit", |bank, cell| bank.credit = cell);
        for name in &self.lanes {
            column(name, |bank, cell| {
                bank.lanes.push(u32::try_from(cell).expect("32 bits"));
            });
        }
        banks
    }

    fn read_state(&self) -> State {
        let rows = 0..ROWS_WATCHED;
        State {
            banks: self.banks(0..BANKS_WATCHED),
            gone: self.cells("gone", &rows).zip(self.cells("gone_epoch", &rows)).collect(),
            life: self.cells("life", &(0..1)).sum(),
        }
    }

    fn judge(&self, port: u16, frame: &[u8], sent: &Sent, after: &State) -> Judged {
        let before = &self.state;
        let pairs = before.banks.iter().zip(&after.banks).enumerate();
        let changed: Vec<usize> =
            pairs.filter(|(_, (before, after))| before != after).map(|(index, _)| index).collect();
        let is_op = port == CPU_PORT && frame.get(12..14) == Some(&ETHERTYPE_OP.to_be_bytes());
        if is_op {
            return self.judge_op(frame, &changed, after);
        }
        if before.life != after.life {
            return others("the life of the switch changed by what is no op frame");
        }
        let heard = Heard::read(frame).filter(|_| port != CPU_PORT);
        let row = heard.as_ref().and_then(|heard| {
            let key = (u64::from(heard.header.job.0), u64::from(heard.header.group.row()));
            self.rows.get(&key)
        });
        let (Some(heard), Some(row)) = (heard, row) else {
            let is_still = changed.is_empty() && before.gone == after.gone;
            return if is_still { Ok(()) } else { others("a frame of no row changed a slot") };
        };
        let index = row.index(heard.header.chunk.0);
        if changed.iter().any(|changed| *changed != index) {
            return others(&format!("a frame to bank {index} changed {changed:?}"));
        }
        self.judge_gone(&heard, row, after)?;
        let (Some(old), Some(new)) = (before.banks.get(index), after.banks.get(index)) else {
            return Ok(());
        };
        judge_lanes(&heard, old, new, self.lanes.len())?;
        let gone = after.gone[usize::try_from(row.row_index).expect("small")];
        let mask = if gone.1 == row.epoch { row.mask & !gone.0 } else { row.mask };
        if old != new {
            self.judge_entry(&heard, row, old, new)?;
            judge_result(row, mask, new, self.lanes.len())?;
        }
        judge_sent(&heard, row, mask, (old, new), sent)
    }

    /// An op frame writes what it names, and a vector where it brings one.
    fn judge_op(&self, frame: &[u8], changed: &[usize], after: &State) -> Judged {
        let at = frame.get(26..30).map(|bytes| bytes.try_into().expect("4 bytes"));
        let index = at.map_or(0, |bytes| u32::from_be_bytes(bytes) as usize);
        if changed.iter().any(|changed| *changed != index) {
            return others(&format!("a seed of bank {index} changed {changed:?}"));
        }
        let has_vector = frame.len() >= OP_LEN + 4 * self.lanes.len();
        let moved = changed.iter().any(|at| self.state.banks[*at].lanes != after.banks[*at].lanes);
        if moved && !has_vector { lanes("a seed without a vector changed lanes") } else { Ok(()) }
    }

    fn judge_gone(&self, heard: &Heard, row: &Row, after: &State) -> Judged {
        for (index, (old, new)) in self.state.gone.iter().zip(&after.gone).enumerate() {
            let is_own = row.window == 0 && index as u64 == row.row_index;
            if old != new && !(is_own && heard.header.kind == Kind::Pull) {
                return others(&format!("row {index} was narrowed by another's frame"));
            }
        }
        Ok(())
    }

    /// What a changed bank says of whose contributions it has.
    fn judge_entry(&self, heard: &Heard, row: &Row, old: &Bank, new: &Bank) -> Judged {
        let header = &heard.header;
        if (new.epoch, new.step) != (row.epoch, u64::from(header.chunk.0)) {
            return others(&format!("the bank is tagged {} {}", new.epoch, new.step));
        }
        let bit = header.members.0;
        match header.kind {
            Kind::Contrib => {
                if self.cookies.get(&(row.scope, bit)) != Some(&u64::from(header.cookie.0)) {
                    return others("a contribution entered without its member's cookie");
                }
                let is_claimed = (old.epoch, old.step) != (new.epoch, new.step) || old.state == 0;
                let members = if is_claimed { bit } else { old.members | bit };
                if new.members != members || (!is_claimed && old.members & bit != 0) {
                    return others(&format!("{bit:#x} made {:#x} of the members", new.members));
                }
                Ok(())
            }
            Kind::Pull if row.window == 0 => Ok(()),
            kind => others(&format!("{kind:?} changed a slot")),
        }
    }
}

impl Row {
    /// The bank of a chunk.
    fn index(&self, chunk: u32) -> usize {
        let chunk = u64::from(chunk);
        let index = match self.window {
            0 => self.base.saturating_add(chunk),
            window => self.base + 2 * (chunk % window) + chunk / window % 2,
        };
        usize::try_from(index).expect("64 bits")
    }
}

fn judge_lanes(heard: &Heard, old: &Bank, new: &Bank, elements: usize) -> Judged {
    if old.lanes == new.lanes {
        return Ok(());
    }
    if heard.header.kind != Kind::Contrib || heard.elements.len() != elements {
        return lanes("lanes changed, and no vector came");
    }
    let all = old.lanes.iter().zip(&new.lanes).zip(&heard.elements);
    for (lane, ((old, new), element)) in all.enumerate() {
        let greater = old.cast_signed().max(element.cast_signed()).cast_unsigned();
        if ![*element, old.wrapping_add(*element), greater].contains(new) {
            return lanes(&format!("{element} made {new} of {old} in lane {lane}"));
        }
    }
    Ok(())
}

/// What a changed bank says of being full.
fn judge_result(row: &Row, mask: u64, new: &Bank, elements: usize) -> Judged {
    let is_full = new.members == mask;
    let text = format!("members {:#x} of {mask:#x}, state {}", new.members, new.state);
    let is_right = match (row.window, new.state) {
        (0, SENT) => is_full,
        // A sum that has outgrown its frame waits for one that is longer.
        (0, COLLECTING) => !(is_full && new.credit == 1) || elements > GROWTH_ELEMENTS,
        (0, EMPTY) => new.members == 0,
        (_, ANSWERED) => is_full,
        (_, COLLECTING) => !is_full && new.members != 0,
        _ => false,
    };
    if is_right { Ok(()) } else { result(&text) }
}

/// Whether what left is a result exactly where there is one.
fn judge_sent(
    heard: &Heard,
    row: &Row,
    mask: u64,
    (old, new): (&Bank, &Bank),
    sent: &Sent,
) -> Judged {
    let to_hosts = sent.iter().filter(|(port, _)| *port != CPU_PORT);
    let results = to_hosts.filter_map(|(_, frame)| Heard::read(frame));
    let kind = if row.window == 0 { Kind::Contrib } else { Kind::Answer };
    let count = results.filter(|left| left.header.kind == kind).count();
    let done = if row.window == 0 { SENT } else { ANSWERED };
    let is_tagged = (new.epoch, new.step) == (row.epoch, u64::from(heard.header.chunk.0));
    let is_done = is_tagged && new.state == done && new.members == mask;
    if count > 0 && !is_done {
        return result(&format!("{count} left of {new:?}"));
    }
    let all = if row.window == 0 { 1 } else { mask.count_ones() as usize };
    if is_done && old != new && count < all {
        return result(&format!("{count} of {all} left when it was full"));
    }
    Ok(())
}

fn lanes(text: &str) -> Judged {
    Err(format!("invariant of lanes: {text}"))
}
fn result(text: &str) -> Judged {
    Err(format!("invariant of the result: {text}"))
}
fn others(text: &str) -> Judged {
    Err(format!("invariant of others: {text}"))
}

impl Switch for Watched {
    fn start(program: PathBuf, ports: Vec<u16>) -> Result<Self, Refused> {
        let inner = Interpreted::start(program, ports)?;
        let names = (0..).map(|lane| format!("lane_{lane:02x}"));
        let lanes = names.take_while(|name| inner.program().array_len(name).is_some()).collect();
        let (rows, cookies) = (BTreeMap::new(), BTreeMap::new());
        let mut watched = Self { inner, rows, cookies, lanes, state: State::default(), frames: 0 };
        watched.state = watched.read_state();
        Ok(watched)
    }

    fn write(&mut self, write: &Write) -> Result<(), String> {
        self.inner.write(write)?;
        let Rendered::Table(table) = write.entry().render() else { return Ok(()) };
        let of = |fields: &[Field], name: &str| {
            let found = fields.iter().find(|field| field.name == name);
            found.map_or(0, |field| field.value)
        };
        let (key, param) = (|name| of(&table.keys, name), |name| of(&table.params, name));
        let is_delete = matches!(write, Write::Delete(_));
        match table.table {
            "rows" if is_delete => _ = self.rows.remove(&(key("job"), key("row"))),
            "rows" => {
                let row = Row {
                    epoch: param("lease_epoch"),
                    scope: param("scope"),
                    mask: param("mask"),
                    base: param("base"),
                    window: param("window"),
                    row_index: param("row_index"),
                };
                let last = row.base + 2 * row.window.max(param("chunks"));
                assert!(row.window > 0 || last < BANKS_WATCHED as u64, "{row:?} is watched");
                assert!(row.base + 2 * row.window <= BANKS_WATCHED as u64, "{row:?} is watched");
                self.rows.insert((key("job"), key("row")), row);
            }
            "members" if is_delete => _ = self.cookies.remove(&(key("scope"), key("members"))),
            "members" => {
                self.cookies.insert((key("scope"), key("members")), param("cookie"));
            }
            _ => {}
        }
        Ok(())
    }

    fn pass(&mut self, port: u16, frame: &[u8]) -> Result<Sent, String> {
        let sent = self.inner.pass(port, frame)?;
        let after = self.read_state();
        self.judge(port, frame, &sent, &after)?;
        self.state = after;
        self.frames += 1;
        if self.frames.is_multiple_of(64) {
            let banks = self.inner.program().array_len("bank_state").expect("it has one");
            let rest = self.banks(BANKS_WATCHED..banks);
            if rest.iter().any(|bank| *bank != self.blank()) {
                others("a bank changed that no row has")?;
            }
        }
        Ok(sent)
    }

    fn read(&mut self, counter: Counter, cells: Range<u32>) -> Result<Vec<u64>, String> {
        self.inner.read(counter, cells)
    }

    fn restart(&mut self) -> Result<(), String> {
        self.inner.restart()?;
        self.rows.clear();
        self.cookies.clear();
        self.state = self.read_state();
        Ok(())
    }
}

impl Watched {
    fn blank(&self) -> Bank {
        Bank { lanes: vec![0; self.lanes.len()], ..Bank::default() }
    }
}

fn watch(script: &Script, programs: &Path) -> Result<(), Refused> {
    observe_on(script, programs, |setup| Ok(Box::new(SwitchBox::<Watched>::start(setup)?)))
        .map(drop)
}

#[test]
fn no_random_frame_breaks_an_invariant_of_the_p4_program() {
    for seed in 0..super::SEEDS {
        let text = super::script(seed);
        let script = parse("random", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        watch(&script, &super::programs())
            .unwrap_or_else(|refused| panic!("seed {seed}: {refused:?}\n{text}"));
    }
}

#[test]
fn no_script_breaks_an_invariant_of_the_p4_program() {
    let mut watched = 0;
    let mut failures = String::new();
    for folder in ["../tests/conformance", "../tests/conformance/cells"] {
        let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
        let paths = entries.expect("the scripts").map(|entry| entry.expect("listed").path());
        for path in paths.filter(|path| path.is_file()) {
            let name = path.display().to_string();
            let text = fs::read_to_string(&path).expect("a script");
            let script = parse(&name, &text).unwrap_or_else(|error| panic!("{error}"));
            if script.left_out(TargetKind::Json).is_some() {
                continue;
            }
            match watch(&script, &super::programs()) {
                Ok(()) => watched += 1,
                Err(Refused::Skipped(_)) => {}
                Err(Refused::Failed(problem)) => _ = writeln!(failures, "{problem}"),
            }
        }
    }
    assert_eq!(failures, "");
    assert!(watched > 50, "{watched} were watched");
}

/// The program with something of its JSON changed, in a folder of its own.
fn mutant(edit: impl Fn(&mut Value) -> usize) -> tempfile::TempDir {
    let name = "weft-v1model-32.json";
    let json = fs::read_to_string(super::programs().join(name)).expect("the program");
    let mut json: Value = serde_json::from_str(&json).expect("JSON");
    assert!(edit(&mut json) > 0, "the edit fits the program");
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join(name), json.to_string()).expect("it can be written");
    folder
}

/// Calls for every value in it, outer ones first; how often it said that it changed one.
fn each(json: &mut Value, edit: &impl Fn(&mut Value) -> bool) -> usize {
    let own = usize::from(edit(json));
    own + match json {
        Value::Array(items) => items.iter_mut().map(|item| each(item, edit)).sum(),
        Value::Object(items) => items.values_mut().map(|item| each(item, edit)).sum(),
        _ => 0,
    }
}

fn is_field(value: &Value, name: &str) -> bool {
    value["type"] == "field" && value["value"][1] == format!("meta_t.{name}")
}

/// Gives what an action assigns to a field another value.
fn assign(json: &mut Value, action: &str, field: &str, value: &Value) -> usize {
    let actions = json["actions"].as_array_mut().expect("actions").iter_mut();
    let named = |one: &&mut Value| one["name"].as_str().is_some_and(|name| name.ends_with(action));
    let assigned = |json: &mut Value| {
        each(json, &|one| {
            let is_it = one["op"] == "assign" && is_field(&one["parameters"][0], field);
            if is_it {
                one["parameters"][1] = value.clone();
            }
            is_it
        })
    };
    actions.filter(named).map(assigned).sum()
}

/// Turns `bank_members == mask` around where it stands beside another field.
fn turn_round(json: &mut Value, beside: &str) -> usize {
    let turned = |one: &mut Value| {
        let is_it = one["op"] == "=="
            && is_field(&one["left"], "bank_members")
            && is_field(&one["right"], "mask");
        if is_it {
            one["op"] = "!=".into();
        }
        is_it
    };
    each(json, &|one| {
        let is_pair = one["op"] == "and" && one.to_string().contains(&format!("meta_t.{beside}"));
        is_pair && each(one, &turned) > 0
    })
}

#[test]
fn a_program_that_breaks_an_invariant_is_found() {
    let constant = |digits: &str| serde_json::json!({"type": "hexstr", "value": digits});
    let found = |mutant: tempfile::TempDir, expected: &str| {
        let mut problems = (0..super::SEEDS).filter_map(|seed| {
            let script = parse("random", &super::script(seed)).expect("a script");
            match watch(&script, mutant.path()) {
                Err(Refused::Failed(problem)) => Some(problem),
                _ => None,
            }
        });
        let first = problems.next().unwrap_or_default();
        assert!(first.contains(expected), "{expected}, not {first}");
    };
    let lanes = mutant(|json| assign(json, "next_step.show", "keep", &constant("0x00000000")));
    found(lanes, "invariant of lanes: lanes changed, and no vector came");
    let added = mutant(|json| assign(json, "next_step.add", "keep", &constant("0x7fffffff")));
    found(added, "invariant of lanes: ");
    let early = mutant(|json| turn_round(json, "writes_bank"));
    found(early, "invariant of the result: ");
    let early = mutant(|json| turn_round(json, "bank_credit"));
    found(early, "invariant of the result: ");
    let late = mutant(|json| turn_round(json, "bank_state"));
    found(late, "invariant of the result: ");
    let others = mutant(|json| assign(json, "identity.windowed", "base", &constant("0x0")));
    found(others, "invariant of others: a frame to bank");
    let entered = mutant(|json| assign(json, "next_step.claim", "bank_members", &constant("0x3")));
    found(entered, "invariant of others: ");
}

/// Banks that the rows of any script have, and a few more; the others are looked at now and then.
const BANKS_WATCHED: usize = 64;
const ROWS_WATCHED: usize = 16;
const CPU_PORT: u16 = 255;
const OP_LEN: usize = 54;
const GROWTH_ELEMENTS: usize = 128;
const EMPTY: u64 = 0;
const COLLECTING: u64 = 1;
const SENT: u64 = 2;
const ANSWERED: u64 = 3;
