#!/usr/bin/env bash
# The main job: four workers train on real images of digits while an aggregator sums their
# gradients. Then the same images train a model on a parameter server over links of unequal rates
# until its loss is 0.5, with transfers planned by MLfabric, shared fairly, and in the order in which
# they were asked for: how long each took, in a table and a picture. Arguments go to the main job's
# `weft run`.
#
# Where a package of Weft is installed it builds nothing. Else it installs what is missing, and builds
# the programs that it runs, quickly and not for speed.
#
# Exit status: 0 every sum and every final model was right; 1 one was not; 3 the main job ran
# degraded, or cannot run here.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
NEEDED_MIB=1500
COMPARE_S=120

say() { printf 'demo: %s\n' "$*" >&2; }
step() { printf '\ndemo: %d:%02d %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*" >&2; }

# In a package, beside its own program; in the repository, one that is installed or was built.
weft=${root%/share/weft}/bin/weft
if [[ -f $root/Cargo.toml ]]; then weft=$(command -v weft || true); fi

if [[ -n $weft ]]; then
  say "nothing is built: $weft is $("$weft" --version)"
else
  target=${CARGO_TARGET_DIR:-$root/target}
  if ! command -v cargo >/dev/null; then
    say "cargo was not found: install Rust (rust-toolchain.toml names the version)," \
      "or a package of Weft (docs/packages.md)"
    exit 3
  fi
  mkdir -p "$target"
  free_mib=$(($(df --output=avail -k "$target" | tail -n 1) / 1024))
  if ((free_mib < NEEDED_MIB)); then
    say "$target has $free_mib MiB of room and the build needs $NEEDED_MIB:" \
      "make room, or name another folder in CARGO_TARGET_DIR"
    exit 3
  fi
  "$root/testbed/deploy/install-deps.sh" demo ||
    say "going on without; weft run falls back to what this machine has"
  step "building, for some minutes; a line for each of 250 crates"
  if ! "$root/testbed/deploy/build.sh" demo weft weft-controller weft-node; then
    say "the build failed. Where it was the network: crates come from crates.io, once, and" \
      "\`cargo fetch\` gets them all; a package of Weft needs no build (docs/packages.md)"
    exit 3
  fi
  weft=${target#"$PWD/"}/demo/weft
fi

report=$(mktemp)
trap 'rm -f "$report"' EXIT
step "four workers train on images of digits, an aggregator sums their gradients"
main=0
"$weft" run "$root/testbed/scenarios/digits.toml" "$@" | tee "$report" || main=$?
# A main job that was wrong, that could not run, or a wrong option, needs no second one.
if ((main != 0 && main != 3)) || [[ ! -s $report ]]; then exit "$main"; fi

step "eight workers on unequal links until a loss of 0.5, by policy; at most $COMPARE_S s"
compared=0
timeout --foreground --signal=INT "$COMPARE_S" \
  "$weft" compare "$root/testbed/scenarios/async.toml" --policies mlfabric,fair,fifo \
  -- --until-loss 0.5 || compared=$?
case $compared in
  0) seen="the policies reached the same loss, in the times of the table above" ;;
  3) seen="the policies could not be compared here, as said above" ;;
  124) seen="the comparison of policies took longer than $COMPARE_S s here and was cut off" ;;
  *) exit "$compared" ;;
esac

step "done"
if ((main == 0)); then
  seen="every sum and the final model were, bit for bit, those of plain loops; $seen"
else
  seen="DEGRADED, as the report says: the sums were right, on plain sockets; $seen"
fi
cat <<END

Seen: $seen.
Try next:
  $weft run testbed/scenarios/digits.toml --loss 0.01 --restart a0@50
      one frame in a hundred is lost, the aggregator is killed on the way: the same model
  $weft plan docs/examples/sixteen.json
      who sends when, for sixteen updates
  $weft conformance
      scripts of frames, to the Rust engine and to the P4 program
  $weft doctor
      what this machine can run, and how to fix what it cannot
END
if [[ $weft == */demo/weft ]]; then
  echo "These programs were built quickly and not for speed: for figures, make build."
fi
exit "$main"
