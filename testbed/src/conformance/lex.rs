//! Words of a line, with their columns.

use thiserror::Error;

/// A script makes no sense.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{file}:{line}:{column}: {problem}")]
pub struct ScriptError {
    /// The script.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
    /// The column of the word, from 1.
    pub column: usize,
    /// What is wrong with it.
    pub problem: String,
}

/// The words of one line that were not taken yet.
#[derive(Clone, Debug)]
pub(super) struct Words<'a> {
    file: &'a str,
    pub(super) line: usize,
    words: Vec<(usize, &'a str)>,
    at: usize,
    end: usize,
}

pub(super) type Read<T> = Result<T, ScriptError>;

impl<'a> Words<'a> {
    /// Takes a line apart; what follows a `#` says nothing.
    pub(super) fn new(file: &'a str, line: usize, text: &'a str) -> Self {
        let text = text.split('#').next().unwrap_or_default();
        let column = |word: &str| word.as_ptr().addr() - text.as_ptr().addr() + 1;
        let words = text.split_whitespace().map(|word| (column(word), word)).collect();
        Self { file, line, words, at: 0, end: text.trim_end().len() + 1 }
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(|(_, word)| *word)
    }

    pub(super) fn next(&mut self, what: &str) -> Read<&'a str> {
        let word = self.peek().ok_or_else(|| self.bad(format!("{what} is missing")))?;
        self.at += 1;
        Ok(word)
    }

    /// Takes the next word if it is this one.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let is_it = self.peek() == Some(word);
        self.at += usize::from(is_it);
        is_it
    }

    pub(super) fn number<T: TryFrom<i64>>(&mut self, what: &str) -> Read<T> {
        let word = self.next(what)?;
        number(word).ok_or_else(|| self.bad_last(format!("{word} is no {what}")))
    }

    /// As many numbers as follow.
    pub(super) fn numbers<T: TryFrom<i64>>(&mut self, what: &str) -> Read<Vec<T>> {
        let mut all = Vec::new();
        while self.peek().is_some_and(|word| number::<i64>(word).is_some()) {
            all.push(self.number(what)?);
        }
        Ok(all)
    }

    /// That nothing follows.
    pub(super) fn finish(&self) -> Read<()> {
        match self.peek() {
            None => Ok(()),
            Some(word) => Err(self.bad(format!("{word} is not known here"))),
        }
    }

    /// The next word is wrong.
    pub(super) fn bad(&self, problem: impl Into<String>) -> ScriptError {
        let column = self.words.get(self.at).map_or(self.end, |(column, _)| *column);
        self.error(column, problem)
    }

    /// The word that was taken last is wrong.
    pub(super) fn bad_last(&self, problem: impl Into<String>) -> ScriptError {
        let last = self.at.checked_sub(1).and_then(|at| self.words.get(at));
        self.error(last.map_or(1, |(column, _)| *column), problem)
    }

    fn error(&self, column: usize, problem: impl Into<String>) -> ScriptError {
        let (file, problem) = (self.file.to_owned(), problem.into());
        ScriptError { file, line: self.line, column, problem }
    }
}

/// A decimal or hexadecimal number.
pub(super) fn number<T: TryFrom<i64>>(word: &str) -> Option<T> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, word),
    };
    let value = match digits.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok()?,
        None if digits.starts_with(|first: char| first.is_ascii_digit()) => digits.parse().ok()?,
        None => return None,
    };
    T::try_from(sign * value).ok()
}
