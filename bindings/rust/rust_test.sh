#!/bin/bash
# Both crates build with cargo alone, the raw one's layouts are C's, and the safe one keeps its promises; Rust programs train a
# model from disk and one of their own, and steer units.
source bindings/language_test.sh
need cargo

copy_to_work bindings/rust/fsdp2-sys bindings/rust/fsdp2 examples/rust
export FSDP2_LIB_DIR=$root CARGO_TARGET_DIR=$work/target CARGO_NET_OFFLINE=true OMP_NUM_THREADS=1
export FSDP2_TEST_DATA=$root/tests/parity/golden
(cd "$work/bindings/rust/fsdp2-sys" && cargo test)
cd "$work/bindings/rust/fsdp2"
cargo test
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps
cd "$root"
train_on_two_ranks "$work/target/debug/examples/train"
steer_units_on_two_ranks "$work/target/debug/examples/units"

# The model written in Rust learns as the one in C does.
model() {  # PROGRAM
  "$1" tests/parity/golden/tokens/tiny-llama.bin 2 6
}
diff <(model examples/c/model) <(model "$work/target/debug/examples/model")
