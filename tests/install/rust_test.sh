#!/bin/bash
# The program of Rust's README builds by what pkg-config says of the prefix, and learns; also where the prefix has been moved to.
source tests/install/installed.sh
need cargo pkg-config

copy_to_work bindings/rust examples/rust
mkdir -p "$work/first/src"
cat >"$work/first/Cargo.toml" <<END
[package]
name = "first"
version = "0.1.0"
edition = "2021"

[dependencies]
fsdp2 = { path = "$work/bindings/rust/fsdp2" }

[workspace]
END
code_block bindings/rust/README.md rust 1 >"$work/first/src/main.rs"
code_block bindings/rust/README.md rust 2 >"$work/first/build.rs"

builds_and_learns() {
  (cd "$work/first" && cargo build)
  learns_on_two_ranks "$CARGO_TARGET_DIR/debug/first" examples/data/opticks.txt
}

unset FSDP2_LIB_DIR
export CARGO_TARGET_DIR=$work/target CARGO_NET_OFFLINE=true CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
in_two_places builds_and_learns
