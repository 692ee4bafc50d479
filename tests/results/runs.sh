#!/usr/bin/env bash
# The finished runs of the pages of quick scale, without their checkpoints. Tables are made from them, so no machine
# trains a run again that another has finished.
#
#   tests/results/runs.sh restore [FOLDER]   unpacks them into FOLDER (runs/quick), where `tally reproduce` finds them;
#                                            existing runs stay
#   tests/results/runs.sh save [FOLDER]      adds the finished runs of FOLDER to the saved ones
set -euo pipefail

archive=$(cd "$(dirname "$0")" && pwd)/runs-quick.tar.xz
folder=${2:-runs/quick}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -f "$archive" ]; then tar -xJf "$archive" -C "$work"; fi
count() { find "$1" -name results.json | wc -l; }

case ${1:-} in
  restore)
    mkdir -p "$folder"
    cp -rn "$work/." "$folder"
    echo "$(count "$work") finished runs in $folder"
    ;;
  save)
    before=$(count "$work")
    while IFS= read -r results; do
      run=$(dirname "${results#"$folder"/}")
      mkdir -p "$work/$run"
      for file in config.json metrics.jsonl results.json varied.json; do
        if [ -f "$folder/$run/$file" ]; then cp "$folder/$run/$file" "$work/$run"; fi
      done
    done < <(find "$folder" -name results.json -not -path '*.old*')
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cJf "$archive" -C "$work" .
    echo "$before finished runs were kept, $(count "$work") are now"
    ;;
  *)
    sed -n '5,7s/^# *//p' "$0" >&2
    exit 2
    ;;
esac
