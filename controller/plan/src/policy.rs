//! What all policies have in common, and the list of those that plan the network.
//!
//! A policy answers a question; a [`Subject`] says which kind of question and which kind of answer.
//! Here the subject is the [`Network`]: a case in, a plan out. The subject of `weft-jobs` is a
//! cluster's jobs. Each subject has one [`Registry`], in which names find policies.
//!
//! A new policy is one file with a type that implements [`Policy`] and one line in its subject's
//! registry, which is [`BUILT_IN`] here.
//!
//! Invariant: a name only finds a policy. What its surroundings do otherwise under one policy than
//! under another is its [`Policy::manner`].

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
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

/// What policies of one kind decide about.
pub trait Subject: 'static {
    /// What a policy is asked.
    type Question: ?Sized;
    /// What it answers.
    type Answer;
    /// What its surroundings do otherwise under it than under another.
    type Manner: Default;
}

/// Answers the questions of one subject. Pure: the same question gives the same answer.
pub trait Policy<S: Subject = Network>: Send + Sync {
    /// Its name on command lines and in reports.
    fn name(&self) -> &str;

    /// Whether its answer waits for anything but the processor.
    fn may_wait(&self) -> bool {
        false
    }

    /// What its surroundings do otherwise under it.
    fn manner(&self) -> S::Manner {
        S::Manner::default()
    }

    /// Ends an answer that waits: it fails at once, and so does every one after it.
    fn cancel(&self) {}

    /// Plans: answers the question.
    ///
    /// # Errors
    /// [`PolicyError`] when there is no answer that obeys the question.
    fn plan(&self, question: &S::Question) -> Result<S::Answer, PolicyError>;
}

/// Which updates travel when, through which boxes.
#[derive(Clone, Copy, Debug)]
pub enum Network {}

impl Subject for Network {
    type Question = Case;
    type Answer = Plan;
    type Manner = Manner;
}

/// What controllers and servers do otherwise under a policy of the network.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Manner {
    /// Whom a server lets send. Under [`ConductMode::Fair`] the network shares itself: requests are
    /// not gathered, grants have no ceilings, and the server commits what is there.
    pub conduct: ConductMode,
    /// Whether it plans for what comes next too: the controller then leaves order numbers free for
    /// those who ask later, and keeps a loop's link busy.
    pub looks_ahead: bool,
}

/// Why a policy gave no answer.
#[derive(Clone, Debug, Error)]
pub enum PolicyError {
    /// The question lacks what this policy needs.
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
pub enum AnyPolicy<S: Subject = Network> {
    /// Of the list.
    BuiltIn(&'static dyn Policy<S>),
    /// Made for its holder.
    Own(Arc<dyn Policy<S>>),
}

impl<S: Subject> Clone for AnyPolicy<S> {
    fn clone(&self) -> Self {
        match self {
            Self::BuiltIn(policy) => Self::BuiltIn(*policy),
            Self::Own(policy) => Self::Own(Arc::clone(policy)),
        }
    }
}

impl<S: Subject> Deref for AnyPolicy<S> {
    type Target = dyn Policy<S>;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::BuiltIn(policy) => *policy,
            Self::Own(policy) => &**policy,
        }
    }
}

impl<S: Subject> fmt::Debug for AnyPolicy<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Policies that share a name but for a number in it, as `fixed-4` and `fixed-8` do.
pub struct Family<S: Subject> {
    /// How a list writes it, as `fixed-N`.
    pub pattern: &'static str,
    /// The member of that name; `None` for names that are not of the family.
    pub member: fn(&str) -> Option<Arc<dyn Policy<S>>>,
}

impl<S: Subject> fmt::Debug for Family<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.pattern)
    }
}

/// All policies of a subject that are built in, by name.
pub struct Registry<S: Subject> {
    /// Those with a name of their own; the first is the default.
    pub listed: &'static [&'static dyn Policy<S>],
    /// Those with a number in the name.
    pub families: &'static [Family<S>],
}

impl<S: Subject> Registry<S> {
    /// The policy of those who name none, and in place of one that fails.
    #[must_use]
    pub const fn default(&self) -> &'static dyn Policy<S> {
        self.listed[0]
    }

    /// The listed policy of that name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&'static dyn Policy<S>> {
        self.listed.iter().copied().find(|policy| policy.name() == name)
    }

    /// The policy of that name, listed or of a family.
    ///
    /// # Errors
    /// [`UnknownPolicy`] lists the known names.
    pub fn find(&self, name: &str) -> Result<AnyPolicy<S>, UnknownPolicy> {
        if let Some(policy) = self.by_name(name) {
            return Ok(AnyPolicy::BuiltIn(policy));
        }
        let member = self.families.iter().find_map(|family| (family.member)(name));
        member.map(AnyPolicy::Own).ok_or_else(|| UnknownPolicy {
            name: name.to_owned(),
            known: self.names().chain(self.families.iter().map(|f| f.pattern)).collect(),
        })
    }

    /// Names of all listed policies; the first is the default.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<S> {
        self.listed.iter().map(|policy| policy.name())
    }
}

impl<S: Subject> fmt::Debug for Registry<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).entries(self.families).finish()
    }
}

/// No policy has that name.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("there is no policy `{name}`; known are {}, exec:CMD", known.join(", "))]
pub struct UnknownPolicy {
    /// The name.
    pub name: String,
    /// The names and patterns that there are.
    pub known: Vec<&'static str>,
}

/// Built-in policies of the network; the first is the default.
pub const BUILT_IN: Registry<Network> = Registry {
    listed: &[
        &mlfabric::Mlfabric,
        &baseline::Fifo,
        &baseline::Fair,
        &baseline::NewestFirst,
        &baseline::ServerBuffering,
        &baseline::Tree,
        &baseline::Ring,
        &baseline::BackupWorkers,
        &baseline::Chain,
    ],
    families: &[],
};

/// The network's policy of those who name none, and in place of one that fails.
#[must_use]
pub const fn default() -> &'static dyn Policy {
    BUILT_IN.default()
}

/// The network's policy of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Policy> {
    BUILT_IN.by_name(name)
}

/// Names of all built-in policies of the network; the first is the default.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.names()
}

/// The example of docs/policies.md, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/policies.md")]
struct PoliciesGuide;
