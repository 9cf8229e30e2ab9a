//! PROTOCOL.md rules 1 to 4, 6 and 13 as small models that are searched exhaustively.
//!
//! Four models, each with the rules as its code and each wrong variant as one named deviation:
//!
//! - [`allreduce`]: tags, banks, the successor rule, retention, RESYNC with hand-over (rules 1 to
//!   3);
//! - [`commit`]: the server's dedup, staging and atomic commit (rule 4);
//! - [`identity`]: lives, cookies, epochs and generations (rule 6);
//! - [`keys`]: rows that move, and the directory that is learnt again (rule 13).
//!
//! They share no code with the engine: they say what is right, the engine's own tests say that it
//! does that. [`search`] visits all states; [`network`] is the network that every model has.

pub mod allreduce;
pub mod commit;
pub mod identity;
pub mod keys;
pub mod network;
pub mod search;
