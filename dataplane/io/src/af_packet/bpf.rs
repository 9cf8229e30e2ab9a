//! Instructions of classic BPF (the kernel's Documentation/networking/filter.rst).

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, SKF_NET_OFF, sock_filter};

/// `BPF_A`, the accumulator as the return value (linux/filter.h); libc does not export it.
pub(super) const BPF_A: u32 = 0x10;
/// Of IP.
pub(super) const UDP: u32 = 17;

/// Loads from the network header on, whatever lies before it.
pub(super) fn load(size: u32, offset: u32) -> sock_filter {
    op(BPF_LD | size | BPF_ABS, SKF_NET_OFF.cast_unsigned() + offset)
}

/// Jumps when the accumulator is `k`.
pub(super) fn jump_equal(value: u32, if_true: u8, if_false: u8) -> sock_filter {
    sock_filter { jt: if_true, jf: if_false, ..op(BPF_JMP | BPF_JEQ | BPF_K, value) }
}

/// An instruction.
#[expect(clippy::cast_possible_truncation, reason = "classic BPF opcodes have 8 bits")]
pub(super) fn op(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}
