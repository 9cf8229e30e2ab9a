//! An allocator that counts the calling thread's allocations, for tests that must see none.
//!
//! One file for the test programs of several crates, which take it in with `#[path]`: a global
//! allocator belongs to a program, and a crate for it would be one that all of them depend on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator; the counter is a plain thread-local
// without a destructor, so touching it cannot allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs `work` and adds this thread's allocations in it to `count`.
pub(crate) fn counted<T>(count: &mut u64, work: impl FnOnce() -> T) -> T {
    let before = ALLOCATIONS.get();
    let result = work();
    *count += ALLOCATIONS.get() - before;
    result
}
