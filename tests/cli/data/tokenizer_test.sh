#!/bin/bash
# Training, tokenizing and generating with the tokenizer.json of a model. Builds the plug-in, once per machine.
set -euo pipefail

if ! FSDP2_TOKENIZERS_LIBRARY=$(plugins/tokenizers/build.sh); then
  echo "SKIPPED: the command with a tokenizer: cargo could not build the plug-in: plugins/tokenizers/build.sh"
  exit 0
fi
export FSDP2_TOKENIZERS_LIBRARY
exec tests/cli/data/tokenizer_cases "$@"
