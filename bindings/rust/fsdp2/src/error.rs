//! Why a call failed.

use std::any::Any;
use std::fmt;
use std::os::raw::c_char;
use std::ptr;
use std::sync::Mutex;

use crate::callback::{self, CallbackError};
use crate::{ffi, sys};

/// The outcome of every call here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

numbers! {
    /// What went wrong, by number.
    Status {
        /// A pointer that is required was missing.
        NullArgument = FSDP2_E_NULL_ARGUMENT,
        /// An object that never was.
        InvalidHandle = FSDP2_E_INVALID_HANDLE,
        /// An object that is destroyed.
        StaleHandle = FSDP2_E_STALE_HANDLE,
        /// An object of another kind.
        HandleKind = FSDP2_E_HANDLE_KIND,
        /// A struct of a size that the library does not know.
        StructSize = FSDP2_E_STRUCT_SIZE,
        /// An argument that is out of its range, or does not fit the others.
        InvalidArgument = FSDP2_E_INVALID_ARGUMENT,
        /// More came out than there was room for.
        BufferTooSmall = FSDP2_E_BUFFER_TOO_SMALL,
        /// Another thread is inside this object.
        Busy = FSDP2_E_BUSY,
        /// The object is not in a state for this call.
        WrongState = FSDP2_E_WRONG_STATE,
        /// There is no such thing.
        NotFound = FSDP2_E_NOT_FOUND,
        /// The library does not do this.
        Unsupported = FSDP2_E_UNSUPPORTED,
        /// This crate and the library, or the library and LibTorch, are of different versions.
        AbiMismatch = FSDP2_E_ABI_MISMATCH,
        /// The file system refused.
        Io = FSDP2_E_IO,
        /// Out of memory, or of threads.
        OutOfMemory = FSDP2_E_OUT_OF_MEMORY,
        /// Out of an accelerator's memory.
        DeviceMemory = FSDP2_E_DEVICE_MEMORY,
        /// A connection between ranks failed.
        Comm = FSDP2_E_COMM,
        /// A rank did not come in time.
        Timeout = FSDP2_E_TIMEOUT,
        /// Another rank failed first; the message is that rank's.
        PeerFailed = FSDP2_E_PEER_FAILED,
        /// An accelerator is gone.
        DeviceLost = FSDP2_E_DEVICE_LOST,
        /// A function of the caller's failed; [`std::error::Error::source`] has its error.
        Callback = FSDP2_E_CALLBACK,
        /// Reserved.
        Cancelled = FSDP2_E_CANCELLED,
        /// A file does not hold what it should.
        CorruptData = FSDP2_E_CORRUPT_DATA,
        /// A loss or gradients with infinities or NaN.
        NotFinite = FSDP2_E_NOT_FINITE,
        /// A defect of the library.
        Internal = FSDP2_E_INTERNAL,
    }
}

impl Status {
    /// Its class, which never changes.
    pub fn class(self) -> Class {
        match self.number() / 100 {
            1 => Class::Caller,
            2 => Class::Unavailable,
            3 => Class::Memory,
            4 => Class::Communication,
            5 => Class::Callback,
            6 => Class::Data,
            _ => Class::Internal,
        }
    }
}

/// The name in the C ABI, such as `FSDP2_E_TIMEOUT`.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(unsafe { ffi::borrowed(sys::fsdp2_status_name(self.number())) })
    }
}

/// The hundreds digit of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// 1: the caller's mistake.
    Caller,
    /// 2: not available.
    Unavailable,
    /// 3: memory.
    Memory,
    /// 4: communication and devices.
    Communication,
    /// 5: the caller's functions.
    Callback,
    /// 6: data.
    Data,
    /// 9: a defect of the library.
    Internal,
}

/// Why a call failed.
pub struct Error(Box<Record>);

struct Record {
    status: Status,
    rank: Option<i32>,
    native_code: i32,
    message: String,
    function: String,
    detail: String,
    cause: Option<CallbackError>,
}

impl Error {
    /// An error of your own, for a callback to return.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self(Box::new(Record {
            status,
            rank: None,
            native_code: 0,
            message: message.into(),
            function: String::new(),
            detail: String::new(),
            cause: None,
        }))
    }

    /// Takes this thread's record of a call that has just failed.
    pub(crate) fn take(status: sys::fsdp2_status) -> Self {
        let mut info = sys::fsdp2_error_info {
            struct_size: std::mem::size_of::<sys::fsdp2_error_info>() as u32,
            ..Default::default()
        };
        let mut needed = 0;
        let mut error = Self::new(Status::from_number(status), "");
        let record = &mut *error.0;
        // SAFETY: the strings of `info` lie in `strings`.
        unsafe {
            let _ = sys::fsdp2_error_take(&mut info, ptr::null_mut(), 0, &mut needed);
            let mut strings = vec![0u8; needed];
            let buffer = strings.as_mut_ptr() as *mut c_char;
            let taken = sys::fsdp2_error_take(&mut info, buffer, needed, &mut needed);
            if taken == sys::FSDP2_OK && info.status == status {
                record.rank = (info.rank >= 0).then_some(info.rank);
                record.native_code = info.native_code;
                record.message = ffi::borrowed(info.message).to_string();
                record.function = ffi::borrowed(info.function).to_string();
                record.detail = ffi::borrowed(info.detail).to_string();
            }
        }
        let cause = callback::take_cause();
        if matches!(record.status.class(), Class::Callback | Class::Memory) {
            record.cause = cause;
        }
        error
    }

    /// What went wrong.
    pub fn status(&self) -> Status {
        self.0.status
    }

    /// The status as a number.
    pub fn code(&self) -> i32 {
        self.0.status.number()
    }

    /// The class of the status.
    pub fn class(&self) -> Class {
        self.0.status.class()
    }

    /// This rank's number in the job; none if the call was about no mesh.
    pub fn rank(&self) -> Option<i32> {
        self.0.rank
    }

    /// `errno`, or the transport's own code; 0: none.
    pub fn native_code(&self) -> i32 {
        self.0.native_code
    }

    /// One line.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The C function that failed; empty if the call got no further than this crate.
    pub fn function(&self) -> &str {
        &self.0.function
    }

    /// More lines, possibly none.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The payload, if a callback's panic made the call fail: for [`std::panic::resume_unwind`].
    pub fn into_panic(self) -> Result<Box<dyn Any + Send>> {
        let mut record = self.0;
        match record.cause.take().map(|cause| cause.downcast::<Panic>()) {
            Some(Ok(panic)) => Ok(panic.into_payload()),
            // A callback inside a callback: the outer one has handed on the inner one's error.
            Some(Err(other)) => match other.downcast::<Error>() {
                Ok(inner) => inner.into_panic(),
                Err(other) => {
                    record.cause = Some(other);
                    Err(Self(record))
                }
            },
            None => Err(Self(record)),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.function.is_empty() {
            write!(f, "{}: ", self.0.function)?;
        }
        write!(f, "{} ({})", self.0.message, self.0.status)
    }
}

/// For people, because this is what a `main` that returns the error prints: the message, then its detail.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        match self.detail() {
            "" => Ok(()),
            detail => write!(f, "\n{detail}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.0.cause.as_deref()?;
        Some(cause)
    }
}

/// A panic in a callback, as the [source](std::error::Error::source) of the error of the call around it.
pub struct Panic {
    text: String,
    payload: Mutex<Box<dyn Any + Send>>, // locked by nobody: it makes the error Sync
}

impl Panic {
    pub(crate) fn new(payload: Box<dyn Any + Send>) -> Self {
        let text = match payload.downcast_ref::<String>() {
            Some(text) => text.clone(),
            None => payload.downcast_ref::<&str>().map_or_else(
                || "a value that is no text".to_string(),
                ToString::to_string,
            ),
        };
        Self {
            text,
            payload: Mutex::new(payload),
        }
    }

    /// What the panic said.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn into_payload(self) -> Box<dyn Any + Send> {
        self.payload
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl fmt::Debug for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Panic").field("text", &self.text).finish()
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked: {}", self.text)
    }
}

impl std::error::Error for Panic {}
