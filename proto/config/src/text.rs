//! Finds where in the file a problem is: from a path such as `row[0].window` to a line, and from a
//! span that the TOML parser reports to a path.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::ConfigError;
use super::resolve::{Problem, Step};

/// A configuration text with its parsed structure, for error messages.
pub(super) struct Source<'a> {
    path: &'a str,
    text: &'a str,
    root: DeTable<'a>,
}

impl<'a> Source<'a> {
    pub(super) fn new(path: &'a str, text: &'a str) -> Result<Self, ConfigError> {
        match DeTable::parse(text) {
            Ok(root) => Ok(Self { path, text, root: root.into_inner() }),
            Err(error) => Err(ConfigError::Invalid {
                path: path.to_owned(),
                line: line_at(text, error.span().map_or(0, |span| span.start)),
                field: String::new(),
                problem: one_line(error.message()),
            }),
        }
    }

    /// An error of serde: unknown key, missing key, wrong type, bad value.
    pub(super) fn refuse_shape(&self, error: &toml::de::Error) -> ConfigError {
        let span = error.span().unwrap_or(0..0);
        ConfigError::Invalid {
            path: self.path.to_owned(),
            line: line_at(self.text, span.start),
            field: render(&path_to(&self.root, &span)),
            problem: one_line(error.message()),
        }
    }

    /// A problem of meaning. A key that is not in the file is placed at its section.
    pub(super) fn refuse(&self, problem: &Problem) -> ConfigError {
        ConfigError::Invalid {
            path: self.path.to_owned(),
            line: line_at(self.text, offset_of(&self.root, &problem.path)),
            field: render(&problem.path),
            problem: problem.problem.clone(),
        }
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

fn one_line(message: &str) -> String {
    message.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

fn render(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => {
                text.push('.');
                text.push_str(key);
            }
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

/// Start of the deepest part of `path` that the file has.
fn offset_of(root: &DeTable<'_>, path: &[Step]) -> usize {
    let mut offset = 0;
    let mut table = Some(root);
    let mut array = None;
    for step in path {
        let value = match step {
            Step::Key(key) => {
                let entry = table.and_then(|table| table.iter().find(|(k, _)| k.get_ref() == key));
                let Some((key, value)) = entry else { return offset };
                offset = key.span().start;
                value
            }
            Step::Index(index) => {
                let value = array.and_then(|array: &toml::de::DeArray<'_>| array.get(*index));
                let Some(value) = value else { return offset };
                offset = value.span().start;
                value
            }
        };
        table = value.get_ref().as_table();
        array = value.get_ref().as_array();
    }
    offset
}

/// Path of the deepest key or value that covers `span`.
fn path_to(root: &DeTable<'_>, span: &Range<usize>) -> Vec<Step> {
    let mut path = Vec::new();
    descend_table(root, span, &mut path);
    path
}

fn descend_table(table: &DeTable<'_>, span: &Range<usize>, path: &mut Vec<Step>) -> bool {
    for (key, value) in table {
        path.push(Step::Key(key.get_ref().to_string()));
        if covers(&key.span(), span) || descend(value, span, path) {
            return true;
        }
        path.pop();
    }
    false
}

/// True when the path now ends at `span`. The values of a table may lie outside of its own span
/// (`[a.b]` after `[a]`), so these are searched first.
fn descend(value: &toml::Spanned<DeValue<'_>>, span: &Range<usize>, path: &mut Vec<Step>) -> bool {
    let inside = match value.get_ref() {
        DeValue::Table(table) => descend_table(table, span, path),
        DeValue::Array(array) => array.iter().enumerate().any(|(index, value)| {
            path.push(Step::Index(index));
            let found = descend(value, span, path);
            if !found {
                path.pop();
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
