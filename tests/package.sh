#!/usr/bin/env bash
# Unpacks a package of Weft into a root of its own, with the packages that it depends on as they are
# on this machine, and has it run there, where there is no repository: digits on DPDK, a push under a
# controller, conformance, a replay. What the package forgot to depend on is missing there.
# `make test-dist` calls it.
#
#     tests/package.sh dist/weft_VERSION_ARCH.deb
#
# Exit status: 0 all ran, 1 not, 2 wrong usage, 3 it cannot be tried here.
set -euo pipefail

cannot() { echo "SKIPPED package: $*" >&2; exit 3; }
[[ $# == 1 && -f $1 ]] || { sed -n '7s/^# */usage: /p' "$0" >&2; exit 2; }
command -v dpkg-deb >/dev/null && command -v apt-cache >/dev/null || cannot "not a Debian system"
((EUID == 0)) || cannot "needs root, for a root of its own"

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
wanted=()
for field in Depends Recommends; do
  names=$(dpkg-deb -f "$1" "$field" | tr ',' '\n' | sed 's/[(|].*//; s/ //g')
  mapfile -t -O ${#wanted[@]} wanted <<<"$names"
done
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | sort -u)
for package in "${wanted[@]}"; do
  grep -qxF "$package" <<<"$installed" || cannot "$package is not installed here"
done
# And what every Debian system has.
essential=$(dpkg-query -W -f '${Essential} ${Package}\n' | sed -n 's/^yes //p')
all=$(apt-cache depends --installed --recurse --no-recommends --no-suggests --no-conflicts \
  --no-breaks --no-replaces --no-enhances $essential "${wanted[@]}" | grep '^[a-z]' | sort -u)
all=$(comm -12 <(sed 's/:.*//' <<<"$all" | sort -u) - <<<"$installed")
# Packages name files below /bin and /lib, which are links into /usr here.
for link in bin lib lib64 sbin; do
  mkdir -p "$root/usr/$link"
  ln -s "usr/$link" "$root/$link"
done
dpkg -L $all | sed -nE 's,^/(bin|lib|lib64|sbin)/,/usr/\1/,; s,^/(.*/.*),\1,p' | sort -u |
  (cd / && tar --create --no-recursion --ignore-failed-read --warning=no-failed-read \
    --files-from=- 2>/dev/null || true) | tar --extract --directory "$root"
dpkg-deb -x "$1" "$root"

echo "package: $(wc -w <<<"$all") packages and $1 in $root" >&2
mkdir -p "$root"/{dev,proc,run,sys,tmp}
status=0
unshare --mount --propagation private bash -e -c '
  # `ip netns` changes the mounts of its root, so that has to be one.
  mount --bind "$0" "$0" && cd "$0"
  mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev"
  mount -t tmpfs tmpfs "$0/run" && mount -t tmpfs tmpfs "$0/tmp"
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . sh -ex -c "
    cd /
    weft run testbed/scenarios/digits.toml --strict --record --out /tmp/run
    weft replay /tmp/run/a0.recording
    weft run testbed/scenarios/async.toml --rounds 4 --out /tmp/push
    weft conformance --format csv >/tmp/played
    ! grep -v -e ,pass, -e ,skipped, -e ^script /tmp/played
    grep -c ,pass, /tmp/played
  "' "$root" || status=1
exit "$status"
