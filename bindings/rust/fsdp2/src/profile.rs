//! What one thread of this rank computes and waits for, by LibTorch's own profiler: operators, and the phases of units as ranges that are
//! named as in PyTorch, such as "FSDP::all_gather (model.layers.0)".

use std::path::Path;
use std::ptr;

use crate::{ffi, sys, Result};

/// Starts a profile of this thread, which also stops it. A process takes one at a time:
/// [`Status::WrongState`](crate::Status::WrongState) if another one is being taken.
pub fn start() -> Result<()> {
    ffi::ready()?;
    ffi::check(unsafe { sys::fsdp2_profile_start() })
}

/// Stops it. A trace file gets all events in Chrome's trace format.
pub fn stop(trace_file: Option<&Path>) -> Result<()> {
    let path = trace_file.map(ffi::c_path).transpose()?;
    let raw = path.as_ref().map_or(ptr::null(), |path| path.as_ptr());
    ffi::check(unsafe { sys::fsdp2_profile_stop(raw) })
}

/// The profile that was stopped last as a table of operators and ranges, by their own time.
pub fn describe() -> Result<String> {
    ffi::text(|buffer, cap, needed| unsafe { sys::fsdp2_profile_describe(buffer, cap, needed) })
}
