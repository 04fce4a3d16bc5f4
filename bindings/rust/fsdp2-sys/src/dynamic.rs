//! Feature load-dynamic: the library is the file that FSDP2_LIBRARY names, or what the system's loader finds, opened once something of
//! it is needed.

use std::env;
use std::error::Error;
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::{fsdp2_status, FSDP2_E_ABI_MISMATCH, FSDP2_E_NOT_FOUND};

extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlclose(library: *mut c_void) -> c_int;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}
const RTLD_NOW: c_int = 2;

static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Why the library cannot be used.
#[derive(Debug, Clone)]
pub struct LoadError {
    /// [`FSDP2_E_NOT_FOUND`], or [`FSDP2_E_ABI_MISMATCH`] for a library that is not libfsdp2.
    pub status: fsdp2_status,
    /// One line, with the file and what to do.
    pub message: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for LoadError {}

const REMEDY: &str = "set FSDP2_LIBRARY to the path of libfsdp2.so";

/// Opens the library, if it is not open. A call that fails can be made again, after a change of FSDP2_LIBRARY.
///
/// Every function of this crate opens it by itself, but panics if that fails.
pub fn load() -> Result<(), LoadError> {
    if !LIBRARY.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let named = env::var_os("FSDP2_LIBRARY").filter(|file| !file.is_empty());
    let file = named.unwrap_or_else(|| "libfsdp2.so.0".into());
    let failure = |status, message| Err(LoadError { status, message });
    let shown = file.to_string_lossy().into_owned();
    let name = match CString::new(file.into_vec()) {
        Ok(name) => name,
        Err(error) => return failure(FSDP2_E_NOT_FOUND, error.to_string()),
    };
    // SAFETY: the names are texts, and what dlerror returns is this thread's own until its next call of dl functions.
    unsafe {
        let library = dlopen(name.as_ptr(), RTLD_NOW);
        if library.is_null() {
            let reason = CStr::from_ptr(dlerror()).to_string_lossy();
            return failure(
                FSDP2_E_NOT_FOUND,
                format!("cannot load {shown}; {REMEDY}: {reason}"),
            );
        }
        if dlsym(library, "fsdp2_check_version\0".as_ptr().cast()).is_null() {
            dlclose(library);
            return failure(
                FSDP2_E_ABI_MISMATCH,
                format!("{shown} is another library; {REMEDY}"),
            );
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
