#!/usr/bin/env bash
# Writes the pages of the public interface as HTML, from the comments of the headers. Fails if Doxygen has a warning.
#
#   tasks/library/api_pages.sh [FOLDER]     default: build/api
#
# Needs Debian's package doxygen; without it the exit status is 77.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v doxygen >/dev/null; then
  echo "api_pages: doxygen is not installed"
  exit 77
fi
out=${1:-build/api}
mkdir -p "$out"
{ cat tasks/library/Doxyfile && echo "OUTPUT_DIRECTORY = $out"; } | doxygen -
echo "$out/html/index.html"
