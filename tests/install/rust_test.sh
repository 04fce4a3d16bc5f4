#!/bin/bash
# The program of Rust's README builds by what pkg-config says of the prefix, and learns; also where the prefix has been moved to, and
# with copies of the libraries where there is no prefix.
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

[features]
copy-dylibs = ["fsdp2/copy-dylibs"]

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

# With copies of the libraries `cargo run` needs no build.rs; with it, the program's folder needs nothing else of this machine's.
cd "$work/first"
mv build.rs later.rs
learns cargo run --features copy-dylibs -- "$root/examples/data/opticks.txt"
mv later.rs build.rs
cargo build --features copy-dylibs
mkdir "$work/moved"
mv "$CARGO_TARGET_DIR"/debug/{first,*.so*} "$work/moved"
rm -r "$work/there" "$CARGO_TARGET_DIR"
[[ $(ldd "$work/moved/first" | grep -cE "(libfsdp2|libtorch_cpu).* => $work/moved/") == 2 ]]
learns "$work/moved/first" "$root/examples/data/opticks.txt"
