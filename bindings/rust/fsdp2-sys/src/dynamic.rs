//! Feature load-dynamic: the library is the file that FSDP2_LIBRARY names, or what the system's loader finds, opened once something of
//! it is needed.

use std::env;
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}
const RTLD_NOW: c_int = 2;

static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Opens the library, if it is not open. A call that fails can be made again, after a change of FSDP2_LIBRARY.
///
/// Every function of this crate opens it by itself, but panics if that fails.
pub fn load() -> Result<(), String> {
    if !LIBRARY.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let named = env::var_os("FSDP2_LIBRARY").filter(|file| !file.is_empty());
    let file = named.unwrap_or_else(|| "libfsdp2.so.0".into());
    let name = CString::new(file.clone().into_vec()).map_err(|error| error.to_string())?;
    // SAFETY: the name is a text, and what dlerror returns is this thread's own until its next call of dl functions.
    unsafe {
        let library = dlopen(name.as_ptr(), RTLD_NOW);
        if library.is_null() {
            let reason = CStr::from_ptr(dlerror()).to_string_lossy();
            return Err(format!(
                "cannot load {}; set FSDP2_LIBRARY to the path of libfsdp2.so: {reason}",
                file.to_string_lossy()
            ));
        }
        LIBRARY.store(library, Ordering::Release); // whoever else opens it gets the same
    }
    Ok(())
}

/// A function of the library, looked up once.
pub(crate) struct Function {
    name: &'static str, // with a NUL
    address: AtomicPtr<c_void>,
}

impl Function {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        load().unwrap_or_else(|reason| panic!("{reason}"));
        let name = self.name;
        // SAFETY: the library is open, and the name ends with a NUL.
        let found = unsafe { dlsym(LIBRARY.load(Ordering::Acquire), name.as_ptr().cast()) };
        assert!(
            !found.is_null(),
            "libfsdp2 has no {}",
            name.trim_end_matches('\0')
        );
        self.address.store(found, Ordering::Relaxed);
        found
    }
}
