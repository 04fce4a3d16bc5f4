#!/bin/bash
# The golden runs, the test programs and the sanitizer on this machine's GPU; without one, it says so. run.py wants Python 3.11.
set -euo pipefail

tests/gpu/pack.sh "$TEST_TMPDIR/pack" .
python3 "$TEST_TMPDIR/pack/tests/gpu/run.py" "$TEST_TMPDIR/pack" --out "${TEST_UNDECLARED_OUTPUTS_DIR:-$TEST_TMPDIR}/gpu.json" \
  --only goldens --only tests --only sanitizer --limit-s 800
