//! Traces of jobs, from text.

pub mod elasticflow;
