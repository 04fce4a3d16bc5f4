#!/bin/bash
# A C program, which is the README's, builds by what pkg-config says of the prefix, and trains; also where the prefix has been moved to.
source tests/install/installed.sh
need gcc pkg-config

code_block README.md c 1 | sed 's/^ *//' >"$work/readme"
[[ -s $work/readme ]]
if grep -vxFf <(sed 's/^ *//' examples/c/train.c) "$work/readme"; then
  echo "README.md has these lines, and examples/c/train.c has not"
  exit 1
fi

builds_and_trains() {
  local flags
  read -ra flags < <(pkg-config --cflags --libs fsdp2)
  gcc -std=c99 -pedantic -Wall -Wextra -Werror examples/c/train.c "${flags[@]}" -o "$work/train"
  train_c_program "$work/train"
}

in_two_places builds_and_trains
