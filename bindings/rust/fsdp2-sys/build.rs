//! Finds libfsdp2: in the directory that FSDP2_LIB_DIR names, else by pkg-config.

use std::env;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=FSDP2_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let directory = match env::var("FSDP2_LIB_DIR").ok().or_else(ask_pkg_config) {
        Some(directory) => directory,
        None => {
            eprintln!(
                "fsdp2-sys: libfsdp2 was not found. Install it so that `pkg-config fsdp2` knows it \
                 (PKG_CONFIG_PATH names the directory of fsdp2.pc), or set FSDP2_LIB_DIR to the \
                 directory of libfsdp2.so."
            );
            return ExitCode::FAILURE;
        }
    };
    if !directory.is_empty() {
        println!("cargo:rustc-link-search=native={directory}");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{directory}");
        println!("cargo:lib_dir={directory}"); // DEP_FSDP2_LIB_DIR for build scripts of dependants
    }
    println!("cargo:rustc-link-lib=dylib=fsdp2");
    ExitCode::SUCCESS
}

/// The library's directory; empty if the linker looks there anyway.
fn ask_pkg_config() -> Option<String> {
    let answer = Command::new("pkg-config")
        .args(["--libs-only-L", "fsdp2"])
        .output()
        .ok()?;
    let flags = String::from_utf8(answer.stdout).ok()?;
    answer
        .status
        .success()
        .then(|| flags.trim().trim_start_matches("-L").to_string())
}
