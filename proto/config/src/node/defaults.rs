//! What keys mean that are left out, for those that serde asks by name.

use alloc::string::String;

use weft_wire::header::{ElementType, Operation, PORT_BASE};
use weft_wire::hello::Overflow;

use super::Elements;
use crate::FilePath;

macro_rules! defaults {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        $(pub(super) const fn $name() -> $type { $value })*
    };
}

defaults! {
    yes: bool = true;
    // The port.
    udp_port: u16 = PORT_BASE;
    mtu: u16 = 1500;
    frame_count: usize = 2048;
    socket_buffer_bytes: usize = 4 << 20;
    size_max_mib: u64 = 1024;
    record_bytes_max: u64 = 256 << 20;
    // The switch.
    election_id: u64 = 1;
    switch_elements: u16 = 32;
    cpu_port: u16 = 255;
    cpu_rate_bytes_per_sec: u64 = 8_000_000;
    // Jobs and rows.
    slots_max: u32 = 4096;
    burst_bytes: u64 = 1 << 20;
    death_timeout_ms: u64 = 2000;
    element_type: ElementType = ElementType::I32;
    operation: Operation = Operation::Sum;
    overflow: Overflow = Overflow::Wrap;
    elements: u16 = 256;
    row_elements: Elements = Elements::Count(256);
    window: u16 = 256;
    chunks_max: u32 = 1 << 31;
    weight: u32 = 1;
    // Push jobs.
    quota_bytes: u64 = 64 << 20;
    pull_cache_bytes: u64 = 4 << 20;
    // Servers and replicas.
    exponent: i8 = -20;
    divergence_wait_ms: u64 = 1000;
    lateness_ms: u64 = 2000;
    fallback_ms: u64 = 1000;
    source_timeout_ms: u64 = 500;
    groups_open_max: u16 = 256;
    staging_bytes_max: u64 = 256 << 20;
    journal_bytes_max: u64 = 64 << 20;
    log_entries_max: usize = 1024;
    window_max: u32 = 64;
    credits_window_max: u32 = 256;
    credits_max: u32 = 512;
    rto_min_us: u64 = 2000;
    credit_rto_min_us: u64 = 20_000;
    rto_max_us: u64 = 200_000;
    copy_grace_us: u64 = 5000;
    status_interval_us: u64 = 20_000;
    // Benches.
    seconds: f64 = 1.0;
    packets: u64 = 10_000;
    frames: u32 = 256;
    order: u32 = 1;
    check_every: u32 = 61;
}

/// Where simple_switch_grpc listens.
pub(super) fn grpc() -> String {
    String::from("127.0.0.1:9559")
}

/// Where `make -C p4` leaves the program.
pub(super) fn program() -> FilePath {
    FilePath::from("p4/build")
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
pub(super) const fn is_zero(number: &u8) -> bool {
    *number == 0
}
