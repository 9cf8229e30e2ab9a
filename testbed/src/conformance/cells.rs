//! Scripts made from `proto/vectors/slot.toml`: one for each cell that a switch has, which leads a
//! slot into the cell's state, sends the cell's event, and expects what the row says. A cell that
//! nothing leads to is an error, so a row cannot be added without its script.
//!
//! Cells of a leaf are no script's: nothing but the Rust engine is one, and its own tests visit
//! them all.

use std::fmt::Write as _;

use toml::{Table, Value};

mod root;
mod whole;

/// A row of the table.
#[derive(Debug)]
struct Cell {
    lease: String,
    event: String,
    state: String,
    step: String,
    when: Vec<String>,
    transitions: Vec<String>,
    next: String,
    out: Vec<String>,
    drop: String,
}

/// How a slot comes into a cell's state, and what happens then.
#[derive(Debug)]
struct Way {
    /// The lease, and who joins it how.
    begin: String,
    /// Lines before the event.
    lead: Vec<String>,
    /// The event's frame.
    event: String,
    /// Who sends it.
    sender: &'static str,
    chunk: u32,
    /// All of them.
    members: u8,
    /// Contributors that a HAVE names, or a sum.
    have: &'static str,
    /// What a sum comes to.
    sum: i32,
    /// Row of the group.
    row: u16,
    /// What its answer says besides.
    besides: &'static str,
}

/// Name and text of each script.
///
/// # Errors
///
/// A cell has no script.
pub fn scripts() -> Result<Vec<(String, String)>, String> {
    scripts_of(TABLE)
}

fn scripts_of(table: &str) -> Result<Vec<(String, String)>, String> {
    let file: Table = table.parse().map_err(|error| format!("slot.toml: {error}"))?;
    let rows = file["cell"].as_array().ok_or("slot.toml: no cells")?;
    let cells = rows.iter().map(cell).filter(is_of_switch);
    cells.map(|cell| script(&cell)).collect()
}

/// A switch is no leaf, and compares no lengths.
fn is_of_switch(cell: &Cell) -> bool {
    let is_of_lengths =
        cell.state == "REFUSED" || cell.when.iter().any(|condition| condition == "other_length");
    cell.lease != "leaf" && !is_of_lengths
}

fn cell(row: &Value) -> Cell {
    let word = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let list = |name: &str| {
        let list = row.get(name).and_then(Value::as_array);
        let words = list.into_iter().flatten().filter_map(Value::as_str);
        words.map(str::to_owned).collect()
    };
    Cell {
        lease: word("lease"),
        event: word("event"),
        state: word("state"),
        step: word("step"),
        when: list("when"),
        transitions: list("transitions"),
        next: word("next"),
        out: list("out"),
        drop: word("drop"),
    }
}

fn script(cell: &Cell) -> Result<(String, String), String> {
    let mut when = cell.when.clone();
    when.sort_unstable();
    let key = (&cell.event[..], &cell.state[..], &cell.step[..], &when.join(" ")[..]);
    let way = if cell.lease == "root" { root::way(key) } else { whole::way(key) };
    let way = way.ok_or_else(|| format!("slot.toml: no script leads to {} {key:?}", cell.lease))?;
    let mut words = vec![&cell.lease[..], &cell.event, &cell.state, &cell.step];
    words.extend(when.iter().map(String::as_str));
    Ok((words.join("-").to_lowercase(), text(cell, &way)))
}

fn text(cell: &Cell, way: &Way) -> String {
    let mut text = format!("# slot.toml: {} {}, {}", cell.lease, cell.event, cell.state);
    let _ = write!(text, " and {}", cell.step);
    for (index, condition) in cell.when.iter().enumerate() {
        let _ = write!(text, "{} {condition}", if index == 0 { ":" } else { "," });
    }
    text += "\n# Made by weft conformance --from-table\n";
    let is_late = cell.event == "hand_over" && cell.step == "foreign";
    let is_cut_off = cell.when.iter().any(|condition| condition == "no_way_up");
    if is_late || is_cut_off {
        let reason = if is_late { LATE_IN_SWITCH } else { CUT_OFF_IN_SWITCH };
        let _ = writeln!(text, "only rust {reason}");
    }
    text += &way.begin;
    for line in &way.lead {
        let _ = writeln!(text, "{line}");
    }
    let bank = format!("bank {} {}", way.row, way.chunk);
    // Of a group that is not there no bank can be looked at.
    let bank_is = |state: &str| match state {
        "NONE" => String::new(),
        state => format!("{bank} {state}\n"),
    };
    let _ = writeln!(text, "{}mark\n{}", bank_is(&cell.state), way.event);
    for out in &cell.out {
        expectation(&mut text, way, out);
    }
    let counted = |names: &[String]| {
        let names: Vec<String> = names.iter().map(|name| format!("{name} 1")).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(" ") }
    };
    text += &bank_is(&cell.next);
    let _ = writeln!(text, "transitions {}", counted(&cell.transitions));
    let drop: Vec<String> = if cell.drop.is_empty() { Vec::new() } else { vec![cell.drop.clone()] };
    let _ = writeln!(text, "drops {}", counted(&drop));
    text
}

fn expectation(text: &mut String, way: &Way, out: &str) {
    let Way { sender, chunk, sum, have, besides, .. } = way;
    let line = match out {
        "answer_to_all" => {
            for rank in 0..way.members {
                let _ = writeln!(text, "{rank} < ANSWER chunk {chunk} values {sum}");
            }
            return;
        }
        "kept_answer" => format!("{sender} < ANSWER chunk {chunk} values {sum}"),
        "have" => format!("{sender} < HAVE chunk {chunk} members {have}"),
        // Of a credit it names who is in the slot that is not for this server.
        "stale" if *sender == "server" => {
            format!("server < STALE chunk {chunk} members {have}{besides}")
        }
        "stale" => format!("{sender} < STALE chunk {chunk}{besides}"),
        "sum_up" => {
            let again = if way.lead.iter().any(|line| line.starts_with("server < CONTRIB")) {
                " flags RETRANSMIT"
            } else {
                ""
            };
            format!("server < CONTRIB chunk {chunk} members {have} values {sum}{again}")
        }
        other => format!("# {other} is not known"),
    };
    let _ = writeln!(text, "{line}");
}

/// Its agent cannot see that the switch has gone on; what it does changes nothing either.
const LATE_IN_SWITCH: &str =
    "a switch's agent answers a late copy of a sum that was handed over with that sum";
/// The credit of the server that comes again gets the sum that went nowhere.
const CUT_OFF_IN_SWITCH: &str = "a switch does not know that the server does not know it";
const TABLE: &str = include_str!("../../../proto/vectors/slot.toml");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_to_which_no_script_leads_is_an_error() {
        let cell = "[[cell]]\nlease = \"root\"\nevent = \"contribution\"\nstate = \"SENT\"\n\
            step = \"new\"\nnext = \"SENT\"\n";
        let error = scripts_of(cell).unwrap_err();
        assert!(error.contains("no script leads to root"), "{error}");
    }

    #[test]
    fn every_cell_of_root_and_whole_has_a_script_of_its_own() {
        let scripts = scripts().unwrap();
        let names: std::collections::BTreeSet<_> = scripts.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), scripts.len());
        let has = |cell: &str, words: [&str; 2]| words.iter().any(|word| cell.contains(word));
        let wanted = TABLE.split("[[cell]]").skip(1).filter(|cell| {
            has(cell, ["lease = \"root\"", "lease = \"whole\""])
                && !has(cell, ["\nstate = \"REFUSED\"", "\"other_length\""])
        });
        assert_eq!(scripts.len(), wanted.count());
        for (name, text) in &scripts {
            crate::conformance::parse(name, text).unwrap();
        }
    }
}
