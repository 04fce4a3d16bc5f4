#!/bin/bash
# The programs in examples/c print the same on one rank as on two, and a run that is resumed on more and on fewer ranks has the losses that
# Python's FSDP2 has recorded of one that was not interrupted.
set -euo pipefail

model=tests/parity/golden/models/tiny-llama tokens=tests/parity/golden/tokens/tiny-llama.bin
printed=$TEST_TMPDIR
export OMP_NUM_THREADS=1
on_ranks() { cli/fsdp2 run --nproc-per-node "$1" -- "${@:2}"; }
same() { awk -f tests/capi/examples/same_lines.awk "$@"; }

for leg in "2 2" "4 3" "3 4" "1 5"; do
  read -r ranks last <<<"$leg"
  on_ranks "$ranks" examples/c/resume $model $tokens "$printed/run" "$last" >>"$printed/resumed"
done
sed -nE 's/^ *\{"name": "fp32-batch12", "world_size": 1,.*"loss": \[([^]]*)\].*/\1/p' tests/parity/golden/tiny-llama.json |
  awk -v RS='[,\n] *' 'NR <= 5 { printf "step %d loss %.6f\n", NR - 1, $1 }' >"$printed/uninterrupted"
same "$printed/uninterrupted" "$printed/resumed"

for program in "data $model 5" "generate $model"; do
  # shellcheck disable=SC2086
  examples/c/$program >"$printed/one"
  # shellcheck disable=SC2086
  on_ranks 2 examples/c/$program >"$printed/two"
  same "$printed/one" "$printed/two"
done

on_ranks 2 examples/c/exported tests/parity/exported/llama.pt2 5 >"$printed/exported"
awk -v steps=5 -v by=0.05 -f tests/capi/examples/learns.awk "$printed/exported"
