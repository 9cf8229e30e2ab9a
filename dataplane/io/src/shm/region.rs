//! Memory that two processes share: made, sealed, mapped, and seen as words that either may change
//! at any time.
//!
//! Invariants: a region never shrinks under its mapping, for it is sealed before anybody maps it
//! and its seals are checked, so a peer cannot make an access fault; all access is atomic, word by
//! word, or a copy by the CPU that the compiler knows nothing of, so whatever the other process
//! does to the memory is a value and never undefined behaviour.
//! Source: memfd_create(2), fcntl(2) on seals.
#![allow(unsafe_code, reason = "memory shared with another process has to be mapped")]

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

/// Bytes of a word.
pub(super) const WORD_LEN: usize = 8;

/// A mapping of shared memory.
#[derive(Debug)]
pub(super) struct Region {
    base: NonNull<AtomicU64>,
    word_count: usize,
}

// SAFETY: the mapping belongs to this value alone, is only reached through atomics, and may be
// used and unmapped on any thread.
unsafe impl Send for Region {}
// SAFETY: as above; a shared reference gives atomics alone.
unsafe impl Sync for Region {}

impl Region {
    /// Makes zeroed memory of at least `len_bytes` and seals its size; returns it with the
    /// descriptor by which another process may map it.
    pub(super) fn create(len_bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let fd = sized(len_bytes)?;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(sealed() | SealFlag::F_SEAL_SEAL))?;
        Ok((Self::map(fd.as_fd(), len_bytes)?, fd))
    }

    /// As [`Region::create`], for memory that others may read and nobody else may write.
    pub(super) fn create_to_show(len_bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let fd = sized(len_bytes)?;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(sealed()))?;
        let region = Self::map(fd.as_fd(), len_bytes)?;
        let seals = SealFlag::F_SEAL_FUTURE_WRITE | SealFlag::F_SEAL_SEAL;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
        Ok((region, fd))
    }

    /// Maps memory that another process made; refuses what it could still shrink, and what is not
    /// `len_bytes` long.
    pub(super) fn map(fd: BorrowedFd<'_>, len_bytes: usize) -> io::Result<Self> {
        Self::map_as(fd, len_bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)
    }

    /// As [`Region::map`], of memory that is only read: a write to it is a fault.
    pub(super) fn map_to_read(fd: BorrowedFd<'_>, len_bytes: usize) -> io::Result<Self> {
        Self::map_as(fd, len_bytes, ProtFlags::PROT_READ)
    }

    fn map_as(fd: BorrowedFd<'_>, len_bytes: usize, protection: ProtFlags) -> io::Result<Self> {
        let refused = |problem| io::Error::new(io::ErrorKind::InvalidData, problem);
        let seals = SealFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GET_SEALS)?);
        if !seals.contains(sealed()) {
            return Err(refused("its size is not sealed"));
        }
        if usize::try_from(fstat(fd)?.st_size).ok() != Some(len_bytes) {
            return Err(refused("its size is another than its header says"));
        }
        let word_count = len_bytes / WORD_LEN;
        let Some(len) = NonZeroUsize::new(word_count * WORD_LEN) else {
            return Err(refused("it is empty"));
        };
        // The pages are made now, not when a frame first needs them.
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory in use.
        let base = unsafe { mmap(None, len, protection, flags, fd, 0)? };
        Ok(Self { base: base.cast(), word_count })
    }

    /// The words, which the other process may change at any time.
    #[inline]
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has `word_count` words, aligned to a page, for as long as this value
        // lives, and its file cannot shrink (checked in `map`). Every bit pattern is a word, and
        // atomics allow that others change them.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.word_count) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `map`, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.base.cast(), self.word_count * WORD_LEN) };
    }
}

/// Copies `bytes` into the first of these words, in one piece.
///
/// # Panics
/// If they do not fit.
#[inline]
pub(super) fn write(words: &[AtomicU64], bytes: &[u8]) {
    assert!(bytes.len() <= size_of_val(words), "they fit");
    // SAFETY: the words are `bytes.len()` writable bytes or more (checked above), atomics, so that
    // a shared reference allows to write them, and apart from `bytes`, which is no atomic.
    unsafe { copy(words.as_ptr().cast_mut().cast(), bytes.as_ptr(), bytes.len()) };
}

/// Copies the first of these words to `bytes`.
///
/// # Panics
/// If there are fewer.
#[inline]
pub(super) fn read(words: &[AtomicU64], bytes: &mut [u8]) {
    assert!(bytes.len() <= size_of_val(words), "they are there");
    // SAFETY: the words are `bytes.len()` readable bytes or more (checked above), and apart from
    // `bytes`, which is borrowed alone.
    unsafe { copy(bytes.as_mut_ptr(), words.as_ptr().cast(), bytes.len()) };
}

/// Copies bytes of which one side is shared memory. Word by word, as atomics are, each store to a
/// line that another core has waits for it, a few lines at a time; the CPU's own copy does not.
///
/// # Safety
/// `to` is valid for writes of `len` bytes, `from` for reads, and they do not overlap. Others may
/// change the shared one meanwhile: then any bytes come of it.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: `rep movsb` reads and writes what the caller says, forwards, for the direction flag
    // is clear at every call (System V ABI). Memory that changes meanwhile is no matter to it, and
    // the compiler sees neither side's bytes.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
}

/// As above, word by word.
///
/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    #[repr(C, packed)]
    struct Word(u64);
    let words = len / WORD_LEN;
    for at in 0..words {
        let (to, from) = (to.cast::<Word>(), from.cast::<Word>());
        // SAFETY: word `at` ends at or below `len`, up to which both are valid, and `Word` has no
        // alignment. A volatile access is made as it is written, whatever others do to the memory.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    }
    for at in words * WORD_LEN..len {
        // SAFETY: as above, of a byte.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    }
}

/// Takes the descriptors that a message has brought into this zeroed room for one list of them,
/// all of them or as many as there was room for: a reader of whole lists alone leaks cut ones.
pub(super) fn own(control: &[u8]) -> Vec<OwnedFd> {
    let Some((header, fds)) = control.split_at_checked(size_of::<libc::cmsghdr>()) else {
        return Vec::new();
    };
    let mut len = [0; size_of::<usize>()];
    len.copy_from_slice(&header[..size_of::<usize>()]);
    let len = usize::from_ne_bytes(len).saturating_sub(header.len());
    let own = |fd: &[u8]| {
        let fd = RawFd::from_ne_bytes([fd[0], fd[1], fd[2], fd[3]]);
        // SAFETY: the kernel has just made this descriptor for the receiver of the message, and
        // its number is used here alone.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    fds[..len.min(fds.len())].chunks_exact(size_of::<RawFd>()).map(own).collect()
}

/// Has the kernel refuse what is sent to this socket, or to one that connects to it, with
/// descriptors. One older than 6.16 does not know how.
pub(super) fn refuse_rights(socket: &impl AsRawFd) {
    let no: libc::c_int = 0;
    let len = libc::socklen_t::try_from(size_of_val(&no)).expect("four bytes");
    // SAFETY: the kernel reads the four bytes of a number that outlives the call.
    let _ = unsafe {
        let no = std::ptr::from_ref(&no).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, no, len)
    };
}

/// Of `asm-generic/socket.h`; the libc crate has no name for it.
const SO_PASSRIGHTS: libc::c_int = 83;

/// A memory file of this length.
fn sized(len_bytes: usize) -> io::Result<OwnedFd> {
    let fd = memfd_create("weft", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    ftruncate(&fd, i64::try_from(len_bytes).map_err(io::Error::other)?)?;
    Ok(fd)
}

/// What keeps a size as it is.
fn sealed() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn two_mappings_show_the_same_words() {
        let (ours, fd) = Region::create(4096).expect("a region");
        let theirs = Region::map(fd.as_fd(), 4096).expect("it is sealed");
        ours.words()[511].store(7, Ordering::Relaxed);
        assert_eq!(theirs.words()[511].load(Ordering::Relaxed), 7);
        assert_eq!(theirs.words().len(), 512);
    }

    #[test]
    fn memory_that_could_still_shrink_is_refused() {
        let fd = memfd_create("weft", MFdFlags::MFD_ALLOW_SEALING).expect("a memfd");
        ftruncate(&fd, 4096).expect("room");
        let error = Region::map(fd.as_fd(), 4096).expect_err("it is not sealed");
        assert!(error.to_string().contains("not sealed"), "{error}");
    }

    #[test]
    fn a_sealed_region_cannot_shrink_and_has_its_length() {
        let (_region, fd) = Region::create(4096).expect("a region");
        assert!(ftruncate(&fd, 0).is_err(), "the seal holds");
        let error = Region::map(fd.as_fd(), 8192).expect_err("it is shorter");
        assert!(error.to_string().contains("size"), "{error}");
    }

    #[test]
    fn what_is_no_memory_file_is_refused() {
        let file = std::fs::File::open("/dev/null").expect("it is everywhere");
        assert!(Region::map(file.as_fd(), 4096).is_err());
    }
}
