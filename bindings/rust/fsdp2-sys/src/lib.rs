//! libfsdp2's C ABI, one to one. The C headers (`include/fsdp2`) document every item.
//!
//! A status other than [`FSDP2_OK`] means that [`fsdp2_error_last`] knows why, on the same thread and until its next failing
//! call. Options are filled by their `fsdp2_..._options_init`; info and result structs by setting `struct_size`.

#![allow(non_camel_case_types)]
// Structs with callbacks derive PartialEq; older compilers do not know the second lint.
#![allow(unknown_lints, unpredictable_function_pointer_comparisons)]

#[cfg(not(feature = "load-dynamic"))]
mod bindings;
#[cfg(feature = "load-dynamic")]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
#[cfg(feature = "load-dynamic")]
mod dynamic;

pub use bindings::*;
#[cfg(feature = "load-dynamic")]
pub use dynamic::{load, LoadError};
