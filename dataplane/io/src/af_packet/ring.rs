//! The TPACKET_V3 receive ring: memory that the kernel and this process own by turns, block by
//! block.
//!
//! Invariant: a block is read only between an acquiring load of its status that shows
//! `TP_STATUS_USER` and the releasing store of `TP_STATUS_KERNEL`; in between the kernel leaves it
//! alone. Offsets that the kernel wrote are checked against the block all the same.
#![allow(unsafe_code, reason = "the ring is memory shared with the kernel")]

use std::io;
use std::mem::{offset_of, size_of};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{tpacket_block_desc, tpacket_hdr_v1, tpacket_req3, tpacket3_hdr};

use super::restore::VlanTag;
use super::sys::PacketSocket;

/// Room in a block for its descriptor, a frame's header and alignment.
const BLOCK_OVERHEAD: usize = 256;
/// The shortest timeout that the kernel knows.
const RETIRE_TIMEOUT_MS: u32 = 1;

/// A frame in the ring.
#[derive(Debug)]
pub(super) struct Captured<'a> {
    /// The frame, without the VLAN tag that the kernel took off.
    pub(super) bytes: &'a [u8],
    /// The tag's protocol, if known, and control information.
    pub(super) vlan: Option<VlanTag>,
    /// When the kernel got it, by `CLOCK_REALTIME`.
    pub(super) arrived_ns: u64,
    /// Fewer bytes than the frame had.
    pub(super) cut: bool,
    /// The sender left the transport checksum to its NIC.
    pub(super) checksum_missing: bool,
}

/// The mapped ring and the place of the next frame in it.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<u8>,
    len: usize,
    block_len: usize,
    block_count: usize,
    /// Block to read, or to wait for.
    block: usize,
    /// Frames left in it; 0: it is the kernel's, as far as we know.
    left: u32,
    /// Offset of the next frame in it.
    offset: usize,
}

// SAFETY: the mapping belongs to this value alone and may be used and unmapped on any thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Asks the kernel for a ring on `socket` and maps it.
    pub(super) fn map(
        socket: &PacketSocket,
        ring_bytes: usize,
        block_bytes: usize,
        frame_len_max: usize,
    ) -> io::Result<Self> {
        let block_len = block_bytes.max((frame_len_max + BLOCK_OVERHEAD).next_power_of_two());
        let block_count = ring_bytes.div_ceil(block_len).max(2);
        let word = |value: usize| u32::try_from(value).map_err(io::Error::other);
        // The kernel packs frames of any length into a block; a nominal frame is a whole block.
        socket.request_ring(&tpacket_req3 {
            tp_block_size: word(block_len)?,
            tp_block_nr: word(block_count)?,
            tp_frame_size: word(block_len)?,
            tp_frame_nr: word(block_count)?,
            tp_retire_blk_tov: RETIRE_TIMEOUT_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        })?;
        let len = block_len * block_count;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory in use;
        // `len` is the size of the ring that the kernel has just made.
        let address = unsafe {
            libc::mmap(ptr::null_mut(), len, protection, libc::MAP_SHARED, socket.raw_fd(), 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, len, block_len, block_count, block: 0, left: 0, offset: 0 })
    }

    /// The next frame, which stays where it is until [`Ring::advance`].
    pub(super) fn peek(&mut self) -> Option<Captured<'_>> {
        while self.left == 0 {
            if self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return None;
            }
            let block = self.descriptor();
            self.left = block.num_pkts;
            self.offset = block.offset_to_first_pkt as usize;
            if self.left == 0 {
                self.release();
            }
        }
        let header = self.header();
        let start = self.offset + usize::from(header.tp_mac);
        let len = header.tp_snaplen as usize;
        assert!(start + len <= self.block_len, "the kernel's frames lie within their block");
        // SAFETY: the range is inside the block (asserted), the block is inside the mapping, and
        // it is ours until `release`, which needs `&mut self` and so ends this borrow.
        let bytes = unsafe {
            let first = self.base.add(self.block * self.block_len + start);
            std::slice::from_raw_parts(first.as_ptr(), len)
        };
        let has = |flag: u32| header.tp_status & flag != 0;
        let tpid = has(libc::TP_STATUS_VLAN_TPID_VALID).then_some(header.hv1.tp_vlan_tpid);
        let tci = u16::try_from(header.hv1.tp_vlan_tci & 0xffff).unwrap_or(0);
        Some(Captured {
            bytes,
            vlan: has(libc::TP_STATUS_VLAN_VALID).then_some((tpid, tci)),
            arrived_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            cut: header.tp_snaplen != header.tp_len,
            checksum_missing: has(libc::TP_STATUS_CSUMNOTREADY),
        })
    }

    /// Moves past the frame that [`Ring::peek`] showed; gives the block back after its last one.
    pub(super) fn advance(&mut self) {
        if self.left > 0 {
            self.offset += self.header().tp_next_offset as usize;
            self.left -= 1;
            if self.left == 0 {
                self.release();
            }
        }
    }

    fn release(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.block = (self.block + 1) % self.block_count;
    }

    /// The word by which the current block changes hands.
    fn status(&self) -> &AtomicU32 {
        let at = offset_of!(tpacket_block_desc, hdr) + offset_of!(tpacket_hdr_v1, block_status);
        // SAFETY: the word lies in the block's descriptor, inside the mapping, aligned because
        // blocks are aligned to pages; both sides access it atomically.
        unsafe {
            let word = self.base.add(self.block * self.block_len + at).cast::<u32>();
            AtomicU32::from_ptr(word.as_ptr())
        }
    }

    fn descriptor(&self) -> tpacket_hdr_v1 {
        // SAFETY: the block is ours (see `peek`), and starts with its descriptor, aligned to a
        // page. Of the union there is one variant.
        unsafe {
            let block = self.base.add(self.block * self.block_len).cast::<tpacket_block_desc>();
            ptr::read(block.as_ptr()).hdr.bh1
        }
    }

    /// The header of the frame at `offset` in the current block, which must be ours.
    fn header(&self) -> tpacket3_hdr {
        let end = self.offset + size_of::<tpacket3_hdr>();
        assert!(end <= self.block_len, "the kernel's headers lie within their block");
        // SAFETY: inside the block (asserted), which is ours; the kernel aligns headers, and an
        // unaligned read does not depend on it.
        unsafe {
            let header = self.base.add(self.block * self.block_len + self.offset);
            ptr::read_unaligned(header.cast::<tpacket3_hdr>().as_ptr())
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `map`, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
