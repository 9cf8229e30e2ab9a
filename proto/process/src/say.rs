//! Lines for people. Whoever read them may have gone: that ends nothing, for what a program does
//! matters more than who hears of it.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write as _};

/// Writes a line to standard error, if somebody reads it. What [`say!`](crate::say!) calls.
pub fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{}", plain(&text.to_string()));
}

/// Writes a text to standard output, if somebody reads it.
pub fn out(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(plain(text).as_bytes()).and_then(|()| stdout.flush());
}

/// A text without what would have a terminal do something: names and reasons may be a stranger's.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    let is_odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_odd) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(is_odd, "\u{fffd}"))
}

/// `eprintln!` that does not panic when nobody reads.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::say::line(format_args!($($argument)*)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_would_obey_is_shown() {
        assert_eq!(plain("a\tb\nc \u{e9}"), "a\tb\nc \u{e9}");
        let hostile = plain("x\u{1b}]0;title\u{7}y\u{9b}2Jz\r");
        assert_eq!(hostile, "x\u{fffd}]0;title\u{fffd}y\u{fffd}2Jz\u{fffd}");
    }
}
