#!/bin/bash
# model_example.sh PROGRAM: the model written in C learns, and alike on any number of ranks.
set -u
tokens=tests/parity/golden/tokens/tiny-llama.bin
for ranks in 1 2 4; do
  "$1" $tokens $ranks 6 >"$TEST_TMPDIR/$ranks" || exit 1
  paste -d ' ' "$TEST_TMPDIR/1" "$TEST_TMPDIR/$ranks" |
    awk -v ranks=$ranks '
      { difference = $8 - $4; if (difference < 0) difference = -difference }
      $1 != "step" || $6 != NR - 1 || difference > 4e-5 { print ranks " ranks: not expected: " $0; bad = 1 }
      NR == 1 { first = $8 }
      END { if (NR != 6 || !($8 < first - 0.2)) { print ranks " ranks: " NR " lines, from " first " to " $8; bad = 1 } exit bad }' >&2 || exit 1
done
