#!/bin/bash
# Models that fsdp2 saves, read by transformers; see saved_models.py. Makes its own Python environment, as python_interop_test.sh.
set -euo pipefail

make=tests/parity/python_environment.sh
if ! python=$("$make" --install); then
  echo "SKIPPED: saved models read by transformers: an environment with torch could not be made: $make --install"
  exit 0
fi
exec "$python" tests/parity/saved_models.py --fsdp2 cli/fsdp2
