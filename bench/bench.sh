#!/bin/bash
# Measures libfsdp2 beside Python FSDP2, row by row (bench/rows.py). Makes the Python environment that
# this needs where there is none yet, once per machine.
set -euo pipefail

cd "${BUILD_WORKSPACE_DIRECTORY:-.}"
python=$(tests/parity/python_environment.sh --install)
exec "$python" bench/rows.py "$@"
