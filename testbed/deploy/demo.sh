#!/usr/bin/env bash
# Installs what is missing, builds, and runs the main job: four workers train on real images of
# digits while an aggregator sums their gradients. Then the same images train a model on a parameter
# server over links of unequal rates until its loss is 0.5, with transfers planned by MLfabric,
# shared fairly, and in the order in which they were asked for: how long each took, as the median of
# three seeds, in a table and a picture. Further arguments go to the main job's `weft run`.
#
# Exit status: 0 every sum and every final model was right; 1 one was not; 3 the main job ran
# degraded, or cannot run here.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v cargo >/dev/null; then
  echo "demo: cargo was not found; install Rust (rust-toolchain.toml names the version)" >&2
  exit 3
fi
testbed/deploy/install-deps.sh demo ||
  echo "demo: going on without; weft run falls back to what this machine has" >&2

testbed/deploy/build.sh
weft="${CARGO_TARGET_DIR:-target}/release/weft"

main=0
"$weft" run testbed/scenarios/digits.toml "$@" || main=$?
# A main job that was wrong, or a wrong option, needs no second one.
if [ "$main" -ne 0 ] && [ "$main" -ne 3 ]; then exit "$main"; fi

echo
echo "The asynchronous job on unequal links until a loss of 0.5, three seeds, by policy (minutes):"
compared=0
"$weft" compare testbed/scenarios/async.toml --policies mlfabric,fair,fifo --seeds 1..3 \
  -- --until-loss 0.5 || compared=$?
if [ "$compared" -eq 3 ]; then
  echo "demo: no network namespaces here, so no comparison of policies" >&2
  compared=0
fi
if [ "$compared" -ne 0 ]; then exit "$compared"; fi
exit "$main"
