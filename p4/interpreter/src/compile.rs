//! From the JSON that p4c writes for BMv2 to a [`Program`]. Source: BMv2's `JSON_format.md`.
//!
//! What the file uses and this crate does not do is refused here, with the place in the file: a
//! frame never meets an unknown primitive or operator.

mod action;
mod expr;
mod names;
mod parser;
mod pipeline;

pub(crate) use pipeline::last;

use std::collections::BTreeMap;

use serde_json::Value as Json;
use thiserror::Error;

use crate::fault::Place;
use crate::program::{ArrayInfo, Calculation, Checksum, Part, Program, Standard};
use crate::value::Value;

use expr::Typed;
use names::{Names, headers};

/// A file cannot be run here.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("cannot load the program: {at}: {problem}")]
pub struct LoadError {
    /// Where in the file.
    pub at: String,
    /// What is wrong.
    pub problem: String,
}

pub(crate) fn bad(at: &str, problem: impl Into<String>) -> LoadError {
    LoadError { at: at.to_owned(), problem: problem.into() }
}

type Loaded<T> = Result<T, LoadError>;

pub(crate) fn load(text: &str) -> Loaded<Program> {
    let json: Json = serde_json::from_str(text).map_err(|error| bad("JSON", error.to_string()))?;
    let version = &json["__meta__"]["version"];
    if version[0].as_u64() != Some(2) {
        return Err(bad("__meta__", format!("version {version}; only 2.x is known")));
    }
    let (headers, fields) = headers(&json)?;
    let mut names = Names::new(&headers, &fields);
    let registers = arrays(&json, "register_arrays", &mut names.registers)?;
    let counters = arrays(&json, "counter_arrays", &mut names.counters)?;
    let meters = arrays(&json, "meter_arrays", &mut names.meters)?;
    let calculations = list(&json, "calculations")?
        .iter()
        .enumerate()
        .map(|(index, entry)| {
            names.calculations.insert(text_of(entry, "name")?.to_owned(), index);
            calculation(&names, entry)
        })
        .collect::<Loaded<_>>()?;
    let actions = action::actions(&mut names, list(&json, "actions")?)?;
    let checksums = list(&json, "checksums")?;
    let with = |key| -> Loaded<Vec<_>> {
        let wanted = checksums.iter().filter(|entry| entry[key].as_bool().unwrap_or(true));
        wanted.map(|entry| checksum(&names, entry)).collect()
    };
    let (verified, updated) = (with("verify")?, with("update")?);
    let parser = parser::parser(&names, &json)?;
    let mut tables = Vec::new();
    let ingress = pipeline::pipeline(&names, &actions, &json, "ingress", &mut tables)?;
    let egress = pipeline::pipeline(&names, &actions, &json, "egress", &mut tables)?;
    let deparser = deparser(&names, &json)?;
    let standard = standard(&names)?;
    let errors = list(&json, "errors")?
        .iter()
        .filter_map(|entry| Some((entry[0].as_str()?.to_owned(), i128::from(entry[1].as_i64()?))));
    let errors = errors.collect();
    Ok(Program {
        headers,
        fields,
        parser,
        ingress,
        egress,
        tables,
        actions,
        deparser,
        verified,
        updated,
        calculations,
        registers,
        counters,
        meters,
        standard,
        errors,
    })
}

fn arrays(json: &Json, key: &str, names: &mut BTreeMap<String, usize>) -> Loaded<Vec<ArrayInfo>> {
    let array = |(index, entry): (usize, &Json)| {
        let name = text_of(entry, "name")?;
        if entry["is_direct"].as_bool() == Some(true) {
            return Err(bad(name, "is direct, which is not supported"));
        }
        names.insert(name.to_owned(), index);
        let size = number(entry, "size")?;
        let width = entry["bitwidth"].as_u64().and_then(|width| usize::try_from(width).ok());
        Ok(ArrayInfo { name: name.to_owned(), size, width: width.unwrap_or(0) })
    };
    list(json, key)?.iter().enumerate().map(array).collect()
}

fn calculation(names: &Names, entry: &Json) -> Loaded<Calculation> {
    let name = text_of(entry, "name")?;
    if entry["algo"] != "csum16" {
        return Err(bad(name, format!("algorithm {}; only csum16 is supported", entry["algo"])));
    }
    let mut parts = Vec::new();
    let mut has_payload = false;
    for part in list(entry, "input")? {
        let value = &part["value"];
        parts.push(match text_of(part, "type")? {
            "field" => Part::Field(names.field(value, name)?),
            "header" => Part::Header(names.header(value, name)?),
            "hexstr" => Part::Const(constant(value, name)?, number(part, "bitwidth")?),
            "payload" => {
                has_payload = true;
                continue;
            }
            other => return Err(bad(name, format!("input of type {other}"))),
        });
    }
    Ok(Calculation { parts, has_payload })
}

fn checksum(names: &Names, entry: &Json) -> Loaded<Checksum> {
    let name = text_of(entry, "name")?;
    if entry["type"] != "generic" {
        return Err(bad(name, format!("checksum of type {}", entry["type"])));
    }
    let calculation = names.of(&names.calculations, &entry["calculation"], name)?;
    let cond = match &entry["if_cond"] {
        Json::Null => None,
        cond => match names.typed(cond, name)? {
            Typed::Bool(cond) => Some(cond),
            _ => return Err(bad(name, "its condition is no truth value")),
        },
    };
    Ok(Checksum {
        target: names.field(&entry["target"], name)?,
        calculation,
        cond,
        place: place(entry),
    })
}

fn deparser(names: &Names, json: &Json) -> Loaded<Vec<usize>> {
    let deparsers = list(json, "deparsers")?;
    let deparser = deparsers.first().ok_or_else(|| bad("deparsers", "there is none"))?;
    if deparser["primitives"].as_array().is_some_and(|primitives| !primitives.is_empty()) {
        return Err(bad("deparsers", "calls of externs are not supported"));
    }
    list(deparser, "order")?.iter().map(|name| names.header(name, "deparser")).collect()
}

fn standard(names: &Names) -> Loaded<Standard> {
    let optional = |field| names.field_named("standard_metadata", field);
    let field = |field| {
        optional(field).ok_or_else(|| bad("standard_metadata", format!("has no field {field}")))
    };
    Ok(Standard {
        ingress_port: field("ingress_port")?,
        egress_spec: field("egress_spec")?,
        egress_port: field("egress_port")?,
        instance_type: field("instance_type")?,
        packet_length: field("packet_length")?,
        mcast_grp: field("mcast_grp")?,
        egress_rid: field("egress_rid")?,
        checksum_error: optional("checksum_error"),
        parser_error: optional("parser_error"),
    })
}

pub(crate) fn list<'a>(json: &'a Json, key: &str) -> Loaded<&'a [Json]> {
    match &json[key] {
        Json::Array(list) => Ok(list),
        Json::Null => Ok(&[]),
        _ => Err(bad(key, "is no list")),
    }
}

pub(crate) fn text_of<'a>(json: &'a Json, key: &str) -> Loaded<&'a str> {
    json[key].as_str().ok_or_else(|| bad(key, format!("is no text in {}", short(json))))
}

pub(crate) fn number(json: &Json, key: &str) -> Loaded<usize> {
    let value = json[key].as_u64().and_then(|value| usize::try_from(value).ok());
    value.ok_or_else(|| bad(key, format!("is no number in {}", short(json))))
}

pub(crate) fn constant(json: &Json, at: &str) -> Loaded<Value> {
    let value = json.as_str().and_then(Value::from_hex);
    value.ok_or_else(|| bad(at, format!("{json} is no hexadecimal number")))
}

/// Name and source line of an entry.
pub(crate) fn place(entry: &Json) -> Place {
    let name = entry["name"].as_str().unwrap_or_default().to_owned();
    Place { name, line: line(entry) }
}

pub(crate) fn line(entry: &Json) -> Option<(String, u64)> {
    let info = &entry["source_info"];
    Some((info["filename"].as_str()?.to_owned(), info["line"].as_u64()?))
}

/// The beginning of an entry, to be recognised by.
fn short(json: &Json) -> String {
    let mut text = json.to_string();
    if let Some((end, _)) = text.char_indices().nth(60) {
        text.truncate(end);
        text.push('…');
    }
    text
}
