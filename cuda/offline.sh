#!/usr/bin/env bash
# Builds and tests tally with its CUDA backend on a machine with a GPU that has no network and, it may be, no root.
#
#   cuda/offline.sh pack [FOLDER]   here, on Debian with a network: downloads the packages that such a machine may lack
#   cuda/offline.sh test [FOLDER]   there, with FOLDER beside the sources: unpacks what is missing, builds by nvcc for
#                                   the GPU of the machine, runs the tests on it, then compute-sanitizer
#   cuda/offline.sh build [FOLDER]  the same without a GPU: up to the built programs
#
# FOLDER is build/offline unless given. The unpacked packages stay inside it; nothing is installed.
# TALLY_SANITIZER_TOOLS="memcheck racecheck": what compute-sanitizer looks for (all four when not set, none when empty).
set -euo pipefail
cd "$(dirname "$0")/.."
action=${1:-help}
folder=${2:-build/offline}

# What is needed at run time comes with what it depends on; the C++ compiler and CMake's own libraries are taken from the
# machine where it has them.
packages=(libgtest-dev googletest nlohmann-json3-dev libcli11-dev libopenblas0-pthread libgfortran5 libquadmath0
  ninja-build cmake cmake-data libarchive13 libjsoncpp25 librhash0 libuv1)

pack() {
  mkdir -p "$folder"
  local full
  full=$(cd "$folder" && pwd)
  (cd "$full" && apt-get download "${packages[@]}")
  echo "$full holds $(find "$full" -name '*.deb' | wc -l) packages, $(du -sh "$full" | cut -f1); take it along"
}

unpack() {
  local root=$1 package
  shopt -s nullglob
  local found=("$folder"/*.deb)
  if [ ${#found[@]} -eq 0 ]; then
    echo "cuda/offline.sh: no packages in $folder; 'cuda/offline.sh pack' downloads them" >&2
    exit 1
  fi
  mkdir -p "$root"
  for package in "${found[@]}"; do dpkg-deb -x "$package" "$root"; done
}

build() {
  if ! command -v nvcc >/dev/null; then
    local toolkit
    for toolkit in "${CUDA_HOME:-/usr/local/cuda}" /usr/lib/cuda; do
      if [ -x "$toolkit/bin/nvcc" ]; then export PATH=$toolkit/bin:$PATH; fi
    done
  fi
  if ! command -v nvcc >/dev/null; then
    echo "cuda/offline.sh: nvcc is not on the path; set CUDA_HOME to the CUDA toolkit" >&2
    exit 1
  fi
  local root
  root=$(cd "$folder" && pwd)/root
  unpack "$root"
  export PATH=$PATH:$root/usr/bin
  export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  local blas
  blas=$(find "$root" -path '*openblas-pthread/libopenblas.so.0' | head -1)
  if [ -n "$blas" ]; then export TALLY_BLAS=$blas; fi

  # GoogleTest's library of Debian, and its sources, lie in the unpacked folder.
  cmake --preset cuda -D CMAKE_PREFIX_PATH="$root/usr" -D CMAKE_CUDA_ARCHITECTURES="$architectures" \
    -D CMAKE_CXX_FLAGS="-isystem $root/usr/include" >/dev/null
  cmake --build --preset cuda
}

test_on_gpu() {
  local tests=build/cuda/tests
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  ctest --preset cuda -j 4 -LE slow
  local tool
  for tool in ${TALLY_SANITIZER_TOOLS-memcheck racecheck initcheck synccheck}; do
    echo "=== compute-sanitizer --tool $tool"
    for program in autograd_test nn_test; do
      compute-sanitizer --tool "$tool" --error-exitcode 1 --print-limit 10 \
        "$tests/$program" --gtest_filter='Cuda/*' --gtest_brief=1
    done
  done
  echo "tested on $(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)"
}

case $action in
  pack) pack ;;
  build)
    architectures=90
    build
    ;;
  test)
    # 9.0 -> 90, of the first GPU
    architectures=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
    build
    test_on_gpu
    ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0" ;;
esac
