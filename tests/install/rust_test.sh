#!/bin/bash
# A crate that depends on fsdp2-sys builds by what pkg-config says of the prefix, and runs; also where the prefix has been moved
# to. Its build.rs is that of bindings/README.md.
source tests/install/installed.sh
need cargo pkg-config

copy_to_work bindings/rust examples/rust
mkdir -p "$work/program/src"
cat >"$work/program/Cargo.toml" <<END
[package]
name = "program"
version = "0.1.0"
edition = "2021"

[dependencies]
fsdp2-sys = { path = "$work/bindings/rust/fsdp2-sys" }

[workspace]
END
sed -n '/^```rust$/,/^```$/p' bindings/README.md | sed '/^```/d' >"$work/program/build.rs"
cat >"$work/program/src/main.rs" <<'END'
use fsdp2_sys::*;

fn main() {
    let mut mesh = fsdp2_mesh { id: 0 };
    unsafe {
        assert_eq!(fsdp2_check_version(FSDP2_HEADER_VERSION), FSDP2_OK);
        assert_eq!(fsdp2_mesh_create(std::ptr::null(), &mut mesh), FSDP2_OK);
        assert_eq!(fsdp2_live_handles(), 1);
        assert_eq!(fsdp2_mesh_destroy(mesh), FSDP2_OK);
    }
}
END

builds_and_runs() {
  (cd "$work/program" && cargo build)
  "$CARGO_TARGET_DIR/debug/program"
}

unset FSDP2_LIB_DIR
export CARGO_TARGET_DIR=$work/target CARGO_NET_OFFLINE=true
in_two_places builds_and_runs
