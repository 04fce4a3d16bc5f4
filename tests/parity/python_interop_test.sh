#!/bin/bash
# Checkpoints exchanged with Python, both ways; see python_interop.py. Makes its own Python environment, once per machine, about
# 5 GB (`bazel test --test_tag_filters=-python` leaves this out). Where that cannot be, this says what it skipped and passes.
set -euo pipefail

if ! python=$(tests/parity/python_environment.sh --install); then
  echo "SKIPPED: checkpoints exchanged with Python: an environment with torch could not be made: tests/parity/python_environment.sh --install"
  exit 0
fi
exec "$python" tests/parity/python_interop.py --fsdp2 cli/fsdp2 --trainer bench/python/train_fsdp2.py \
  --golden tests/parity/golden
