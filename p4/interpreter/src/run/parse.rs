//! The parser. An error of the frame ends it, and the headers found before stay valid; it is no
//! fault.

use crate::fault::{FaultKind, STEPS_MAX};
use crate::program::{KeyPart, ParserOp, State};
use crate::value::Value;

use super::packet::Packet;
use super::{Ran, Run, at_place};

/// Why a step of the parser ends it.
enum End {
    Error(i128),
    Fault(FaultKind),
}

impl From<FaultKind> for End {
    fn from(kind: FaultKind) -> Self {
        Self::Fault(kind)
    }
}

impl Run<'_> {
    pub(super) fn parse(&self, packet: &mut Packet<'_>) -> Ran<()> {
        let parser = &self.program.parser;
        let mut error = self.error("NoError");
        let mut next = parser.first;
        let mut steps = 0;
        while let Some(index) = next {
            let state = &parser.states[index];
            steps += 1;
            if steps > STEPS_MAX {
                return Err(at_place(FaultKind::Endless, &state.place));
            }
            next = match self.state(state, packet) {
                Ok(next) => next,
                Err(End::Error(code)) => {
                    error = code;
                    None
                }
                Err(End::Fault(kind)) => return Err(at_place(kind, &state.place)),
            };
        }
        if let Some(field) = self.program.standard.parser_error {
            packet.store(self.program, field, &Value::Small(error));
        }
        Ok(())
    }

    fn state(&self, state: &State, packet: &mut Packet<'_>) -> Result<Option<usize>, End> {
        for op in &state.ops {
            self.parser_op(op, packet)?;
        }
        if state.key.is_empty() {
            return Ok(state.default);
        }
        let mut key = Vec::new();
        for part in &state.key {
            let (value, width) = match part {
                KeyPart::Field(field) => {
                    let value = packet.get(self.program, *field)?.clone();
                    (value, self.program.fields[*field].width)
                }
                KeyPart::Ahead { skip, width } => {
                    let (rest, needed) = (packet.rest(), (skip + width).div_ceil(8));
                    if needed > rest.len() {
                        return Err(FaultKind::LookAhead { needed, left: rest.len() }.into());
                    }
                    (Value::from_bits(rest, *skip, *width), *width)
                }
            };
            let from = key.len();
            key.resize(from + width.div_ceil(8), 0);
            let bits = (key.len() - from) * 8;
            value.cut(width).put_bits(&mut key[from..], 0, bits);
        }
        let matches = |value: &[u8], mask: Option<&Vec<u8>>| {
            let byte = |index: usize| mask.map_or(0xff, |mask| mask[index]);
            value.len() == key.len()
                && (0..key.len()).all(|at| key[at] & byte(at) == value[at] & byte(at))
        };
        let case = state.cases.iter().find(|case| matches(&case.value, case.mask.as_ref()));
        Ok(case.map_or(state.default, |case| case.next))
    }

    fn parser_op(&self, op: &ParserOp, packet: &mut Packet<'_>) -> Result<(), End> {
        match op {
            ParserOp::Extract(header) => {
                let info = &self.program.headers[*header];
                let rest = packet.rest();
                if rest.len() < info.len_bytes {
                    return Err(End::Error(self.error("PacketTooShort")));
                }
                for id in info.first..info.first + info.count {
                    let field = &self.program.fields[id];
                    let value = Value::from_bits(rest, field.skip, field.width);
                    packet.store(self.program, id, &value);
                }
                packet.parsed += info.len_bytes;
                packet.set_valid(*header, true);
            }
            ParserOp::Set(target, source) => {
                let value = self.eval(source, packet, &[])?;
                packet.set(self.program, *target, &value)?;
            }
            ParserOp::SetAhead(target, skip, width) => {
                let rest = packet.rest();
                if rest.len() < (skip + width).div_ceil(8) {
                    return Err(End::Error(self.error("PacketTooShort")));
                }
                let value = Value::from_bits(rest, *skip, *width);
                packet.set(self.program, *target, &value)?;
            }
            ParserOp::Advance(bits) => {
                let bits = super::low(&self.eval(bits, packet, &[])?);
                if !bits.is_multiple_of(8) {
                    return Err(End::Error(self.error("ParserInvalidArgument")));
                }
                if packet.rest().len() < bits / 8 {
                    return Err(End::Error(self.error("PacketTooShort")));
                }
                packet.parsed += bits / 8;
            }
            ParserOp::Verify(cond, code) => {
                if !self.test(cond, packet, &[])? {
                    let code = self.eval(code, packet, &[])?;
                    return Err(End::Error(i128::from(code.low_u64())));
                }
            }
            ParserOp::Assign(target, source) => {
                let value = self.eval(source, packet, &[])?;
                packet.set(self.program, *target, &value)?;
            }
        }
        Ok(())
    }

    fn error(&self, name: &str) -> i128 {
        self.program.errors.get(name).copied().unwrap_or(0)
    }
}
