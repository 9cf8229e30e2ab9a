//! A frame in a DPDK buffer.
//!
//! Decides which bytes of a buffer its holder may write. A frame that came from `rx_burst` or
//! `alloc` is *exclusive*: one direct segment with one reference, all of it writable.
//! [`copy`](weft_io::Port::copy) above `copy_break_bytes` makes frames that share a payload:
//!
//! - the copy is a header segment of its own, in front of the original's payload. Its `as_ref` and
//!   `as_mut` show the header alone; [`Mbuf::frame_len`] counts the payload too.
//! - the original still shows all its bytes, but `as_mut` and `buffer_mut` end where the shared
//!   payload begins, from then on.
//!
//! So no byte is ever visible twice while somebody can write it (PROTOCOL section 10, egress
//! copies). An engine that sums in place does it before it copies, and then only sends or drops.
//! A shared frame that a loop-back device delivers is copied on arrival and exclusive again.
//!
//! `Mbuf` is neither `Clone` nor `Copy`: a second owner exists only through `copy`.

use std::ptr::NonNull;

use crate::sys;

/// An owned frame; dropping it returns its buffer to its pool.
#[repr(transparent)]
pub struct Mbuf {
    frame: NonNull<sys::Frame>,
}

// SAFETY: an mbuf belongs to no thread. Its pool takes buffers back from any of them, reference
// counts are atomic, and bytes that two frames share are read-only for both.
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// Takes over a frame that the shim returned; `None` for NULL.
    ///
    /// # Safety
    /// `frame` came from the shim and nobody else will free it.
    #[inline]
    pub(crate) unsafe fn from_raw(frame: *mut sys::Frame) -> Option<Self> {
        NonNull::new(frame).map(|frame| Self { frame })
    }

    #[inline]
    pub(crate) fn raw(&self) -> &sys::Frame {
        // SAFETY: the shim keeps the description in the buffer, which is ours; only `&mut self`
        // writes it, and `owned` is a `Cell`.
        unsafe { self.frame.as_ref() }
    }

    #[inline]
    fn raw_mut(&mut self) -> &mut sys::Frame {
        // SAFETY: as in `raw`; `&mut self` is the only path to it.
        unsafe { self.frame.as_mut() }
    }

    /// Bytes that will be sent: those of `as_ref` and a shared payload behind them.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        usize::from(self.raw().len) + usize::from(self.raw().shared_len)
    }

    /// True while no other frame shares this one's payload, so all of it may be rewritten.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.raw().owned.get() == self.raw().room && self.raw().shared_len == 0
    }

    /// Gives up writing behind the first `len` bytes, because a copy now refers to them.
    pub(crate) fn share_behind(&self, len: u16) {
        self.raw().owned.set(self.raw().owned.get().min(len));
    }

    #[inline]
    fn writable(&mut self, len: u16) -> &mut [u8] {
        let len = usize::from(len.min(self.raw().owned.get()));
        // SAFETY: the buffer holds `room >= owned` bytes from `data`, `&mut self` is the only path
        // to them in Rust, and other mbufs refer only to bytes behind `owned`.
        unsafe { std::slice::from_raw_parts_mut(self.raw().data.as_ptr(), len) }
    }

    /// Frees `frames` in one call per pool.
    pub(crate) fn free_bulk(frames: &mut weft_io::Burst<Self>) {
        let n = frames.len();
        // SAFETY: `Mbuf` is a transparent pointer to a `sys::Frame`, all `n` are initialised and owned, and
        // setting the length to 0 first keeps them from being dropped a second time.
        unsafe {
            frames.set_len(0);
            sys::weft_frame_free_bulk(frames.as_ptr().cast(), burst_len(n));
        }
    }
}

/// The length of a burst as the shim takes it.
pub(crate) fn burst_len(n: usize) -> u16 {
    const _: () = assert!(weft_io::BURST_MAX == 32, "WEFT_BURST_MAX in shim.h");
    u16::try_from(n).expect("a burst has at most BURST_MAX frames")
}

impl Drop for Mbuf {
    fn drop(&mut self) {
        // SAFETY: the frame is owned and dropped once.
        unsafe { sys::weft_frame_free(self.frame.as_ptr()) }
    }
}

impl AsRef<[u8]> for Mbuf {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the first segment holds `len` bytes from `data`. Those behind `owned` are written
        // by nobody, those before it only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.raw().data.as_ptr(), usize::from(self.raw().len)) }
    }
}

impl AsMut<[u8]> for Mbuf {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        self.writable(self.raw().len)
    }
}

impl weft_io::Frame for Mbuf {
    #[inline]
    fn buffer_mut(&mut self) -> &mut [u8] {
        self.writable(self.raw().room)
    }

    #[inline]
    fn set_len(&mut self, len: usize) {
        let limit = if self.is_exclusive() { self.raw().room } else { self.raw().len };
        assert!(
            len <= usize::from(limit) && (self.raw().shared_len == 0 || len == usize::from(limit)),
            "a frame of {limit} bytes cannot become {len} bytes long: its buffer ends or is shared"
        );
        self.raw_mut().len = burst_len(len);
    }
}

impl std::fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mbuf")
            .field("len", &self.raw().len)
            .field("shared_len", &self.raw().shared_len)
            .field("is_exclusive", &self.is_exclusive())
            .finish_non_exhaustive()
    }
}
