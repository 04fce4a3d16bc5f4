#!/bin/bash
# model_example.sh PROGRAM: the model written in C learns, and alike on any number of ranks.
set -u
tokens=tests/parity/golden/tokens/tiny-llama.bin
for ranks in 1 2 4; do
  "$1" $tokens $ranks 6 >"$TEST_TMPDIR/$ranks" || exit 1
  awk -f tests/capi/same_lines.awk "$TEST_TMPDIR/1" "$TEST_TMPDIR/$ranks" || exit 1
  awk -v steps=6 -v by=0.2 -f tests/capi/learns.awk "$TEST_TMPDIR/$ranks" || exit 1
done
