//! Lines for people. Whoever read them may have gone: that ends nothing, for what a program does
//! matters more than who hears of it.

use std::borrow::Cow;
use std::error::Error;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use std::{env, fmt};

/// Writes a line to standard error, if somebody reads it. What [`say!`](crate::say!) calls.
pub fn line(text: fmt::Arguments<'_>) {
    let text = text.to_string();
    // One line of JSON is a script's, which knows when it read it.
    if IS_STAMPED.load(Ordering::Relaxed) && !text.starts_with('{') {
        bare(format_args!("{} {text}", now()));
    } else {
        bare(format_args!("{text}"));
    }
}

/// The same without a time, whatever daemon it is: scripts wait for some lines.
pub fn bare(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{}", plain(&text.to_string()));
}

/// Begins each further line with the time, as in a daemon. Not where the journal takes the lines
/// (`JOURNAL_STREAM`): it has a time for each.
pub fn stamp_lines() {
    IS_STAMPED.store(env::var_os("JOURNAL_STREAM").is_none(), Ordering::Relaxed);
}

static IS_STAMPED: AtomicBool = AtomicBool::new(false);

#[expect(clippy::disallowed_methods, reason = "people compare logs by the time of day")]
fn now() -> String {
    utc(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// A time since the epoch by RFC 3339, in UTC to the millisecond.
fn utc(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that a leap day is the last of its year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year + u64::from(month < 3);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60,
        since_epoch.subsec_millis()
    )
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

    #[test]
    fn times_are_those_of_the_calendar() {
        let of = |seconds: u64, ms: u64| utc(Duration::from_millis(seconds * 1000 + ms));
        assert_eq!(of(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(of(951_782_399, 7), "2000-02-28T23:59:59.007Z");
        assert_eq!(of(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(of(951_868_800, 0), "2000-03-01T00:00:00.000Z");
        assert_eq!(of(1_767_225_599, 999), "2025-12-31T23:59:59.999Z");
        assert_eq!(of(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
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
