//! A checkpoint: a whole model, what its workers were told, where its sequence stands, and the
//! journal that goes on from there.

use alloc::vec::Vec;

use weft_control::{OrderNumber, Version};
use weft_kernel::crc32c;
use weft_wire::GroupId;

use super::header::{Fields, JournalHeader, Kind};
use super::{Damage, outcome};
use crate::role::model::{DecidedUpdate, ModelState, WorkerOutcomes};

/// What a checkpoint holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Whose it is.
    pub header: JournalHeader,
    /// The journal that follows; `None` in files of version 1, which do not say.
    pub journal: Option<u64>,
    /// The job's state.
    pub state: ModelState,
}

/// Writes a checkpoint that this journal follows.
pub fn write_checkpoint(
    header: &JournalHeader,
    journal: u64,
    state: &ModelState,
    out: &mut Vec<u8>,
) {
    header.write(Kind::Checkpoint, journal, out);
    let start = out.len();
    out.extend(state.version.0.to_le_bytes());
    out.extend(state.next_order.0.to_le_bytes());
    for values in [&state.weights, &state.momentum] {
        out.extend(values.iter().flat_map(|value| value.to_bits().to_le_bytes()));
    }
    for worker in &state.workers {
        out.extend(worker.life.to_le_bytes());
        let count = u32::try_from(worker.decided.len()).unwrap_or(u32::MAX);
        out.extend(count.to_le_bytes());
        for decided in worker.decided.iter().take(count as usize) {
            out.push(decided.outcome as u8);
            out.extend(decided.group.0.to_le_bytes());
            out.extend(decided.version.0.to_le_bytes());
        }
    }
    let crc = crc32c(&out[start..]);
    out.extend(crc.to_le_bytes());
}

/// Reads a checkpoint.
///
/// # Errors
/// [`Damage`]: a checkpoint is whole or it is none.
pub fn read_checkpoint(bytes: &[u8]) -> Result<Checkpoint, Damage> {
    let (header, journal, at) = JournalHeader::read(Kind::Checkpoint, bytes)?;
    let damage = |problem| Damage { offset: at as u64, problem };
    let (body, crc) = bytes[at..].split_last_chunk::<4>().ok_or_else(|| damage(CUT))?;
    if u32::from_le_bytes(*crc) != crc32c(body) {
        return Err(damage("its content is damaged"));
    }
    let mut fields = Fields { bytes: body };
    let state = state(&mut fields, &header).filter(|_| fields.bytes.is_empty());
    Ok(Checkpoint { header, journal, state: state.ok_or_else(|| damage(CUT))? })
}

fn state(fields: &mut Fields<'_>, header: &JournalHeader) -> Option<ModelState> {
    let (version, next_order) = (Version(fields.u64()?), OrderNumber(fields.u64()?));
    let weights = fields.floats(header.dimension)?;
    let momentum = fields.floats(header.dimension)?;
    let mut workers = Vec::new();
    for _ in 0..header.workers {
        let life = fields.u64()?;
        let count = u32::from_le_bytes(fields.take()?);
        let mut decided = Vec::new();
        for _ in 0..count {
            let outcome = outcome(fields.byte()?)?;
            let group = GroupId(u32::from_le_bytes(fields.take()?));
            decided.push(DecidedUpdate { group, outcome, version: Version(fields.u64()?) });
        }
        workers.push(WorkerOutcomes { life, decided });
    }
    Some(ModelState { version, next_order, weights, momentum, workers })
}

const CUT: &str = "it is cut short";
