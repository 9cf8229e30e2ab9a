//! Pools of frame buffers.
//!
//! A pool lives as long as the EAL: frames may outlive the port that they came from, and freeing a
//! pool under them would leave them dangling. So opening ports again and again uses up memory,
//! which programs that open their ports at start never notice.

use crate::eal::EalHandle;
use crate::{EalError, Mbuf, sys};
use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A pool of buffers of one size, with a cache per lcore.
#[derive(Clone, Debug)]
pub struct Mempool {
    raw: NonNull<sys::Pool>,
    count: u32,
    _eal: EalHandle,
}

// SAFETY: rte_mempool_ring is multi-producer, multi-consumer; caches are per lcore, and a thread
// without an lcore does not use one.
unsafe impl Send for Mempool {}
// SAFETY: as above.
unsafe impl Sync for Mempool {}

impl Mempool {
    /// Creates a pool of `count` buffers with room for `data_room_bytes`, DPDK's headroom included,
    /// on the NUMA socket `socket` (-1: any). Memory: `count * (data_room_bytes + 256)` or so.
    ///
    /// # Errors
    /// If EAL has not enough memory.
    pub fn new(
        eal: &EalHandle,
        count: u32,
        data_room_bytes: u16,
        socket: i32,
    ) -> Result<Self, EalError> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let name = format!("weft_{}", SERIAL.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).expect("a formatted number has no NUL");
        // A cache may hold 1.5 times its size, and every lcore has one: keep most buffers outside.
        let cache = (count / 8).min(CACHE_MAX);
        let mut error = 0;
        // SAFETY: EAL is up (`eal`), `name` ends in NUL and is copied, `error` is writable.
        let raw = unsafe {
            sys::weft_pool_create(
                name.as_ptr(),
                count,
                cache,
                data_room_bytes,
                socket,
                &raw mut error,
            )
        };
        let raw = NonNull::new(raw).ok_or_else(|| EalError::Pool {
            count,
            data_room_bytes,
            reason: crate::eal::error_text(error),
        })?;
        let pool = Self { raw, count, _eal: eal.clone() };
        eal.keep_pool(raw, count);
        Ok(pool)
    }

    /// Buffers in the pool in total.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Buffers that are free now, those in lcore caches included. Walks all caches: for tests and
    /// statistics.
    #[must_use]
    pub fn available(&self) -> u32 {
        // SAFETY: the pool lives as long as the EAL.
        unsafe { sys::weft_pool_available(self.raw.as_ptr()) }
    }

    /// An empty frame; `None` when the pool is exhausted.
    #[inline]
    #[must_use]
    pub fn alloc(&self) -> Option<Mbuf> {
        // SAFETY: the pool is alive; what the shim returns is a frame that nobody else owns.
        unsafe { Mbuf::from_raw(sys::weft_frame_alloc(self.raw())) }
    }

    /// A frame of its own with all bytes of `from`, a shared payload included.
    #[inline]
    pub(crate) fn copy(&self, from: &Mbuf) -> Option<Mbuf> {
        // SAFETY: as in `alloc`; `from` is an owned frame whose bytes nobody writes meanwhile,
        // since we hold a reference to it.
        unsafe { Mbuf::from_raw(sys::weft_frame_copy(self.raw(), from.raw())) }
    }

    /// A frame whose first `header_len` bytes are its own and whose rest is that of `from`,
    /// referred to by buffers of `clones`.
    pub(crate) fn share(&self, clones: &Self, from: &Mbuf, header_len: u16) -> Option<Mbuf> {
        // First, for afterwards `from` does not look exclusive any more.
        from.share_behind(header_len);
        // SAFETY: as in `copy`.
        unsafe {
            let (pool, clones) = (self.raw(), clones.raw());
            Mbuf::from_raw(sys::weft_frame_share(pool, clones, from.raw(), header_len))
        }
    }

    pub(crate) fn raw(&self) -> *mut sys::Pool {
        self.raw.as_ptr()
    }
}

/// Most buffers in one lcore's cache, in DPDK's sense. 256 is what testpmd uses.
const CACHE_MAX: u32 = 256;
