//! The weft command: labs, runs, benches, reports.
