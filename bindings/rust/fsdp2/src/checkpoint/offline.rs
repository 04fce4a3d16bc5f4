//! Checkpoints as files: without a mesh, and in any format.

use std::path::{Path, PathBuf};
use std::ptr;

use crate::{ffi, sys, CheckpointFormat, Result, SaveOptions};

/// May a save with these options replace what is at the path, and does no other run save into its series? Only looks at the
/// file system.
pub fn check_path(path: impl AsRef<Path>, options: &SaveOptions) -> Result<()> {
    ffi::ready()?;
    let path = ffi::c_path(path.as_ref())?;
    ffi::check(unsafe { sys::fsdp2_checkpoint_check_path(path.as_ptr(), &options.raw()) })
}

/// The path that a load would read: the path itself, or the newest complete checkpoint in it.
pub fn find(path: impl AsRef<Path>) -> Result<PathBuf> {
    ffi::ready()?;
    let path = ffi::c_path(path.as_ref())?;
    ffi::text(|buffer, cap, needed| unsafe {
        sys::fsdp2_checkpoint_find(path.as_ptr(), buffer, cap, needed)
    })
    .map(PathBuf::from)
}

/// Describes the contents as JSON: format, step, ranks, tensors, objects. Reads no values of tensors.
pub fn inspect(path: impl AsRef<Path>) -> Result<String> {
    ffi::ready()?;
    let path = ffi::c_path(path.as_ref())?;
    ffi::text(|buffer, cap, needed| unsafe {
        sys::fsdp2_checkpoint_inspect(path.as_ptr(), buffer, cap, needed)
    })
}

/// Reads everything and compares every checksum.
pub fn verify(path: impl AsRef<Path>) -> Result<()> {
    ffi::ready()?;
    let path = ffi::c_path(path.as_ref())?;
    ffi::check(unsafe { sys::fsdp2_checkpoint_verify(path.as_ptr()) })
}

/// Writes the checksums of a DCP directory that another program has written or changed.
pub fn rebuild_manifest(path: impl AsRef<Path>) -> Result<()> {
    ffi::ready()?;
    let path = ffi::c_path(path.as_ref())?;
    ffi::check(unsafe { sys::fsdp2_checkpoint_rebuild_manifest(path.as_ptr()) })
}

options! {
    /// How a checkpoint is converted.
    #[derive(Debug, Clone, PartialEq)]
    ConvertOptions: fsdp2_convert_options, fsdp2_convert_options_init {
        /// What to write.
        format: CheckpointFormat,
        /// Leave out all but the model.
        model_only: bool,
        /// Per-rank files: their number; 0: one.
        ranks: i32,
        /// Per-rank files: the number in their names.
        step: i64,
        /// Model directory: split the weights above this size; 0: 5 GiB.
        max_file_bytes: i64,
    } others |_raw| {
        /// Model directory: a config.json; none: the source's.
        config_path: Option<PathBuf> = None,
    }
}

/// Converts a checkpoint, with one tensor in memory at a time.
pub fn convert(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: &ConvertOptions,
) -> Result<()> {
    ffi::ready()?;
    let (from, to) = (ffi::c_path(from.as_ref())?, ffi::c_path(to.as_ref())?);
    let config = options
        .config_path
        .as_deref()
        .map(ffi::c_path)
        .transpose()?;
    let mut raw = options.raw();
    raw.config_path = config.as_ref().map_or(ptr::null(), |path| path.as_ptr());
    ffi::check(unsafe { sys::fsdp2_checkpoint_convert(from.as_ptr(), to.as_ptr(), &raw) })
}
