//! Which counts of a file ask for more memory than there is anywhere: a port's buffers and rings are
//! taken when a node starts, which would end or stall it then, and without a key.

use alloc::format;
use alloc::string::String;

use super::{Io, NodeConfig};
use crate::Problem;

/// Finds the first count that is too large.
pub(super) fn check(config: &NodeConfig) -> Result<(), Problem> {
    let (port, dpdk) = (&config.port, &config.dpdk);
    let bench_frames = config.bench.as_ref().map_or(0, |bench| u64::from(bench.frames));
    let counts: [(&str, u64, u64); 7] = [
        ("port.frame_count", port.frame_count as u64, FRAMES_MAX),
        ("port.socket_buffer_bytes", port.socket_buffer_bytes as u64, SOCKET_BYTES_MAX),
        ("port.ring_bytes", port.ring_bytes as u64, SOCKET_BYTES_MAX),
        ("lcores.ring_frames", config.lcores.ring_frames as u64, FRAMES_MAX),
        ("dpdk.memory_mib", u64::from(dpdk.memory_mib), DPDK_MIB_MAX),
        ("dpdk.mbuf_count", u64::from(dpdk.mbuf_count), FRAMES_MAX),
        ("bench.frames", bench_frames, FRAMES_MAX),
    ];
    if let Some((key, _, max)) = counts.iter().find(|(_, count, max)| count > max) {
        return Err(Problem::new(*key, format!("must be at most {max}")));
    }
    if port.io == Io::AfPacket && port.ring_bytes == 0 {
        return Err(Problem::new("port.ring_bytes", String::from("must be at least 1")));
    }
    let frame_bytes = u64::from(port.mtu) + ETHERNET_BYTES;
    let lanes = u64::from(config.lcores.shards);
    let bytes = (port.frame_count as u64).saturating_mul(frame_bytes).saturating_mul(lanes);
    if bytes > FRAME_BYTES_MAX {
        let problem = format!(
            "makes {bytes} bytes of frames, frame_count x (mtu + 14) x lcores.shards: at most \
             {FRAME_BYTES_MAX}"
        );
        return Err(Problem::new("port.frame_count", problem));
    }
    Ok(())
}

/// Most frames of a lane, of a ring or of a bench.
const FRAMES_MAX: u64 = 1 << 20;
/// Most bytes of the frames of all lanes.
const FRAME_BYTES_MAX: u64 = 16 << 30;
/// Most bytes of a ring, or of a socket's buffer, whose length the kernel takes as an `int`.
const SOCKET_BYTES_MAX: u64 = 1 << 30;
/// Most memory of DPDK's: a TiB.
const DPDK_MIB_MAX: u64 = 1 << 20;
/// What a frame has beside its IP packet.
const ETHERNET_BYTES: u64 = 14;
