//! The planner of Weft: which update travels when, through which box, and in which order a server
//! commits.
//!
//! Pure: a [`case::Case`] in, a [`plan::Plan`] out. No clock, no randomness, no I/O; the same case
//! gives the same bytes (I10). Feature `json` reads cases, for programs that do: a reader links
//! `std`.
//!
//! | step | where | question |
//! | --- | --- | --- |
//! | 1 | [`spec`] | what does the JSON say |
//! | 2 | [`case`] | does it make sense; names become indices |
//! | 3 | [`net`] | what is left of every link, and when |
//! | 4 | [`policy`] | who goes when: order, groups, copies |
//! | 5 | [`plan`] | the answer, and its JSON |
//!
//! The controller that gathers requests, asks a policy and grants its plan is
//! `weft-controller-engine`.
//!
//! The algorithms are MLfabric's ("Network-accelerated Distributed Machine Learning for
//! Multi-Tenant Settings", SoCC'20) as far as they are public; what had to be settled here is an
//! option of [`case::Options`] marked *derived*.

#![no_std]
#![forbid(unsafe_code)]

#[macro_use]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod case;
pub mod float;
#[cfg(feature = "json")]
mod json;
pub mod net;
pub mod optimum;
pub mod plan;
pub mod policy;
pub mod sample;
pub mod spec;
