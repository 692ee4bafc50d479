#!/usr/bin/env bash
# Checks that the layout of tracked C++ files follows .clang-format; --fix changes it (all files, or the named ones).
# clang-format 14, since other versions differ in details; exit status 77 (skipped) where it is not to be had.
set -euo pipefail
cd "$(dirname "$0")/../.."

for tool in clang-format-14 clang-format; do
  if "$tool" --version 2>/dev/null | grep -q 'version 14\.'; then break; fi
  tool=
done
if [ -z "$tool" ]; then
  echo "format: no clang-format 14; not checked"
  exit 77
fi

fix=false
if [ "${1:-}" = --fix ]; then
  fix=true
  shift
fi
files=("$@")
if [ $# -eq 0 ]; then
  mapfile -t files < <(git ls-files '*.cpp' '*.hpp' '*.cu' | xargs ls 2>/dev/null)  # those not deleted
fi

if $fix; then
  exec "$tool" -i "${files[@]}"
fi
# All at once takes a fraction of the time; one by one to name the offenders.
if "$tool" --dry-run -Werror "${files[@]}" 2>/dev/null; then exit 0; fi
for file in "${files[@]}"; do
  "$tool" --dry-run -Werror "$file" 2>/dev/null || echo "$file: not as .clang-format says; tests/structure/format.sh --fix $file"
done
exit 1
