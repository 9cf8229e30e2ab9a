//! The parser's states.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::names::Names;
use super::{Loaded, action, bad, constant, list, place, text_of};
use crate::program::{Case, Expr, KeyPart, Op, Parser, ParserOp, State};
use crate::value::Value;

pub(super) fn parser(names: &Names, json: &Json) -> Loaded<Parser> {
    let parsers = list(json, "parsers")?;
    let parser = parsers.first().ok_or_else(|| bad("parsers", "there is none"))?;
    let entries = list(parser, "parse_states")?;
    let mut indices = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        indices.insert(text_of(entry, "name")?, index);
    }
    let find = |name: &Json| match name.as_str() {
        None => Ok(None),
        Some(name) => match indices.get(name) {
            Some(index) => Ok(Some(*index)),
            None => Err(bad("parsers", format!("there is no state {name}"))),
        },
    };
    let states = entries.iter().map(|entry| state(names, entry, &find)).collect::<Loaded<_>>()?;
    Ok(Parser { states, first: find(&parser["init_state"])? })
}

fn state(
    names: &Names,
    entry: &Json,
    find: &dyn Fn(&Json) -> Loaded<Option<usize>>,
) -> Loaded<State> {
    let at = text_of(entry, "name")?;
    let ops = list(entry, "parser_ops")?.iter().map(|entry| op(names, entry, at));
    let ops = ops.collect::<Loaded<_>>()?;
    let part = |entry: &Json| {
        let value = &entry["value"];
        Ok(match text_of(entry, "type")? {
            "field" => KeyPart::Field(names.field(value, at)?),
            "lookahead" => {
                let (skip, width) = ahead(value, at)?;
                KeyPart::Ahead { skip, width }
            }
            other => return Err(bad(at, format!("a key of type {other} is not supported"))),
        })
    };
    let key = list(entry, "transition_key")?.iter().map(part).collect::<Loaded<Vec<_>>>()?;
    let (mut cases, mut default) = (Vec::new(), None);
    for transition in list(entry, "transitions")? {
        let next = find(&transition["next_state"])?;
        let kind = transition["type"]
            .as_str()
            .unwrap_or_else(|| if transition["value"] == "default" { "default" } else { "hexstr" });
        match kind {
            "default" => default = next,
            "hexstr" => {
                let value = bytes(&transition["value"], at)?;
                let mask = match &transition["mask"] {
                    Json::Null => None,
                    mask => Some(bytes(mask, at)?),
                };
                cases.push(Case { value, mask, next });
            }
            other => return Err(bad(at, format!("a transition of type {other}"))),
        }
    }
    Ok(State { place: place(entry), ops, key, cases, default })
}

fn op(names: &Names, entry: &Json, at: &str) -> Loaded<ParserOp> {
    let params = list(entry, "parameters")?;
    let given = |index: usize| params.get(index).unwrap_or(&Json::Null);
    Ok(match text_of(entry, "op")? {
        "extract" if given(0)["type"] == "regular" => {
            ParserOp::Extract(names.header(&given(0)["value"], at)?)
        }
        "set" => {
            let target = names.field(&given(0)["value"], at)?;
            if given(1)["type"] == "lookahead" {
                let (skip, width) = ahead(&given(1)["value"], at)?;
                ParserOp::SetAhead(target, skip, width)
            } else {
                ParserOp::Set(target, names.data(given(1), at)?)
            }
        }
        "advance" => ParserOp::Advance(names.data(given(0), at)?),
        "shift" => {
            let bits = given(0).as_i64().unwrap_or(0) * 8;
            ParserOp::Advance(Expr::Const(Value::Small(i128::from(bits))))
        }
        "verify" => ParserOp::Verify(names.cond(given(0), at)?, names.data(given(1), at)?),
        // p4c writes an assignment to a local variable like this.
        "primitive" => match action::primitive(names, given(0), at)?.op {
            Op::Assign(target, source) => ParserOp::Assign(target, source),
            _ => return Err(bad(at, format!("the parser's {} is not supported", given(0)["op"]))),
        },
        other => return Err(bad(at, format!("the parser's {other:?} is not supported"))),
    })
}

fn ahead(value: &Json, at: &str) -> Loaded<(usize, usize)> {
    let number = |index: usize| value[index].as_u64().and_then(|bits| usize::try_from(bits).ok());
    number(0).zip(number(1)).ok_or_else(|| bad(at, "a look ahead without place and width"))
}

/// A value of a transition: as many bytes as it has digits for.
fn bytes(json: &Json, at: &str) -> Loaded<Vec<u8>> {
    let value = constant(json, at)?;
    let text = json.as_str().unwrap_or_default();
    let digits = text.strip_prefix("0x").unwrap_or(text).len();
    let mut bytes = vec![0; digits.div_ceil(2)];
    let width = bytes.len() * 8;
    value.put_bits(&mut bytes, 0, width);
    Ok(bytes)
}
