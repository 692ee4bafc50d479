#!/usr/bin/env bash
# Runs everything that the project can test: all tests with every optional program, all of the sanitizers' passes, clang,
# nvcc for every architecture, clang-tidy over all sources, the fuzzers and all planted errors. Takes hours on two cores.
#
#   tests/full.sh [PASS...]     all passes, or those named: release foreign asan fuzzers tsan clang nvcc tidy planted
#
# A pass that has passed at this commit is not run again, so the same command resumes an interrupted run. Every result is
# written to tests/results/full.md with its commit. Needs a git tree without changes outside of tests/results.
set -euo pipefail
cd "$(dirname "$0")/.."
all=(release foreign asan fuzzers tsan clang nvcc tidy planted)

case ${1:-} in
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
chosen=("$@")
if [ $# -eq 0 ]; then chosen=("${all[@]}"); fi
for name in "${chosen[@]}"; do
  if [[ " ${all[*]} " != *" $name "* ]]; then
    echo "tests/full.sh: there is no pass '$name'; there are ${all[*]}" >&2
    exit 2
  fi
done
if [ -n "$(git status --porcelain -- . ':!tests/results')" ]; then
  echo "tests/full.sh: the tree has changes that are not committed, and results name a commit: commit them first" >&2
  exit 1
fi

work=build/full
mkdir -p "$work"
commit=$(git rev-parse --short HEAD)
export TALLY_TEST_EVERYTHING=1  # all cases and shapes, in place of shares

run_release() {
  tests/install.sh --with-clang --with-mpi --with-browser --with-doxygen --with-slurm
  tasks/course/live/build.sh
  tests/run.sh
  cmake --build --preset release --target bench
}
# Models of other libraries, compared with the libraries themselves.
run_foreign() {
  local python=$work/python/bin/python foreign=tests/reference/foreign
  if ! "$python" -c "import torch, transformers, tokenizers" 2>/dev/null; then
    python3 -m venv "$work/python"
    "$python" -m pip install --quiet numpy torch transformers tokenizers
  fi
  cmake --preset release
  cmake --build --preset release --target tally
  "$python" -B $foreign/make_foreign.py --check
  "$python" -B $foreign/make_qk_norm.py --check
  "$python" -B $foreign/check_exports.py build/release/tally
}
run_asan() { tests/run.sh --preset asan; }
run_fuzzers() {
  cmake --preset asan >/dev/null
  cmake --build --preset asan --target fuzz
  (cd build/asan && printf '%s\n' tests/*_fuzz | xargs -P "$(nproc)" -I{} env ./{} -max_total_time=300 -verbosity=0)
}
run_tsan() { tests/run.sh --preset tsan; }
run_clang() { tests/run.sh --preset clang; }
run_nvcc() {
  cmake --preset cuda >/dev/null
  cmake --build --preset cuda
  ctest --preset cuda -R '^(cuda/|runner/(Data|Foreign|Usage))'
}
run_tidy() { tests/tidy.py; }
# With the shares of a daily run, which have to find the errors.
run_planted() { env -u TALLY_TEST_EVERYTHING python3 -B tests/planted/planted.py --again; }

processor() { sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo; }

page=tests/results/full.md
row_of() { sed -n "s/^| $1 | .*/&/p" $page 2>/dev/null || true; }

# write_page NAME RESULT SECONDS: the page with a new row for this pass.
write_page() {
  local rows=() row name commits base
  for name in "${all[@]}"; do
    row=$(row_of "$name")
    if [ "$name" = "$1" ]; then row="| $1 | $2 | $3 | $(date +%F) | $commit | $(processor), $(nproc) cores |"; fi
    rows+=("${row:-| $name | not run | | | | |}")
  done
  {
    echo "# Results of the full run"
    echo
    echo "\`tests/full.sh\` writes this page: the last result of each pass, with its seconds, machine, day and commit."
    echo
    commits=$(printf '%s\n' "${rows[@]}" | sed -n 's/^| [a-z]* | passed |[^|]*|[^|]*| \([0-9a-f]*\) |.*/\1/p')
    if [ "$(wc -w <<<"$commits")" -eq ${#all[@]} ]; then
      base=$(git rev-parse --short "$(git merge-base --octopus $commits)")
      echo "Commit of the last full run: \`$base\`. Each pass has passed there or later."
      echo
    fi
    echo "| pass | result | seconds | day | commit | machine |"
    echo "|---|---|---|---|---|---|"
    printf '%s\n' "${rows[@]}"
  } >"$work/page"
  mv "$work/page" $page
}

failed=()
for name in "${chosen[@]}"; do
  if [[ "$(row_of "$name")" == "| $name | passed |"*"| $commit |"* ]]; then
    echo "$name has passed at $commit"
    continue
  fi
  printf '\n=== %s\n' "$name"
  began=$SECONDS
  result=passed
  # A shell of its own: `set -e` has no effect within a condition.
  bash -euo pipefail -c "work=$work; $(declare -f "run_$name"); run_$name" 2>&1 | tee "$work/$name.log" || result=failed
  write_page "$name" $result $((SECONDS - began))
  if [ $result = failed ]; then failed+=("$name"); fi
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}; their output is in $work"
  exit 1
fi
echo "passed: ${chosen[*]}"
