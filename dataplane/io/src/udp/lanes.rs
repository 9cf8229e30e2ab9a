//! Ports of a box's lanes: each sends from a UDP port of its own, and all receive what comes to the
//! first one, each a part of it.
//!
//! The kernel chooses among the sockets of the first port by the sender's port, modulo the lanes:
//! the lane, where members have ports that are multiples of them. Who has others is received by
//! another lane, which knows better and hands the frame over, so nothing depends on it.
//!
//! Source: socket(7), SO_REUSEPORT and SO_ATTACH_REUSEPORT_CBPF.

use std::io;
use std::net::SocketAddr;

use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_H, BPF_K, BPF_LD, BPF_RET, SKF_NET_OFF, sock_filter};
use nix::sys::socket::{setsockopt, sockopt};
use weft_wire::frame::{IPV4_LEN, IPV6_LEN};

use super::socket::{Socket, bind_all};
use super::{UdpConfig, UdpError, UdpPort, check};

impl UdpPort {
    /// Opens the ports of as many lanes as `config` has sockets, a power of two: lane `i` sends
    /// from `config.addr` + `i`, and receives what comes there, and its part of what comes to
    /// `config.addr`.
    ///
    /// # Errors
    /// As [`UdpPort::open`].
    pub fn open_lanes(config: &UdpConfig) -> Result<Vec<Self>, UdpError> {
        check(config)?;
        if !config.socket_count.is_power_of_two() {
            let problem = "the number of lanes must be a power of two";
            return Err(UdpError::Config { addr: config.addr, problem });
        }
        // The first socket is bound alone, so that an address in use is found as ever.
        let sockets = bind_all(config)?;
        let addr = sockets[0].addr();
        let failed = |attempt| move |source| UdpError::Socket { addr, attempt, source };
        if sockets.len() > 1 {
            sockets[0].allow_sharing().map_err(failed("share a socket's port"))?;
        }
        let mut lanes: Vec<Vec<Socket>> = sockets.into_iter().map(|socket| vec![socket]).collect();
        for sockets in &mut lanes[1..] {
            sockets.push(Socket::bind_shared(addr, config)?);
        }
        if lanes.len() > 1 {
            let count = u32::try_from(lanes.len()).unwrap_or(1);
            steer(&lanes[0][0], count).map_err(failed("steer datagrams to lanes"))?;
        }
        Ok(lanes.into_iter().map(|sockets| Self::on(sockets, 1, config)).collect())
    }
}

/// Has the kernel choose the `lane`th of the sockets that share a port for a sender of that lane.
fn steer(first: &Socket, lanes: u32) -> io::Result<()> {
    let mut program = program(first.addr(), lanes);
    let len = u16::try_from(program.len()).unwrap_or(0);
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    Ok(setsockopt(first.inner(), sockopt::AttachReusePortCbpf, &program)?)
}

/// `source port & (lanes - 1)`. Headers are assumed to be without options and extensions.
fn program(addr: SocketAddr, lanes: u32) -> [sock_filter; 3] {
    let ip_len = if addr.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
    let at = SKF_NET_OFF.cast_unsigned() + u32::try_from(ip_len).unwrap_or(0);
    [
        op(BPF_LD | BPF_H | BPF_ABS, at),
        op(BPF_ALU | BPF_AND | BPF_K, lanes - 1),
        op(BPF_RET | BPF_A, 0),
    ]
}

#[expect(clippy::cast_possible_truncation, reason = "classic BPF opcodes have 8 bits")]
const fn op(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// The accumulator as the return value (linux/filter.h); libc does not export it.
const BPF_A: u32 = 0x10;
