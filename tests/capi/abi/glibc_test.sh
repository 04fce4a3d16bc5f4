#!/bin/bash
# The library needs no newer glibc and libstdc++ than README says: glibc 2.34 and GCC 12's.
set -euo pipefail
library=$1

# The linker takes the newest version of each function that the machine's glibc has, so only what is built where libraries for
# others are built can be held to this.
here=$(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2)
if [[ $(printf '%s\n' 2.36 "$here" | sort -V | tail -1) != 2.36 ]]; then
  echo "SKIPPED: a library built on glibc $here needs it: build on Debian 12 (2.36) or older to check what others need"
  exit 0
fi

status=0
check() {  # PREFIX HIGHEST
  local needed newest
  needed=$(objdump -T "$library" | grep -oE "\b$1_[0-9.]+" | sort -Vu)
  newest=$(tail -1 <<<"$needed")
  if [[ $(printf '%s\n' "$1_$2" "$newest" | sort -V | tail -1) != "$1_$2" ]]; then
    echo "expected at most $1_$2, found $newest:"
    objdump -T "$library" | grep -wF "$newest"
    status=1
  fi
}
check GLIBC 2.34
check GLIBCXX 3.4.30
exit $status
