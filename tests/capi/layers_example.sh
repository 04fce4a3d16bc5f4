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
paste -d ' ' "$TEST_TMPDIR/1" "$TEST_TMPDIR/2" |
  awk '
    { difference = $8 - $4; if (difference < 0) difference = -difference }
    $1 != "step" || $6 != NR - 1 || difference > 4e-5 { print "2 ranks: not expected: " $0; bad = 1 }
    NR == 1 { first = $8 }
    END { if (NR != 6 || !($8 < first - 0.2)) { print NR " lines, from " first " to " $8; bad = 1 } exit bad }' >&2
