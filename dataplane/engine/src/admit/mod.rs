//! Whom a box lets in: who pays for a frame, and what a stranger is told.
//!
//! | file | decides |
//! | --- | --- |
//! | `addresses.rs` | which number an address of the table has |
//! | `expected.rs` | what a peer's ordinary contributions begin with |
//! | `quota.rs` | what a frame costs, and whose token bucket it is taken from |
//! | `refuse.rs` | what a HELLO of a job or row that the box does not serve is answered |

pub(crate) mod addresses;
pub(crate) mod expected;
pub(crate) mod quota;
pub(crate) mod refuse;

pub use quota::{QuotaError, StrangersQuota};
