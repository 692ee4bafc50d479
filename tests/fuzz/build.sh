#!/bin/bash
# The fuzzers without the time that kernels take to compile under the sanitizers. Only the readers and the fuzzers are
# compiled with them, and linked with the other libraries of the preset release, which is built first.
#
#     tests/fuzz/build.sh build/fuzz && build/fuzz/text_fuzz WORK SEEDS -runs=1000000
set -euo pipefail
out=$(realpath -m "${1:?the folder for the programs}")
cd "$(dirname "$0")/../.."
[ -e build/release/libtally_tasks.a ] || { echo "build/release is not there: cmake --preset release, and build it" >&2; exit 1; }
mkdir -p "$out/objects"
compiler="${CMAKE_CXX_COMPILER_LAUNCHER:-} clang++"
flags="-std=c++20 -O2 -g1 -fno-omit-frame-pointer -fopenmp -ffp-contract=fast -fno-math-errno -fno-trapping-math -I.
       -DTALLY_SANITIZED=1 -fsanitize=address,undefined -fno-sanitize-recover=all -fsanitize=fuzzer-no-link"
readers=(tasks/text/*.cpp tasks/foreign/*.cpp core/io/*.cpp core/utf8.cpp core/error.cpp)
object() { echo "$out/objects/${1//\//_}.o"; }
for source in "${readers[@]}" tests/fuzz/*_fuzz.cpp; do
  echo $compiler $flags -c "$source" -o "$(object "$source")"
done | xargs -P "$(nproc)" -I{} sh -c '{}'
for source in tests/fuzz/*_fuzz.cpp; do
  clang++ -fsanitize=address,undefined,fuzzer -fopenmp "$(object "$source")" \
    $(for reader in "${readers[@]}"; do object "$reader"; done) \
    build/release/libtally_{tasks,nn,autograd,core}.a -lpcre2-8 -lutf8proc -ldl -lgomp -o "$out/$(basename "$source" .cpp)"
done
