#!/usr/bin/env bash
# Installs the packages that tally needs to be built and tested, if they are missing: on Debian and similar systems with
# apt-get. On others it names the missing ones and exits 1. Prints nothing if all are installed.
# --with-clang: also clang with its tools and OpenMP runtime, for the presets clang, asan and tsan.
# --with-browser: also Chromium, which opens pages; without it that test is skipped.
# --with-mpi: also OpenMPI, by which several processes train one run; without it those tests are skipped.
# --with-doxygen: also Doxygen, which makes pages of the headers; without it that test is skipped.
# --with-slurm: also Slurm, which starts the workers of a sweep; without it that test is skipped.
set -euo pipefail

packages=(g++ cmake ninja-build libgtest-dev libopenblas0-pthread nlohmann-json3-dev libcli11-dev libpcre2-dev
  libutf8proc-dev zlib1g-dev python3 python3-numpy git ccache)
with_clang=false
with_browser=false
with_doxygen=false
with_slurm=false
with_mpi=false
for option in "$@"; do
  case $option in
    --with-clang) with_clang=true ;;
    --with-browser) with_browser=true ;;
    --with-doxygen) with_doxygen=true ;;
    --with-slurm) with_slurm=true ;;
    --with-mpi) with_mpi=true ;;
    *) echo "tests/install.sh: unknown option $option" >&2; exit 2 ;;
  esac
done
if $with_clang; then packages+=(clang clang-tidy clang-format libomp-dev libclang-rt-14-dev); fi
if $with_browser; then packages+=(chromium fonts-dejavu-core); fi
if $with_doxygen; then packages+=(doxygen); fi
if $with_mpi; then packages+=(openmpi-bin); fi
if $with_slurm; then packages+=(slurm-wlm munge); fi

if command -v apt-get >/dev/null; then
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null || true)
  missing=()
  for package in "${packages[@]}"; do
    case $'\n'"$installed"$'\n' in
      *$'\n'"installed $package"$'\n'*) ;;
      *) missing+=("$package") ;;
    esac
  done
  if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "tests/install.sh: not root and no sudo; install: ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  echo "installing: ${missing[*]}"
  install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "${missing[@]}")
  # The first try fails where the package lists were never fetched or are out of date.
  if ! "${install[@]}" >/dev/null 2>&1; then
    "${as_root[@]}" apt-get -qq update
    "${install[@]}" >/dev/null
  fi
  exit 0
fi

missing=()
need() { # need WHAT COMMAND...: WHAT is missing when the command fails
  local what=$1
  shift
  if ! "$@" >/dev/null 2>&1; then missing+=("$what"); fi
}
has_header() { echo "#include <$1>" | c++ -std=c++20 -fsyntax-only -x c++ -; }
has_openblas() { ldconfig -p | grep -q 'libopenblas' || c++ -lopenblas -shared -o /dev/null -x c++ /dev/null; }
need "a C++20 compiler as c++ (g++ 12, clang 14 or newer)" c++ -std=c++20 -fsyntax-only -x c++ /dev/null
need "cmake (3.22 or newer)" cmake --version
need "ninja" ninja --version
need "GoogleTest (gtest/gtest.h)" has_header gtest/gtest.h
need "nlohmann-json (nlohmann/json.hpp)" has_header nlohmann/json.hpp
need "CLI11 (CLI/CLI.hpp)" has_header CLI/CLI.hpp
need "PCRE2 (libpcre2-dev)" has_header pcre2posix.h  # pcre2.h does not compile without a width
need "utf8proc (libutf8proc-dev)" has_header utf8proc.h
need "zlib (zlib1g-dev)" has_header zlib.h
need "OpenMP (omp.h)" has_header omp.h
need "OpenBLAS, a build with threads" has_openblas
need "Python 3 with NumPy" python3 -c "import numpy"
if $with_browser; then need "Chromium" chromium --version; fi
if $with_doxygen; then need "Doxygen" doxygen --version; fi
if $with_mpi; then need "OpenMPI" mpirun --version; fi
if $with_slurm; then
  need "Slurm (sbatch, slurmctld, slurmd)" sbatch --version
  need "munge" munge --version
fi
if $with_clang; then
  need "clang++ (14 or newer)" clang++ --version
  need "clang-tidy" clang-tidy --version
  need "clang-format 14" clang-format --version
fi
if [ ${#missing[@]} -gt 0 ]; then
  echo "tests/install.sh: no apt-get here, so please install:" >&2
  printf '  %s\n' "${missing[@]}" >&2
  exit 1
fi
