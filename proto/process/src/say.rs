//! Lines for people. Whoever read them may have gone: that ends nothing, for what a program does
//! matters more than who hears of it.

use std::borrow::Cow;
use std::error::Error;
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

/// An error with what it comes of, in one line. What a message says of its source already is not
/// said again.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut last = text.clone();
    let mut next = error.source();
    while let Some(source) = next {
        let said = source.to_string();
        if !last.contains(&said) {
            text = format!("{text}: {said}");
        }
        (last, next) = (said, source.source());
    }
    text
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

    #[derive(Debug)]
    struct Link(&'static str, Option<Box<Self>>);

    impl fmt::Display for Link {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|source| source as _)
        }
    }

    #[test]
    fn what_an_error_comes_of_is_said_once() {
        let of = |texts: &[&'static str]| {
            let links = texts
                .iter()
                .rev()
                .fold(None, |source, text| Some(Link(text, source.map(Box::new))));
            chain(&links.expect("there are some"))
        };
        assert_eq!(of(&["it failed", "no folder", "no space"]), "it failed: no folder: no space");
        assert_eq!(of(&["cannot write x: no space", "no space"]), "cannot write x: no space");
        assert_eq!(
            of(&["worker 1", "cannot write x: no space", "no space"]),
            "worker 1: cannot write x: no space"
        );
    }
}
