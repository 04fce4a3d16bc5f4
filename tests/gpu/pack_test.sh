#!/bin/bash
# What pack.sh packs runs from anywhere: goldens and test programs pass on the CPU, and a golden that differs fails.
set -euo pipefail

pack=$TEST_TMPDIR/pack
tests/gpu/pack.sh "$pack" .
python3 "$pack/tests/gpu/bench_test.py"
python3 "$pack/tests/gpu/process_test.py"
cd "$TEST_TMPDIR"

run() {  # ARGUMENT...
  python3 "$pack/tests/gpu/run.py" "$pack" --out report.json --device cpu "$@"
}

run --only goldens --only tests --match 'tiny-llama/fp32/[123]' --match 'tiny-llama/bf16/1' --match '*/training_test'
grep -q '"passed": 4' report.json || { echo "expected 4 goldens"; exit 1; }
grep -A 2 '"outcomes"' report.json

sed -i 's/"loss": \[6\.20/"loss": [6.21/' "$pack/tests/parity/golden/tiny-llama.json"
if run --only goldens --match 'tiny-llama/fp32/1'; then
  echo "expected a difference of the first loss to fail"
  exit 1
fi
