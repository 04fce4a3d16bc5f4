#!/bin/bash
# Every tensor that core makes has a device that somebody chose, and no step reads a device but where devices.txt says why.
set -euo pipefail
mapfile -t sources < <(find -L core -name '*.h' -o -name '*.cc')
python3 tests/house/devices_test.py tests/house/devices.txt "${sources[@]}"
