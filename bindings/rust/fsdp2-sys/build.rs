//! Finds libfsdp2: in the directory that FSDP2_LIB_DIR names, else by pkg-config. With the feature load-dynamic the program finds it
//! when it runs.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::{env, fs};

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_LOAD_DYNAMIC").is_some() {
        write_loaded_bindings();
        return ExitCode::SUCCESS;
    }
    println!("cargo:rerun-if-env-changed=FSDP2_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let directory = match env::var("FSDP2_LIB_DIR").ok().or_else(ask_pkg_config) {
        Some(directory) => directory,
        None => {
            eprintln!(
                "fsdp2-sys: libfsdp2 was not found. Install it so that `pkg-config fsdp2` knows it \
                 (PKG_CONFIG_PATH names the directory of fsdp2.pc), or set FSDP2_LIB_DIR to the \
                 directory of libfsdp2.so. With the feature load-dynamic, programs look for it \
                 when they run."
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

/// The bindings with functions that call what `dynamic.rs` has loaded, in place of functions for the linker.
fn write_loaded_bindings() {
    println!("cargo:rerun-if-changed=src/bindings.rs");
    println!("cargo:rustc-link-lib=dl");
    let linked = fs::read_to_string("src/bindings.rs").expect("src/bindings.rs");
    let (begin, end) = ("extern \"C\" {\n    pub fn ", ";\n}\n");
    let mut parts = linked.split(begin);
    let mut loaded = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (signature, rest) = part.split_once(end).expect("the end of a function");
        loaded += &loaded_function(signature);
        loaded += rest;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR"));
    fs::write(out.join("bindings.rs"), loaded).expect("bindings.rs");
}

/// The function for the signature `name(a: A, b: B) -> R`, whose types have neither parentheses nor commas.
fn loaded_function(signature: &str) -> String {
    let (name, rest) = signature.split_once('(').expect("(");
    let (parameters, result) = rest.rsplit_once(')').expect(")");
    let parameters: Vec<(&str, &str)> = parameters
        .split(',')
        .filter_map(|parameter| parameter.trim().split_once(": "))
        .collect();
    let names: Vec<_> = parameters.iter().map(|(name, _)| *name).collect();
    let types: Vec<_> = parameters.iter().map(|(_, one)| *one).collect();
    let (names, types) = (names.join(", "), types.join(", "));
    let declared: Vec<_> = parameters
        .iter()
        .map(|(name, one)| format!("{name}: {one}"))
        .collect();
    let declared = declared.join(", ");
    format!(
        "pub unsafe fn {name}({declared}){result} {{
    static FUNCTION: crate::dynamic::Function = crate::dynamic::Function::new(\"{name}\\0\");
    let function: unsafe extern \"C\" fn({types}){result} = ::std::mem::transmute(FUNCTION.address());
    function({names})
}}
"
    )
}
