//! Values of expressions. `and`, `or` and `?` look at no more than they need, as P4 says; BMv2
//! looks at both sides, but without effects only a fault could tell.

use crate::fault::FaultKind;
use crate::program::{Binary, Compare, Cond, Expr, KeySource, TableKey};
use crate::state::index_in;
use crate::value::Value;

use super::Run;
use super::packet::Packet;

impl Run<'_> {
    pub(super) fn eval(
        &self,
        expr: &Expr,
        packet: &Packet<'_>,
        data: &[Value],
    ) -> Result<Value, FaultKind> {
        Ok(match expr {
            Expr::Const(value) => value.clone(),
            Expr::Field(field) => packet.get(self.program, *field)?.clone(),
            Expr::Valid(header) => Value::Small(i128::from(packet.is_valid(*header))),
            Expr::Param(index) => data.get(*index).cloned().ok_or_else(|| {
                FaultKind::Count(format!("parameter {index}, of {} given,", data.len()))
            })?,
            Expr::Register(array, index) => {
                let index = self.eval(index, packet, data)?;
                let index = index_in(&self.program.registers[*array], &index)?;
                self.machine.registers[*array].get(index)
            }
            Expr::Binary(op, left, right) => {
                let left = self.eval(left, packet, data)?;
                let right = self.eval(right, packet, data)?;
                binary(*op, &left, &right)?
            }
            Expr::Not(inner) => self.eval(inner, packet, data)?.not(),
            Expr::FromBool(cond) => Value::Small(i128::from(self.test(cond, packet, data)?)),
            Expr::Choose(cond, left, right) => {
                let chosen = if self.test(cond, packet, data)? { left } else { right };
                self.eval(chosen, packet, data)?
            }
        })
    }

    pub(super) fn test(
        &self,
        cond: &Cond,
        packet: &Packet<'_>,
        data: &[Value],
    ) -> Result<bool, FaultKind> {
        Ok(match cond {
            Cond::Const(value) => *value,
            Cond::IsValid(header) => packet.is_valid(*header),
            Cond::Compare(compare, left, right) => {
                let left = self.eval(left, packet, data)?;
                let order = left.compare(&self.eval(right, packet, data)?);
                match compare {
                    Compare::Equal => order.is_eq(),
                    Compare::Unequal => order.is_ne(),
                    Compare::Greater => order.is_gt(),
                    Compare::Less => order.is_lt(),
                    Compare::AtLeast => order.is_ge(),
                    Compare::AtMost => order.is_le(),
                }
            }
            Cond::Same(is_same, left, right) => {
                let same = self.test(left, packet, data)? == self.test(right, packet, data)?;
                same == *is_same
            }
            Cond::And(left, right) => {
                self.test(left, packet, data)? && self.test(right, packet, data)?
            }
            Cond::Or(left, right) => {
                self.test(left, packet, data)? || self.test(right, packet, data)?
            }
            Cond::Not(inner) => !self.test(inner, packet, data)?,
            Cond::FromData(expr) => !self.eval(expr, packet, data)?.is_zero(),
        })
    }

    pub(super) fn key(&self, key: &TableKey, packet: &Packet<'_>) -> Result<u128, FaultKind> {
        match key.source {
            KeySource::Valid(header) => Ok(u128::from(packet.is_valid(header))),
            KeySource::Field(field) => {
                let value = packet.get(self.program, field)?;
                // Of a signed field the bits are matched.
                Ok(value.cut(key.width).to_u128().expect("a key has at most 128 bits"))
            }
        }
    }
}

fn binary(op: Binary, left: &Value, right: &Value) -> Result<Value, FaultKind> {
    let count = || match right.to_u128() {
        Some(count) => Ok(u64::try_from(count).unwrap_or(u64::MAX)),
        None => Err(FaultKind::Count("a negative shift".to_owned())),
    };
    Ok(match op {
        Binary::Add => left.add(right),
        Binary::Sub => left.sub(right),
        Binary::Mul => left.mul(right),
        Binary::And => left.and(right),
        Binary::Or => left.or(right),
        Binary::Xor => left.xor(right),
        Binary::Shl => left.shl(count()?),
        Binary::Shr => left.shr(count()?),
        Binary::CutSigned => {
            let width = usize::try_from(count()?).unwrap_or(0);
            if width == 0 {
                return Err(FaultKind::Count("a width of 0".to_owned()));
            }
            left.cut_signed(width.min(4096))
        }
    })
}
