//! Who the owner of a certificate is, as its one `weft:` URI among the alternative names says.
//!
//! ```text
//! weft:role/controller
//! weft:role/operator[/name/NAME]
//! weft:role/node[/name/NAME]
//! weft:role/worker[/job/JOB[/rank/RANK]]
//! ```
//!
//! What is left out is not pinned: `weft:role/node` may attach under any node's name. Pure; what a
//! role may do is the controller's to decide.

use std::fmt;
use std::str::FromStr;

/// The owner of a certificate.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Identity {
    /// The one that everybody calls.
    Controller,
    /// A person or a tool: registers jobs and reads figures.
    Operator {
        /// For people; pins nothing.
        name: Option<String>,
    },
    /// A box: server, replica or aggregator.
    Node {
        /// The only name that it may attach under.
        name: Option<String>,
    },
    /// A worker.
    Worker {
        /// The only job that it may attach to.
        job: Option<u16>,
        /// The only rank there.
        rank: Option<u8>,
    },
}

/// Why a URI, or what is to be one, is no identity.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum IdentityError {
    /// It has another form.
    #[error(
        "is no weft:role/controller, operator[/name/NAME], node[/name/NAME] or \
         worker[/job/JOB[/rank/RANK]]"
    )]
    Form,
    /// A name that a URI cannot carry as it is.
    #[error("names have 1 to {NAME_LEN_MAX} letters, digits, dots, dashes and underscores")]
    Name,
    /// A number that no job or rank has.
    #[error("jobs are 0 to 65535, ranks 0 to 63")]
    Number,
}

impl Identity {
    /// An identity whose parts fit a URI.
    ///
    /// # Errors
    /// The part that does not.
    pub fn checked(self) -> Result<Self, IdentityError> {
        match &self {
            Self::Operator { name: Some(name) } | Self::Node { name: Some(name) }
                if !is_name(name) =>
            {
                Err(IdentityError::Name)
            }
            Self::Worker { job: None, rank: Some(_) } => Err(IdentityError::Form),
            Self::Worker { rank: Some(rank), .. } if *rank > RANK_MAX => Err(IdentityError::Number),
            _ => Ok(self),
        }
    }

    /// `controller`, `operator`, `node` or `worker`.
    #[must_use]
    pub const fn role(&self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Operator { .. } => "operator",
            Self::Node { .. } => "node",
            Self::Worker { .. } => "worker",
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.role())?;
        match self {
            Self::Operator { name: Some(name) } | Self::Node { name: Some(name) } => {
                write!(f, "/name/{name}")
            }
            Self::Worker { job: Some(job), rank } => {
                write!(f, "/job/{job}")?;
                rank.map_or(Ok(()), |rank| write!(f, "/rank/{rank}"))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(uri: &str) -> Result<Self, IdentityError> {
        let rest = uri.strip_prefix(PREFIX).ok_or(IdentityError::Form)?;
        let parts: Vec<&str> = rest.split('/').collect();
        let name = |name: &&str| Some((*name).to_owned());
        let identity = match parts.as_slice() {
            ["controller"] => Self::Controller,
            ["operator"] => Self::Operator { name: None },
            ["operator", "name", operator] => Self::Operator { name: name(operator) },
            ["node"] => Self::Node { name: None },
            ["node", "name", node] => Self::Node { name: name(node) },
            ["worker"] => Self::Worker { job: None, rank: None },
            ["worker", "job", job] => Self::Worker { job: Some(number(job)?), rank: None },
            ["worker", "job", job, "rank", rank] => {
                Self::Worker { job: Some(number(job)?), rank: Some(number(rank)?) }
            }
            _ => return Err(IdentityError::Form),
        };
        identity.checked()
    }
}

/// A number in the one way of writing it.
fn number<T: FromStr + ToString>(text: &str) -> Result<T, IdentityError> {
    let number: T = text.parse().map_err(|_| IdentityError::Number)?;
    (number.to_string() == text).then_some(number).ok_or(IdentityError::Number)
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// What every identity's URI begins with.
pub const PREFIX: &str = "weft:role/";
/// Longest name in a URI.
const NAME_LEN_MAX: usize = 64;
/// Greatest rank.
const RANK_MAX: u8 = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_written_as_it_is_read() {
        for uri in [
            "weft:role/controller",
            "weft:role/operator",
            "weft:role/operator/name/alice",
            "weft:role/node",
            "weft:role/node/name/a0.rack-1",
            "weft:role/worker",
            "weft:role/worker/job/65535",
            "weft:role/worker/job/3/rank/63",
        ] {
            assert_eq!(uri.parse::<Identity>().unwrap().to_string(), uri);
        }
    }

    #[test]
    fn nothing_else_is_an_identity() {
        let long = format!("weft:role/node/name/{}", "a".repeat(65));
        for uri in [
            "",
            "weft:role/",
            "weft:role/root",
            "weft:role/controller/name/c",
            "weft:role/node/name/",
            "weft:role/node/name/a b",
            "weft:role/node/name/a/name/b",
            "weft:role/worker/rank/1",
            "weft:role/worker/job/65536",
            "weft:role/worker/job/01",
            "weft:role/worker/job/+1",
            "weft:role/worker/job/1/rank/64",
            "weft:role/worker/job/1/rank/1/",
            "Weft:role/operator",
            &long,
        ] {
            assert!(uri.parse::<Identity>().is_err(), "{uri}");
        }
        let pinned_to_no_job = Identity::Worker { job: None, rank: Some(1) };
        assert_eq!(pinned_to_no_job.checked(), Err(IdentityError::Form));
    }
}
