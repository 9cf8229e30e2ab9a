#!/usr/bin/env bash
# Installs what is missing, builds, and runs the main job: four workers train on real images of
# digits while an aggregator sums their gradients. Further arguments go to `weft run`.
#
# Exit status: 0 every sum and the final model were right; 1 they were not; 3 it ran degraded, or
# cannot run here.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v cargo >/dev/null; then
  echo "demo: cargo was not found; install Rust (rust-toolchain.toml names the version)" >&2
  exit 3
fi
testbed/deploy/install-deps.sh demo ||
  echo "demo: going on without; weft run falls back to what this machine has" >&2

features=()
if pkg-config --exists libdpdk 2>/dev/null; then features=(--features dpdk); fi
cargo build --release -p weft-testbed
cargo build --release -p weft-node "${features[@]}"

exec "${CARGO_TARGET_DIR:-target}/release/weft" run testbed/scenarios/digits.toml "$@"
