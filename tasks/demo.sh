#!/usr/bin/env bash
# Installs missing packages, builds, trains four encodings with three seeds each on flip-flop, prints their errors and
# draws learning curves. About five minutes on two idle cores.
#
#   tasks/demo.sh [FOLDER] [options of tally sweep]
#
# FOLDER (runs/demo) keeps the runs; when the script is started again, finished runs are not trained again.
set -euo pipefail
case ${1:-} in
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
here=$PWD
cd "$(dirname "$0")/.."
began=$SECONDS

folder=runs/demo
if [ $# -gt 0 ] && [[ $1 != -* ]]; then
  case $1 in /*) folder=$1 ;; *) folder=$here/$1 ;; esac
  shift
fi

tests/install.sh
build=build/release
mkdir -p "$build"
echo "building in $build"
log=$build/demo.log
# A quarter of the build is not needed here: the CUDA kernels for the CPU. tests/run.sh adds them, and then
# they stay.
parts=(-D TALLY_CUDA_HOST=OFF)
if grep -qs '^TALLY_CUDA_HOST:BOOL=ON' "$build/CMakeCache.txt"; then parts=(); fi
if ! { cmake --preset release "${parts[@]}" && cmake --build --preset release --target tally; } >"$log" 2>&1; then
  cat "$log"
  exit 1
fi
built=$SECONDS

"$build/tally" info
echo
"$build/tally" sweep "$folder" --task flip-flop --preset demo --pe absolute,rope,alibi,cope --seeds 1..3 "$@"
"$build/tally" report "$folder" --out "$folder/curves.svg" --json >"$folder/report.json"

echo
echo "in-distribution is like the training data; ood-sparse has bits far away from their reads, ood-dense many writes."
echo "built in $((built - began)) s, trained and evaluated in $((SECONDS - built)) s, on:" \
  "$(sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo), $(nproc) cores"
echo "learning curves: $folder/curves.svg"
