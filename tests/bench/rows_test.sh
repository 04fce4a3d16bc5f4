#!/bin/bash
# The table of bench/rows.py says what its runs printed.
set -euo pipefail
PYTHONPATH=bench exec python3 tests/bench/rows_test.py
