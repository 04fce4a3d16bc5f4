#!/bin/bash
# `fsdp2 bench` of an installed prefix: alone, and beside the Python of the machine, where there is one with torch.
source tests/install/installed.sh
python=$(tests/parity/python_environment.sh || true)

install_to "$work/prefix"
use_prefix "$work/prefix"
cp examples/configs/byte-llama.json "$work/model.json"
mkdir "$work/empty" "$work/scratch"
cd "$work/empty"

# Nothing of the machine but the prefix; checks what is printed by an expression of Python.
bench() {  # EXPECTATION [OPTION...]
  env -i TMPDIR="$work/scratch" "$launcher" bench --model ../model.json --quick --threads 1 --seq-len 32 --json "${@:2}" >../found.json
  python3 - "$1" ../found.json <<'PYTHON'
import json, sys

with open(sys.argv[2]) as file:
    found = json.load(file)
assert len(found["runs"]) == 1 and found["runs"][0]["tokens_per_s"] > 0, found
assert eval(sys.argv[1], {"found": found}), found
PYTHON
}

bench 'found["python_obstacle"] == ""' --python none
bench '"python3: " in found["python_obstacle"] or found["python_torch"]' # whatever python3 there is, or none
if [[ $python ]]; then
  bench 'found["runs"][0]["largest_relative_loss_difference"] < 1e-5' --python "$python"
else
  echo "SKIPPED: no Python with torch to compare with: tests/parity/python_environment.sh --install"
fi
left=$(find . ../scratch -mindepth 1 -name 'torchinductor_*' -prune -o -print)  # but PyTorch's own cache
[[ -z $left ]] || { echo "$left"; echo "bench has left these behind"; exit 1; }
