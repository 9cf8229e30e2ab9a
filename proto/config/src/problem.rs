//! What is wrong with a value, before anybody looks where in a text it stands.

use alloc::format;
use alloc::string::String;

/// What is wrong with a value, and which.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Problem {
    /// Its path in the file, such as `row[0].window`.
    pub field: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl Problem {
    /// Of the value at a path.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    /// Of a key in one of several sections of a name.
    pub fn of_entry(section: &str, index: usize, key: &str, problem: impl Into<String>) -> Self {
        Self::new(format!("{section}[{index}].{key}"), problem)
    }
}
