//! What every file here needs to call the C ABI.

use std::ffi::{c_void, CStr, CString};
use std::mem::{size_of, MaybeUninit};
use std::os::raw::c_char;
use std::path::Path;
use std::ptr;
use std::sync::Once;

use crate::{sys, Dtype, Error, Result, Status, Tensor};

pub(crate) fn check(status: sys::fsdp2_status) -> Result<()> {
    match status {
        sys::FSDP2_OK => Ok(()),
        failed => Err(Error::take(failed)),
    }
}

/// Is the library the one that this crate was made for? Every call that needs no object of the library asks first.
pub(crate) fn ready() -> Result<()> {
    static CHECKED: Once = Once::new();
    let mut outcome = Ok(());
    if !CHECKED.is_completed() {
        #[cfg(feature = "load-dynamic")]
        sys::load().map_err(|e| Error::new(Status::from_number(e.status), e.message))?;
        outcome = check(unsafe { sys::fsdp2_check_version(sys::FSDP2_HEADER_VERSION) });
        if outcome.is_ok() {
            CHECKED.call_once(|| ());
        }
    }
    outcome
}

/// Calls something that writes one output.
pub(crate) fn made<T: Default>(call: impl FnOnce(*mut T) -> sys::fsdp2_status) -> Result<T> {
    let mut out = T::default();
    check(call(&mut out))?;
    Ok(out)
}

pub(crate) fn made_flag(call: impl FnOnce(*mut i32) -> sys::fsdp2_status) -> Result<bool> {
    made(call).map(|flag| flag != 0)
}

/// The defaults that the library knows.
pub(crate) fn defaults<T>(init: impl FnOnce(*mut T, usize) -> sys::fsdp2_status) -> T {
    let mut options = MaybeUninit::zeroed();
    // SAFETY: options are plain numbers and pointers, for which zeros are valid. The size is right, so nothing can fail.
    unsafe {
        let status = init(options.as_mut_ptr(), size_of::<T>());
        debug_assert_eq!(status, sys::FSDP2_OK);
        options.assume_init()
    }
}

// ---- texts and lists that come out

pub(crate) fn text(
    mut call: impl FnMut(*mut c_char, usize, *mut usize) -> sys::fsdp2_status,
) -> Result<String> {
    let mut bytes = list(|buffer: *mut u8, cap, needed| call(buffer as *mut c_char, cap, needed))?;
    bytes.pop(); // the NUL
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Asks for the length, then for the elements, and again if there have come more in between.
pub(crate) fn list<T: Copy + Default>(
    mut call: impl FnMut(*mut T, usize, *mut usize) -> sys::fsdp2_status,
) -> Result<Vec<T>> {
    let mut needed = 0;
    check(call(ptr::null_mut(), 0, &mut needed))?;
    loop {
        let mut elements = vec![T::default(); needed];
        let status = call(elements.as_mut_ptr(), elements.len(), &mut needed);
        if status == sys::FSDP2_E_BUFFER_TOO_SMALL && needed > elements.len() {
            continue;
        }
        check(status)?;
        elements.truncate(needed);
        return Ok(elements);
    }
}

/// A text of the library's, which outlives the borrow.
pub(crate) unsafe fn borrowed<'a>(text: *const c_char) -> &'a str {
    if text.is_null() {
        return "";
    }
    CStr::from_ptr(text).to_str().unwrap_or("(not UTF-8)")
}

// ---- texts that go in

pub(crate) fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| {
        let message = format!("expected a text without NUL, found {text:?}");
        Error::new(Status::InvalidArgument, message)
    })
}

pub(crate) fn c_path(path: &Path) -> Result<CString> {
    match path.to_str() {
        Some(text) => c_text(text),
        None => {
            let message = format!("expected a path in UTF-8, found {}", path.display());
            Err(Error::new(Status::InvalidArgument, message))
        }
    }
}

/// Like `c_text`, for calls that are made often: short texts are copied to the stack.
pub(crate) fn with_c_text<R>(
    text: &str,
    call: impl FnOnce(*const c_char) -> Result<R>,
) -> Result<R> {
    let mut short = [0u8; 96];
    if text.len() < short.len() && !text.as_bytes().contains(&0) {
        short[..text.len()].copy_from_slice(text.as_bytes());
        return call(short.as_ptr() as *const c_char);
    }
    call(c_text(text)?.as_ptr())
}

/// An array of texts, as C takes it.
pub(crate) struct Texts {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl Texts {
    pub(crate) fn new<T: AsRef<str>>(texts: &[T]) -> Result<Self> {
        Self::own(texts.iter().map(|text| c_text(text.as_ref())))
    }

    pub(crate) fn of_paths<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<Self> {
        Self::own(paths.map(c_path))
    }

    fn own(texts: impl Iterator<Item = Result<CString>>) -> Result<Self> {
        let owned = texts.collect::<Result<Vec<_>>>()?;
        Ok(Self {
            pointers: owned.iter().map(|text| text.as_ptr()).collect(),
            _owned: owned,
        })
    }

    /// NULL if there is none.
    pub(crate) fn as_ptr(&self) -> *const *const c_char {
        pointer(&self.pointers)
    }

    pub(crate) fn len(&self) -> usize {
        self.pointers.len()
    }
}

/// NULL for an empty slice, whose own pointer means nothing.
pub(crate) fn pointer<T>(elements: &[T]) -> *const T {
    match elements {
        [] => ptr::null(),
        some => some.as_ptr(),
    }
}

// ---- tensors

pub(crate) fn optional(tensor: Option<&Tensor>) -> sys::fsdp2_tensor {
    tensor.map(Tensor::raw).unwrap_or_default()
}

pub(crate) fn tensors<'a, I>(tensors: I) -> Vec<sys::fsdp2_tensor>
where
    I: IntoIterator,
    I::Item: Into<Option<&'a Tensor>>,
{
    tensors
        .into_iter()
        .map(|tensor| optional(tensor.into()))
        .collect()
}

/// The sizes that are in use of an array of FSDP2_MAX_DIMS.
pub(crate) fn dims(sizes: &[i64], n: i32) -> Vec<i64> {
    sizes[..(n.max(0) as usize).min(sizes.len())].to_vec()
}

// ---- functions of the caller

/// Hands a closure over to the library, which drops it with `release::<F>` once it has taken it.
pub(crate) fn give<F>(
    closure: F,
    call: impl FnOnce(*mut c_void) -> sys::fsdp2_status,
) -> Result<()> {
    let user_data = Box::into_raw(Box::new(closure));
    let outcome = check(call(user_data as *mut c_void));
    if outcome.is_err() {
        // SAFETY: the library has not taken it.
        drop(unsafe { Box::from_raw(user_data) });
    }
    outcome
}

// ---- fields of structs

/// A field as it is in the C struct, and as it is here.
pub(crate) trait Field<C> {
    fn from_c(value: C) -> Self;
    fn to_c(&self) -> C;
}

macro_rules! same {
    ($($type:ty)*) => { $(
        impl Field<$type> for $type {
            fn from_c(value: $type) -> Self {
                value
            }

            fn to_c(&self) -> $type {
                *self
            }
        }
    )* };
}
same!(i32 i64 u64 f64);

impl Field<i32> for bool {
    fn from_c(value: i32) -> Self {
        value != 0
    }

    fn to_c(&self) -> i32 {
        i32::from(*self)
    }
}

/// None is FSDP2_DTYPE_KEEP.
impl Field<i32> for Option<Dtype> {
    fn from_c(value: i32) -> Self {
        (value != sys::FSDP2_DTYPE_KEEP).then(|| Dtype::from_number(value))
    }

    fn to_c(&self) -> i32 {
        self.map_or(sys::FSDP2_DTYPE_KEEP, Dtype::number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_grows_between_two_calls_is_asked_for_again() {
        let mut lengths = [2, 3, 5, 5].iter().copied();
        let found = list(|elements: *mut i32, cap, needed| {
            let length = lengths.next().expect("no more calls than it takes");
            unsafe { *needed = length };
            if !elements.is_null() && cap < length {
                return sys::FSDP2_E_BUFFER_TOO_SMALL;
            }
            for i in 0..length.min(cap) {
                unsafe { *elements.add(i) = i as i32 };
            }
            sys::FSDP2_OK
        });
        assert_eq!(found.unwrap(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_list_that_shrinks_between_two_calls_has_its_new_length() {
        let mut lengths = [3, 1].iter().copied();
        let found = list(|elements: *mut i32, _, needed| {
            unsafe { *needed = lengths.next().expect("no more calls than it takes") };
            if !elements.is_null() {
                unsafe { *elements = 7 };
            }
            sys::FSDP2_OK
        });
        assert_eq!(found.unwrap(), [7]);
    }
}
