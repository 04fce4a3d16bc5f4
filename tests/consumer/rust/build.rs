//! Gives the program the folder of libfsdp2 as its run path.

fn main() {
    if let Ok(directory) = std::env::var("DEP_FSDP2_LIB_DIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{directory}");
    }
}
