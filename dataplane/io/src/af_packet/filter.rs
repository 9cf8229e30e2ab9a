//! The classic BPF program that keeps what belongs to others out of the ring.
//!
//! Lets in UDP datagrams for the ports of a [`Listens`], and what is neither UDP nor TCP, so that
//! whoever owns the port may answer as a host. Headers are assumed to be without options and
//! extensions; others are refused later in any case.

use libc::{
    BPF_ALU, BPF_B, BPF_H, BPF_JA, BPF_JGE, BPF_JMP, BPF_K, BPF_RET, BPF_RSH, BPF_SUB, sock_filter,
};

use super::bpf::{UDP, jump_equal, load, op};
use super::config::Listens;

/// Instructions of [`program`].
const PROGRAM_LEN: usize = 17;
const TCP: u32 = 6;

/// Takes nothing of a frame, or all.
pub(super) fn program(listens: Listens) -> [sock_filter; PROGRAM_LEN] {
    let beyond = op(BPF_JMP | BPF_JGE | BPF_K, listens.count.into());
    [
        load(BPF_B, 0), // IP version and header length
        op(BPF_ALU | BPF_RSH | BPF_K, 4),
        jump_equal(4, 0, 4), // IPv4, else to 7
        load(BPF_B, 9),      // protocol
        jump_equal(UDP, 0, 7),
        load(BPF_H, 22), // target port
        op(BPF_JMP | BPF_JA, 6),
        jump_equal(6, 0, 7), // 7: IPv6
        load(BPF_B, 6),      // next header
        jump_equal(UDP, 0, 2),
        load(BPF_H, 42), // target port
        op(BPF_JMP | BPF_JA, 1),
        jump_equal(TCP, 3, 2), // 12: another protocol
        op(BPF_ALU | BPF_SUB | BPF_K, listens.first_port.into()), // 13: to others' ports?
        sock_filter { jt: 1, jf: 0, ..beyond },
        op(BPF_RET | BPF_K, u32::MAX), // 15: all
        op(BPF_RET | BPF_K, 0),        // 16: nothing
    ]
}
