//! Why a planning problem is refused.

use alloc::string::String;

use thiserror::Error;

/// A planning problem that makes no sense. The message starts with the path of the field.
#[derive(Debug, Error)]
pub enum CaseError {
    /// Not JSON, or not of the format.
    #[error("{field}: {problem}")]
    Json {
        /// Path of the field.
        field: String,
        /// What the reader says.
        problem: String,
    },
    /// A name that nothing has.
    #[error("{field}: there is no {kind} `{name}`; {remedy}")]
    Unknown {
        /// Path of the field.
        field: String,
        /// Host, rack or server.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A name that two things have.
    #[error("{field}: {kind} `{name}` is given twice; names are unique")]
    Duplicate {
        /// Path of the second.
        field: String,
        /// Server, update or aggregator.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A value outside of what makes sense.
    #[error("{field}: is {value}; {expected}")]
    Value {
        /// Path of the field.
        field: String,
        /// What it is.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// A field that this case needs.
    #[error("{field}: is missing; {why}")]
    Missing {
        /// Path of the field.
        field: String,
        /// Who asks for it.
        why: String,
    },
}
