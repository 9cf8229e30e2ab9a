//! A policy turns a case into a plan; this file is the list of those built in.
//!
//! A new policy is one file with a type that implements [`Policy`] and one line in `BUILT_IN`.
//!
//! Invariant: a name only finds a policy. What a controller or a server does otherwise under one
//! policy than under another is a method of [`Policy`].

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::ops::Deref;

use thiserror::Error;
use weft_control::ConductMode;

use crate::case::Case;
use crate::plan::Plan;

pub mod aggregate;
pub mod baseline;
pub mod mlfabric;
pub mod order;
pub mod outside;
pub mod replicate;

/// Turns a planning problem into a plan. Pure: the same case gives the same plan.
pub trait Policy: Send + Sync {
    /// Its name on command lines and in reports.
    fn name(&self) -> &str;

    /// Whether planning waits for anything but the processor.
    fn may_wait(&self) -> bool {
        false
    }

    /// Whom a server lets send. Under [`ConductMode::Fair`] the network shares itself: requests are
    /// not gathered, grants have no ceilings, and the server commits what is there.
    fn conduct(&self) -> ConductMode {
        ConductMode::InOrder
    }

    /// Whether it plans for what comes next too: the controller then leaves order numbers free for
    /// those who ask later, and keeps a loop's link busy.
    fn looks_ahead(&self) -> bool {
        false
    }

    /// Plans.
    ///
    /// # Errors
    /// [`PolicyError`] when there is no answer that obeys the case.
    fn plan(&self, case: &Case) -> Result<Plan, PolicyError>;
}

/// Why a policy gave no plan.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// The case lacks what this policy needs.
    #[error("policy {policy} cannot plan this case: {reason}")]
    Unsuitable {
        /// Which.
        policy: String,
        /// What is missing, and what to do.
        reason: String,
    },
    /// An outside policy's answer was refused.
    #[error("policy {policy} answered a plan that cannot be used: {reason}")]
    BadAnswer {
        /// Which.
        policy: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An outside policy did not answer.
    #[error("policy {policy} gave no answer: {reason}")]
    NoAnswer {
        /// Which.
        policy: String,
        /// Why.
        reason: String,
    },
}

/// A policy that somebody holds: one of the list, or one of its own.
#[derive(Clone)]
pub enum AnyPolicy {
    /// Of the list.
    BuiltIn(&'static dyn Policy),
    /// Made for its holder.
    Own(Arc<dyn Policy>),
}

impl Deref for AnyPolicy {
    type Target = dyn Policy;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::BuiltIn(policy) => *policy,
            Self::Own(policy) => &**policy,
        }
    }
}

impl fmt::Debug for AnyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Built-in policies; the first is the default.
const BUILT_IN: &[&dyn Policy] = &[
    &mlfabric::Mlfabric,
    &baseline::Fifo,
    &baseline::Fair,
    &baseline::NewestFirst,
    &baseline::ServerBuffering,
    &baseline::Tree,
    &baseline::Ring,
    &baseline::BackupWorkers,
    &baseline::Chain,
];

/// The policy of those who name none, and in place of one that fails.
#[must_use]
pub const fn default() -> &'static dyn Policy {
    BUILT_IN[0]
}

/// The policy of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Policy> {
    BUILT_IN.iter().copied().find(|p| p.name() == name)
}

/// Names of all built-in policies; the first is the default.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|p| p.name())
}

/// The example of docs/policies.md, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/policies.md")]
struct PoliciesGuide;
