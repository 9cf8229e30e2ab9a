//! Elastic jobs: how wide each runs, while they come and go (arXiv 1908.08082; Optimus, EuroSys'18).

pub mod widths;
