#!/bin/bash
# Trains a small language model on Newton's "Opticks", sharded over two ranks on this machine, and
# lets it write a few lines of its own. Takes about a minute on two cores:
#
#   ./bazelw run //examples:quickstart
#   ./bazelw run //examples:quickstart -- --steps 2000      # arguments go to fsdp2 train
#
# It leaves the model in quickstart-out/, where it was started.
set -euo pipefail

files=$PWD # `bazel run` starts it here
[[ -x $files/cli/fsdp2 ]] || files=$(realpath "$0.runfiles/libfsdp2")
cd "${BUILD_WORKING_DIRECTORY:-$PWD}"
out=$PWD/quickstart-out
mkdir -p "$out"

train=(
  --model-config "$files/examples/configs/byte-llama.json" --text "$files/examples/data/opticks.txt"
  --steps 600 --seq-len 128 --global-batch 8 --shuffle
  --lr 4e-3 --warmup 20 --lr-schedule cosine --min-lr-ratio 0.05 --clip 1.0
  --metrics "$out/metrics.jsonl" --save-pretrained "$out/model"
  --sample 400 --temperature 0.6 --prompt "The Rays of Light "
)
{ printf '$ fsdp2 run --nproc-per-node 2 -- fsdp2 train' && printf ' %q' "${train[@]#"$files/"}" "$@" && echo; } >&2
"$files/cli/fsdp2" run --nproc-per-node 2 -- fsdp2 train "${train[@]}" "$@"
echo "The figures of each step are in $out/metrics.jsonl" >&2
