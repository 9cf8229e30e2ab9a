//! The planners over many cases.

mod baselines;
mod optimum;
