//! `proto/vectors/slot.toml` against an engine: every state that its frames can bring a slot into
//! is visited, every frame given in every state, and what it did held against the row of its cell.
//! A cell without row, a row without cell and a row that says otherwise are all told.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use toml::{Table, Value};

/// What decides about a frame: the columns that a row is found by.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Cell {
    pub(crate) lease: &'static str,
    pub(crate) event: &'static str,
    pub(crate) state: &'static str,
    pub(crate) step: &'static str,
    pub(crate) when: Vec<&'static str>,
}

/// What became of it: the other columns.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Fate {
    pub(crate) transitions: Vec<String>,
    pub(crate) next: String,
    pub(crate) out: Vec<String>,
    pub(crate) drop: String,
}

/// An engine with one slot under examination.
pub(crate) trait World {
    type Event: Copy + core::fmt::Debug;

    /// Everything that later events depend on.
    fn state(&self) -> String;

    /// The cell of an event in the present state; `None` where it is not about
    /// the slot.
    fn cell(&self, event: Self::Event) -> Option<Cell>;

    /// Gives the engine the event's frame.
    fn apply(&mut self, event: Self::Event) -> Fate;
}

/// What was seen in each cell.
pub(crate) type Seen = BTreeMap<Key, BTreeSet<Fate>>;

/// A cell, as the file spells it: lease, event, state, step, when.
type Key = [String; 5];

/// Visits every state and gives every event in each.
pub(crate) fn walk<W: World>(fresh: impl Fn() -> W, events: &[W::Event], seen: &mut Seen) {
    let mut visited = BTreeSet::from([fresh().state()]);
    let mut paths = VecDeque::from([vec![]]);
    while let Some(path) = paths.pop_front() {
        for event in events {
            let mut world = fresh();
            for event in &path {
                world.apply(*event);
            }
            let cell = world.cell(*event);
            let fate = world.apply(*event);
            if let Some(cell) = cell {
                seen.entry(key(&cell)).or_default().insert(fate);
            }
            assert!(visited.len() < STATES_MAX, "more states than a slot of few steps has");
            if visited.insert(world.state()) {
                paths.push_back(path.iter().copied().chain([*event]).collect());
            }
        }
    }
}

fn key(cell: &Cell) -> Key {
    let mut when = cell.when.clone();
    when.sort_unstable();
    let when = when.join(" ");
    [cell.lease, cell.event, cell.state, cell.step, &when].map(ToOwned::to_owned)
}

/// The rows of the file for these leases.
pub(crate) fn table(leases: &[&str]) -> BTreeMap<Key, Fate> {
    let file: Table = include_str!("../../../../proto/vectors/slot.toml").parse().expect("TOML");
    let mut rows = BTreeMap::new();
    for row in file["cell"].as_array().expect("a list of cells") {
        let row = row.as_table().expect("a table");
        assert!(row.keys().all(|name| COLUMNS.contains(&name.as_str())), "a column: {row:?}");
        let word = |name: &str| match row.get(name) {
            Some(value) => value.as_str().expect("a word").to_owned(),
            None => String::new(),
        };
        let list = |name: &str| match row.get(name) {
            Some(value) => words(value),
            None => vec![],
        };
        let mut when = list("when");
        when.sort_unstable();
        let cell = [word("lease"), word("event"), word("state"), word("step"), when.join(" ")];
        let fate = Fate {
            transitions: list("transitions"),
            next: word("next"),
            out: list("out"),
            drop: word("drop"),
        };
        if leases.contains(&cell[0].as_str()) {
            assert_eq!(rows.insert(cell.clone(), fate), None, "two rows of {cell:?}");
        }
    }
    rows
}

fn words(value: &Value) -> Vec<String> {
    let list = value.as_array().expect("a list");
    list.iter().map(|word| word.as_str().expect("a word").to_owned()).collect()
}

/// Everything in which the rows and what was seen differ.
pub(crate) fn differences(rows: &BTreeMap<Key, Fate>, seen: &Seen) -> Vec<String> {
    let mut found = Vec::new();
    for (cell, fates) in seen {
        match rows.get(cell) {
            None => found.push(format!("no row:{}", as_row(cell, fates))),
            Some(row) if *fates != BTreeSet::from([row.clone()]) => {
                found.push(format!("the row says {row:?}, seen:{}", as_row(cell, fates)));
            }
            Some(_) => {}
        }
    }
    let unseen = rows.keys().filter(|cell| !seen.contains_key(*cell));
    found.extend(unseen.map(|cell| format!("nothing leads to {cell:?}")));
    found
}

/// As it would stand in the file.
fn as_row([lease, event, state, step, when]: &Key, fates: &BTreeSet<Fate>) -> String {
    let when: Vec<&str> = when.split_whitespace().collect();
    let mut text = format!(
        "\n\n[[cell]]\nlease = {lease:?}\nevent = {event:?}\nstate = {state:?}\nstep = {step:?}\n"
    );
    if !when.is_empty() {
        text += &format!("when = {when:?}\n");
    }
    for Fate { transitions, next, out, drop } in fates {
        if !transitions.is_empty() {
            text += &format!("transitions = {transitions:?}\n");
        }
        text += &format!("next = {next:?}\n");
        if !out.is_empty() {
            text += &format!("out = {out:?}\n");
        }
        if !drop.is_empty() {
            text += &format!("drop = {drop:?}\n");
        }
    }
    text
}

/// Holds what was seen against the file's rows of these leases, and shows that a cell whose row is
/// missing, or says something else, would be told.
pub(crate) fn judge(leases: &[&str], seen: &Seen) {
    let rows = table(leases);
    let found = differences(&rows, seen);
    assert!(found.is_empty(), "{}", found.join("\n"));
    for cell in rows.keys() {
        let mut fewer = rows.clone();
        let mut row = fewer.remove(cell).expect("it is there");
        assert_eq!(differences(&fewer, seen).len(), 1, "{cell:?} has no row, and nobody noticed");
        row.next.push('?');
        fewer.insert(cell.clone(), row);
        assert_eq!(differences(&fewer, seen).len(), 1, "{cell:?} is wrong, and nobody noticed");
    }
}

/// What was counted between two readings of the same counters, by name.
pub(crate) fn counted<'a>(
    before: &[(&'a str, u64)],
    after: impl Iterator<Item = (&'a str, u64)>,
) -> Vec<String> {
    let rose = before.iter().zip(after).filter(|((_, before), (_, after))| after > before);
    let names = rose.flat_map(|((name, before), (_, after))| {
        (*before..after).map(|_| name.to_string()).collect::<Vec<_>>()
    });
    names.collect()
}

const COLUMNS: [&str; 9] =
    ["lease", "event", "state", "step", "when", "transitions", "next", "out", "drop"];
const STATES_MAX: usize = 2_000;
