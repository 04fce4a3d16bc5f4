#!/bin/bash
# Texts, chats and records by Hugging Face's tokenizers, against what Python's make of them. Builds the plug-in, once per machine.
set -euo pipefail

if ! FSDP2_TOKENIZERS_LIBRARY=$(plugins/tokenizers/build.sh); then
  echo "SKIPPED: tokenizers: cargo could not build the plug-in: plugins/tokenizers/build.sh"
  exit 0
fi
export FSDP2_TOKENIZERS_LIBRARY
exec tests/core/text/tokenizer_cases "$@"
