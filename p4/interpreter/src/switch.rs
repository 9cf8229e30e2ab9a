//! A switch: a program, its state, and what a control plane may do to it, all by name.

use std::sync::Arc;

use thiserror::Error;

use crate::compile::{self, LoadError, last};
use crate::fault::Fault;
use crate::program::{Program, Table};
use crate::run;
use crate::state::{Entry, Machine};
use crate::value::Value;

/// A switch that runs a program.
///
/// Tables, keys, actions, parameters and arrays are named by the last part of their names:
/// `rows` is `WeftIngress.rows`.
#[derive(Clone, Debug)]
pub struct Switch {
    program: Arc<Program>,
    machine: Machine,
}

/// Frames that a cell of a counter array has counted, and their bytes as they came in.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Count {
    /// Frames.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A table of the program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TableInfo {
    /// Its name, the last part.
    pub name: String,
    /// Keys with their widths in bits.
    pub keys: Vec<(String, usize)>,
    /// Entries that it has room for.
    pub size: usize,
    /// Actions with their parameters and widths in bits.
    pub actions: Vec<(String, Vec<(String, usize)>)>,
}

/// What was written does not fit the program or its state.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("cannot write to {name}: {problem}")]
pub struct WriteError {
    /// The table, array or group.
    pub name: String,
    /// What is wrong.
    pub problem: String,
}

type Written = Result<(), WriteError>;

fn refused(name: &str, problem: impl Into<String>) -> WriteError {
    WriteError { name: name.to_owned(), problem: problem.into() }
}

impl Switch {
    /// Loads a program from the JSON that p4c wrote.
    ///
    /// # Errors
    ///
    /// It is no such file, or needs something that is not supported.
    pub fn load(json: &str) -> Result<Self, LoadError> {
        let program = Arc::new(compile::load(json)?);
        let machine = Machine::new(&program);
        Ok(Self { program, machine })
    }

    /// Forgets entries, groups, registers, counters and colours, as a restart does.
    pub fn restart(&mut self) {
        self.machine = Machine::new(&self.program);
    }

    /// Adds an entry.
    ///
    /// # Errors
    ///
    /// A name is unknown, a value does not fit, the entry is there, or the table is full.
    pub fn insert(
        &mut self,
        table: &str,
        keys: &[(&str, u128)],
        action: &str,
        params: &[(&str, u128)],
    ) -> Written {
        let (index, key, entry) = self.entry(table, keys, action, params)?;
        let entries = &mut self.machine.tables[index];
        if entries.contains_key(&key) {
            return Err(refused(table, format!("there is an entry {key:x?}")));
        }
        let size = self.program.tables[index].size;
        if entries.len() >= size {
            return Err(refused(table, format!("it is full with {size} entries")));
        }
        entries.insert(key, entry);
        Ok(())
    }

    /// Changes an entry.
    ///
    /// # Errors
    ///
    /// A name is unknown, a value does not fit, or there is no such entry.
    pub fn modify(
        &mut self,
        table: &str,
        keys: &[(&str, u128)],
        action: &str,
        params: &[(&str, u128)],
    ) -> Written {
        let (index, key, entry) = self.entry(table, keys, action, params)?;
        let found = self.machine.tables[index].get_mut(&key);
        *found.ok_or_else(|| refused(table, format!("there is no entry {key:x?}")))? = entry;
        Ok(())
    }

    /// Removes an entry.
    ///
    /// # Errors
    ///
    /// A name is unknown, or there is no such entry.
    pub fn delete(&mut self, table: &str, keys: &[(&str, u128)]) -> Written {
        let (index, info) = self.table(table)?;
        let key = key_of(table, info, keys)?;
        let found = self.machine.tables[index].remove(&key);
        found.map(drop).ok_or_else(|| refused(table, format!("there is no entry {key:x?}")))
    }

    /// Entries of a table.
    ///
    /// # Errors
    ///
    /// There is no such table.
    pub fn entry_count(&self, table: &str) -> Result<usize, WriteError> {
        self.table(table).map(|(index, _)| self.machine.tables[index].len())
    }

    /// Makes a multicast group of ports and replication ids, in place of what it was; without any,
    /// there is none.
    pub fn group(&mut self, id: u16, nodes: &[(u16, u16)]) {
        if nodes.is_empty() {
            self.machine.groups.remove(&id);
        } else {
            self.machine.groups.insert(id, nodes.to_vec());
        }
    }

    /// A cell of a register array of at most 128 bits.
    #[must_use]
    pub fn register(&self, array: &str, index: usize) -> Option<u128> {
        let id = position(self.program.registers.iter().map(|info| &info.name), array)?;
        let is_there = index < self.program.registers[id].size;
        is_there.then(|| self.machine.registers[id].get(index).to_u128()).flatten()
    }

    /// The cells of a register array of at most 128 bits, from its beginning; none if there is no
    /// such array.
    pub fn registers(&self, array: &str) -> impl Iterator<Item = u128> {
        let id = position(self.program.registers.iter().map(|info| &info.name), array);
        let size = id.map_or(0, |id| self.program.registers[id].size);
        (0..size).filter_map(move |index| self.machine.registers[id?].get(index).to_u128())
    }

    /// Sets a cell of a register array, cut to its width; `false` if there is none.
    pub fn set_register(&mut self, array: &str, index: usize, value: u128) -> bool {
        let names = self.program.registers.iter().map(|info| &info.name);
        let found = position(names, array).filter(|id| index < self.program.registers[*id].size);
        if let Some(id) = found {
            self.machine.registers[id].set(index, &Value::from_u128(value));
        }
        found.is_some()
    }

    /// A cell of a counter array.
    #[must_use]
    pub fn counter(&self, array: &str, index: usize) -> Option<Count> {
        let id = position(self.program.counters.iter().map(|info| &info.name), array)?;
        self.machine.counters[id].get(index).copied()
    }

    /// Gives a meter a colour until it gets another (0 green, 1 yellow, 2 red); `false` if there is
    /// none. A new one is green.
    pub fn colour(&mut self, array: &str, index: usize, colour: u8) -> bool {
        let names = self.program.meters.iter().map(|info| &info.name);
        let cell = position(names, array).and_then(|id| self.machine.meters[id].get_mut(index));
        cell.map(|cell| *cell = colour).is_some()
    }

    /// Entries of a register, counter or meter array.
    #[must_use]
    pub fn array_len(&self, array: &str) -> Option<usize> {
        let program = &self.program;
        let all = program.registers.iter().chain(&program.counters).chain(&program.meters);
        all.clone().find(|info| last(&info.name) == array).map(|info| info.size)
    }

    /// The tables that can be written: those with a key.
    pub fn tables(&self) -> impl Iterator<Item = TableInfo> {
        let with_key = self.program.tables.iter().filter(|table| !table.key.is_empty());
        with_key.map(|table| {
            let params = |id: &usize| {
                let action = &self.program.actions[*id];
                let params = action.params.iter().map(|param| (param.name.clone(), param.width));
                (last(&action.name).to_owned(), params.collect())
            };
            TableInfo {
                name: last(&table.place.name).to_owned(),
                keys: table.key.iter().map(|key| (key.name.clone(), key.width)).collect(),
                size: table.size,
                actions: table.actions.iter().map(params).collect(),
            }
        })
    }

    /// Gives the switch a frame that came in at a port: the frames that leave, with their ports, in
    /// the order of replication.
    ///
    /// # Errors
    ///
    /// The program did what it must not. The state is as it was left then.
    pub fn process(&mut self, port: u16, frame: &[u8]) -> Result<Vec<(u16, Vec<u8>)>, Fault> {
        run::process(&self.program, &mut self.machine, port, frame)
    }

    fn table(&self, name: &str) -> Result<(usize, &Table), WriteError> {
        let mut all = self.program.tables.iter().enumerate();
        let found = all.find(|(_, table)| !table.key.is_empty() && last(&table.place.name) == name);
        found.ok_or_else(|| refused(name, "the program has no such table"))
    }

    fn entry(
        &self,
        table: &str,
        keys: &[(&str, u128)],
        action: &str,
        params: &[(&str, u128)],
    ) -> Result<(usize, Vec<u128>, Entry), WriteError> {
        let (index, info) = self.table(table)?;
        let key = key_of(table, info, keys)?;
        let mut ids = info.actions.iter();
        let id = ids.find(|id| last(&self.program.actions[**id].name) == action);
        let id = *id.ok_or_else(|| refused(table, format!("it has no action {action}")))?;
        let wanted = &self.program.actions[id].params;
        let wanted = wanted.iter().map(|param| (&param.name[..], param.width));
        let data = values(table, wanted, params)?;
        let data = data.into_iter().map(Value::from_u128).collect();
        Ok((index, key, Entry { action: id, data }))
    }
}

fn key_of(table: &str, info: &Table, keys: &[(&str, u128)]) -> Result<Vec<u128>, WriteError> {
    values(table, info.key.iter().map(|key| (&key.name[..], key.width)), keys)
}

/// The given values in the order that is wanted: each once, and none too wide.
fn values<'a>(
    table: &str,
    wanted: impl ExactSizeIterator<Item = (&'a str, usize)>,
    given: &[(&str, u128)],
) -> Result<Vec<u128>, WriteError> {
    if wanted.len() != given.len() {
        let (wanted, given) = (wanted.len(), given.len());
        return Err(refused(table, format!("{given} values where {wanted} are needed")));
    }
    let one = |(name, width): (&str, usize)| {
        let found = given.iter().find(|(given, _)| *given == name);
        let value = found.ok_or_else(|| refused(table, format!("{name} is missing")))?.1;
        if width < 128 && value >> width != 0 {
            return Err(refused(table, format!("{name} = {value:#x} has more than {width} bits")));
        }
        Ok(value)
    };
    wanted.map(one).collect()
}

fn position<'a>(mut names: impl Iterator<Item = &'a String>, name: &str) -> Option<usize> {
    names.position(|known| last(known) == name)
}

#[cfg(test)]
mod tests;
