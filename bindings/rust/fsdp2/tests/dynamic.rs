//! The library is opened when the program needs it.
#![cfg(feature = "load-dynamic")]

use std::env;

use fsdp2::{Status, Tensor};

#[test]
fn a_missing_library_or_another_one_is_an_error() {
    let library = env::var_os("FSDP2_LIBRARY").expect("FSDP2_LIBRARY");
    env::set_var("FSDP2_LIBRARY", "/no/such/libfsdp2.so");
    let error = Tensor::from_slice(&[1f32], &[1]).unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
    assert!(error.message().contains("/no/such/libfsdp2.so"), "{error}");
    env::set_var("FSDP2_LIBRARY", "libm.so.6");
    let error = Tensor::from_slice(&[1f32], &[1]).unwrap_err();
    assert_eq!(error.status(), Status::AbiMismatch);
    let expected = "libm.so.6 is another library; set FSDP2_LIBRARY to the path of libfsdp2.so";
    assert_eq!(error.message(), expected);
    env::set_var("FSDP2_LIBRARY", library);
    let tensor = Tensor::from_slice(&[1f32], &[1]).unwrap();
    assert_eq!(tensor.value().unwrap(), 1.0);
}
