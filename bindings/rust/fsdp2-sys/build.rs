//! Finds libfsdp2: in the directory that FSDP2_LIB_DIR names, else by pkg-config. With the feature copy-dylibs programs run with
//! copies beside them; with load-dynamic they find the library when they run.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs, io};

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
    let mut run_path = directory.as_str();
    if env::var_os("CARGO_FEATURE_COPY_DYLIBS").is_some() {
        if let Err(error) = copy_libraries(Path::new(&directory)) {
            eprintln!(
                "fsdp2-sys: the feature copy-dylibs expects FSDP2_LIB_DIR or pkg-config to name \
                 the lib directory of an installed libfsdp2, which has LibTorch in fsdp2/libtorch: \
                 found '{directory}': {error}"
            );
            return ExitCode::FAILURE;
        }
        run_path = "$ORIGIN:$ORIGIN/.."; // programs, and those in deps and examples
    }
    if !directory.is_empty() {
        println!("cargo:rustc-link-search=native={directory}");
        println!("cargo:rustc-link-arg=-Wl,-rpath,{run_path}");
        println!("cargo:lib_dir={run_path}"); // DEP_FSDP2_LIB_DIR for build scripts of dependants
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

/// Puts the library with its plug-ins and LibTorch beside the programs, where `cargo run` looks anyway.
fn copy_libraries(installed: &Path) -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR")); // PROGRAMS/build/CRATE/out
    let programs = out.ancestors().nth(3).expect("the programs' folder");
    let libtorch = installed.join("fsdp2/libtorch/lib");
    for (folder, begin) in [(installed, "libfsdp2"), (&libtorch, "lib")] {
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            let text = name.to_string_lossy();
            if text.starts_with(begin) && text.contains(".so") {
                place(&folder.join(&name), &programs.join(&name))?;
            }
        }
    }
    println!(
        "cargo:rerun-if-changed={}",
        installed.join("libfsdp2.so").display()
    );
    Ok(())
}

/// A hard link takes no room; between file systems it has to be a copy.
fn place(from: &Path, to: &Path) -> io::Result<()> {
    let from = from.canonicalize()?;
    let _ = fs::remove_file(to);
    fs::hard_link(&from, to).or_else(|_| fs::copy(&from, to).map(drop))
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
