//! Finds where in a text a problem is: from a path such as `row[0].window` to a line, and from a
//! span that the TOML parser reports to a path.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::Problem;

/// The text of a configuration file, with its name in errors.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    name: String,
    text: String,
}

/// Why a configuration was refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{file}:{line}: {field}{}{problem}", if .field.is_empty() { "" } else { ": " })]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// Line of the offending key, from 1.
    pub line: usize,
    /// The offending key as `section.key` or `row[0].key`; empty for bad TOML.
    pub field: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

/// The configuration as a file, every default filled in.
///
/// # Panics
/// For a map whose keys are no strings, which no configuration has.
#[must_use]
pub fn to_toml(config: &impl Serialize) -> String {
    toml::to_string(config).expect("every section is a table, every key a string")
}

/// A section of what it must say; all else is by default. Panics on a value that no file could
/// have, which is a mistake of the caller.
macro_rules! section {
    ($($key:ident),+) => {{
        let mut table = toml::Table::new();
        $(
            let value = toml::Value::try_from($key).expect("keys have plain values");
            table.insert(stringify!($key).into(), value);
        )+
        table.try_into().expect("these are the keys without a default")
    }};
}
impl ConfigFile {
    /// A file's text, and what errors call it.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// Reads its shape.
    ///
    /// # Errors
    /// Bad TOML, an unknown or a missing key, a wrong type, a bad value.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        toml::from_str(&self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let field = DeTable::parse(&self.text).map(|root| path_to(root.get_ref(), &span));
            self.error(span.start, field.unwrap_or_default(), one_line(error.message()))
        })
    }

    /// The error for a value that makes no sense. A key that is not in the file is placed at its
    /// section.
    #[must_use]
    pub fn refuse(&self, problem: &Problem) -> ConfigError {
        let root = DeTable::parse(&self.text);
        let offset = root.map_or(0, |root| offset_of(root.get_ref(), &problem.field));
        self.error(offset, problem.field.clone(), problem.problem.clone())
    }

    fn error(&self, offset: usize, field: String, problem: String) -> ConfigError {
        let before = self.text.bytes().take(offset);
        let line = 1 + before.filter(|byte| *byte == b'\n').count();
        ConfigError { file: self.name.clone(), line, field, problem }
    }
}

/// A message of the TOML reader in one line, without the words of Rust.
fn one_line(message: &str) -> String {
    let line = message.lines().map(str::trim).collect::<Vec<_>>().join("; ");
    for (name, range) in INTEGERS {
        if let Some(start) = line.strip_suffix(name) {
            return format!("{start}expected an integer {range}");
        }
    }
    line
}

/// How a message ends that expected an integer, and what its reader needs to know.
const INTEGERS: [(&str, &str); 6] = [
    ("expected u8", "from 0 to 255"),
    ("expected u16", "from 0 to 65535"),
    ("expected u32", "from 0 to 4294967295"),
    ("expected u64", "from 0 up"),
    ("expected usize", "from 0 up"),
    ("expected i8", "from -128 to 127"),
];

/// Start of the deepest part of a path that the file has.
fn offset_of(root: &DeTable<'_>, field: &str) -> usize {
    let mut offset = 0;
    let mut table = Some(root);
    let mut array: Option<&DeArray<'_>> = None;
    for step in field.split(['.', '[']) {
        let index = step.strip_suffix(']').and_then(|index| index.parse::<usize>().ok());
        let value = match index {
            Some(index) => {
                let Some(value) = array.and_then(|array| array.get(index)) else { return offset };
                offset = value.span().start;
                value
            }
            None => {
                let entry = table.and_then(|table| table.iter().find(|(k, _)| k.get_ref() == step));
                let Some((key, value)) = entry else { return offset };
                offset = key.span().start;
                value
            }
        };
        table = value.get_ref().as_table();
        array = value.get_ref().as_array();
    }
    offset
}

/// Path of the deepest key or value that covers `span`.
fn path_to(root: &DeTable<'_>, span: &Range<usize>) -> String {
    let mut path = String::new();
    descend_table(root, span, &mut path);
    path
}

fn descend_table(table: &DeTable<'_>, span: &Range<usize>, path: &mut String) -> bool {
    let len = path.len();
    for (key, value) in table {
        if len > 0 {
            path.push('.');
        }
        path.push_str(key.get_ref());
        if covers(&key.span(), span) || descend(value, span, path) {
            return true;
        }
        path.truncate(len);
    }
    false
}

/// True when the path now ends at `span`. The values of a table may lie outside of its own span
/// (`[a.b]` after `[a]`), so these are searched first.
fn descend(value: &toml::Spanned<DeValue<'_>>, span: &Range<usize>, path: &mut String) -> bool {
    let len = path.len();
    let inside = match value.get_ref() {
        DeValue::Table(table) => descend_table(table, span, path),
        DeValue::Array(array) => array.iter().enumerate().any(|(index, value)| {
            path.push_str(&format!("[{index}]"));
            let found = descend(value, span, path);
            if !found {
                path.truncate(len);
            }
            found
        }),
        _ => false,
    };
    inside || covers(&value.span(), span)
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end && !inner.is_empty()
}

#[cfg(test)]
mod tests;
