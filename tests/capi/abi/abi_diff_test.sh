#!/bin/bash
# abi_diff.sh passes what programs that are there do not notice, and fails what they do, unless the header's version tells them.
set -uo pipefail

if ! command -v abidiff >/dev/null; then
  echo "SKIPPED: abidiff is missing: apt-get install abigail-tools"
  exit 0
fi

script=$PWD/tests/capi/abi/abi_diff.sh
root=${TEST_TMPDIR:-$(mktemp -d)}/abi
mkdir -p "$root/include"
cp -rL include/fsdp2 "$root/include/"
chmod -R u+w "$root"
cd "$root" || exit 1
git init -q . && git add -A
git -c user.name=test -c user.email=test@localhost commit -qm headers && git tag v0

failures=0
expect() {  # STATUS WORDS NAME; what is changed is undone
  local output status=0
  output=$("$script" 2>&1) || status=$?
  if [[ $status -ne $1 || $output != *"$2"* ]]; then
    printf '%s: expected %s with "%s", found %s:\n%s\n' "$3" "$1" "$2" "$status" "$output" >&2
    failures=$((failures + 1))
  fi
  git checkout -q -- .
}
change() { sed -i -E "$2" "include/fsdp2/$1" && ! git diff --quiet || { echo "nothing changed by $2" >&2; exit 1; }; }
raise_version() { change base.h '/define FSDP2_HEADER_VERSION/s/0x[0-9a-f]+/0x00000fff/'; }

expect 0 "still run" "no change"

change runtime.h 's/^(FSDP2_API uint32_t) fsdp2_version\(void\);/&\n\1 fsdp2_new(void);/'
expect 0 "still run" "a new function"

change log.h 's/^\} fsdp2_log_record;/  int64_t added;\n&/'
expect 0 "still run" "a field at the end"

change log.h 's/^  int32_t rank;/  int64_t rank;/'
expect 1 "raise it" "a wider field"

change log.h 's/^  int32_t level;/  int32_t added;\n&/'
expect 1 "raise it" "a field in the middle"

change log.h 's/^FSDP2_CALL fsdp2_log_set\(int32_t/FSDP2_CALL fsdp2_log_set(int64_t/'
expect 1 "raise it" "another type of an argument"

change log.h 's/^FSDP2_CALL fsdp2_log_set\(int32_t/FSDP2_CALL fsdp2_log_set(int64_t/'
raise_version
expect 0 "are refused" "another type in a new version"

change log.h 's/fsdp2_log_set/fsdp2_log_put/'
expect 1 "raise it" "a function that is gone"

change base.h '/fsdp2_mesh;/s/uint64_t/uint32_t/'
expect 1 "raise it" "a narrower handle"

change log.h 's/FSDP2_LOG_OFF = 100/FSDP2_LOG_OFF = 101/'
expect 1 "raise it" "another number"

change log.h 's/^  int32_t reserved;/  int32_t thread;/'
expect 0 "still run" "a reserved field that has become another"

git tag -d v0 >/dev/null
expect 0 "SKIPPED" "no release"
exit $((failures != 0))
