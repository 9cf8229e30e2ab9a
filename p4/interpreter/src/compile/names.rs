//! Names of a file, and what they stand for.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{Loaded, bad, list, number, text_of};
use crate::program::{ActionId, Expr, Field, FieldId, Header, HeaderId};

#[derive(Debug)]
pub(super) struct Names {
    headers: BTreeMap<String, HeaderId>,
    fields: BTreeMap<(String, String), FieldId>,
    widths: Vec<usize>,
    pub(super) registers: BTreeMap<String, usize>,
    pub(super) counters: BTreeMap<String, usize>,
    pub(super) meters: BTreeMap<String, usize>,
    pub(super) calculations: BTreeMap<String, usize>,
    /// By the identifier in the file.
    pub(super) actions: BTreeMap<u64, ActionId>,
}

/// Header instances and all their fields, the widths checked.
pub(super) fn headers(json: &Json) -> Loaded<(Vec<Header>, Vec<Field>)> {
    let types = list(json, "header_types")?;
    let (mut headers, mut fields) = (Vec::new(), Vec::new());
    for (id, entry) in list(json, "headers")?.iter().enumerate() {
        let name = text_of(entry, "name")?;
        let wanted = text_of(entry, "header_type")?;
        let kind = types.iter().find(|kind| kind["name"] == wanted);
        let kind = kind.ok_or_else(|| bad(name, format!("no header type {wanted}")))?;
        let first = fields.len();
        let mut skip = 0;
        for field in list(kind, "fields")? {
            let field_name = field[0].as_str().unwrap_or_default();
            let width = field[1].as_u64().and_then(|width| usize::try_from(width).ok());
            let width = width.filter(|width| (1..=WIDTH_MAX).contains(width)).ok_or_else(|| {
                bad(name, format!("field {field_name}: a width of {} is not supported", field[1]))
            })?;
            let is_signed = field[2].as_bool().unwrap_or(false);
            let field_name = field_name.to_owned();
            fields.push(Field { name: field_name, header: id, width, is_signed, skip });
            skip += width;
        }
        let is_metadata = entry["metadata"].as_bool().unwrap_or(false);
        if !is_metadata && !skip.is_multiple_of(8) {
            return Err(bad(name, format!("{skip} bits are no whole bytes")));
        }
        headers.push(Header {
            name: name.to_owned(),
            first,
            count: fields.len() - first,
            len_bytes: skip / 8,
            is_metadata,
        });
    }
    Ok((headers, fields))
}

impl Names {
    pub(super) fn new(headers: &[Header], fields: &[Field]) -> Self {
        let name = |field: &Field| (headers[field.header].name.clone(), field.name.clone());
        Self {
            headers: headers.iter().enumerate().map(|(id, h)| (h.name.clone(), id)).collect(),
            fields: fields.iter().enumerate().map(|(id, f)| (name(f), id)).collect(),
            widths: fields.iter().map(|field| field.width).collect(),
            registers: BTreeMap::new(),
            counters: BTreeMap::new(),
            meters: BTreeMap::new(),
            calculations: BTreeMap::new(),
            actions: BTreeMap::new(),
        }
    }

    pub(super) fn header(&self, name: &Json, at: &str) -> Loaded<HeaderId> {
        self.of(&self.headers, name, at)
    }

    /// What `["header", "field"]` stands for.
    pub(super) fn field(&self, pair: &Json, at: &str) -> Loaded<FieldId> {
        let found = pair[0].as_str().zip(pair[1].as_str());
        let found = found.and_then(|(header, field)| self.field_named(header, field));
        found.ok_or_else(|| bad(at, format!("there is no field {pair}")))
    }

    /// As [`Names::field`], or whether a header is valid.
    pub(super) fn field_or_valid(&self, pair: &Json, at: &str) -> Loaded<Expr> {
        if pair[1] == "$valid$" {
            return Ok(Expr::Valid(self.header(&pair[0], at)?));
        }
        Ok(Expr::Field(self.field(pair, at)?))
    }

    pub(super) fn width(&self, field: FieldId) -> usize {
        self.widths[field]
    }

    pub(super) fn field_named(&self, header: &str, field: &str) -> Option<FieldId> {
        self.fields.get(&(header.to_owned(), field.to_owned())).copied()
    }

    pub(super) fn of(
        &self,
        names: &BTreeMap<String, usize>,
        name: &Json,
        at: &str,
    ) -> Loaded<usize> {
        let found = name.as_str().and_then(|name| names.get(name));
        found.copied().ok_or_else(|| bad(at, format!("there is no {name}")))
    }

    pub(super) fn action(&self, entry: &Json, key: &str, at: &str) -> Loaded<ActionId> {
        let id = number(entry, key)? as u64;
        self.actions.get(&id).copied().ok_or_else(|| bad(at, format!("there is no action {id}")))
    }
}

/// As in BMv2's v1model.
const WIDTH_MAX: usize = 2048;
