#!/usr/bin/env bash
# Builds weft, weft-controller and weft-node (release), the node with DPDK where libdpdk is.
#
#     testbed/deploy/build.sh
#
# The node with DPDK is called weft-node-dpdk, for a plain `cargo build` writes weft-node anew without
# it; `weft` takes the one with DPDK while both are of one commit.
set -euo pipefail
cd "$(dirname "$0")/../.."

release=${CARGO_TARGET_DIR:-target}/release
cargo build --release -p weft-testbed -p weft-controller
if pkg-config --exists libdpdk 2>/dev/null; then
  cargo build --release -p weft-node --features dpdk
  # Under another name first: one that runs cannot be written to.
  cp "$release/weft-node" "$release/weft-node-dpdk.new"
  mv "$release/weft-node-dpdk.new" "$release/weft-node-dpdk"
else
  cargo build --release -p weft-node
fi
