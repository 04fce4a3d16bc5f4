#!/bin/bash
# golden_losses.sh RANKS PROGRAM [ARGUMENT]...   run from the repository's root
#
# Runs a training example of any language as so many ranks: it gets a model, tokens, a directory to save to and a number of
# steps as further arguments. Its standard output must be one line a step, "step 0 loss 6.206598", with the losses of the
# reference run, and it must leave a model that can be read.
set -u
ranks=$1
shift
golden=tests/parity/golden/tiny-llama.json
saved=$(mktemp -d "${TEST_TMPDIR:-/tmp}/saved.XXXXXX")
printed=$saved/printed
trap 'rm -rf "$saved"' EXIT

launch=()
[[ $ranks -eq 1 ]] || launch=(cli/fsdp2 run --nproc-per-node "$ranks" --)
export OMP_NUM_THREADS=1
"${launch[@]}" "$@" tests/parity/golden/models/tiny-llama tests/parity/golden/tokens/tiny-llama.bin "$saved/model" 10 > "$printed"
status=$?
cat "$printed"
[[ $status -eq 0 ]] || { echo "$*: exit status $status" >&2; exit 1; }

sed -nE 's/^ *\{"name": "fp32", "world_size": '"$ranks"',.*"loss": \[([^]]*)\].*/\1/p' "$golden" | tr ',' '\n' |
  awk '
    FNR == NR { expected[NR - 1] = $1; n = NR; next }
    {
      if ($0 !~ /^step [0-9]+ loss [0-9]+\.[0-9][0-9][0-9][0-9][0-9][0-9]$/ || $2 != FNR - 1) {
        print "expected \"step " FNR - 1 " loss ...\", found \"" $0 "\""; bad = 1; next
      }
      difference = $4 - expected[$2]
      if (difference < 0) difference = -difference
      if (difference > 5e-6 * expected[$2] + 5e-7) {
        print "step " $2 ": expected loss " expected[$2] ", found " $4; bad = 1
      }
      lines = FNR
    }
    END {
      if (lines != n || n == 0) { print "expected " n " lines, found " lines + 0; bad = 1 }
      exit bad
    }' - "$printed" >&2 || exit 1
for file in config.json model.safetensors; do
  [[ -s $saved/model/$file ]] || { echo "$file was not saved" >&2; exit 1; }
done
