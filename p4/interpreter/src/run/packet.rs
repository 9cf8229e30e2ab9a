//! A frame on its way: its headers' fields, and what is left of its bytes.

use crate::fault::FaultKind;
use crate::program::{FieldId, HeaderId, Program};
use crate::value::Value;

#[derive(Clone, Debug)]
pub(super) struct Packet<'a> {
    fields: Vec<Value>,
    valid: Vec<bool>,
    frame: &'a [u8],
    /// Bytes that the parser took.
    pub(super) parsed: usize,
    /// What `truncate` asked for.
    pub(super) len_max: usize,
    /// The length that the program is told.
    pub(super) len: usize,
    pub(super) has_exited: bool,
}

impl<'a> Packet<'a> {
    pub(super) fn new(program: &Program, frame: &'a [u8]) -> Self {
        Self {
            fields: vec![Value::ZERO; program.fields.len()],
            valid: program.headers.iter().map(|header| header.is_metadata).collect(),
            frame,
            parsed: 0,
            len_max: usize::MAX,
            len: frame.len(),
            has_exited: false,
        }
    }

    /// Bytes that no header holds.
    pub(super) fn rest(&self) -> &'a [u8] {
        let rest = &self.frame[self.parsed..];
        &rest[..rest.len().min(self.len_max)]
    }

    /// Bytes of the frame as it came in.
    pub(super) fn ingress_len(&self) -> usize {
        self.frame.len()
    }

    pub(super) fn is_valid(&self, header: HeaderId) -> bool {
        self.valid[header]
    }

    pub(super) fn set_valid(&mut self, header: HeaderId, is_valid: bool) {
        self.valid[header] = is_valid;
    }

    pub(super) fn get(&self, program: &Program, field: FieldId) -> Result<&Value, FaultKind> {
        if self.valid[program.fields[field].header] {
            return Ok(&self.fields[field]);
        }
        Err(FaultKind::InvalidRead(name(program, field)))
    }

    pub(super) fn set(
        &mut self,
        program: &Program,
        field: FieldId,
        value: &Value,
    ) -> Result<(), FaultKind> {
        if !self.valid[program.fields[field].header] {
            return Err(FaultKind::InvalidWrite(name(program, field)));
        }
        self.store(program, field, value);
        Ok(())
    }

    /// Sets a field whether or not its header is valid.
    pub(super) fn store(&mut self, program: &Program, field: FieldId, value: &Value) {
        let info = &program.fields[field];
        self.fields[field] =
            if info.is_signed { value.cut_signed(info.width) } else { value.cut(info.width) };
    }

    /// Sets a field of the metadata, which is always valid.
    pub(super) fn put(&mut self, program: &Program, field: FieldId, value: u64) {
        self.store(program, field, &Value::Small(i128::from(value)));
    }

    /// A field of the metadata.
    pub(super) fn number(&self, field: FieldId) -> u64 {
        self.fields[field].low_u64()
    }

    /// A field, for whom an invalid header has been ruled out.
    pub(super) fn raw(&self, field: FieldId) -> &Value {
        &self.fields[field]
    }
}

fn name(program: &Program, field: FieldId) -> String {
    let info = &program.fields[field];
    format!("{}.{}", program.headers[info.header].name, info.name)
}
