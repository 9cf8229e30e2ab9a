//! Reads planning problems from JSON (feature `json`).

use alloc::borrow::ToOwned;
use alloc::string::ToString;

use crate::case::{Case, CaseError};
use crate::spec::CaseSpec;

impl Case {
    /// Reads a problem from JSON and checks it.
    ///
    /// # Errors
    /// [`CaseError`] names the field.
    pub fn from_json(text: &str) -> Result<Self, CaseError> {
        Self::new(&CaseSpec::from_json(text)?)
    }
}

impl CaseSpec {
    /// Reads a problem from JSON without checking it.
    ///
    /// # Errors
    /// [`CaseError::Json`] names the field that is missing, unknown or of the wrong type.
    pub fn from_json(text: &str) -> Result<Self, CaseError> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let spec = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            CaseError::Json { field: error.path().to_string(), problem: error.inner().to_string() }
        })?;
        reader.end().map_err(|error| CaseError::Json {
            field: "after the case".to_owned(),
            problem: error.to_string(),
        })?;
        Ok(spec)
    }
}
