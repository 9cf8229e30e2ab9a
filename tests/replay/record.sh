#!/bin/sh
# Records the live part of the corpus anew: tests/replay/record.sh BIN OUT, where BIN holds weft,
# weft-node and weft-controller. Each recording in OUT/NAME is that of one box of one run; copy into
# tests/replay what is to be kept, with an ORIGIN.md.
set -eu
bin=$1
out=$2
here=$(dirname "$0")
mkdir -p "$out"
run() { # NAME SCENARIO ARGUMENT…: a run whose recordings are kept
    name=$1
    scenario=$2
    shift 2
    # Status 3: right, but over UDP.
    "$bin/weft" run "$here/scenarios/$scenario.toml" --io udp --no-lab --record \
        --out "$out/run-$name" "$@" >"$out/$name.txt" 2>&1 || [ $? -eq 3 ]
}
keep() { # NAME RUN BOX: the recording of one box
    rm -rf "${out:?}/$1"
    cp -r "$out/run-$2/$3.recording" "$out/$1"
}
run digits digits
keep digits digits a0
run digits-loss digits --rounds 8 --loss 0.1 --duplicate 0.05 --reorder 0.05 --corrupt 0.05
keep digits-loss digits-loss a0
run levels digits --leaves 2 --loss 0.05 --rounds 4
keep levels-root levels a0
keep levels-leaf levels a1
run leaf-restart digits --leaves 2 --rounds 8 --restart a1@4
keep leaf-restart leaf-restart a1
run root-restart digits --loss 0.05 --rounds 12 --restart a0@5
keep root-restart root-restart a0
# Timing decides what the plan sums on the way: until it sums something.
for _ in 1 2 3 4 5; do
    rm -rf "$out/run-push"
    run push push
    grep -q " 0 aggregated" "$out/push.txt" || break
done
keep push-aggregator push a0
keep push-server push server
keep push-replica push replica
run failover failover
keep promotion failover replica
keep promotion-aggregator failover a0
run restart restart
keep server-restart restart server
