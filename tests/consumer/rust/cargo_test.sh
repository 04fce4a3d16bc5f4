#!/bin/bash
# A crate that depends on fsdp2-sys builds by cargo with the library that Bazel has built, and runs.
set -euo pipefail
if ! command -v cargo >/dev/null; then
  echo "SKIPPED: no cargo on this machine: apt-get install cargo"
  exit 0
fi
libfsdp2=$(realpath ../libfsdp2)
work=$TEST_TMPDIR/libfsdp2 # laid out as the repositories are, for Cargo.toml's sake
mkdir -p "$work/tests/consumer" "$work/bindings"
cp -RL rust "$work/tests/consumer/rust"
cp -RL "$libfsdp2/bindings/rust" "$work/bindings/rust"
cd "$work/tests/consumer/rust"
export FSDP2_LIB_DIR=$libfsdp2 CARGO_NET_OFFLINE=true
cargo run
