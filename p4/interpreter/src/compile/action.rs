//! Actions and their primitives.

use serde_json::Value as Json;

use super::names::Names;
use super::{Loaded, bad, line, list, number, text_of};
use crate::fault::Place;
use crate::program::{Action, Op, Param, Primitive};

pub(super) fn actions(names: &mut Names, entries: &[Json]) -> Loaded<Vec<Action>> {
    for (index, entry) in entries.iter().enumerate() {
        names.actions.insert(number(entry, "id")? as u64, index);
    }
    entries.iter().map(|entry| action(names, entry)).collect()
}

fn action(names: &Names, entry: &Json) -> Loaded<Action> {
    let name = text_of(entry, "name")?;
    let param = |entry: &Json| {
        let name = text_of(entry, "name")?.to_owned();
        let width = number(entry, "bitwidth")?;
        if width > 128 {
            return Err(bad(&name, "parameters of more than 128 bits are not supported"));
        }
        Ok(Param { name, width })
    };
    let params = list(entry, "runtime_data")?.iter().map(param).collect::<Loaded<_>>()?;
    let primitives = list(entry, "primitives")?.iter();
    let primitives =
        primitives.map(|entry| primitive(names, entry, name)).collect::<Loaded<_>>()?;
    Ok(Action { name: name.to_owned(), params, primitives })
}

pub(super) fn primitive(names: &Names, entry: &Json, action: &str) -> Loaded<Primitive> {
    let place = Place { name: action.to_owned(), line: line(entry) };
    let at = place.to_string();
    let name = text_of(entry, "op")?;
    let params = list(entry, "parameters")?;
    let given = |index: usize| params.get(index).unwrap_or(&Json::Null);
    let data = |index| names.data(given(index), &at);
    let field = |index: usize| {
        let mut given = given(index);
        while given["type"] == "expression" {
            given = &given["value"];
        }
        names.field(&given["value"], &at)
    };
    let header = |index| names.header(&given(index)["value"], &at);
    let array = |index, arrays| names.of(arrays, &given(index)["value"], &at);
    let op = match name {
        "assign" => Op::Assign(field(0)?, data(1)?),
        "assign_header" => Op::AssignHeader(header(0)?, header(1)?),
        "add_header" => Op::AddHeader(header(0)?),
        "remove_header" => Op::RemoveHeader(header(0)?),
        "register_read" => Op::RegisterRead(field(0)?, array(1, &names.registers)?, data(2)?),
        "register_write" => Op::RegisterWrite(array(0, &names.registers)?, data(1)?, data(2)?),
        "count" => Op::Count(array(0, &names.counters)?, data(1)?),
        "execute_meter" => Op::Meter(array(0, &names.meters)?, data(1)?, field(2)?),
        "modify_field_with_hash_based_offset" => {
            Op::Hash(field(0)?, data(1)?, array(2, &names.calculations)?, data(3)?)
        }
        "mark_to_drop" | "drop" => Op::Drop,
        "truncate" => Op::Truncate(data(0)?),
        "_jump" => Op::Jump(data(0)?),
        "_jump_if_zero" => Op::JumpIfZero(data(0)?, data(1)?),
        "assert" | "assume" => Op::Assert(data(0)?),
        "exit" => Op::Exit,
        "no_op" | "log_msg" => Op::Nothing,
        _ => return Err(bad(&at, format!("the primitive {name:?} is not supported"))),
    };
    Ok(Primitive { op, place })
}
