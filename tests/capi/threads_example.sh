#!/bin/bash
# threads_example.sh PROGRAM: the program that embeds ranks as threads has the losses of the reference run, however many.
set -u
golden=tests/parity/golden
for ranks in 1 2 4; do
  "$1" $golden/models/tiny-llama $golden/tokens/tiny-llama.bin $ranks 3 |
    awk -v ranks=$ranks '
      BEGIN { split("6.206598 5.721163 5.662178", expected, " ") }
      { difference = $4 - expected[$2 + 1]; if (difference < 0) difference = -difference }
      $1 != "step" || $2 != NR - 1 || difference > 4e-5 { print ranks " ranks: not expected: " $0; bad = 1 }
      END { if (NR != 3) { print ranks " ranks: " NR " lines"; bad = 1 } exit bad }' >&2 || exit 1
done
