//! Closures that the library calls: nothing unwinds through it, and the error comes out of the call around it.

use std::cell::RefCell;
use std::ffi::{c_void, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::error::{Error, Panic};
use crate::sys;

/// The error of a callback: any error, so that `?` works with all of them.
pub type CallbackError = Box<dyn std::error::Error + Send + Sync>;

/// What a callback returns.
///
/// An error, or a panic, fails the call around the callback with [`Status::Callback`](crate::Status::Callback), and the other
/// ranks' calls with [`Status::PeerFailed`](crate::Status::PeerFailed). It is the source of the error of the call around it. An
/// [`Error`] of the class [`Memory`](crate::Class::Memory), of a call inside the callback, gives the error of the call around it the
/// same status. So does one of the class [`Communication`](crate::Class::Communication), but without a source: this rank has not failed.
pub type CallbackResult<T = ()> = std::result::Result<T, CallbackError>;

thread_local! {
    /// Why the last callback on this thread failed. Callbacks run on the thread of the call around them.
    static CAUSE: RefCell<Option<CallbackError>> = const { RefCell::new(None) };
}

pub(crate) fn take_cause() -> Option<CallbackError> {
    CAUSE
        .try_with(|cause| cause.borrow_mut().take())
        .unwrap_or_default()
}

/// Runs the body of a callback.
pub(crate) fn run(body: impl FnOnce() -> CallbackResult) -> sys::fsdp2_status {
    let (error, status, text) = match catch_unwind(AssertUnwindSafe(|| body().map_err(explain))) {
        Ok(Ok(())) => return sys::FSDP2_OK,
        Ok(Err(failure)) => failure,
        Err(payload) => explain(Box::new(Panic::new(payload))),
    };
    let _ = CAUSE.try_with(|cause| cause.replace(Some(error)));
    unsafe { sys::fsdp2_callback_fail(status, text.as_ptr()) }
}

fn explain(error: CallbackError) -> (CallbackError, sys::fsdp2_status, CString) {
    let (status, mut text) = match error.downcast_ref::<Error>() {
        Some(own) => (own.code(), own.to_string()),
        None => (sys::FSDP2_E_CALLBACK, error.to_string()),
    };
    text.retain(|letter| letter != '\0');
    let mut end = text.len().min(sys::FSDP2_MAX_TEXT as usize);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    (error, status, CString::new(text).unwrap_or_default())
}

/// Drops a closure of type F that the library no longer needs.
pub(crate) unsafe extern "C" fn release<F>(closure: *mut c_void) {
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(closure as *mut F))));
    if let Err(payload) = dropped {
        std::mem::forget(payload); // what panics while it is dropped may do so again
    }
}
