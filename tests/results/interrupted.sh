#!/usr/bin/env bash
# Table 2 twice: once without a break, once killed by SIGKILL, then interrupted by SIGTERM, and resumed. Both must be
# equal, number by number. The models are tiny, because the promises of `tally reproduce` are tested, not the errors.
#
#   tests/results/interrupted.sh [--plain] TALLY [FOLDER]   TALLY: the program; FOLDER for the runs, else a temporary one
#
# --plain: quick scale as it is, twice a quarter of an hour; finished runs of FOLDER/whole are not trained again.
# Exit code 0: the same.
set -euo pipefail

plain=false
if [ "${1:-}" = --plain ]; then
  plain=true
  shift
fi
[ $# -ge 1 ] || { sed -n '5,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
tally=$(realpath "$1")
folder=${2:-}
if [ -z "$folder" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi
mkdir -p "$folder"
cd "$folder"

table=(reproduce table2 --scale quick)
if $plain; then
  table+=(--seeds 1..3 --threads 1 --jobs 1)
else
  table+=(--seeds 1..2 --threads 1 --jobs 2 --set model.width=8 --set model.layers=1 --set model.heads=2 --set steps=60
          --set batch=4 --set optimiser.warmup=5 --set eval-every=20 --set save-every=5 --set eval-count=20
          --set task.eval-count=40)
fi

finished() { find "$1" -name results.json 2> /dev/null | wc -l; }

# Whether a run has a checkpoint and is not finished.
any_begun() {
  local run
  for run in "$1"/*/*/; do
    if [ ! -e "$run/results.json" ] && compgen -G "$run/checkpoints/step-*" > /dev/null; then return 0; fi
  done
  return 1
}

# Names of runs without the changes, which are the same for all.
short() { sed -E 's/-model[^ ]*-(seed[0-9]+)/-\1/; s/ --set .*( --dir)/ --set ...\1/'; }

# Starts the table in the background, and sends it the signal when this number of runs are finished and another has
# begun.
stopped_after() {
  local signal=$1 enough=$2 code=0
  echo "\$ tally ${table[*]} --dir again &   # SIG$signal within a run, after $enough others" | short
  "$tally" "${table[@]}" --dir again > stopped.txt 2>&1 &
  local process=$!
  until [ "$(finished again)" -ge "$enough" ] && any_begun again; do
    kill -0 "$process" || { cat stopped.txt; return 1; }
    sleep 0.02
  done
  kill -"$signal" "$process"
  { wait "$process" || code=$?; } 2> /dev/null
  grep -E 'runs are finished|goes on|interrupted' stopped.txt | short || true
  echo "exit code $code; $(finished again) runs finished"
}

echo "\$ tally ${table[*]} --dir whole"
"$tally" "${table[@]}" --dir whole > whole.txt 2>&1
tail -n 1 whole.txt
stopped_after KILL 2
stopped_after TERM 5
echo "\$ tally ${table[*]} --dir again   # to the end" | short
"$tally" "${table[@]}" --dir again > again.txt 2>&1
grep -E 'runs are finished|goes on' again.txt | short
tail -n 1 again.txt

for runs in whole again; do "$tally" "${table[@]}" --dir "$runs" --quiet | grep -v '; all in ' > "$runs-table.txt"; done
echo "\$ diff whole-table.txt again-table.txt"
diff whole-table.txt again-table.txt
for run in whole/*/*/; do
  again=again/${run#whole/}
  cmp "$run/config.json" "$again/config.json"
  for checkpoint in "$run"/checkpoints/*; do cmp "$checkpoint" "$again/checkpoints/$(basename "$checkpoint")"; done
done
echo "The same table, and the same checkpoints byte for byte:"
sed -n '/^|/p' again-table.txt | head -n 5
