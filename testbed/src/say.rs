//! Lines for people on standard error. Whoever read them may have gone: that ends nothing, for what
//! a command does matters more than who hears of it.

use std::fmt;
use std::io::Write as _;

/// Writes a line to standard error, if somebody reads it.
pub fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// `eprintln!` that does not panic when nobody reads.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::say::line(format_args!($($argument)*)) };
}
