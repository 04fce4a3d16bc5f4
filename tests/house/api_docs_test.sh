#!/bin/bash
# docs/api has every name, comment and link that the headers have.
set -euo pipefail
python3 tests/house/api_docs_test.py include/fsdp2 docs
