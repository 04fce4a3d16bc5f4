#!/bin/bash
# layers_example.sh TOOL PROGRAM: the model of the library's layers learns, and alike on one rank and on two.
set -u
tool=$1
program=$2
tokens=tests/parity/golden/tokens/tiny-llama.bin
export OMP_NUM_THREADS=1
"$program" $tokens 6 >"$TEST_TMPDIR/1" || exit 1
"$tool" run --nproc-per-node 2 -- "$program" $tokens 6 >"$TEST_TMPDIR/2" || exit 1
cat "$TEST_TMPDIR/1"
awk -f tests/capi/examples/same_lines.awk "$TEST_TMPDIR/1" "$TEST_TMPDIR/2" || exit 1
awk -v steps=6 -v by=0.2 -f tests/capi/examples/learns.awk "$TEST_TMPDIR/2"
