//! No allocations, counted.

#[path = "../../../tests/tests/support/counting.rs"]
mod counting;
mod holding_allocations;
mod key_allocations;
mod model_allocations;
