#!/usr/bin/env bash
# Fetches the corpora `code` and `prose` from Debian packages and prepares them (tally prepare --recipe). Packages are
# downloaded and unpacked into a cache folder; nothing is installed, no root is needed.
#
#   tasks/text/fetch.sh code|prose OUT [options of tally prepare, as --vocabulary 1024]
#
# TALLY: the program (build/release/tally). TALLY_CACHE: the cache folder (~/.cache/tally).
set -euo pipefail

if [ $# -lt 2 ]; then sed -n '5s/^# *//p' "$0" >&2; exit 2; fi
corpus=$1
out=$2
shift 2
tally=${TALLY:-$(dirname "$0")/../../build/release/tally}
cache=${TALLY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tally}
case $corpus in
  code) package=golang-1.19-src version=1.19.8-2 root=usr/share/go-1.19/src ;;
  prose) package=anarchism version=15.3-3 root=usr/share/doc/anarchism/markdown ;;
  *) echo "tasks/text/fetch.sh: no corpus $corpus; there are code and prose" >&2; exit 2 ;;
esac

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
shopt -s nullglob
files=("$cache/$package"_*.deb)
if [ ${#files[@]} -eq 0 ]; then
  if ! (cd "$cache" && apt-get download "$package=$version") && ! (cd "$cache" && apt-get download "$package"); then
    echo "tasks/text/fetch.sh: $package cannot be downloaded; put its file ${package}_${version}_all.deb into $cache" >&2
    exit 1
  fi
  files=("$cache/$package"_*.deb)
fi
found=$(dpkg-deb -f "${files[0]}" Version)
if [ "$found" != "$version" ]; then
  echo "tasks/text/fetch.sh: $package is version $found, not $version: counts and checksums will differ" >&2
fi
unpacked=$cache/$package-$found
if [ ! -d "$unpacked" ]; then
  rm -rf "$unpacked.tmp"
  dpkg-deb -x "${files[0]}" "$unpacked.tmp"
  if [ "$corpus" = prose ]; then gunzip "$unpacked.tmp/$root"/*.md.gz; fi
  mv "$unpacked.tmp" "$unpacked"
fi
exec "$tally" prepare "$out" "$unpacked/$root" --recipe "$corpus" "$@"
