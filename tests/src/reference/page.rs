//! A page of keys: one section for each table, parents first.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::types::{Key, Kind, Shape, Types, Value};

/// A table that is still to be written.
struct Section<'a> {
    /// Where it stands in the file; empty for the file itself.
    path: String,
    /// How the heading writes it.
    heading: String,
    /// What the parent says of it.
    doc: &'a str,
    shape: &'a Shape,
}

/// Writes a page.
pub(super) fn render(head: &str, root: &str, types: &Types) -> Result<String, String> {
    let shape = types.of(root).ok_or_else(|| format!("no source declares {root}"))?;
    let mut text = format!("{head}\n{MADE}\n");
    let mut sections =
        VecDeque::from([Section { path: String::new(), heading: String::new(), doc: "", shape }]);
    while let Some(section) = sections.pop_front() {
        let Kind::Table(keys) = &section.shape.kind else { continue };
        let mut own = Vec::new();
        let mut below = Vec::new();
        for key in keys {
            match table_of(&key.value, types) {
                Some((shape, around)) => below.push(section.child(key, shape, around)),
                None => own.push(key),
            }
        }
        section.write(&own, types, &mut text);
        for child in below.into_iter().rev() {
            sections.push_front(child);
        }
    }
    Ok(text)
}

/// How a table stands in its parent.
#[derive(Clone, Copy)]
enum Around {
    One,
    List,
    Map,
}

/// The table that a value is, if it is one.
fn table_of<'a>(value: &Value, types: &'a Types) -> Option<(&'a Shape, Around)> {
    let (name, around) = match value {
        Value::Named(name) => (name, Around::One),
        Value::List(inner) => (name_of(inner)?, Around::List),
        Value::Map(inner) => (name_of(inner)?, Around::Map),
    };
    let shape = types.of(name)?;
    matches!(shape.kind, Kind::Table(_)).then_some((shape, around))
}

fn name_of(value: &Value) -> Option<&String> {
    match value {
        Value::Named(name) => Some(name),
        _ => None,
    }
}

impl<'a> Section<'a> {
    fn child(&self, key: &'a Key, shape: &'a Shape, around: Around) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        let mut path = format!("{}{dot}{}", self.path, key.name);
        let heading = match around {
            Around::One => format!("[{path}]"),
            Around::List => format!("[[{path}]]"),
            Around::Map => {
                path.push_str(".NAME");
                format!("[{path}]")
            }
        };
        Self { path, heading, doc: &key.doc, shape }
    }

    fn write(&self, keys: &[&Key], types: &Types, text: &mut String) {
        if !self.heading.is_empty() {
            let _ = write!(text, "\n## `{}`\n", self.heading);
            // The type says more than the key that has it.
            let doc = without_heading(&self.shape.doc);
            let doc = if doc.is_empty() { self.doc } else { doc };
            let mut letters = doc.chars();
            if let Some(first) = letters.next() {
                let _ = write!(text, "\n{}{}\n", first.to_uppercase(), letters.as_str());
            }
        }
        if keys.is_empty() {
            return;
        }
        text.push_str("\n| key | value | meaning |\n| --- | --- | --- |\n");
        for key in keys {
            let required = if key.is_required { ", required" } else { "" };
            let value = describe(&key.value, types);
            let meaning = key.doc.replace('\n', " ").replace('|', "\\|");
            let _ = writeln!(text, "| `{}` | {value}{required} | {meaning} |", key.name);
        }
    }
}

/// A type's documentation without the section's name that it begins with.
fn without_heading(doc: &str) -> &str {
    let Some(rest) = doc.strip_prefix("`[") else { return doc };
    let rest = rest.split_once('`').map_or("", |(_, rest)| rest);
    rest.trim_start_matches([':', '.']).trim_start()
}

fn describe(value: &Value, types: &Types) -> String {
    match value {
        Value::List(inner) => match describe(inner, types).as_str() {
            UNKNOWN => format!("list, {UNKNOWN}"),
            inner => format!("list of {inner}"),
        },
        Value::Map(inner) => match describe(inner, types).as_str() {
            UNKNOWN => format!("table by name, {UNKNOWN}"),
            inner => format!("table by name of {inner}"),
        },
        Value::Named(name) => match types.of(name).map(|shape| &shape.kind) {
            Some(Kind::Words(words)) => {
                let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
                words.join(", ")
            }
            Some(Kind::Untagged) => UNKNOWN.to_owned(),
            Some(Kind::Table(_)) => "table".to_owned(),
            None => plain(name).to_owned(),
        },
    }
}

/// Types that have no source here.
fn plain(name: &str) -> &str {
    match name {
        "bool" => "`true` or `false`",
        "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i32" | "i64" => "integer",
        "f32" | "f64" => "number",
        "SocketAddr" => "`\"ip:port\"`",
        "IpAddr" | "HostAddr" => "IP address",
        "Elements" => "integer or `\"auto\"`",
        "MacAddr" => "Ethernet address",
        "FilePath" | "PathBuf" => "path",
        "String" => "string",
        _ => UNKNOWN,
    }
}

/// What is written for a value whose form no derived type has.
const UNKNOWN: &str = "see the meaning";
const MADE: &str = "This page is made of the types that read the file:\n\
    `cargo run -p weft-tests --example make_reference`. A key without \"required\" may be left \
    out.";
