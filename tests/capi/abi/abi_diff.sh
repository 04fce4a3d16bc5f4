#!/bin/bash
# Compares the C ABI of the headers with that of another revision, by abidiff (Debian's abigail-tools):
#
#   tests/capi/abi/abi_diff.sh          with the last release, the newest tag v* before this revision
#   tests/capi/abi/abi_diff.sh BASE     with any revision
#
# Fails if programs that were built with BASE would misbehave and FSDP2_HEADER_VERSION does not tell them. They do not notice
# new functions, new constants, and new fields at the end of structs, which carry their size. Only headers are compiled: the
# compiler holds the library's definitions to them, and //tests/capi/abi:exports_test its symbols.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$(git rev-parse --show-toplevel)"

skip() { echo "SKIPPED: the ABI is not compared: $1"; exit 0; }

command -v abidiff >/dev/null || skip "abidiff is missing: apt-get install abigail-tools"
base=${1:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null)} || skip "nothing has been released (no tag v*)"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build ROOT: ROOT.so, which has the functions that the headers in ROOT declare with debug types, and ROOT.table, which has the
# constants, and the place and size of each field.
build() {
  local headers=("$1"/include/fsdp2/*.h)
  awk -f "$here/abi_stub.awk" "${headers[@]}" >"$1.stub.c"
  [[ $(grep -c '^FSDP2_' "$1.stub.c") -eq $(cat "${headers[@]}" | grep -Ec '^FSDP2_(CALL|API) ') ]] ||
    { echo "abi_stub.awk does not see all functions of ${headers[*]}" >&2; exit 1; }
  gcc -std=c11 -g -shared -fPIC -I"$1/include" "$1.stub.c" -o "$1.so"
  awk -f "$here/abi_table.awk" "${headers[@]}" >"$1.table.c"
  gcc -std=c11 -I"$1/include" "$1.table.c" -o "$1.print_table"
  # Without the names of fields, which a reserved one may change, and the sizes of structs that may grow.
  "$1.print_table" | awk '
    split($1, part, ".") == 2 { has_fields[part[1]] = 1; print part[1], $2, $3; next }
    { line[$1] = $0 }
    END { for (name in line) if (!(name in has_fields)) print line[name] }' | sort >"$1.table"
}
mkdir "$work/before" "$work/after"
git archive "$base" include | tar -x -C "$work/before"
cp -rL include "$work/after"
build "$work/before"
build "$work/after"

lost=$(comm -23 "$work/before.table" "$work/after.table")
[[ -z $lost ]] || printf 'constants, and offset and size of fields, that are gone:\n%s\n' "$lost"

readonly error=1 usage=2  # bits of abidiff's exit status
changed=0
abidiff --no-added-syms --suppressions "$here/abi_ignored.ini" "$work/before.so" "$work/after.so" || changed=$?
(( (changed & (error | usage)) == 0 )) || exit 1

version_of() { sed -nE 's/^#define FSDP2_HEADER_VERSION +([0-9a-fx]+).*/\1/p' "$1/include/fsdp2/base.h"; }

if [[ $changed -eq 0 && -z $(grep -v '^FSDP2_HEADER_VERSION ' <<<"$lost") ]]; then
  echo "programs built with $base still run"
elif [[ $(version_of "$work/before") == "$(version_of "$work/after")" ]]; then
  echo "programs built with $base would misbehave, and FSDP2_HEADER_VERSION is what it was: raise it, or undo the change" >&2
  exit 1
else
  echo "programs built with $base are refused by fsdp2_check_version"
fi
