//! Ingress and egress: tables, conditionals and what follows what.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::names::Names;
use super::{Loaded, bad, constant, list, number, place, text_of};
use crate::program::{Action, Conditional, Expr, KeySource, Next, Node, Pipeline, Table, TableKey};

pub(super) fn pipeline(
    names: &Names,
    actions: &[Action],
    json: &Json,
    name: &str,
    tables: &mut Vec<Table>,
) -> Loaded<Pipeline> {
    let pipelines = list(json, "pipelines")?;
    let entry = pipelines.iter().find(|entry| entry["name"] == name);
    let entry = entry.ok_or_else(|| bad("pipelines", format!("there is no {name}")))?;
    for unknown in ["action_profiles", "action_calls"] {
        if !list(entry, unknown)?.is_empty() {
            return Err(bad(name, format!("{unknown} are not supported")));
        }
    }
    let mut nodes = BTreeMap::new();
    for (index, entry) in list(entry, "tables")?.iter().enumerate() {
        nodes.insert(text_of(entry, "name")?, Node::Table(tables.len() + index));
    }
    for (index, entry) in list(entry, "conditionals")?.iter().enumerate() {
        nodes.insert(text_of(entry, "name")?, Node::Conditional(index));
    }
    let node = |name: &Json| match name.as_str() {
        None => Ok(None),
        Some(name) => match nodes.get(name) {
            Some(node) => Ok(Some(*node)),
            None => Err(bad("pipelines", format!("there is no table or conditional {name}"))),
        },
    };
    for entry in list(entry, "tables")? {
        tables.push(table(names, actions, entry, &node)?);
    }
    let conditional = |entry: &Json| {
        let place = place(entry);
        let cond = names.cond(&entry["expression"], &place.to_string())?;
        let (if_true, if_false) = (node(&entry["true_next"])?, node(&entry["false_next"])?);
        Ok(Conditional { place, cond, if_true, if_false })
    };
    let conditionals = list(entry, "conditionals")?.iter().map(conditional);
    Ok(Pipeline {
        first: node(&entry["init_table"])?,
        conditionals: conditionals.collect::<Loaded<_>>()?,
    })
}

fn table(
    names: &Names,
    actions: &[Action],
    entry: &Json,
    node: &dyn Fn(&Json) -> Loaded<Option<Node>>,
) -> Loaded<Table> {
    let place = place(entry);
    let at = &place.to_string();
    if entry["type"] != "simple" || entry["match_type"] != "exact" {
        return Err(bad(at, "only simple tables of exact keys are supported"));
    }
    if !entry["direct_meters"].is_null() || entry["with_counters"] == true {
        return Err(bad(at, "direct meters and counters are not supported"));
    }
    if !list(entry, "entries")?.is_empty() {
        return Err(bad(at, "entries in the file are not supported"));
    }
    let key = |entry: &Json| {
        let target = &entry["target"];
        let (source, width) = match names.field_or_valid(target, at)? {
            Expr::Valid(header) => (KeySource::Valid(header), 1),
            Expr::Field(field) => (KeySource::Field(field), names.width(field)),
            _ => unreachable!("a field is one of the two"),
        };
        if !entry["mask"].is_null() || width > 128 {
            return Err(bad(at, "keys with a mask or of more than 128 bits are not supported"));
        }
        let name = entry["name"].as_str().or_else(|| target[1].as_str()).unwrap_or_default();
        Ok(TableKey { name: last(name).to_owned(), source, width })
    };
    let key = list(entry, "key")?.iter().map(key).collect::<Loaded<_>>()?;
    let ids = list(entry, "action_ids")?.iter().map(|id| {
        let found = id.as_u64().and_then(|id| names.actions.get(&id));
        found.copied().ok_or_else(|| bad(at, format!("there is no action {id}")))
    });
    let ids = ids.collect::<Loaded<Vec<_>>>()?;
    let default = &entry["default_entry"];
    if default.is_null() {
        return Err(bad(at, "a table without a default action is not supported"));
    }
    let data = list(default, "action_data")?.iter().map(|value| constant(value, at));
    let default = (names.action(default, "action_id", at)?, data.collect::<Loaded<_>>()?);
    let next = &entry["next_tables"];
    let next = if next.get("__HIT__").is_some() {
        Next::ByHit { hit: node(&next["__HIT__"])?, miss: node(&next["__MISS__"])? }
    } else {
        let by_action = |id: &usize| Ok((*id, node(&next[&actions[*id].name])?));
        Next::ByAction(ids.iter().map(by_action).collect::<Loaded<_>>()?)
    };
    Ok(Table { key, size: number(entry, "max_size")?, actions: ids, default, next, place })
}

/// The last part of a name with dots.
pub(crate) fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
