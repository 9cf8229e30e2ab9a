//! The compiled P4 program in the interpreter: what a fault of it is, the interpreter says.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use weft_engine::role::switch::{Counter, Field, Rendered, Write};
use weft_p4_interpreter::Switch as Interpreter;

use super::Refused;
use super::switch::{Sent, Switch};

/// The interpreter.
#[derive(Debug)]
pub struct Interpreted(Interpreter);

impl Interpreted {
    /// The program and its state, to look at.
    #[must_use]
    pub fn program(&self) -> &Interpreter {
        &self.0
    }
}

impl Switch for Interpreted {
    fn start(program: PathBuf, _ports: Vec<u16>) -> Result<Self, Refused> {
        let json = fs::read_to_string(&program);
        let json = json.map_err(|error| Refused::Failed(error.to_string()))?;
        Interpreter::load(&json).map(Self).map_err(|error| Refused::Failed(error.to_string()))
    }

    fn write(&mut self, write: &Write) -> Result<(), String> {
        let switch = &mut self.0;
        let is_delete = matches!(write, Write::Delete(_));
        let table = match write.entry().render() {
            Rendered::Group { id, nodes } => {
                switch.group(id, if is_delete { &[] } else { nodes });
                return Ok(());
            }
            // Meters count time, of which there is none here: they stay green.
            Rendered::Meter { .. } => return Ok(()),
            Rendered::Table(table) => table,
        };
        let values = |fields: &[Field]| {
            fields.iter().map(|field| (field.name, u128::from(field.value))).collect::<Vec<_>>()
        };
        let (keys, params) = (values(&table.keys), values(&table.params));
        match write {
            Write::Insert(_) => switch.insert(table.table, &keys, table.action, &params),
            Write::Modify(_) => switch.modify(table.table, &keys, table.action, &params),
            Write::Delete(_) => switch.delete(table.table, &keys),
        }
        .map_err(|error| error.to_string())
    }

    fn pass(&mut self, port: u16, frame: &[u8]) -> Result<Sent, String> {
        self.0.process(port, frame).map_err(|fault| fault.to_string())
    }

    fn read(&mut self, counter: Counter, cells: Range<u32>) -> Result<Vec<u64>, String> {
        let read = |cell: u32| {
            let count = self.0.counter(counter.name(), cell as usize);
            count.map(|count| count.packets).ok_or_else(|| format!("no cell {cell}"))
        };
        cells.map(read).collect()
    }

    fn restart(&mut self) -> Result<(), String> {
        self.0.restart();
        Ok(())
    }
}
