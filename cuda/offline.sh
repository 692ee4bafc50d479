#!/usr/bin/env bash
# Builds and tests tally with its CUDA backend on a machine with a GPU but without a network, and perhaps without root.
#
# Built here, run there:
#   cuda/offline.sh carry [FOLDER]     builds for CUDAARCHS (90) and packs programs, libraries and losses of the CPU
#   cuda/offline.sh first [FOLDER] [OPTIONS]  on the GPU machine: unpacks them, then runs cuda/first_contact.py
# FOLDER is build/carried by default.
#
# Built there:
#   cuda/offline.sh pack [FOLDER]      on Debian with a network: downloads the packages that such a machine may lack
#   cuda/offline.sh test [FOLDER]      on the GPU machine, FOLDER next to the sources: runs all below; failures are last
#   cuda/offline.sh configure [FOLDER] prepares build/cuda for the machine's GPU, or all common ones if it has none
#   cuda/offline.sh build [FOLDER]     builds there with nvcc, configured before or not
#   cuda/offline.sh tests [OPTIONS]    runs the tests on the GPU, except slow ones; OPTIONS are ctest's
#   cuda/offline.sh sanitizer TOOL     runs small shapes under compute-sanitizer; TOOL is memcheck, racecheck,
#                                      initcheck or synccheck
#
# FOLDER is build/offline by default here. The unpacked packages stay inside it; nothing is installed, and the built program
# finds its libraries there. The machine needs g++ 12 or newer, CMake 3.22 or newer and the CUDA toolkit, 12 or newer.
# CUDAARCHS=90: architectures to build for. TALLY_SANITIZER_SECONDS=180: time limit of each program under each tool.
set -euo pipefail
cd "$(dirname "$0")/.."

# Header-only libraries, static libraries, and programs and libraries that need only the system's own: unpacked files
# never replace the machine's libraries. (CMake needs forty others.)
packages=(libgtest-dev googletest nlohmann-json3-dev libcli11-dev libpcre2-dev libutf8proc-dev zlib1g-dev
  libopenblas0-pthread libgfortran5 libquadmath0 ninja-build)
tools=(memcheck racecheck initcheck synccheck)
tests=build/cuda/tests

stop() {
  echo "cuda/offline.sh: $*" >&2
  exit 1
}

pack() {
  local folder=$1
  command -v apt-get >/dev/null || stop "pack is for Debian and its like: there is no apt-get here"
  mkdir -p "$folder"
  # The first try fails if the package lists were never fetched or are out of date.
  if ! (cd "$folder" && apt-get -qq download "${packages[@]}" 2>/dev/null); then
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
    "${as_root[@]}" apt-get -qq update
    (cd "$folder" && apt-get -qq download "${packages[@]}")
  fi
  folder=$(cd "$folder" && pwd)
  echo "$folder holds $(find "$folder" -name '*.deb' | wc -l) packages, $(du -sh "$folder" | cut -f1); take it along"
}

# unpack FOLDER ROOT
unpack() {
  local package
  shopt -s nullglob
  local found=("$1"/*.deb)
  if [ ${#found[@]} -eq 0 ]; then stop "no packages in $1; 'cuda/offline.sh pack' downloads them"; fi
  mkdir -p "$2"
  for package in "${found[@]}"; do dpkg-deb -x "$package" "$2"; done
}

# The CUDA toolkit's programs, wherever it is.
find_toolkit() {
  local toolkit
  for toolkit in "${CUDA_HOME:-/usr/local/cuda}" /usr/lib/cuda; do
    # First on the path, because Debian's own nvcc is too old.
    if [ -x "$toolkit/bin/nvcc" ]; then
      export PATH=$toolkit/bin:$toolkit/compute-sanitizer:$PATH
      return
    fi
  done
}

# 90 for a GPU of compute capability 9.0. Uses the first GPU; prints nothing if there is none.
own_architecture() {
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d . || true
}

configure() {
  local folder=$1 root blas config program options architectures library
  for program in cmake nvcc; do
    command -v $program >/dev/null || stop "$program is not on the path" \
      "(cmake 3.22 or newer: the archive of cmake.org needs nothing else; nvcc: set CUDA_HOME to the CUDA toolkit)"
  done
  root=$(realpath -m "$folder")/root
  unpack "$folder" "$root"
  export PATH=$PATH:$root/usr/bin

  options=(-D TALLY_WERROR=OFF) # warnings of another compiler do not matter here
  architectures=${CUDAARCHS:-$(own_architecture)}
  if [ -n "$architectures" ]; then options+=(-D CMAKE_CUDA_ARCHITECTURES="$architectures"); fi
  while IFS= read -r config; do
    options+=(-D "$(basename "$config" Config.cmake)_DIR=$(dirname "$config")")
  done < <(find "$root" -name GTestConfig.cmake -o -name CLI11Config.cmake -o -name nlohmann_jsonConfig.cmake)
  # Static libraries, so that the program needs none of the unpacked ones but OpenBLAS.
  library=$(dirname "$(find "$root" -name libz.a)")
  options+=(-D TALLY_PCRE2_LIBRARY="$library/libpcre2-8.a" -D TALLY_UTF8PROC_LIBRARY="$library/libutf8proc.a"
    -D TALLY_ZLIB_LIBRARY="$library/libz.a" -D TALLY_ZLIB_INCLUDE="$root/usr/include;$root/usr/include/$(basename "$library")"
    -D TALLY_PCRE2_INCLUDE="$root/usr/include" -D TALLY_UTF8PROC_INCLUDE="$root/usr/include")
  # The program names OpenBLAS's path. OpenBLAS looks for Fortran's library on the program's search path. An RPATH
  # applies to all libraries, a RUNPATH (the linker's default today) only to those that the program links directly.
  blas=$(find "$root" -path '*openblas-pthread/libopenblas.so.0' | head -1)
  if [ -z "$blas" ]; then stop "libopenblas0-pthread is not among the packages of $folder"; fi
  options+=(-D TALLY_OPENBLAS_PATH="$blas"
    -D CMAKE_EXE_LINKER_FLAGS="-Wl,--disable-new-dtags,-rpath,$(dirname "$(dirname "$blas")")")

  # The linker step lists a program's tests, which depend on the machine.
  rm -f "$tests"/*_test
  cmake --preset cuda "${options[@]}" >/dev/null
}

build() {
  configure "$1"
  cmake --build --preset cuda
  cmake --build --preset cuda --target bench
}

# Programs that `first` runs.
carried=(tally tests/autograd_test tests/nn_test tests/tasks_test)

carry() {
  local folder=$1 stage program library static
  static=$(dirname "$(find /usr/lib -name libpcre2-8.a | head -1)")
  # The programs find their libraries next to themselves. The standard library is the machine's own or linked in,
  # because CUDA's libraries may need a newer one than the one here.
  cmake --preset cuda -B build/carry -D CMAKE_CUDA_ARCHITECTURES="${CUDAARCHS:-90}-real" \
    -D CMAKE_CUDA_FLAGS="--compress-mode=size" -D TALLY_PCRE2_LIBRARY="$static/libpcre2-8.a" \
    -D TALLY_UTF8PROC_LIBRARY="$static/libutf8proc.a" -D TALLY_ZLIB_LIBRARY="$static/libz.a" \
    -D CMAKE_EXE_LINKER_FLAGS="-static-libstdc++ -static-libgcc -Wl,--disable-new-dtags,-rpath,\$ORIGIN" >/dev/null
  cmake --build build/carry --target "${carried[@]##*/}"
  mkdir -p "$folder"
  stage=$(mktemp -d "$folder/stage.XXXXXX")
  for program in "${carried[@]}"; do strip -o "$stage/${program##*/}" "build/carry/$program"; done
  for library in libopenblas.so.0 libgfortran.so.5 libquadmath.so.0 libgomp.so.1; do
    cp -L "$(ldconfig -p | awk -v name="$library" '$1 == name { print $NF; exit }')" "$stage/$library"
  done
  # first_contact.py has the options of a quick run, and compares its losses with these.
  local options
  read -ra options < <(cd cuda && python3 -B -c "import first_contact; print(*first_contact.QUICK_RUN)")
  build/carry/tally train "$stage/quick" "${options[@]}"
  tar -C "$stage" -c . | xz -T0 --lzma2=preset=6,dict=256MiB >"$folder/tally.tar.xz"
  rm -r "$stage"
  echo "$folder/tally.tar.xz: $(du -h "$folder/tally.tar.xz" | cut -f1), of $(git rev-parse --short HEAD)"
}

first() {
  local folder=$1 root
  shift
  root=$(realpath -m "$folder")/root
  if [ ! -x "$root/tally" ]; then
    [ -f "$folder/tally.tar.xz" ] || stop "no $folder/tally.tar.xz; 'cuda/offline.sh carry' makes it"
    mkdir -p "$root"
    tar -C "$root" -xJf "$folder/tally.tar.xz"
  fi
  # The toolkit's cuBLAS, or the one that PyTorch brings.
  local cublas
  cublas=$(python3 -c "import nvidia.cu13, pathlib; print(pathlib.Path(nvidia.cu13.__path__[0], 'lib'))" 2>/dev/null || true)
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}${cublas:+:$cublas} python3 -B cuda/first_contact.py "$root" "$@"
}

# Programs with GPU tests, and the tests among them that start every kernel in small shapes.
programs=(autograd_test nn_test tasks_test)
declare -A small=(
  [autograd_test]='Cuda/Operation.EqualsThePlainReference/*:Cuda/Operation.GradientsDoNotDependOnWhoElseTakesOne/*'
  [nn_test]='Cuda/Tiled.*:Cuda/TiledProducts.*:Cuda/Reference.*'
  [tasks_test]='Cuda/Steps.*')

# From here on, a test that finds no GPU fails instead of being skipped.
need_gpu() {
  export TALLY_REQUIRE_GPU=1
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || stop "this machine has no GPU"
  local program listing
  for program in "${programs[@]}"; do
    if [ ! -x "$tests/$program" ]; then stop "$tests/$program is not there; 'cuda/offline.sh build' makes it"; fi
    listing=$("$tests/$program" --gtest_list_tests --gtest_filter="${small[$program]}")
    grep -q '^Cuda/' <<<"$listing" || stop "$program has no tests that run on the GPU"
  done
}

lists_gpu_tests() {
  local listing
  listing=$(ctest --preset cuda -N)
  grep -q '/Cuda/' <<<"$listing"
}

run_tests() {
  need_gpu
  # ctest has the list of tests from the link step, perhaps made on a machine without a GPU.
  if ! lists_gpu_tests; then
    rm -f "$tests"/*_test
    cmake --build --preset cuda
    lists_gpu_tests || stop "ctest lists no tests that run on the GPU"
  fi
  ctest --preset cuda -j "$(nproc)" -LE slow "$@"
}

sanitizer() {
  local tool=$1 program failed=()
  case " ${tools[*]} " in
    *" $tool "*) ;;
    *) stop "'$tool' is none of ${tools[*]}" ;;
  esac
  command -v compute-sanitizer >/dev/null || stop "compute-sanitizer, a part of the CUDA toolkit, is not on the path"
  need_gpu
  for program in "${programs[@]}"; do
    echo "=== compute-sanitizer --tool $tool $program"
    TALLY_TEST_SMALL=1 timeout "${TALLY_SANITIZER_SECONDS:-180}" \
      compute-sanitizer --tool "$tool" --error-exitcode 1 --print-limit 10 \
      "$tests/$program" --gtest_filter="${small[$program]}" --gtest_brief=1 || failed+=("$program ($?)")
  done
  if [ ${#failed[@]} -gt 0 ]; then stop "$tool: did not pass: ${failed[*]}"; fi
}

all() {
  local tool failed=()
  build "$1"
  cuda/offline.sh tests || failed+=(tests)
  for tool in "${tools[@]}"; do cuda/offline.sh sanitizer "$tool" || failed+=("$tool"); done
  if [ ${#failed[@]} -gt 0 ]; then stop "did not pass: ${failed[*]}"; fi
  echo "tested on $(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)"
}

action=${1:-help}
shift || true
find_toolkit
case $action in
  carry) carry "${1:-build/carried}" ;;
  first)
    folder=${1:-build/carried}
    shift || true
    first "$folder" "$@"
    ;;
  pack) pack "${1:-build/offline}" ;;
  configure) configure "${1:-build/offline}" ;;
  build) build "${1:-build/offline}" ;;
  tests) run_tests "$@" ;;
  sanitizer) sanitizer "${1:-none}" ;;
  test) all "${1:-build/offline}" ;;
  *) sed -n '2,21s/^# \{0,1\}//p' "$0" ;;
esac
