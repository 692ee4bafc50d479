#!/usr/bin/env bash
# Installs missing packages, builds, and runs the tests.
#
#   tests/run.sh [--quick] [--preset NAME] [--folders A,B,... | --encoding NAME] [options of ctest]
#
# --quick          only tests whose executable or data changed since they last passed. Tests that are labelled slow or
#                  long, or took more than a second, are left out. If only one encoding's file changed, all tests that
#                  loop over encodings run, for that encoding only
# --preset NAME    of CMakePresets.json: release (as without), debug, asan, clang, tsan
# --folders A,B    builds and runs only the tests of these folders: core, cuda, autograd, nn, text, tasks, runner, sanitize
# --encoding NAME  builds and runs only the tests of this encoding, within a minute: the tests that loop over encodings
#                  (label encodings). It is combined with each encoding that has a line in nn/position/encodings.md, so with
#                  no unfinished one
#
# The last line is ctest's "100% tests passed, 0 tests failed out of N"; the exit status is 0 only then.
set -euo pipefail
cd "$(dirname "$0")/.."

quick=false
preset=release
only=()
encoding=
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=true; shift ;;
    --preset) preset=${2:?"--preset needs a name"}; shift 2 ;;
    --folders) IFS=, read -ra only <<<"${2:?"--folders needs names"}"; shift 2 ;;
    --encoding) encoding=${2:?"--encoding needs a name"}; shift 2 ;;
    -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) break ;;
  esac
done

if [ -n "$encoding" ]; then
  if $quick || [ ${#only[@]} -gt 0 ]; then
    echo "tests/run.sh: --encoding chooses its tests by itself: without --quick and --folders"
    exit 2
  fi
  file=nn/position/${encoding//-/_}.cpp
  if [[ ! $encoding =~ ^[a-z0-9-]+$ || ! -f $file ]]; then
    echo "tests/run.sh: there is no encoding '$encoding': $file is missing; there are" \
         "$(cd nn/position && ls ./*.cpp | sed 's|^\./||; s|\.cpp$||; s|_|-|g' | paste -sd ' ')"
    exit 2
  fi
  only=(nn)
  export TALLY_TEST_ENCODING=$encoding
  companions=$(sed -n 's/^| `\([a-z0-9-]*\)` |.*/\1/p' nn/position/encodings.md | paste -sd ' ')
  export TALLY_TEST_COMPANIONS=" $companions "
fi

case $preset in
  asan | clang | tsan) tests/install.sh --with-clang ;;
  *) tests/install.sh ;;
esac

build=build/$preset
mkdir -p "$build"
# quiet LOG COMMAND...: its output only when it fails.
quiet() {
  local log=$1
  shift
  if ! "$@" >"$log" 2>&1; then
    cat "$log"
    exit 1
  fi
}
quiet "$build/configure.log" cmake --preset "$preset"
if [ ${#only[@]} -gt 0 ]; then
  cmake --build --preset "$preset" --target "${only[@]/%/_test}"
else
  cmake --build --preset "$preset"
fi

# The result of a folder's tests depends on these, as one number: its executable, the runner for the runner's tests, and
# all files of the folder, the reference data and the outside check that are not compiled into it.
fingerprint() {
  local folder=$1
  {
    find "$build/tests/${folder}_test" -type f -exec cat {} + 2>/dev/null || true
    if [ "$folder" = runner ]; then cat "$build/tally"; fi
    find tests -regex "tests/\($folder\|reference\|outside\)/.*" -type f ! -name '*.cpp' ! -name '*.pyc' -print0 |
      sort -z | xargs -0 -r sha256sum
  } | sha256sum
}
stamp() { echo "$build/tests/$1.passed"; }
folders=("${only[@]}")
if [ ${#only[@]} -eq 0 ]; then
  folders=(outside reference)
  for executable in "$build"/tests/*_test; do
    if [ -x "$executable" ]; then folders+=("$(basename "$executable" _test)"); fi
  done
fi

# Lists every file that is compiled or read by the build, with its digest. If only one encoding's file differs from the
# last passed state, it names that encoding: no other file includes it, so tests of other encodings cannot have changed.
sources() {
  find CMakeLists.txt CMakePresets.json core autograd nn cuda tasks tests \( -name '*.[ch]pp' -o -name '*.cu' -o -name '*.def' \
    -o -name '*.cmake' -o -name '*.json' -o -name CMakeLists.txt \) -type f -print0 | sort -z | xargs -0 sha256sum
}
passed_sources=$build/tests/sources.passed
changed_encoding() {
  local differing
  differing=$(sources | diff "$passed_sources" - 2>/dev/null | sed -n 's/^[<>] [0-9a-f]*  //p' | sort | uniq -c) || true
  if [[ $differing =~ ^\ *2\ nn/position/([a-z0-9_]+)\.cpp$ ]]; then echo "${BASH_REMATCH[1]//_/-}"; fi
}

selection=("$@")
if [ -n "$encoding" ]; then
  selection+=(-L '^encodings$')
elif $quick; then
  changed="structure"
  for folder in "${folders[@]}"; do
    if [ "$(fingerprint "$folder")" != "$(cat "$(stamp "$folder")" 2>/dev/null)" ]; then changed+="|$folder"; fi
  done
  selection+=(-R "^($changed)/" -LE "slow|long")
  wanted=
  alone=$(changed_encoding)
  if [ -n "$alone" ]; then
    echo "what goes over encodings asks $alone alone: no other file has changed"
    export TALLY_TEST_ENCODING=$alone
    wanted=$(ctest --preset "$preset" -N -L '^encodings$' | sed -n 's/^ *Test *#[0-9]*: //p')
  fi
  # The mean times of earlier runs; no file, no test left out.
  times=$build/Testing/Temporary/CTestCostData.txt
  longer=$(awk 'NF == 3 && $3 > 1 { print $1 }' "$times" 2>/dev/null | grep -vxF "${wanted:-none}" | paste -sd '|')
  if [ -n "$longer" ]; then
    echo "tests of more than a second are left out; tests/run.sh runs them"
    selection+=(-E "^($longer)\$")
  fi
elif [ ${#only[@]} -gt 0 ]; then
  selection+=(-R "^($(IFS='|' && echo "${only[*]}"))/")
fi

log=$build/ctest.log
status=0
ctest --preset "$preset" -j "$(nproc)" --no-label-summary "${selection[@]}" 2>&1 | tee "$log" || status=$?
# A selection made by hand proves nothing about the rest.
if [ $status -eq 0 ] && [ -z "$encoding" ] && { $quick || [ $# -eq 0 ]; }; then
  for folder in "${folders[@]}"; do fingerprint "$folder" >"$(stamp "$folder")"; done
  if [ ${#only[@]} -eq 0 ]; then sources >"$passed_sources"; fi
fi
summary=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests failed out of [1-9][0-9]*$' "$log" || true)
if [ -z "$summary" ]; then
  echo "tests/run.sh: no test was run"
  exit 1
fi
echo "$summary"
exit $status
