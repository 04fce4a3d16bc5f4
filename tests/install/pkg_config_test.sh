#!/bin/bash
# A C program builds by what pkg-config says of the prefix, and trains; also where the prefix has been moved to.
source tests/install/installed.sh
need gcc pkg-config

builds_and_trains() {
  local flags
  read -ra flags < <(pkg-config --cflags --libs fsdp2)
  gcc -std=c99 -pedantic -Wall -Wextra -Werror examples/c/train.c "${flags[@]}" -o "$work/train"
  train_c_program "$work/train"
}

in_two_places builds_and_trains
