#!/usr/bin/env bash
# Builds the live chapter: build/live/live.html, one file that needs no server. Installs Debian's emscripten if it is
# missing. Options go to cmake --build.
set -euo pipefail
cd "$(dirname "$0")/../../.."
if ! command -v em++ >/dev/null; then
  ${SUDO-$([ "$(id -u)" = 0 ] || echo sudo)} apt-get install -y --no-install-recommends emscripten
fi
export NODE_PATH=/usr/share/nodejs  # for another node than Debian's
emcmake cmake -S tasks/course/live -B build/live -G Ninja
cmake --build build/live "$@"
ls -l build/live/live.html
