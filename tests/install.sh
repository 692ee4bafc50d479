#!/usr/bin/env bash
# Installs the packages that tally needs to be built and tested, if they are missing, with apt-get. On systems without
# apt-get it only names them. Prints nothing if all are installed.
# --with-clang: also clang with its tools and OpenMP runtime, for the presets clang, asan and tsan.
# --with-browser: also Chromium, which opens pages; without it that test is skipped.
# --with-mpi: also OpenMPI, by which several processes train one run; without it those tests are skipped.
# --with-doxygen: also Doxygen, which makes pages of the headers; without it that test is skipped.
# --with-slurm: also Slurm, which starts the workers of a sweep; without it that test is skipped.
set -euo pipefail

packages=(g++ cmake ninja-build libgtest-dev libopenblas0-pthread nlohmann-json3-dev libcli11-dev libpcre2-dev
  libutf8proc-dev zlib1g-dev python3 python3-numpy git ccache)
for option in "$@"; do
  case $option in
    --with-clang) packages+=(clang clang-tidy clang-format libomp-dev libclang-rt-14-dev) ;;
    --with-browser) packages+=(chromium fonts-dejavu-core) ;;
    --with-doxygen) packages+=(doxygen) ;;
    --with-mpi) packages+=(openmpi-bin) ;;
    --with-slurm) packages+=(slurm-wlm munge) ;;
    *) echo "tests/install.sh: unknown option $option" >&2; exit 2 ;;
  esac
done

if ! command -v apt-get >/dev/null; then
  echo "tests/install.sh: no apt-get here, so nothing is installed. These packages of Debian are needed: ${packages[*]}" >&2
  exit 0
fi

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
