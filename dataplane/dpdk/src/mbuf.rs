//! A frame in a DPDK buffer.
//!
//! Decides which bytes of a buffer its holder may write. A frame that came from `rx_burst` or
//! `alloc` is *exclusive*: one direct segment with one reference, all of it writable.
//! [`copy`](weft_io::Port::copy) above `copy_break_bytes` makes frames that share a payload:
//!
//! - the copy is a header segment of its own, in front of the original's payload. Its `as_ref` and
//!   `as_mut` show the header alone; [`Mbuf::frame_len`] counts the payload too.
//! - the original still shows all its bytes, but `as_mut` and `buffer_mut` end where the shared
//!   payload begins, as long as a copy refers to it.
//!
//! So no byte is ever visible twice while somebody can write it (PROTOCOL section 10, egress
//! copies). An engine that sums in place does it before it copies, and then only sends or drops.
//! A shared frame that a loop-back device delivers is copied on arrival and exclusive again.
//!
//! `Mbuf` is neither `Clone` nor `Copy`: a second owner exists only through `copy`.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

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
        // SAFETY: the mbuf is ours until we give it back. Meanwhile only `&mut self` writes these
        // fields; `owned` is a `Cell`, and `refcnt`, which others may lower, an atomic.
        unsafe { self.frame.as_ref() }
    }

    #[inline]
    fn data(&self) -> *mut u8 {
        // SAFETY: DPDK keeps `data_off` within the buffer.
        unsafe { self.raw().buffer.as_ptr().add(usize::from(self.raw().data_off)) }
    }

    /// Bytes from the frame's first to the end of its buffer.
    #[inline]
    fn room(&self) -> u16 {
        self.raw().buf_len - self.raw().data_off
    }

    /// Bytes that will be sent: those of `as_ref` and a shared payload behind them.
    #[inline]
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.raw().pkt_len as usize
    }

    /// True while no other frame shares this one's payload, so all of it may be rewritten.
    #[inline]
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        // Acquire: whoever let go of the payload has done so with its reads.
        self.raw().nb_segs == 1 && self.raw().refcnt.load(Ordering::Acquire) == 1
    }

    /// Gives up writing behind the first `len` bytes, because a copy is about to refer to them.
    pub(crate) fn share_behind(&self, len: u16) {
        let owned = if self.is_exclusive() { len } else { self.raw().owned.get().min(len) };
        self.raw().owned.set(owned);
    }

    #[inline]
    fn writable(&mut self, len: u16) -> &mut [u8] {
        let len = if self.is_exclusive() { len } else { len.min(self.raw().owned.get()) };
        // SAFETY: the buffer holds `room >= len` bytes from `data`, `&mut self` is the only path
        // to them in Rust, and other mbufs refer only to bytes behind `owned`.
        unsafe { std::slice::from_raw_parts_mut(self.data(), usize::from(len)) }
    }

    /// Frees `frames` in one call per pool.
    pub(crate) fn free_bulk(frames: &mut weft_io::Burst<Self>) {
        let n = frames.len();
        // SAFETY: `Mbuf` is a transparent pointer to a `sys::Frame`, all `n` are initialised and
        // owned, and setting the length to 0 first keeps them from being dropped a second time.
        unsafe {
            frames.set_len(0);
            sys::weft_frame_free_bulk(frames.as_ptr().cast(), burst_len(n));
        }
    }
}

/// The length of a burst as the shim takes it.
pub(crate) fn burst_len(n: usize) -> u16 {
    const _: () = assert!(weft_io::BURST_MAX == 64, "WEFT_BURST_MAX in shim.h");
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
        // SAFETY: the first segment holds `data_len` bytes from `data`. Those behind `owned` are
        // written by nobody, those before it only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.data(), usize::from(self.raw().data_len)) }
    }
}

impl AsMut<[u8]> for Mbuf {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        self.writable(self.raw().data_len)
    }
}

impl weft_io::Frame for Mbuf {
    #[inline]
    fn buffer_mut(&mut self) -> &mut [u8] {
        self.writable(self.room())
    }

    #[inline]
    fn set_len(&mut self, len: usize) {
        let fits = if self.is_exclusive() {
            len <= usize::from(self.room())
        } else {
            // A shared payload stays as long as it is.
            len == usize::from(self.raw().data_len)
        };
        assert!(fits, "a frame cannot become {len} bytes long: its buffer ends or is shared");
        let shared_len = self.raw().pkt_len - u32::from(self.raw().data_len);
        let len = u16::try_from(len).expect("a buffer's length has 16 bits");
        let frame = self.frame.as_ptr();
        // SAFETY: as in `raw`, and `&mut self` is the only path to these two fields. No reference
        // to the whole, since other threads may lower `refcnt` meanwhile.
        unsafe {
            (&raw mut (*frame).data_len).write(len);
            (&raw mut (*frame).pkt_len).write(u32::from(len) + shared_len);
        }
    }
}

impl std::fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mbuf")
            .field("len", &self.raw().data_len)
            .field("frame_len", &self.frame_len())
            .field("is_exclusive", &self.is_exclusive())
            .finish_non_exhaustive()
    }
}
