//! Sessions with real boxes, over memory and sockets.

mod common;
#[path = "../../../tests/tests/support/counting.rs"]
mod counting;
mod examples;
mod keys;
mod keys_in_flight;
mod keys_kept;
mod keys_managed;
mod leaf;
mod many;
mod narrow;
mod push_alloc;
mod push_sessions;
mod rounds;
mod sessions;
mod shm;
mod table;
