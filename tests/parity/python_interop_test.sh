#!/bin/bash
# Checkpoints exchanged with Python, both ways; see python_interop.py. Makes its own Python environment, once per machine, about
# 5 GB (`bazel test --test_tag_filters=-python` leaves this out). Where that cannot be, this says what it skipped and passes.
#
#   python_interop_test.sh [--torch=VERSION] [OPTION...]
#
# --torch: with that version, if an environment with it has been made. Options go to python_interop.py.
set -euo pipefail

make=tests/parity/python_environment.sh
if [[ ${1:-} == --torch=* ]]; then
  export FSDP2_LIBTORCH_VERSION=${1#*=}
  shift
  hint="FSDP2_LIBTORCH_VERSION=$FSDP2_LIBTORCH_VERSION $make --install makes it, about 5 GB"
  python=$("$make") || { echo "SKIPPED: checkpoints exchanged with another torch: $hint"; exit 0; }
elif ! python=$("$make" --install); then
  echo "SKIPPED: checkpoints exchanged with Python: an environment with torch could not be made: $make --install"
  exit 0
fi
exec "$python" tests/parity/python_interop.py --fsdp2 cli/fsdp2 --trainer bench/python/train_fsdp2.py \
  --golden tests/parity/golden "$@"
