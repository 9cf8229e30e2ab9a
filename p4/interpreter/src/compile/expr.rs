//! Expressions: numbers and truth values are told apart here, so that running one cannot fail for
//! its type.

use serde_json::Value as Json;

use super::names::Names;
use super::{Loaded, bad, constant};
use crate::program::{Binary, Compare, Cond, Expr};

/// An expression by what it gives.
#[derive(Debug)]
pub(super) enum Typed {
    Data(Expr),
    Bool(Cond),
}

impl Names {
    pub(super) fn data(&self, json: &Json, at: &str) -> Loaded<Expr> {
        match self.typed(json, at)? {
            Typed::Data(expr) => Ok(expr),
            Typed::Bool(_) => Err(bad(at, "a truth value where a number is needed")),
        }
    }

    pub(super) fn cond(&self, json: &Json, at: &str) -> Loaded<Cond> {
        match self.typed(json, at)? {
            Typed::Bool(cond) => Ok(cond),
            Typed::Data(_) => Err(bad(at, "a number where a truth value is needed")),
        }
    }

    pub(super) fn typed(&self, json: &Json, at: &str) -> Loaded<Typed> {
        if let Some(op) = json["op"].as_str() {
            return self.operation(op, json, at);
        }
        let value = &json["value"];
        let kind = json["type"].as_str().unwrap_or_default();
        Ok(match kind {
            "expression" => return self.typed(value, at),
            "bool" => Typed::Bool(Cond::Const(value.as_bool() == Some(true))),
            "hexstr" => Typed::Data(Expr::Const(constant(value, at)?)),
            "field" => Typed::Data(self.field_or_valid(value, at)?),
            "local" | "runtime_data" => {
                let index = value.as_u64().and_then(|index| usize::try_from(index).ok());
                Typed::Data(Expr::Param(index.ok_or_else(|| bad(at, "no index of a parameter"))?))
            }
            "register" => {
                let array = self.of(&self.registers, &value[0], at)?;
                Typed::Data(Expr::Register(array, Box::new(self.data(&value[1], at)?)))
            }
            _ => return Err(bad(at, format!("a value of type {kind:?} is not supported"))),
        })
    }

    fn operation(&self, op: &str, json: &Json, at: &str) -> Loaded<Typed> {
        let (left, right) = (&json["left"], &json["right"]);
        if let Some(binary) = binary(op) {
            let (left, right) = (self.data(left, at)?, self.data(right, at)?);
            return Ok(Typed::Data(Expr::Binary(binary, Box::new(left), Box::new(right))));
        }
        if let Some(compare) = compare(op) {
            return self.comparison(compare, left, right, at);
        }
        let boxed = |json| Ok(Box::new(self.cond(json, at)?));
        Ok(match op {
            "~" => Typed::Data(Expr::Not(Box::new(self.data(right, at)?))),
            "b2d" => Typed::Data(Expr::FromBool(boxed(right)?)),
            "d2b" => Typed::Bool(Cond::FromData(self.data(right, at)?)),
            "valid" => Typed::Bool(Cond::IsValid(self.header(&right["value"], at)?)),
            "and" => Typed::Bool(Cond::And(boxed(left)?, boxed(right)?)),
            "or" => Typed::Bool(Cond::Or(boxed(left)?, boxed(right)?)),
            "not" => Typed::Bool(Cond::Not(boxed(right)?)),
            "?" => {
                let (left, right) = (self.data(left, at)?, self.data(right, at)?);
                let cond = boxed(&json["cond"])?;
                Typed::Data(Expr::Choose(cond, Box::new(left), Box::new(right)))
            }
            _ => return Err(bad(at, format!("the operator {op:?} is not supported"))),
        })
    }

    fn comparison(&self, compare: Compare, left: &Json, right: &Json, at: &str) -> Loaded<Typed> {
        let cond = match (self.typed(left, at)?, self.typed(right, at)?) {
            (Typed::Data(left), Typed::Data(right)) => Cond::Compare(compare, left, right),
            (Typed::Bool(left), Typed::Bool(right)) => {
                let is_same = match compare {
                    Compare::Equal => true,
                    Compare::Unequal => false,
                    _ => return Err(bad(at, "truth values have no order")),
                };
                Cond::Same(is_same, Box::new(left), Box::new(right))
            }
            _ => return Err(bad(at, "a number is compared with a truth value")),
        };
        Ok(Typed::Bool(cond))
    }
}

fn binary(op: &str) -> Option<Binary> {
    Some(match op {
        "+" => Binary::Add,
        "-" => Binary::Sub,
        "*" => Binary::Mul,
        "&" => Binary::And,
        "|" => Binary::Or,
        "^" => Binary::Xor,
        "<<" => Binary::Shl,
        ">>" => Binary::Shr,
        "two_comp_mod" => Binary::CutSigned,
        _ => return None,
    })
}

fn compare(op: &str) -> Option<Compare> {
    Some(match op {
        "==" => Compare::Equal,
        "!=" => Compare::Unequal,
        ">" => Compare::Greater,
        "<" => Compare::Less,
        ">=" => Compare::AtLeast,
        "<=" => Compare::AtMost,
        _ => return None,
    })
}
