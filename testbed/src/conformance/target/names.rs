//! An entry in words: keys and parameters in the order in which a program has their names.

use std::fs;
use std::path::Path;

use weft_engine::role::switch::{Field, TableEntry};
use weft_p4_interpreter::{Switch as Program, TableInfo};

/// Keys and parameters, each with a space between two.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) keys: String,
    pub(super) params: String,
}

/// The tables of a compiled program.
pub(super) fn tables_of(program: &Path) -> Result<Vec<TableInfo>, String> {
    let json = fs::read_to_string(program).map_err(|error| error.to_string())?;
    let parsed = Program::load(&json).map_err(|error| error.to_string())?;
    Ok(parsed.tables().collect())
}

/// The words of an entry.
pub(super) fn table_words(tables: &[TableInfo], entry: &TableEntry) -> Result<Words, String> {
    let (name, action) = (entry.table, entry.action);
    let info = tables.iter().find(|info| info.name == name);
    let info = info.ok_or_else(|| format!("the program has no table {name}"))?;
    let known = info.actions.iter().find(|(known, _)| known == action);
    let (_, params) = known.ok_or_else(|| format!("{name} has no action {action}"))?;
    Ok(Words { keys: in_order(&info.keys, &entry.keys)?, params: in_order(params, &entry.params)? })
}

fn in_order(names: &[(String, usize)], fields: &[Field]) -> Result<String, String> {
    if names.len() != fields.len() {
        return Err(format!("the program has {} fields, not {}", names.len(), fields.len()));
    }
    let word = |(name, _): &(String, usize)| {
        let of = fields.iter().find(|field| field.name == name);
        let value = of.ok_or_else(|| format!("the program has {name} besides"))?.value;
        Ok(format!("{value:#x}"))
    };
    Ok(names.iter().map(word).collect::<Result<Vec<_>, String>>()?.join(" "))
}
