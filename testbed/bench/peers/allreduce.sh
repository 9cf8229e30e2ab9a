#!/bin/bash
# Weft's allreduce beside OpenMPI's and Gloo's: the same star of namespaces, the same link rates.
#
#   testbed/bench/peers/allreduce.sh [RATE_MBIT [WORKERS [COUNT [ITERATIONS]]]]
#
# Prints one JSON object per run. OpenMPI and Gloo are Debian packages (openmpi-bin libopenmpi-dev,
# libgloo-dev g++); a peer that is not installed is left out, and said so. Needs root, and
# `make build` before.
set -euo pipefail

rate=${1:-100} workers=${2:-4} count=${3:-16777216} iterations=${4:-1}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
weft=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}/release/weft")
lab=peers$((BASHPID % 100000))
work=$(mktemp -d "${TMPDIR:-/tmp}/weft-peers.XXXXXX")
export WEFT_BIN=$weft WEFT_PEERS_LAB=$lab

say() { echo "allreduce.sh: $*" >&2; }

finish() {
    "$weft" lab down "$lab" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT

[[ -x $weft ]] || { say "$weft is missing: make build"; exit 3; }
[[ $EUID -eq 0 ]] || { say "needs root for a lab that several commands share"; exit 3; }

topology() {
    local names=() links=() rank
    for ((rank = 0; rank < workers; rank++)); do
        names+=("\"w$rank\": { \"ip\": \"10.91.0.$((rank + 1))/24\" }")
        links+=("[\"w$rank\", \"s0\", { \"bw\": $rate }]")
    done
    local IFS=,
    echo "{ \"hosts\": { ${names[*]} }, \"switches\": { \"s0\": {} }, \"links\": [ ${links[*]} ] }"
}

# What mpirun takes for ssh: runs a command on the host with this address, which is a namespace.
cat >"$work/agent" <<'AGENT'
#!/bin/bash
address=$1
shift
exec "$WEFT_BIN" lab exec "$WEFT_PEERS_LAB" "w$((${address##*.} - 1))" -- bash -c "$*"
AGENT
chmod +x "$work/agent"

hosts() {
    local list=() rank
    for ((rank = 1; rank <= workers; rank++)); do list+=("10.91.0.$rank:1"); done
    local IFS=,
    echo "${list[*]}"
}

# run_mpi LABEL [mpirun arguments]: TCP between the namespaces; shared memory would go around them.
run_mpi() {
    local label=$1
    shift
    "$weft" lab exec "$lab" w0 -- mpirun --allow-run-as-root --host "$(hosts)" -np "$workers" \
        --mca plm_rsh_agent "$work/agent" --mca btl tcp,self --mca pml ob1 \
        --mca btl_tcp_if_include 10.91.0.0/24 --mca oob_tcp_if_include 10.91.0.0/24 \
        --mca plm_rsh_no_tree_spawn 1 "$@" "$work/mpi" "$label" "$count" "$iterations"
}

# The slowest rank's time is the allreduce's; errors of all ranks count.
run_gloo() {
    local rank pids=()
    mkdir -p "$work/store"
    for ((rank = 0; rank < workers; rank++)); do
        "$weft" lab exec "$lab" "w$rank" -- "$work/gloo" gloo "$count" "$iterations" "$rank" \
            "$workers" "10.91.0.$((rank + 1))" "$work/store" >"$work/gloo.$rank" &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do wait "$rank"; done
    sort -t: -k6 -n "$work"/gloo.[0-9]* >"$work/gloo.rows"
    if grep -qv '"wrong":0}' "$work/gloo.rows"; then grep -v '"wrong":0}' "$work/gloo.rows"
    else sort -t: -k6,6 -n "$work/gloo.rows" | tail -1; fi
}

say "Weft: $workers workers, $count floats, $rate Mb/s"
"$weft" bench allreduce -b $((count * 4)) -e $((count * 4)) -w "$workers" -n "$iterations" \
    --warmup-iters 0 --io dpdk --rate-mbit "$rate" --type f32 --format json |
    tr -d '\n' | sed 's/{/{"peer":"weft",/; s/  */ /g'
echo

topology >"$work/topology.json"
"$weft" lab up "$work/topology.json" --name "$lab" >/dev/null
if command -v mpicc >/dev/null; then
    mpicc -O2 -o "$work/mpi" "$here/mpi_allreduce.c"
    say "OpenMPI, its own choice of algorithm"
    run_mpi openmpi
    say "OpenMPI, ring"
    run_mpi openmpi-ring --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4
else
    say "OpenMPI is left out: apt-get install openmpi-bin libopenmpi-dev"
fi
if g++ -O2 -std=c++17 -o "$work/gloo" "$here/gloo_allreduce.cc" -lgloo -lpthread 2>"$work/gloo.log"; then
    say "Gloo, its own choice of algorithm"
    run_gloo
else
    say "Gloo is left out: apt-get install libgloo-dev g++ ($(head -1 "$work/gloo.log"))"
fi
