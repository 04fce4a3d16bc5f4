#!/bin/bash
# The programs in examples/c print the same on one rank as on two, and a run that is resumed on fewer ranks has the losses of one that
# was not interrupted.
set -euo pipefail

golden=tests/parity/golden model=tests/parity/golden/models/tiny-llama tokens=tests/parity/golden/tokens/tiny-llama.bin
printed=$TEST_TMPDIR
export OMP_NUM_THREADS=1
on_two_ranks() { cli/fsdp2 run --nproc-per-node 2 -- "$@"; }
same() { awk -f tests/capi/examples/same_lines.awk "$@"; }

on_two_ranks examples/c/resume $model $tokens "$printed/run" 3 >"$printed/resumed"
examples/c/resume $model $tokens "$printed/run" 5 >>"$printed/resumed"
sed -nE 's/^ *\{"name": "fp32", "world_size": 2,.*"loss": \[([^]]*)\].*/\1/p' $golden/tiny-llama.json |
  awk -v RS='[,\n] *' 'NR <= 5 { printf "step %d loss %.6f\n", NR - 1, $1 }' >"$printed/uninterrupted"
same "$printed/uninterrupted" "$printed/resumed"

for program in "data $model 5" "generate $model"; do
  # shellcheck disable=SC2086
  examples/c/$program >"$printed/one"
  # shellcheck disable=SC2086
  on_two_ranks examples/c/$program >"$printed/two"
  same "$printed/one" "$printed/two"
done

on_two_ranks examples/c/exported tests/parity/exported/llama.pt2 5 >"$printed/exported"
awk -v steps=5 -v by=0.05 -f tests/capi/examples/learns.awk "$printed/exported"
