#!/usr/bin/env bash
# Builds weft, weft-controller, weft-node and weft-bench (release), the last two with DPDK where
# libdpdk is.
#
#     testbed/deploy/build.sh
#
# With DPDK they are called weft-node-dpdk and weft-bench-dpdk, for a plain `cargo build` writes
# weft-node and weft-bench anew without it; `weft` takes those with DPDK while all are of one commit.
set -euo pipefail
cd "$(dirname "$0")/../.."

release=${CARGO_TARGET_DIR:-target}/release
cargo build --release -p weft-testbed -p weft-controller
if pkg-config --exists libdpdk 2>/dev/null; then
  cargo build --release -p weft-node -p weft-bench --features weft-node/dpdk,weft-bench/dpdk
  for program in weft-node weft-bench; do
    # Under another name first: one that runs cannot be written to.
    cp "$release/$program" "$release/$program-dpdk.new"
    mv "$release/$program-dpdk.new" "$release/$program-dpdk"
  done
else
  cargo build --release -p weft-node -p weft-bench
fi
