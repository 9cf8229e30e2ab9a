//! Reads tables of comma-separated values by the names of their columns.
//!
//! Invariant: what cannot be used is one line that names the file, its line and the column. Fields
//! in quotation marks are refused: none of the public formats that are read has any.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

use crate::job::NS_PER_S;

/// Why a text cannot be used.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{file}:{line}: {field}: {problem}")]
pub struct TextError {
    /// The name of the text, mostly of a file.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
    /// The column, or what else it is about.
    pub field: String,
    /// What is wrong, and what it has to be.
    pub problem: String,
}

/// A table with a header.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    file: &'a str,
    header: Vec<&'a str>,
    header_line: usize,
    text: &'a str,
}

/// A column of a table, by its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Column<'a> {
    name: &'a str,
    index: usize,
}

/// A row of a table.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    file: &'a str,
    line: usize,
    fields: Vec<&'a str>,
}

impl<'a> Table<'a> {
    /// Takes the first line that is neither empty nor a remark (`#`) for the header.
    ///
    /// # Errors
    /// [`TextError`] if there is none, or two columns have one name.
    pub fn new(file: &'a str, text: &'a str) -> Result<Self, TextError> {
        let text = without_mark(text);
        let header = lines(text).next();
        let Some((header_line, header)) = header else {
            let [field, problem] = ["header", "the file is empty: its first line names columns"];
            return Err(error(file, 1, field, problem));
        };
        let header = split(header);
        for (index, name) in header.iter().enumerate() {
            let problem = match () {
                () if name.contains('"') => QUOTED,
                () if !plain(name).is_empty() && position(&header[..index], name).is_some() => {
                    "there are two columns of that name"
                }
                () => continue,
            };
            return Err(error(file, header_line, name.trim_matches('"'), problem));
        }
        Ok(Self { file, header, header_line, text })
    }

    /// Whether there is a column of that name, as [`plain`] has it.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        position(&self.header, name).is_some()
    }

    /// The column of that name, or else of the other that publications give it.
    ///
    /// # Errors
    /// [`TextError`] if there is neither.
    pub fn either<'n>(&self, name: &'n str, other: &'n str) -> Result<Column<'n>, TextError> {
        self.column(if self.has(name) || !self.has(other) { name } else { other })
    }

    /// The column of that name, as [`plain`] has it.
    ///
    /// # Errors
    /// [`TextError`] if there is none.
    pub fn column<'n>(&self, name: &'n str) -> Result<Column<'n>, TextError> {
        let index = position(&self.header, name);
        let missing = || {
            let problem = format!("there is no such column, but {}", self.header.join(", "));
            error(self.file, self.header_line, name, &problem)
        };
        Ok(Column { name, index: index.ok_or_else(missing)? })
    }

    /// All rows, in order. A row with fewer or more fields than the header is an error.
    pub fn rows(&self) -> impl Iterator<Item = Result<Row<'a>, TextError>> {
        let (file, header) = (self.file, &self.header);
        let count = header.len();
        lines(self.text).skip(1).map(move |(line, text)| {
            let fields = split(text);
            if text.contains('"') {
                let quoted = fields.iter().position(|field| field.contains('"'));
                let name = quoted.and_then(|index| header.get(index));
                return Err(error(file, line, name.unwrap_or(&"row"), QUOTED));
            }
            if fields.len() == count {
                return Ok(Row { file, line, fields });
            }
            let problem = format!("{} fields, where the header has {count}", fields.len());
            Err(error(file, line, "row", &problem))
        })
    }
}

impl<'a> Row<'a> {
    /// The text of a field.
    #[must_use]
    pub fn text(&self, column: Column<'_>) -> &'a str {
        self.fields[column.index]
    }

    /// A field as a number that is finite and at least 0.
    ///
    /// # Errors
    /// [`TextError`] if it is none.
    pub fn number(&self, column: Column<'_>) -> Result<f64, TextError> {
        let text = self.text(column);
        let number = text.parse::<f64>().ok();
        let usable = number.filter(|number| number.is_finite() && *number >= 0.0);
        usable.ok_or_else(|| self.wrong(column, &format!("{text:?} is not a number of at least 0")))
    }

    /// A field as a whole number from `least` on; a whole number with a decimal point will do.
    ///
    /// # Errors
    /// [`TextError`] if it is none.
    pub fn whole(&self, column: Column<'_>, least: u32) -> Result<u32, TextError> {
        let number = self.number(column)?;
        let is_whole = number == weft_plan::float::floor(number);
        let fits = number >= f64::from(least) && number <= f64::from(u32::MAX);
        if !(is_whole && fits) {
            let text = self.text(column);
            let problem = format!("{text:?} is not a whole number of at least {least}");
            return Err(self.wrong(column, &problem));
        }
        #[expect(clippy::cast_possible_truncation, reason = "whole, and within the type")]
        #[expect(clippy::cast_sign_loss, reason = "at least 0")]
        Ok(number as u32)
    }

    /// A field of seconds, in nanoseconds; a fraction will do.
    ///
    /// # Errors
    /// [`TextError`] if it is no number, negative, or longer than a century.
    pub fn seconds_ns(&self, column: Column<'_>) -> Result<u64, TextError> {
        seconds_ns(self.text(column)).map_err(|problem| self.wrong(column, &problem))
    }

    /// The same of how long a job takes, which is some time.
    ///
    /// # Errors
    /// As those of [`Row::seconds_ns`], and 0.
    pub fn duration_ns(&self, column: Column<'_>) -> Result<u64, TextError> {
        match self.seconds_ns(column)? {
            0 => Err(self.wrong(column, "is 0; a job takes time")),
            duration_ns => Ok(duration_ns),
        }
    }

    /// The line that it is in its text.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }

    /// That a field cannot be used.
    #[must_use]
    pub fn wrong(&self, column: Column<'_>, problem: &str) -> TextError {
        error(self.file, self.line, column.name, problem)
    }
}

/// A text of seconds, in nanoseconds; a fraction will do.
///
/// # Errors
/// What is wrong with it.
pub fn seconds_ns(text: &str) -> Result<u64, String> {
    // Whole seconds, the usual case, keep clear of floats.
    if let Ok(seconds) = text.parse::<u64>()
        && seconds <= SECONDS_MAX
    {
        return Ok(seconds * NS_PER_S);
    }
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_nan() => Err(format!("{text:?} is not a number")),
        Ok(seconds) if seconds < 0.0 => Err(format!("{text:?} is negative")),
        Ok(seconds) if seconds <= SECONDS_MAX as f64 => Ok(ns_of(seconds)),
        Ok(_) => Err(format!("{text:?} is longer than a century")),
        Err(_) => Err(format!("{text:?} is not a number of seconds")),
    }
}

/// Seconds in nanoseconds, rounded; what is negative or no number counts as 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats clamp"
)]
#[must_use]
pub fn ns_of(seconds: f64) -> u64 {
    weft_plan::float::floor(seconds * NS_PER_S as f64 + 0.5) as u64
}

/// The longest time that a file may name, in seconds: a century.
pub const SECONDS_MAX: u64 = 100 * 366 * 86_400;

impl TextError {
    /// That a field of a line cannot be used.
    #[must_use]
    pub fn new(file: &str, line: usize, field: &str, problem: &str) -> Self {
        error(file, line, field, problem)
    }
}

fn error(file: &str, line: usize, field: &str, problem: &str) -> TextError {
    TextError { file: file.to_owned(), line, field: field.to_owned(), problem: problem.to_owned() }
}

/// A name as it is compared with others: its letters and digits, in small letters.
#[must_use]
pub fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn position(header: &[&str], name: &str) -> Option<usize> {
    header.iter().position(|column| plain(column) == plain(name))
}

/// Lines that say something, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

const QUOTED: &str = "has a quotation mark; write fields without, and without commas in them";

/// A text without the byte-order mark that it may begin with.
#[must_use]
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The text of a file's bytes.
///
/// # Errors
/// [`TextError`] names the line on which they are no UTF-8.
pub fn utf8<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, TextError> {
    core::str::from_utf8(bytes).map_err(|problem| {
        let lines = bytes[..problem.valid_up_to()].split(|byte| *byte == b'\n').count();
        error(file, lines, "text", "is not UTF-8 here; save the file as UTF-8")
    })
}

fn split(line: &str) -> Vec<&str> {
    line.split(',').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn columns_are_found_by_name_and_remarks_left_out() {
        let table = Table::new("t.csv", "# remark\n\nb,a\n1, 2\n\n3,4.0\n").expect("a table");
        let [a, b] = ["a", "b"].map(|name| table.column(name).expect("a column"));
        let rows: Vec<_> = table.rows().map(|row| row.expect("a row")).collect();
        assert_eq!([rows[0].text(a), rows[0].text(b)], ["2", "1"]);
        assert_eq!(rows[1].whole(a, 1), Ok(4));
        let table = Table::new("t.csv", "Num_GPU,iteration\n1,2\n").expect("a table");
        assert!(table.has("num-gpu") && !table.has("gpu"));
        assert_eq!(table.either("iterations", "iteration").map(|c| c.index), Ok(1));
        let missing = table.either("batch", "batch_size").expect_err("neither").to_string();
        assert_eq!(missing, "t.csv:1: batch: there is no such column, but Num_GPU, iteration");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_column() {
        let table = Table::new("t.csv", "\u{feff}a,b\n1,2\n").expect("a table");
        assert!(table.has("a"));
    }

    #[test]
    fn quotes_double_names_and_other_encodings_are_refused_by_line_and_field() {
        let said = |text: &str| {
            let table = Table::new("t.csv", text)?;
            table.rows().try_for_each(|row| row.map(|_| ()))
        };
        for (text, start) in [
            ("a,b\n1,2\n1,\"2\"\n", "t.csv:3: b: has a quotation mark"),
            ("a,b\n\"x,y\",2\n", "t.csv:2: a: has a quotation mark"),
            ("a,\"b\"\n1,2\n", "t.csv:1: b: has a quotation mark"),
            ("a,b,a\n1,2,3\n", "t.csv:1: a: there are two columns of that name"),
            ("num_gpu,Num GPU\n1,2\n", "t.csv:1: Num GPU: there are two columns of that name"),
        ] {
            let error = said(text).expect_err(text).to_string();
            assert!(error.starts_with(start), "{error}");
        }
        let error = utf8("t.csv", b"a,b\n1,2\nx,\xff\n").expect_err("no UTF-8").to_string();
        assert!(error.starts_with("t.csv:3: text: is not UTF-8"), "{error}");
        assert_eq!(utf8("t.csv", b"a,b\n"), Ok("a,b\n"));
    }

    #[test]
    fn what_cannot_be_used_names_file_line_and_column() {
        let said = |text: &str| {
            let table = Table::new("t.csv", text).map_err(|e| e.to_string())?;
            let column = table.column("n").map_err(|e| e.to_string())?;
            let rows = table.rows().map(|row| row?.whole(column, 1));
            rows.collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())
        };
        let refused = |text: &str| said(text).expect_err("unusable");
        assert!(refused("\n# x\n").starts_with("t.csv:1: header: the file is empty"));
        assert_eq!(refused("\nm,o\n"), "t.csv:2: n: there is no such column, but m, o");
        assert_eq!(refused("m,n\n1,1\n2\n"), "t.csv:3: row: 1 fields, where the header has 2");
        for bad in ["NaN", "-1", "x", "inf", ""] {
            let problem = format!("t.csv:2: n: {bad:?} is not a number of at least 0");
            assert_eq!(refused(&format!("m,n\n1,{bad}\n")), problem);
        }
        assert!(refused("n\n0\n").ends_with("is not a whole number of at least 1"));
        assert!(refused("n\n1.5\n").ends_with("is not a whole number of at least 1"));
        assert_eq!(said("n\n7\n"), Ok(vec![7]));
    }
}
