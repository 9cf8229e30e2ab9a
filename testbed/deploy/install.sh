#!/usr/bin/env bash
# Puts what testbed/deploy/build.sh has built below DESTDIR/PREFIX: programs, manual pages, and
# completions for bash, zsh and fish. `make install` calls it.
#
#     [PREFIX=/usr/local] [DESTDIR=] [FROM=target/release] testbed/deploy/install.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

from=${FROM:-${CARGO_TARGET_DIR:-target}/release}
to=${DESTDIR:-}${PREFIX:-/usr/local}
install -D "$from/weft" "$to/bin/weft"
install -D "$from/weft-controller" "$to/bin/weft-controller"
for program in weft-node weft-bench; do
  built=$from/$program-dpdk
  [[ -x $built ]] || built=$from/$program
  install -D "$built" "$to/bin/$program"
done
# Only with DPDK.
if [[ -x $from/weft-bridge ]]; then install -D "$from/weft-bridge" "$to/bin/weft-bridge"; fi

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
