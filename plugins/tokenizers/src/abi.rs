//! The types of core/text/tokenizers_abi.h, and the one way in: whatever goes wrong becomes a line of text, a panic, too.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

pub const ABI: u32 = 2;

/// What a function may fail with.
pub type Problem = Box<dyn std::error::Error + Send + Sync>;

#[repr(C)]
pub struct Text {
    data: *mut u8,
    size: usize,
}

#[repr(C)]
pub struct Tokens {
    ids: *mut u32,
    begins: *mut u64,
    count: usize,
    behind: usize,
}

fn give<T>(values: Vec<T>) -> *mut T {
    Box::into_raw(values.into_boxed_slice()).cast()
}

/// # Safety
/// `data` and `count` are of a `give`, or null and anything.
unsafe fn take<T>(data: *mut T, count: usize) {
    if !data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(
            data, count,
        )));
    }
}

impl Text {
    pub fn new(text: String) -> Text {
        let size = text.len();
        Text {
            data: give(text.into_bytes()),
            size,
        }
    }

    /// # Safety
    /// It is freed once.
    pub unsafe fn free(self) {
        take(self.data, self.size);
    }
}

impl Tokens {
    /// `ids` and `begins` are of one length, and at least `behind` long.
    pub fn new(ids: Vec<u32>, begins: Vec<u64>, behind: usize) -> Tokens {
        let count = ids.len();
        Tokens {
            ids: give(ids),
            begins: give(begins),
            count,
            behind,
        }
    }

    /// # Safety
    /// It is freed once.
    pub unsafe fn free(self) {
        take(self.ids, self.count);
        take(self.begins, self.count);
    }
}

/// # Safety
/// The slice is the caller's, and outlives the call. A null pointer stands for no elements.
pub unsafe fn slice<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if data.is_null() {
        return &[];
    }
    std::slice::from_raw_parts(data, count)
}

/// # Safety
/// As `slice`.
pub unsafe fn text<'a>(data: *const u8, size: usize) -> Result<&'a str, Problem> {
    std::str::from_utf8(slice(data, size))
        .map_err(|error| format!("is not UTF-8 from byte {} on", error.valid_up_to()).into())
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("for a reason that it does not tell")
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What `work` returns; `None` if it fails, with the reason in `*error`.
///
/// # Safety
/// `error` can be written to.
pub unsafe fn guard<T>(error: *mut Text, work: impl FnOnce() -> Result<T, Problem>) -> Option<T> {
    let reason = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(problem)) => problem.to_string(),
        Err(panic) => format!("the tokenizers library gave up: {}", words(panic.as_ref())),
    };
    *error = Text::new(in_one_line(&reason));
    None
}
