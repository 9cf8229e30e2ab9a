#!/usr/bin/env bash
# Puts what testbed/deploy/build.sh has built below DESTDIR/PREFIX: the programs, stripped, with
# manual pages, completions and systemd units, and in share/weft what they read. `make install` calls
# it, and so does `make dist`, whose tarball and package have these files and no others.
#
#     [PREFIX=/usr/local] [DESTDIR=] [FROM=target/release] testbed/deploy/install.sh
#
# Exit status: 0 done, 1 it could not be written, 3 a program was not built.
set -euo pipefail
cd "$(dirname "$0")/../.."

from=${FROM:-${CARGO_TARGET_DIR:-target}/release}
to=${DESTDIR:-}${PREFIX:-/usr/local}
programs=(weft weft-controller weft-node weft-bench)
# With the paths that they have here, for documents and --help name these (weft_process::shipped).
shared=(
  README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT docs proto/SPEC.md
  controller/daemon/configs dataplane/node/configs
  p4/build proto/wireshark/weft.lua tests/conformance
  testbed/scenarios testbed/deploy/demo.sh testbed/deploy/mininet/push.toml
)

for program in "${programs[@]}"; do
  if [[ ! -x $from/$program ]]; then
    echo "install: $from/$program is not there: run make build" >&2
    exit 3
  fi
  install -D --strip "$from/$program" "$to/bin/$program"
done
# Only with DPDK.
if [[ -x $from/weft-bridge ]]; then
  install -D --strip "$from/weft-bridge" "$to/bin/weft-bridge"
fi
install -D testbed/deploy/mininet/weft-mininet "$to/bin/weft-mininet"

# What an earlier version had there would be found, and played.
rm -rf "$to/share/weft"
for path in "${shared[@]}"; do
  mkdir -p "$to/share/weft/$(dirname "$path")"
  cp -R "$path" "$to/share/weft/$path"
done
find "$to/share/weft" -name __pycache__ -prune -exec rm -r {} +
chmod -R u=rwX,go=rX "$to/share/weft"

for unit in testbed/deploy/systemd/*.service; do
  install -D -m 644 "$unit" "$to/lib/systemd/system/$(basename "$unit")"
done
"$from/weft" man "$to/share/man/man1"
complete() {
  mkdir -p "$(dirname "$to/$3")"
  "$from/weft" completions "$1" --program "$2" >"$to/$3"
}
for program in weft weft-node weft-controller; do
  complete bash $program share/bash-completion/completions/$program
  complete zsh $program share/zsh/site-functions/_$program
  complete fish $program share/fish/vendor_completions.d/$program.fish
done
echo "installed below $to" >&2
