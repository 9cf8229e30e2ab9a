//! What the tests of every EAL configuration share.
//!
//! EAL starts once per process, so each configuration is a test binary with a single `#[test]`.

use std::path::{Path, PathBuf};
use weft_dpdk::{EalArgs, Mbuf};
use weft_io::{Burst, Port};
use weft_wire::Nanos;

/// No hugepages, no root, no PCI, no telemetry; EAL's folder for run-time files is `folder`.
pub(crate) fn eal_args(folder: &TempDir) -> EalArgs {
    // SAFETY: libtest's main thread waits for the only test, and no other thread runs yet.
    unsafe { std::env::set_var("RUNTIME_DIRECTORY", folder.path()) };
    EalArgs::new().memory_mib(128).file_prefix(format!("weft_test_{}", std::process::id()))
}

/// A frame of `len` bytes that differ with `seed`.
pub(crate) fn pattern(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()[0]
        })
        .collect()
}

/// A frame from the pool with these bytes.
pub(crate) fn frame_of(port: &mut impl Port<Frame = Mbuf>, bytes: &[u8]) -> Mbuf {
    let mut frame = port.alloc().expect("the pool has a buffer");
    weft_io::Frame::set_len(&mut frame, bytes.len());
    frame.as_mut().copy_from_slice(bytes);
    frame
}

pub(crate) fn rx(port: &mut impl Port<Frame = Mbuf>) -> Burst<Mbuf> {
    let mut burst = Burst::new();
    port.rx_burst(Nanos(0), &mut burst);
    burst
}

/// A folder that is removed with its contents.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-dpdk-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder in the temporary directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
