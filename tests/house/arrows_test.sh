#!/bin/bash
# No file includes against the arrows of arrows.txt.
set -euo pipefail
mapfile -t sources < <(find -L core client capi cli -name '*.h' -o -name '*.cc')
python3 tests/house/arrows_test.py tests/house/arrows.txt "${sources[@]}"
