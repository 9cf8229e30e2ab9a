//! The aggregator daemon: lcores, configuration, statistics.
