//! Closures that run inside a shard's own work: on the thread of the forward or backward that needs them, in the same order on
//! every rank. They may use tensors and read the model's parameters. The tensors that they receive belong to the library.
//!
//! The closures may move to another thread with their model, and live until they are replaced or removed, or the model is gone.

use std::ffi::{c_void, CString};
use std::mem::ManuallyDrop;
use std::ptr;

use crate::callback::{self, release, CallbackResult};
use crate::{ffi, sys, Dtype, Error, Result, Shard, Status, Tensor};

/// Whose gradients are reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllReduceInfo<'a> {
    /// The unit's index.
    pub unit_index: usize,
    /// The unit's name; "": the root.
    pub unit: &'a str,
}

/// Whose gradient is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GradientInfo<'a> {
    /// The unit's index.
    pub unit_index: usize,
    /// The parameter's index in the shard.
    pub parameter_index: usize,
    /// The parameter's name.
    pub parameter: &'a str,
}

/// How a parameter is gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GatherInfo<'a> {
    /// For gathering and computing.
    pub compute_dtype: Dtype,
    /// This rank's number in the group that gathers.
    pub shard_rank: i32,
    /// The size of that group.
    pub shard_ranks: i32,
    /// The unit's index.
    pub unit_index: usize,
    /// The parameter's index in the shard.
    pub parameter_index: usize,
    /// The parameter's name.
    pub parameter: &'a str,
}

impl Shard {
    /// Calls a closure with the gradients of all parameters of a unit (1-D), once they are reduced over the ranks.
    /// It may overwrite them, and make the collective calls of [`Mesh`](crate::Mesh), over another mesh than the unit's.
    pub fn set_all_reduce_hook<F>(&self, unit: &str, hook: F) -> Result<()>
    where
        F: Fn(&AllReduceInfo<'_>, &Tensor) -> CallbackResult + Send + 'static,
    {
        let unit = ffi::c_text(unit)?;
        ffi::give(hook, |user_data| unsafe {
            sys::fsdp2_shard_set_all_reduce_hook(
                self.raw(),
                unit.as_ptr(),
                Some(all_reduce::<F>),
                user_data,
                Some(release::<F>),
            )
        })
    }

    /// Removes it.
    pub fn remove_all_reduce_hook(&self, unit: &str) -> Result<()> {
        let unit = ffi::c_text(unit)?;
        ffi::check(unsafe {
            sys::fsdp2_shard_set_all_reduce_hook(
                self.raw(),
                unit.as_ptr(),
                None,
                ptr::null_mut(),
                None,
            )
        })
    }

    /// Calls a closure when the gradient of this rank's rows of a parameter is complete for this backward.
    pub fn set_gradient_ready<F>(&self, unit: &str, recurse: bool, ready: F) -> Result<()>
    where
        F: Fn(&GradientInfo<'_>, &Tensor) -> CallbackResult + Send + 'static,
    {
        let unit = ffi::c_text(unit)?;
        ffi::give(ready, |user_data| unsafe {
            sys::fsdp2_shard_set_gradient_ready(
                self.raw(),
                unit.as_ptr(),
                i32::from(recurse),
                Some(gradient_ready::<F>),
                user_data,
                Some(release::<F>),
            )
        })
    }

    /// Removes it.
    pub fn remove_gradient_ready(&self, unit: &str, recurse: bool) -> Result<()> {
        let unit = ffi::c_text(unit)?;
        ffi::check(unsafe {
            sys::fsdp2_shard_set_gradient_ready(
                self.raw(),
                unit.as_ptr(),
                i32::from(recurse),
                None,
                ptr::null_mut(),
                None,
            )
        })
    }

    /// Changes what travels in place of a parameter's rows, for example to an 8-bit form of them.
    ///
    /// `pre` turns this rank's chunk (1-D, zero-padded to the same length on every rank, in the shard's dtype) into the tensor
    /// that is sent (1-D, of the same size and dtype on all ranks). `post` turns the tensors of all ranks, `pieces`
    /// `[shard_ranks, n]`, back into their chunks in the compute dtype, and writes these to `chunks` `[shard_ranks, length]`.
    pub fn set_all_gather_extension<Pre, Post>(
        &self,
        unit: &str,
        pre: Pre,
        post: Post,
    ) -> Result<()>
    where
        Pre: Fn(&GatherInfo<'_>, &Tensor) -> CallbackResult<Tensor> + Send + 'static,
        Post: Fn(&GatherInfo<'_>, &Tensor, &Tensor) -> CallbackResult + Send + 'static,
    {
        let unit = ffi::c_text(unit)?;
        ffi::give((pre, post), |user_data| unsafe {
            sys::fsdp2_shard_set_all_gather_extension(
                self.raw(),
                unit.as_ptr(),
                Some(pre_all_gather::<Pre, Post>),
                Some(post_all_gather::<Pre, Post>),
                user_data,
                Some(release::<(Pre, Post)>),
            )
        })
    }

    /// Removes it.
    pub fn remove_all_gather_extension(&self, unit: &str) -> Result<()> {
        let unit: CString = ffi::c_text(unit)?;
        ffi::check(unsafe {
            sys::fsdp2_shard_set_all_gather_extension(
                self.raw(),
                unit.as_ptr(),
                None,
                None,
                ptr::null_mut(),
                None,
            )
        })
    }
}

/// A tensor of the library's, for the time of a callback.
fn borrowed(raw: sys::fsdp2_tensor) -> Result<ManuallyDrop<Tensor>> {
    Tensor::own(raw)
        .map(ManuallyDrop::new)
        .ok_or_else(|| Error::new(Status::Internal, "a callback got no tensor"))
}

unsafe extern "C" fn all_reduce<F>(
    info: *const sys::fsdp2_all_reduce_info,
    gradients: sys::fsdp2_tensor,
    closure: *mut c_void,
) -> sys::fsdp2_status
where
    F: Fn(&AllReduceInfo<'_>, &Tensor) -> CallbackResult + Send + 'static,
{
    callback::run(|| {
        let info = AllReduceInfo {
            unit_index: (*info).unit_index as usize,
            unit: ffi::borrowed((*info).unit),
        };
        (*(closure as *const F))(&info, &*borrowed(gradients)?)
    })
}

unsafe extern "C" fn gradient_ready<F>(
    info: *const sys::fsdp2_gradient_info,
    gradient: sys::fsdp2_tensor,
    closure: *mut c_void,
) -> sys::fsdp2_status
where
    F: Fn(&GradientInfo<'_>, &Tensor) -> CallbackResult + Send + 'static,
{
    callback::run(|| {
        let info = GradientInfo {
            unit_index: (*info).unit_index as usize,
            parameter_index: (*info).parameter_index as usize,
            parameter: ffi::borrowed((*info).parameter),
        };
        (*(closure as *const F))(&info, &*borrowed(gradient)?)
    })
}

unsafe fn gather_info<'a>(info: *const sys::fsdp2_gather_info) -> GatherInfo<'a> {
    GatherInfo {
        compute_dtype: Dtype::from_number((*info).compute_dtype),
        shard_rank: (*info).shard_rank,
        shard_ranks: (*info).shard_ranks,
        unit_index: (*info).unit_index as usize,
        parameter_index: (*info).parameter_index as usize,
        parameter: ffi::borrowed((*info).parameter),
    }
}

unsafe extern "C" fn pre_all_gather<Pre, Post>(
    info: *const sys::fsdp2_gather_info,
    chunk: sys::fsdp2_tensor,
    out: *mut sys::fsdp2_tensor,
    closures: *mut c_void,
) -> sys::fsdp2_status
where
    Pre: Fn(&GatherInfo<'_>, &Tensor) -> CallbackResult<Tensor> + Send + 'static,
{
    callback::run(|| {
        let (pre, _) = &*(closures as *const (Pre, Post));
        *out = pre(&gather_info(info), &*borrowed(chunk)?)?.into_raw();
        Ok(())
    })
}

unsafe extern "C" fn post_all_gather<Pre, Post>(
    info: *const sys::fsdp2_gather_info,
    pieces: sys::fsdp2_tensor,
    chunks: sys::fsdp2_tensor,
    closures: *mut c_void,
) -> sys::fsdp2_status
where
    Post: Fn(&GatherInfo<'_>, &Tensor, &Tensor) -> CallbackResult + Send + 'static,
{
    callback::run(|| {
        let (_, post) = &*(closures as *const (Pre, Post));
        post(&gather_info(info), &*borrowed(pieces)?, &*borrowed(chunks)?)
    })
}
