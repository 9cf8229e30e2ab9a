#!/usr/bin/env bash
# Makes of what testbed/deploy/build.sh has built, in the folder dist, a tarball and a Debian package
# of the files that install.sh puts in place.
#
#     [FROM=target/release] [CARGO_DEB=cargo-deb] testbed/deploy/dist.sh
#
# Exit status: 0 done, 1 it could not be made, 3 a program was not built, or there is no cargo-deb:
# then only the tarball is there.
set -euo pipefail
cd "$(dirname "$0")/../.."

rm -rf dist
DESTDIR=dist/root PREFIX=/usr testbed/deploy/install.sh

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
name=weft-$version-$(uname -m)-linux
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
tar --create --gzip --file "dist/$name.tar.gz" --directory dist/root --transform "s,^usr,$name," \
  --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" usr

made="dist/$name.tar.gz"
if ! command -v "${CARGO_DEB:=cargo-deb}" >/dev/null; then
  echo "dist: $made is all: no cargo-deb; make dist builds it once there is a network" >&2
  exit 3
fi
# testbed/Cargo.toml has the package's name, dependencies and description.
made+=" $("$CARGO_DEB" -p weft-testbed --no-build --no-strip --compress-system --output dist)"
rm -r dist/root
ls -l dist >&2
