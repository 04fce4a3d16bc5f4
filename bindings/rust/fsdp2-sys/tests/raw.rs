//! The library answers, and a failed call leaves its record.

use std::ffi::{CStr, CString};
use std::mem::{size_of, MaybeUninit};
use std::ptr;

use fsdp2_sys::*;

#[test]
fn version_is_the_headers() {
    unsafe {
        assert_eq!(fsdp2_version(), FSDP2_HEADER_VERSION);
        assert_eq!(fsdp2_check_version(FSDP2_HEADER_VERSION), FSDP2_OK);
    }
}

#[test]
fn missing_directory_fills_the_record() {
    let directory = CString::new("/no/such/model").unwrap();
    let mut module = fsdp2_module::default();
    let mut record = fsdp2_error_info {
        struct_size: size_of::<fsdp2_error_info>() as u32,
        ..Default::default()
    };
    unsafe {
        let status = fsdp2_module_from_pretrained(directory.as_ptr(), ptr::null(), &mut module);
        fsdp2_error_last(&mut record);
        assert_eq!(status, FSDP2_E_NOT_FOUND);
        assert_eq!(record.status, status);
        assert_eq!(
            CStr::from_ptr(fsdp2_status_name(status)).to_str(),
            Ok("FSDP2_E_NOT_FOUND")
        );
        assert_eq!(
            CStr::from_ptr(record.function).to_str(),
            Ok("fsdp2_module_from_pretrained")
        );
        assert!(CStr::from_ptr(record.message)
            .to_str()
            .unwrap()
            .contains("/no/such/model"));
    }
    assert_eq!(
        module,
        fsdp2_module::default(),
        "a failed call gave a handle"
    );
}

#[test]
fn options_get_their_defaults() {
    let mut options = MaybeUninit::<fsdp2_adamw_options>::zeroed();
    let options = unsafe {
        assert_eq!(
            fsdp2_adamw_options_init(options.as_mut_ptr(), size_of::<fsdp2_adamw_options>()),
            FSDP2_OK
        );
        options.assume_init()
    };
    assert_eq!(
        options.struct_size as usize,
        size_of::<fsdp2_adamw_options>()
    );
    assert_eq!(
        (options.lr, options.beta1, options.beta2),
        (1e-3, 0.9, 0.999)
    );
    assert_eq!((options.eps, options.weight_decay), (1e-8, 1e-2));
}
