//! Cargo gives a run path only to programs of the crate that asks for it, so every crate on the way hands the directory on.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(directory) = env::var("DEP_FSDP2_LIB_DIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{directory}");
        println!("cargo:lib_dir={directory}"); // DEP_FSDP2_RUST_LIB_DIR for build scripts of dependants
    }
}
