#!/usr/bin/env bash
# Builds programs of Weft, those of the dataplane with DPDK where libdpdk is; without arguments all,
# for figures and for `make install`.
#
#     testbed/deploy/build.sh [PROFILE [PROGRAM…]]
set -euo pipefail
cd "$(dirname "$0")/../.."

profile=${1:-release}
shift || true
if (($# == 0)); then set -- weft weft-controller weft-node weft-bench; fi
features=()
has_dpdk=false
if pkg-config --exists libdpdk 2>/dev/null; then has_dpdk=true; fi

arguments=(--profile "$profile")
for program; do
  arguments+=(-p "${program/%weft/weft-testbed}" --bin "$program")
  if $has_dpdk && [[ $program == weft-node || $program == weft-bench ]]; then
    features+=("$program/dpdk")
  fi
  # Carries frames between loopback and a memif where there are no namespaces.
  if $has_dpdk && [[ $program == weft-node ]]; then arguments+=(--bin weft-bridge); fi
done
cargo build "${arguments[@]}" --features "${features[*]}"
