//! Rows that are written as they come, so that what ends a bench early takes no row with it.

use anyhow::anyhow;
use serde::Serialize;

use super::{Exit, Failure, Format, emit};

/// A table on standard output.
#[derive(Debug)]
pub(crate) struct Rows {
    format: Format,
    count: usize,
}

impl Rows {
    /// Begins a table; `header` stands above the rows of a text.
    pub(crate) fn begin(format: Format, header: &str) -> Result<Self, Failure> {
        emit(match format {
            Format::Text => header,
            Format::Json => "[",
            Format::Csv => "",
        })?;
        Ok(Self { format, count: 0 })
    }

    /// Writes a row.
    pub(crate) fn row<T: Serialize>(
        &mut self,
        row: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        let is_first = self.count == 0;
        self.count += 1;
        match self.format {
            Format::Text => emit(&text(row)),
            Format::Json => {
                let object = serde_json::to_string_pretty(row)
                    .map_err(|error| Exit::Failed.because(error))?;
                let separator = if is_first { "\n  " } else { ",\n  " };
                emit(&format!("{separator}{}", object.replace('\n', "\n  ")))
            }
            Format::Csv => {
                let mut writer =
                    csv::WriterBuilder::new().has_headers(is_first).from_writer(Vec::new());
                writer.serialize(row).map_err(|error| Exit::Failed.because(error))?;
                let bytes = writer
                    .into_inner()
                    .map_err(|error| Exit::Failed.because(anyhow!("{error}")))?;
                emit(&String::from_utf8_lossy(&bytes))
            }
        }
    }

    /// Ends the table.
    pub(crate) fn end(self) -> Result<(), Failure> {
        match self.format {
            Format::Json => emit(if self.count == 0 { "]\n" } else { "\n]\n" }),
            Format::Text | Format::Csv => Ok(()),
        }
    }
}

/// What was measured, or a dash.
pub(crate) fn or_dash<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

/// What stands behind a row that could not be measured: the reason, in the one line.
pub(crate) fn reason(failure: Option<&String>) -> String {
    failure.map_or_else(String::new, |failure| {
        format!(" FAILED: {}", failure.split_whitespace().collect::<Vec<_>>().join(" "))
    })
}
