#!/bin/bash
# The messages that docs/troubleshooting.md quotes are those of the sources.
set -euo pipefail
mapfile -t sources < <(find -L core client capi cli -name '*.h' -o -name '*.cc')
python3 tests/house/troubleshooting_test.py docs/troubleshooting.md "${sources[@]}"
