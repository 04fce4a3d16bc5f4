#!/bin/bash
# Each public header compiles alone, as C and as C++, with every compiler that is here, without a warning.
set -u
strict=(-fsyntax-only -pedantic -Wall -Wextra -Wpadded -Werror -Iinclude)
failures=0
compilers=0

check() { # compiler, language, standard, flags
  local compiler=$1 language=$2 standard=$3
  shift 3
  # A standard that this compiler does not know is not the headers' fault.
  echo 'int used;' | "$compiler" -x "$language" -std="$standard" -fsyntax-only - 2> /dev/null || return 0
  local path
  for path in include/fsdp2/*.h; do
    local header=${path##*/}
    if ! printf '#include <fsdp2/%s>\nextern int used;\n' "$header" |
        "$compiler" -x "$language" -std="$standard" "${strict[@]}" "$@" -; then
      echo "$header: $compiler -std=$standard fails" >&2
      failures=$((failures + 1))
    fi
  done
}

for pair in "gcc g++" "clang clang++"; do
  read -r c cxx <<< "$pair"
  command -v "$c" > /dev/null && command -v "$cxx" > /dev/null || continue
  compilers=$((compilers + 1))
  for standard in c99 c11 c17 c2x; do
    check "$c" c "$standard" -Wstrict-prototypes -Wmissing-prototypes
  done
  for standard in c++11 c++14 c++17 c++20 c++23; do
    check "$cxx" c++ "$standard" -Wold-style-cast
  done
done

if [[ $compilers -eq 0 ]]; then
  echo "no compiler found" >&2
  exit 1
fi
echo "$compilers compilers, $failures failures"
exit $((failures != 0))
