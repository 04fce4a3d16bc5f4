#!/bin/bash
# Checkpoints exchanged with Python, both ways; see python_interop.py. Where there is no Python environment yet this says what
# it skipped and passes; `bazel test //tests/parity:python_interop_test --test_arg=--install` makes one.
set -euo pipefail

if ! python=$(tests/parity/python_environment.sh "$@"); then
  echo "SKIPPED: checkpoints exchanged with Python: there is no Python environment with torch"
  exit 0
fi
exec "$python" tests/parity/python_interop.py --fsdp2 cli/fsdp2 --trainer bench/python/train_fsdp2.py \
  --golden tests/parity/golden
