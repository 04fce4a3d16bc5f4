#!/bin/bash
# Sizes, offsets and numbers of the ABI are those written down. A change of a line breaks programs and bindings that were
# compiled before; only new lines may appear:  bazel-bin/tests/capi/abi/abi_table | LC_ALL=C sort > tests/capi/abi/abi_table.golden
table=$("$1" | LC_ALL=C sort)
if ! diff "$2" <(echo "$table"); then
  echo "the ABI differs from $2 (<)" >&2
  exit 1
fi
