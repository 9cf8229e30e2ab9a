//! Slice arithmetic of the aggregator, dispatched at run time.
