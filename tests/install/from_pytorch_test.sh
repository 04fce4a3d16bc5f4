#!/bin/bash
# The programs of docs/from-pytorch.md: the one in C builds by what pkg-config says of the prefix, learns what Python's FSDP2 is recorded
# to learn with the options of the one in Python, and saves it.
source tests/install/installed.sh
need gcc pkg-config python3

code_block docs/from-pytorch.md python 1 >"$work/train.py"
[[ -s $work/train.py ]]
python3 -m py_compile "$work/train.py"

install_to "$work/prefix"
use_prefix "$work/prefix"
code_block docs/from-pytorch.md c 1 >"$work/train.c"
read -ra flags < <(pkg-config --cflags --libs fsdp2)
gcc -std=c99 -pedantic -Wall -Wextra -Werror "$work/train.c" "${flags[@]}" -o "$work/train"

golden=tests/parity/golden
"$launcher" run --nproc-per-node 2 -- "$work/train" $golden/models/tiny-llama $golden/tokens/tiny-llama.bin "$work/saved" |
  tee "$work/losses"
hold_to_golden fp32-clip 10
"$launcher" inspect "$work/saved" --verify | grep "^everything has been read and is sound$" >/dev/null
