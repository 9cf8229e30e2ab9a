//! Lines for people. Whoever read them may have gone: that ends nothing, for what a program does
//! matters more than who hears of it.

use std::fmt;
use std::io::{self, Write as _};

/// Writes a line to standard error, if somebody reads it. What [`say!`](crate::say!) calls.
pub fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes a text to standard output, if somebody reads it.
pub fn out(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// `eprintln!` that does not panic when nobody reads.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::say::line(format_args!($($argument)*)) };
}
