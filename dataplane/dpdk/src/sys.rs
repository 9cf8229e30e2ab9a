//! The declarations of `shim/shim.h`, mirrored by hand; keep both equal.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU16;

pub(crate) const NAME_MAX: usize = 64;

/// An `rte_mempool`, never looked into.
#[repr(C)]
pub(crate) struct Pool {
    _opaque: [u8; 0],
}

/// The head of a `struct rte_mbuf`, as far as Rust uses it; `frame.c` asserts the offsets.
#[repr(C)]
pub(crate) struct Frame {
    pub(crate) buffer: NonNull<u8>,
    _iova: u64,
    pub(crate) data_off: u16,
    /// Mbufs that refer to this one's buffer, itself included. Other threads may lower it.
    pub(crate) refcnt: AtomicU16,
    pub(crate) nb_segs: u16,
    _port_flags_type: [u16; 7],
    /// Bytes in all segments.
    pub(crate) pkt_len: u32,
    /// Bytes in the first.
    pub(crate) data_len: u16,
    _vlan_hash: [u16; 6],
    pub(crate) buf_len: u16,
    _rest: [u64; 9],
    /// `struct weft_private`: leading bytes that no other mbuf refers to, while one shares the
    /// rest. It shrinks when a copy starts to, which happens through a shared reference.
    pub(crate) owned: Cell<u16>,
}

const _: () = {
    assert!(offset_of!(Frame, data_off) == 16);
    assert!(offset_of!(Frame, refcnt) == 18);
    assert!(offset_of!(Frame, nb_segs) == 20);
    assert!(offset_of!(Frame, pkt_len) == 36);
    assert!(offset_of!(Frame, data_len) == 40);
    assert!(offset_of!(Frame, buf_len) == 54);
    assert!(offset_of!(Frame, owned) == 128);
};

#[derive(Default)]
#[repr(C)]
pub(crate) struct RxCount {
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    pub(crate) nombuf: u64,
}

#[repr(C)]
pub(crate) struct PortInfo {
    pub(crate) name: [c_char; NAME_MAX],
    pub(crate) driver: [c_char; NAME_MAX],
    pub(crate) mac: [u8; 6],
    pub(crate) min_mtu: u16,
    pub(crate) max_mtu: u16,
    pub(crate) max_rx_queues: u16,
    pub(crate) max_tx_queues: u16,
    pub(crate) socket: i16,
    pub(crate) tx_multi_segs: u8,
    pub(crate) rss_l4_src: u8,
}

#[repr(C)]
pub(crate) struct PortConf {
    pub(crate) rx_queues: u16,
    pub(crate) tx_queues: u16,
    pub(crate) mtu: u16,
    pub(crate) tx_multi_segs: u8,
    pub(crate) rss_l4_src: u8,
}

#[derive(Default)]
#[repr(C)]
pub(crate) struct PortStats {
    pub(crate) imissed: u64,
    pub(crate) ierrors: u64,
    pub(crate) oerrors: u64,
    pub(crate) rx_nombuf: u64,
}

unsafe extern "C" {
    pub(crate) fn weft_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub(crate) fn weft_eal_cleanup() -> c_int;
    pub(crate) fn weft_runtime_dir() -> *const c_char;
    pub(crate) fn weft_version() -> *const c_char;
    pub(crate) fn weft_strerror(errnum: c_int) -> *const c_char;
    pub(crate) fn weft_first_cpu() -> c_int;
    pub(crate) fn weft_pin_thread(cpu: c_uint) -> c_int;
    pub(crate) fn weft_lcore_id() -> c_int;
    pub(crate) fn weft_thread_register() -> c_int;
    pub(crate) fn weft_thread_unregister();
    pub(crate) fn weft_socket_id() -> c_int;
    pub(crate) fn weft_tsc() -> u64;
    pub(crate) fn weft_tsc_hz() -> u64;

    pub(crate) fn weft_port_probe(devargs: *const c_char) -> c_int;
    pub(crate) fn weft_port_next(from: u16) -> c_int;
    pub(crate) fn weft_port_info(port: u16, info: *mut PortInfo) -> c_int;
    pub(crate) fn weft_port_configure(port: u16, conf: *const PortConf) -> c_int;
    pub(crate) fn weft_port_rx_queue(
        port: u16,
        queue: u16,
        descriptors: u16,
        pool: *mut Pool,
    ) -> c_int;
    pub(crate) fn weft_port_tx_queue(port: u16, queue: u16, descriptors: u16) -> c_int;
    pub(crate) fn weft_port_start(port: u16, mtu: u16, promiscuous: c_int) -> c_int;
    pub(crate) fn weft_port_close(port: u16, rx_queues: u16) -> c_int;
    pub(crate) fn weft_port_link(port: u16) -> c_int;
    pub(crate) fn weft_port_stats(port: u16, stats: *mut PortStats) -> c_int;
    pub(crate) fn weft_port_xstats(
        port: u16,
        names: *mut [c_char; NAME_MAX],
        values: *mut u64,
        n: c_uint,
    ) -> c_int;

    pub(crate) fn weft_pool_create(
        name: *const c_char,
        count: c_uint,
        cache: c_uint,
        data_room: u16,
        socket: c_int,
        error: *mut c_int,
    ) -> *mut Pool;
    pub(crate) fn weft_pool_available(pool: *const Pool) -> c_uint;
    pub(crate) fn weft_headroom() -> u16;
    pub(crate) fn weft_frame_alloc(pool: *mut Pool) -> *mut Frame;
    pub(crate) fn weft_frame_copy(pool: *mut Pool, from: *const Frame) -> *mut Frame;
    pub(crate) fn weft_frame_share(
        pool: *mut Pool,
        clones: *mut Pool,
        from: *const Frame,
        header_len: u16,
    ) -> *mut Frame;
    pub(crate) fn weft_frame_free(frame: *mut Frame);
    pub(crate) fn weft_frame_free_bulk(frames: *const *mut Frame, n: u16);

    pub(crate) fn weft_rx_burst(
        port: u16,
        queue: u16,
        pool: *mut Pool,
        frames: *mut *mut Frame,
        n: u16,
        count: *mut RxCount,
    ) -> u16;
    pub(crate) fn weft_tx_burst(
        port: u16,
        queue: u16,
        frames: *const *mut Frame,
        n: u16,
        bytes: *mut u64,
    ) -> u16;
}
