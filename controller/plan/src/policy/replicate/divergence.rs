//! How far a replica can be from its server, from norms alone.
//!
//! Both follow h = momentum * h + u, w = w + h, with one u per group. With the replica stopped k
//! groups behind, geo(m) = 1 + momentum + .. + momentum^(m-1), and H an upper bound of the norm of
//! the replica's h (H = momentum * H + norm per group):
//!
//! `|w_server - w_replica| <= momentum * geo(k) * H + sum over the missing u_i of geo(k-i+1)*|u_i|`
//!
//! Source: derived from MLfabric's equation 2 and checked against true distances in the tests.
//! Cost: O(1) per group.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::float;

/// The groups that a replica misses, and the bound that they make.
#[derive(Clone, Debug)]
pub struct Lag {
    momentum: f64,
    h_norm: f64,
    norms: VecDeque<f64>,
    /// The bound's sum, and the sum of the norms.
    weighted: f64,
    plain: f64,
}

/// What must happen before one more group may commit at the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// The oldest missing group must be at the replica.
    Oldest,
    /// Server and replica must apply the group together.
    Joint,
}

/// One commit of [`walk`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Missing groups that must be at the replica first.
    pub forced: usize,
    /// Applied together.
    pub joint: bool,
    /// Bound just after it.
    pub divergence: f64,
}

impl Lag {
    /// A replica that misses nothing and whose last step has at most this norm.
    #[must_use]
    pub const fn new(momentum: f64, h_norm: f64) -> Self {
        Self { momentum, h_norm, norms: VecDeque::new(), weighted: 0.0, plain: 0.0 }
    }

    /// Bound on the norm of server minus replica.
    #[must_use]
    pub fn bound(&self) -> f64 {
        self.momentum * geo(self.momentum, self.norms.len()) * self.h_norm + self.weighted
    }

    /// The server commits a group that the replica does not have yet.
    pub fn push(&mut self, norm: f64) {
        // geo(m + 1) = 1 + momentum * geo(m): every weight grows by one step.
        self.plain += norm;
        self.weighted = self.momentum * self.weighted + self.plain;
        self.norms.push_back(norm);
    }

    /// The replica applies the oldest missing group.
    pub fn pop(&mut self) {
        let count = self.norms.len();
        let Some(norm) = self.norms.pop_front() else { return };
        self.h_norm = self.momentum * self.h_norm + norm;
        self.weighted -= geo(self.momentum, count) * norm;
        self.plain -= norm;
        if self.norms.is_empty() {
            (self.weighted, self.plain) = (0.0, 0.0);
        }
    }

    /// Groups missing.
    #[must_use]
    pub fn len(&self) -> usize {
        self.norms.len()
    }

    /// Whether the replica has everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.norms.is_empty()
    }

    /// What a commit of that norm needs under a bound.
    #[must_use]
    pub fn need(&self, norm: f64, div_max: f64) -> Need {
        // Bit for bit what `push` and `bound` will say.
        let weighted = self.momentum * self.weighted + (self.plain + norm);
        let geo = geo(self.momentum, self.norms.len() + 1);
        if self.momentum * geo * self.h_norm + weighted <= div_max {
            Need::Nothing
        } else if self.norms.is_empty() {
            Need::Joint
        } else {
            Need::Oldest
        }
    }
}

/// 1 + momentum + .. + momentum^(count-1).
fn geo(momentum: f64, count: usize) -> f64 {
    if momentum >= 1.0 {
        return count as f64;
    }
    let power = u32::try_from(count).map_or(0.0, |count| float::powi(momentum, count));
    (1.0 - power) / (1.0 - momentum)
}

/// What a sequence of commits needs if copies travel only when they must.
#[must_use]
pub fn walk(norms: &[f64], momentum: f64, h_norm: f64, div_max: f64) -> Vec<Step> {
    let mut lag = Lag::new(momentum, h_norm);
    let steps = norms.iter().map(|norm| {
        let mut forced = 0;
        let joint = loop {
            match lag.need(*norm, div_max) {
                Need::Nothing => break false,
                Need::Joint => break true,
                Need::Oldest => {
                    lag.pop();
                    forced += 1;
                }
            }
        };
        lag.push(*norm);
        if joint {
            lag.pop();
        }
        Step { forced, joint, divergence: lag.bound() }
    });
    steps.collect()
}

/// A model under momentum, in f64: what the bound is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Parameters.
    pub w: Vec<f64>,
    /// The last step.
    pub h: Vec<f64>,
}

impl Model {
    /// All zero.
    #[must_use]
    pub fn zeros(len: usize) -> Self {
        Self { w: vec![0.0; len], h: vec![0.0; len] }
    }

    /// Applies one group's sum.
    pub fn apply(&mut self, momentum: f64, u: &[f64]) {
        for ((w, h), u) in self.w.iter_mut().zip(&mut self.h).zip(u) {
            *h = momentum * *h + u;
            *w += *h;
        }
    }

    /// Norm of the difference in parameters.
    #[must_use]
    pub fn distance(&self, other: &Self) -> f64 {
        let squares = self.w.iter().zip(&other.w).map(|(a, b)| (a - b) * (a - b));
        float::sqrt(squares.sum())
    }
}
