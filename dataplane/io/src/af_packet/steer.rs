//! The classic BPF program that chooses an lcore by UDP source port.
//!
//! It decides for the kernel, at PACKET_FANOUT: its result modulo the number of sockets is the
//! socket. Headers are assumed to be without options and extensions; others are refused later in
//! any case, and any lcore may do that.

use libc::{
    BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_JA, BPF_JMP, BPF_K, BPF_RET, BPF_RSH, BPF_SUB, sock_filter,
};

use super::bpf::{BPF_A, UDP, jump_equal, load, op};
use super::config::Steering;

/// Instructions of [`program`].
const PROGRAM_LEN: usize = 15;

/// `(source port - first_port) & (shard_count - 1)`, or 0 for anything but UDP.
pub(super) fn program(steering: Steering) -> [sock_filter; PROGRAM_LEN] {
    let mask = u32::from(steering.shard_count) - 1;
    [
        load(BPF_B, 0), // IP version and header length
        op(BPF_ALU | BPF_RSH | BPF_K, 4),
        jump_equal(4, 0, 4), // IPv4, else to 7
        load(BPF_B, 9),      // protocol
        jump_equal(UDP, 0, 9),
        load(BPF_H, 20), // source port
        op(BPF_JMP | BPF_JA, 4),
        jump_equal(6, 0, 6), // 7: IPv6
        load(BPF_B, 6),      // next header
        jump_equal(UDP, 0, 4),
        load(BPF_H, 40),                                           // source port
        op(BPF_ALU | BPF_SUB | BPF_K, steering.first_port.into()), // 11
        op(BPF_ALU | BPF_AND | BPF_K, mask),
        op(BPF_RET | BPF_A, 0),
        op(BPF_RET | BPF_K, 0), // 14: not UDP
    ]
}
