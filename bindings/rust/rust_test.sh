#!/bin/bash
# The crate builds with cargo alone, its layouts are C's, the library answers; Rust programs train and steer units on two ranks.
source bindings/language_test.sh
need cargo

copy_to_work bindings/rust/fsdp2-sys examples/rust
cd "$work/bindings/rust/fsdp2-sys"
export FSDP2_LIB_DIR=$root CARGO_TARGET_DIR=$work/target CARGO_NET_OFFLINE=true
cargo test
cargo build --examples
cd "$root"
train_on_two_ranks "$work/target/debug/examples/train"
steer_units_on_two_ranks "$work/target/debug/examples/units"
