//! Where the library's own messages go. No error is reported in the log alone.

use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::time::{Duration, SystemTime};

use crate::callback::release;
use crate::{ffi, sys, Result};

numbers! {
    /// How important a message is.
    LogLevel {
        /// For those who work on the library.
        Debug = FSDP2_LOG_DEBUG,
        /// What it does.
        Info = FSDP2_LOG_INFO,
        /// What may be a mistake.
        Warning = FSDP2_LOG_WARNING,
        /// What has gone wrong.
        Error = FSDP2_LOG_ERROR,
        /// As the least level: no messages.
        Off = FSDP2_LOG_OFF,
    }
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LogRecord<'a> {
    /// How important it is.
    pub level: LogLevel,
    /// Whose it is, if anybody's.
    pub rank: Option<i32>,
    /// When it was sent.
    pub time: SystemTime,
    /// "comm", "fsdp", ...
    pub category: &'a str,
    /// What it says.
    pub message: &'a str,
}

/// Sends messages of at least this level to a closure, in place of the one before.
///
/// It runs on threads that are inside a call of the library, possibly on several at once. Calls of the library inside it fail;
/// so does a panic, which the library never hears of.
pub fn set<F>(min_level: LogLevel, closure: F) -> Result<()>
where
    F: Fn(&LogRecord<'_>) + Send + Sync + 'static,
{
    ffi::ready()?;
    ffi::give(closure, |user_data| unsafe {
        sys::fsdp2_log_set(
            min_level.number(),
            Some(log::<F>),
            user_data,
            Some(release::<F>),
        )
    })
}

/// Sends messages of at least this level to standard error, where those from [`LogLevel::Warning`] up go by default.
pub fn set_standard_error(min_level: LogLevel) -> Result<()> {
    ffi::ready()?;
    ffi::check(unsafe { sys::fsdp2_log_set(min_level.number(), None, ptr::null_mut(), None) })
}

unsafe extern "C" fn log<F>(record: *const sys::fsdp2_log_record, closure: *mut c_void)
where
    F: Fn(&LogRecord<'_>) + Send + Sync + 'static,
{
    let closure = &*(closure as *const F);
    let raw = &*record;
    let record = LogRecord {
        level: LogLevel::from_number(raw.level),
        rank: (raw.rank >= 0).then_some(raw.rank),
        time: SystemTime::UNIX_EPOCH + Duration::from_nanos(raw.time_ns.max(0) as u64),
        category: ffi::borrowed(raw.category),
        message: ffi::borrowed(raw.message),
    };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| closure(&record))) {
        std::mem::forget(payload);
    }
}
