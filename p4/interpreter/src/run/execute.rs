//! Actions: their primitives in order, with jumps.

use crate::fault::{FaultKind, STEPS_MAX};
use crate::program::{Action, Expr, HeaderId, Op};
use crate::state::index_in;
use crate::value::Value;

use super::packet::Packet;
use super::{Ran, Run, at_place, low};

impl Run<'_> {
    pub(super) fn action(
        &mut self,
        action: &Action,
        packet: &mut Packet<'_>,
        data: &[Value],
    ) -> Ran<()> {
        let mut index = 0;
        for _ in 0..STEPS_MAX {
            let Some(primitive) = action.primitives.get(index) else { return Ok(()) };
            let jump = self.primitive(&primitive.op, packet, data);
            let jump = jump.map_err(|kind| at_place(kind, &primitive.place))?;
            index = jump.unwrap_or(index + 1);
        }
        let place = &action.primitives[0].place;
        Err(at_place(FaultKind::Endless, place))
    }

    /// Does one thing; where to go on, unless behind it.
    pub(super) fn primitive(
        &mut self,
        op: &Op,
        packet: &mut Packet<'_>,
        data: &[Value],
    ) -> Result<Option<usize>, FaultKind> {
        let program = self.program;
        match op {
            Op::Assign(target, source) => {
                let value = self.eval(source, packet, data)?;
                packet.set(program, *target, &value)?;
            }
            Op::AssignHeader(target, source) => self.assign_header(packet, *target, *source),
            Op::AddHeader(header) => self.add_header(packet, *header),
            Op::RemoveHeader(header) => {
                if packet.is_valid(*header) {
                    packet.len -= program.headers[*header].len_bytes;
                    packet.set_valid(*header, false);
                }
            }
            Op::RegisterRead(target, array, index) => {
                let index = self.eval(index, packet, data)?;
                let index = index_in(&program.registers[*array], &index)?;
                packet.set(program, *target, &self.machine.registers[*array].get(index))?;
            }
            Op::RegisterWrite(array, index, source) => {
                let index = self.eval(index, packet, data)?;
                let index = index_in(&program.registers[*array], &index)?;
                let value = self.eval(source, packet, data)?;
                self.machine.registers[*array].set(index, &value);
            }
            Op::Count(array, index) => {
                let index = self.eval(index, packet, data)?;
                let index = index_in(&program.counters[*array], &index)?;
                let count = &mut self.machine.counters[*array][index];
                count.packets += 1;
                count.bytes += packet.ingress_len() as u64;
            }
            Op::Meter(array, index, target) => {
                let index = self.eval(index, packet, data)?;
                let index = index_in(&program.meters[*array], &index)?;
                let colour = Value::Small(i128::from(self.machine.meters[*array][index]));
                packet.set(program, *target, &colour)?;
            }
            Op::Hash(target, base, calculation, size) => {
                let hash = u64::from(self.calculate(*calculation, packet));
                let size = self.eval(size, packet, data)?.low_u64().max(1);
                let base = self.eval(base, packet, data)?.low_u64();
                let value = Value::Small(i128::from(hash % size) + i128::from(base));
                packet.set(program, *target, &value)?;
            }
            Op::Drop => {
                packet.put(program, program.standard.egress_spec, super::DROP_PORT);
                packet.put(program, program.standard.mcast_grp, 0);
            }
            Op::Truncate(len) => {
                let len = low(&self.eval(len, packet, data)?);
                packet.len_max = packet.len_max.min(len);
            }
            Op::Jump(target) => return self.target(target, packet, data).map(Some),
            Op::JumpIfZero(value, target) => {
                if self.eval(value, packet, data)?.is_zero() {
                    return self.target(target, packet, data).map(Some);
                }
            }
            Op::Assert(value) => {
                if self.eval(value, packet, data)?.is_zero() {
                    return Err(FaultKind::Assertion);
                }
            }
            Op::Exit => packet.has_exited = true,
            Op::Nothing => {}
        }
        Ok(None)
    }

    fn target(
        &self,
        target: &Expr,
        packet: &Packet<'_>,
        data: &[Value],
    ) -> Result<usize, FaultKind> {
        Ok(low(&self.eval(target, packet, data)?))
    }

    fn assign_header(&self, packet: &mut Packet<'_>, target: HeaderId, source: HeaderId) {
        let is_valid = packet.is_valid(source);
        packet.set_valid(target, is_valid);
        if is_valid {
            let (target, source) = (&self.program.headers[target], &self.program.headers[source]);
            for index in 0..target.count {
                let value = packet.raw(source.first + index).clone();
                packet.store(self.program, target.first + index, &value);
            }
        }
    }

    fn add_header(&self, packet: &mut Packet<'_>, id: HeaderId) {
        if packet.is_valid(id) {
            return;
        }
        let header = &self.program.headers[id];
        for field in header.first..header.first + header.count {
            packet.store(self.program, field, &Value::ZERO);
        }
        packet.set_valid(id, true);
        packet.len += header.len_bytes;
    }
}
