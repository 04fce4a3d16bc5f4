//! Profiles.

use std::marker::PhantomData;
use std::path::Path;
use std::ptr;

use crate::{ffi, sys, Result};

/// A profile that is being taken: what its thread computes and waits for, by LibTorch's own profiler. Operators are in it, and the
/// phases of units as ranges that are named as in PyTorch, such as "FSDP::all_gather (model.layers.0)". One that is dropped ends
/// without a trace.
///
/// ```no_run
/// # fn main() -> fsdp2::Result<()> {
/// use fsdp2::Profile;
///
/// let profile = Profile::start()?;
/// // ... a step
/// profile.stop(Some("trace.json".as_ref()))?;
/// println!("{}", Profile::describe()?);
/// # Ok(()) }
/// ```
///
/// The thread that starts a profile also stops it:
///
/// ```compile_fail,E0277
/// let profile = fsdp2::Profile::start().unwrap();
/// std::thread::spawn(move || drop(profile));
/// ```
#[derive(Debug)]
pub struct Profile {
    of_thread: PhantomData<*const ()>,
}

impl Profile {
    /// Starts a profile of this thread. A process takes one at a time: [`Status::WrongState`](crate::Status::WrongState) if another
    /// one is being taken.
    pub fn start() -> Result<Self> {
        ffi::ready()?;
        ffi::check(unsafe { sys::fsdp2_profile_start() })?;
        Ok(Self {
            of_thread: PhantomData,
        })
    }

    /// Stops it. A trace file gets all events in Chrome's trace format.
    pub fn stop(self, trace_file: Option<&Path>) -> Result<()> {
        let path = trace_file.map(ffi::c_path).transpose()?;
        let raw = path.as_ref().map_or(ptr::null(), |path| path.as_ptr());
        ffi::check(unsafe { sys::fsdp2_profile_stop(raw) })
    }

    /// The profile that was stopped last as a table of operators and ranges, by their own time.
    pub fn describe() -> Result<String> {
        ffi::text(|buffer, cap, needed| unsafe { sys::fsdp2_profile_describe(buffer, cap, needed) })
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        // After `stop` nothing is left to stop, and the error that says so is nobody's.
        let _ = unsafe { sys::fsdp2_profile_stop(ptr::null()) };
    }
}
