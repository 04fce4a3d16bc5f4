#!/bin/bash
# The headers, the version script and the library have the same functions, and nothing but them leaves the library.
set -u
library=$1
script=$2
failures=0

headers=$(sed -nE 's/^FSDP2_(CALL|API)[^(]* \*?(fsdp2_[a-z0-9_]+)\(.*/\2/p' include/fsdp2/*.h | sort)
scripted=$(sed -nE 's/^ *(fsdp2_[a-z0-9_]+);.*/\1/p' "$script" | sort)
exported=$(nm -D -g --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)
versions=$(nm -D -g --defined-only "$library" | awk '$2 != "A" { sub(/^[^@]*@*/, "", $3); print $3 }' | sort -u)

compare() { # what, expected, found
  if ! diff <(echo "$2") <(echo "$3"); then
    echo "$1: differs from the headers (<)" >&2
    failures=$((failures + 1))
  fi
}
[[ $(wc -l <<< "$headers") -gt 50 ]] || { echo "found only: $headers" >&2; exit 1; }
compare "$script" "$headers" "$scripted"
compare "$library" "$headers" "$exported"

if [[ $versions != FSDP2_0.1 ]]; then
  echo "expected version FSDP2_0.1 on all symbols, found: $versions" >&2
  failures=$((failures + 1))
fi
if readelf -d "$library" | grep -q TEXTREL || ! readelf -d "$library" | grep -q NODELETE; then
  echo "expected no text relocations and NODELETE" >&2
  failures=$((failures + 1))
fi
exit $((failures != 0))
