//! The job policies against published results.

mod elastic;
mod example;
mod oracles;
mod policies;
