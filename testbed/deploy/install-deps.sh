#!/usr/bin/env bash
# Installs the Debian packages that a target of the Makefile needs and this machine lacks.
#
#     testbed/deploy/install-deps.sh [--yes | --check] [demo | test | bench]
#
# Says what it will install; asks first on a terminal. --yes, or CI=true in the environment, skips
# the question. --check only says what is missing. Exit status: 0 nothing is missing any more,
# 1 declined or apt-get failed, 2 wrong usage, 3 something is missing and cannot be installed here.
set -euo pipefail

# Each group contains the one before it.
demo=(
  build-essential pkg-config libdpdk-dev # the aggregator on DPDK
  iproute2 ethtool                       # weft lab: namespaces, veth, rates
)
test=(
  dpdk-dev      # dpdk-testpmd, a second opinion about ports
  tshark        # the dissector against the golden packets
  iputils-ping  # labs forward, nodes answer
  valgrind      # callgrind counts instructions
  mininet       # the topologies of its users
  tmux          # the screen of weft top in a terminal
)
bench=(
  openmpi-bin libopenmpi-dev libgloo-dev # allreduces to compare with
)

say() { echo "install-deps: $*" >&2; }

yes=${CI:-false}
check=false
group=demo
for argument in "$@"; do
  case $argument in
    --yes) yes=true ;;
    --check) check=true ;;
    demo | test | bench) group=$argument ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) say "unknown argument $argument; see --help"; exit 2 ;;
  esac
done

wanted=("${demo[@]}")
[[ $group == demo ]] || wanted+=("${test[@]}")
[[ $group != bench ]] || wanted+=("${bench[@]}")

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  say "this is not a Debian-like system; install the counterparts of: ${wanted[*]}"
  exit 3
fi

missing=()
for package in "${wanted[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  say "nothing is missing for $group"
  exit 0
fi
say "missing for $group: ${missing[*]}"
if $check; then exit 3; fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    say "neither root nor sudo: ask an administrator to run: apt-get install ${missing[*]}"
    exit 3
  fi
  as_root=(sudo)
fi
if [[ $yes != true && $yes != 1 ]]; then
  if [[ ! -t 0 ]]; then
    say "no terminal to ask on: run again with --yes, or: apt-get install ${missing[*]}"
    exit 3
  fi
  read -r -p "Install them with apt-get? [y/N] " answer
  [[ $answer == [yY]* ]] || { say "declined"; exit 1; }
fi

# apt-get names each of some 200 packages, and each again that it could not get: its last lines tell.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 \
    -o DPkg::Lock::Timeout=120 -qq "$@" >"$log" 2>&1 || { tail -n 3 "$log" >&2; return 1; }
}
# A stale list is no reason to stop: the packages may be there all the same.
apt update || say "apt-get update failed; trying with the lists there are"
for attempt in 1 2 3; do
  if apt install -y --no-install-recommends "${missing[@]}"; then exit 0; fi
  say "apt-get install failed (attempt $attempt of 3)"
  sleep "$attempt"
done
exit 1
