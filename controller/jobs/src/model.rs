//! What a job's progress and speed are predicted from (arXiv 1908.08082, equations 1 to 5).
//!
//! | file | predicts | from |
//! | --- | --- | --- |
//! | [`loss`] | the iterations that are left | the loss so far (equation 1) |
//! | [`speed`] | iterations per second at a width | samples (equation 5) |
//! | [`throughputs`] | the same, for a trace's jobs | a table that somebody measured |
//! | [`collective`] | the time of one allreduce | a network's constants (equations 2 to 4), Weft's bench |
//!
//! Pure. Widths are workers of one GPU each.

pub mod collective;
pub mod loss;
pub mod nnls;
pub mod speed;
pub mod throughputs;
