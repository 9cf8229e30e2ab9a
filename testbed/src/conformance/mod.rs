//! Conformance: scenarios as scripts, given to whatever aggregates.
//!
//! A script (`docs/conformance.md`) says which frames whom a box hears from, and which it has to
//! answer to whom. A [`Target`] is such a box: the Rust engine, or the P4 program. Scripts do a
//! real handshake, so epochs, cookies and generations are what the target chose.
//!
//! | file | decides |
//! | --- | --- |
//! | `lex.rs`, `parse.rs`, `fields.rs`, `script.rs` | what a script says, and where it makes no sense |
//! | `play.rs` and below | what each line does, in virtual time |
//! | `member.rs`, `ends.rs` | what members of a lease, and workers and servers of a push job, know |
//! | `frame.rs`, `expect.rs` | the frame that a line sends; how one that came differs from its line |
//! | `target.rs` and below | the boxes |
//! | `cells.rs` | the scripts made from `proto/vectors/slot.toml` |

pub mod cells;
mod ends;
mod expect;
mod fields;
mod frame;
mod lex;
mod member;
mod parse;
mod play;
mod script;
pub mod target;

pub use lex::ScriptError;
pub use parse::parse;
pub use play::{Difference, Ended, observe, observe_on, play};
pub use script::Script;
pub use target::Target;
