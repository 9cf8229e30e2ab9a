//! What outlives a frame: table entries, registers, counters, colours of meters, groups.

use std::collections::BTreeMap;

use crate::fault::FaultKind;
use crate::program::{ActionId, ArrayInfo, Program};
use crate::switch::Count;
use crate::value::Value;

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) tables: Vec<BTreeMap<Vec<u128>, Entry>>,
    pub(crate) registers: Vec<Cells>,
    pub(crate) counters: Vec<Vec<Count>>,
    /// Colours: 0 green, 1 yellow, 2 red.
    pub(crate) meters: Vec<Vec<u8>>,
    /// Port and replication id of each copy, in order.
    pub(crate) groups: BTreeMap<u16, Vec<(u16, u16)>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) action: ActionId,
    pub(crate) data: Vec<Value>,
}

/// The cells of a register array.
#[derive(Clone, Debug)]
pub(crate) enum Cells {
    /// Of at most 64 bits each: most are, and there are many.
    Narrow {
        cells: Vec<u64>,
        mask: u64,
    },
    Wide {
        cells: Vec<Value>,
        width: usize,
    },
}

impl Machine {
    pub(crate) fn new(program: &Program) -> Self {
        Self {
            tables: program.tables.iter().map(|_| BTreeMap::new()).collect(),
            registers: program.registers.iter().map(Cells::new).collect(),
            counters: program.counters.iter().map(|a| vec![Count::default(); a.size]).collect(),
            meters: program.meters.iter().map(|array| vec![0; array.size]).collect(),
            groups: BTreeMap::new(),
        }
    }
}

impl Cells {
    fn new(array: &ArrayInfo) -> Self {
        match array.width {
            1..=64 => {
                Self::Narrow { cells: vec![0; array.size], mask: u64::MAX >> (64 - array.width) }
            }
            width => Self::Wide { cells: vec![Value::ZERO; array.size], width },
        }
    }

    pub(crate) fn get(&self, index: usize) -> Value {
        match self {
            Self::Narrow { cells, .. } => Value::Small(i128::from(cells[index])),
            Self::Wide { cells, .. } => cells[index].clone(),
        }
    }

    pub(crate) fn set(&mut self, index: usize, value: &Value) {
        match self {
            Self::Narrow { cells, mask } => cells[index] = value.low_u64() & *mask,
            Self::Wide { cells, width } => cells[index] = value.cut(*width),
        }
    }
}

/// An index into an array, which must have it.
pub(crate) fn index_in(array: &ArrayInfo, index: &Value) -> Result<usize, FaultKind> {
    let low = index.low_u64();
    let found = usize::try_from(low).ok().filter(|index| *index < array.size);
    found.ok_or_else(|| FaultKind::Index {
        array: array.name.clone(),
        index: low,
        size: array.size as u64,
    })
}
