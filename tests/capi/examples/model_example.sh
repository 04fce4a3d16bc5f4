#!/bin/bash
# model_example.sh TOOL PROGRAM: the model written in C learns, and alike on any number of ranks; in bf16 on two groups of two ranks as on
# one rank but for rounding.
set -u
tool=$1 program=$2
tokens=tests/parity/golden/tokens/tiny-llama.bin
export OMP_NUM_THREADS=1
run_on() {  # RANKS NAME [ARGUMENT]
  "$tool" run --nproc-per-node "$1" -- "$program" $tokens 6 "${@:3}" >"$TEST_TMPDIR/$2" || exit 1
  awk -v steps=6 -v by=0.2 -f tests/capi/examples/learns.awk "$TEST_TMPDIR/$2" || exit 1
}
for ranks in 1 2 4; do
  run_on $ranks $ranks
  awk -f tests/capi/examples/same_lines.awk "$TEST_TMPDIR/1" "$TEST_TMPDIR/$ranks" || exit 1
done
run_on 4 hybrid 2
paste -d ' ' "$TEST_TMPDIR/1" "$TEST_TMPDIR/hybrid" | awk '
  { off = $8 - $4; same = same || off == 0 }
  off > 0.005 || off < -0.005 { print "expected about " $4 ", found " $8; wrong = 1 }
  END { if (same) print "a loss is that of fp32"; exit wrong || same }'
