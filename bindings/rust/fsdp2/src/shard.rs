//! `fully_shard`: cuts a module's parameters over the ranks of a mesh, gathers them around the forward and backward of each
//! unit, and reduces gradients to the shards.

use std::cell::Cell;

use crate::ffi::{self, Texts};
use crate::{sys, Dtype, Mesh, Module, Result, ShardOptions, Tensor, Which};

info! {
    /// What a sharded parameter is, and this rank's part of it. The indices are the shard's own; [`Module`] has others.
    ParameterInfo: fsdp2_parameter_info {
        /// The dtype of the sharded parameter.
        dtype: Dtype,
        /// For gathering and computing.
        compute_dtype: Dtype,
        /// Is it trained?
        requires_grad: bool,
        /// -1: whole on this rank.
        shard_dim: i32,
        /// Has it a gradient?
        has_grad: bool,
        /// More than one: it is tied.
        n_names: i32,
        /// Global index of the first of this rank's rows.
        local_offset: i64,
        /// Ranks over which the parameter is cut.
        shard_ranks: i32,
        /// Ranks that hold the same rows: 1 unless the mesh is 2-D.
        replica_ranks: i32,
        /// Index of its unit.
        unit: i32,
    } others |raw| {
        /// Its global sizes.
        shape: Vec<i64> = ffi::dims(&raw.shape, raw.n_dims),
        /// The sizes of this rank's rows; there may be none.
        local_shape: Vec<i64> = ffi::dims(&raw.local_shape, raw.n_dims),
    }
}

object! {
    /// A module's parameters, cut over the ranks of a mesh.
    ///
    /// It belongs to one thread at a time, together with its module, optimizers and steps:
    ///
    /// ```compile_fail,E0277
    /// fn shared<T: Sync>() {}
    /// shared::<fsdp2::Shard>();
    /// ```
    Shard: fsdp2_shard, fsdp2_shard_destroy, fsdp2_shard_duplicate, Cell<()>
}

impl Shard {
    /// Makes one unit by hand, of one module below `module` or of several as a group, before [`Shard::create`] makes the rest
    /// the root. *Collective.*
    pub fn make_unit(
        module: &Module,
        mesh: &Mesh,
        names: &[&str],
        options: &ShardOptions,
    ) -> Result<()> {
        let names = Texts::new(names)?;
        options.with_raw(|raw| {
            ffi::check(unsafe {
                sys::fsdp2_shard_make_unit(
                    module.raw(),
                    mesh.raw(),
                    names.as_ptr(),
                    names.len(),
                    raw,
                )
            })
        })
    }

    /// Like [`Shard::make_unit`], but makes units by rule: one of each module that the wrap fields select. *Collective.*
    pub fn make_units(module: &Module, mesh: &Mesh, options: &ShardOptions) -> Result<()> {
        options.with_raw(|raw| {
            ffi::check(unsafe { sys::fsdp2_shard_make_units(module.raw(), mesh.raw(), raw) })
        })
    }

    /// Shards the module over the mesh, which is 1-D, or 2-D as (replicate, shard). *Collective.*
    pub fn create(module: &Module, mesh: &Mesh, options: &ShardOptions) -> Result<Self> {
        options
            .with_raw(|raw| {
                ffi::made(|out| unsafe {
                    sys::fsdp2_shard_create(module.raw(), mesh.raw(), raw, out)
                })
            })
            .map(Self::own)
    }

    /// Gives the parameters their values, after `defer_values`. *Collective.*
    pub fn load_values(&self) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_shard_load_values(self.raw()) })
    }

    /// The mesh that the module is sharded over.
    pub fn mesh(&self) -> Result<Mesh> {
        ffi::made(|out| unsafe { sys::fsdp2_shard_get_mesh(self.raw(), out) }).map(Mesh::own)
    }

    // ---- gradients

    /// Forgets all gradients of what is sharded, unreduced ones included.
    pub fn zero_grad(&self) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_shard_zero_grad(self.raw()) })
    }

    /// The p-norm of all gradients; the largest for infinity. *Collective.*
    pub fn grad_norm(&self, norm_type: f64) -> Result<f64> {
        ffi::made(|out| unsafe { sys::fsdp2_shard_get_grad_norm(self.raw(), norm_type, out) })
    }

    /// Like [`Shard::grad_norm`]; then multiplies the gradients by min(1, max_norm / norm). 0 only measures. *Collective.*
    pub fn clip_grad_norm(&self, max_norm: f64, norm_type: f64) -> Result<f64> {
        ffi::made(|out| unsafe {
            sys::fsdp2_shard_clip_grad_norm(self.raw(), max_norm, norm_type, out)
        })
    }

    /// Do the gradients of any rank contain an infinity or a NaN? *Collective.*
    pub fn grad_overflow(&self) -> Result<bool> {
        ffi::made_flag(|out| unsafe { sys::fsdp2_shard_get_grad_overflow(self.raw(), out) })
    }

    /// Multiplies this rank's gradients by a finite factor.
    pub fn scale_grad(&self, factor: f64) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_shard_scale_grad(self.raw(), factor) })
    }

    // ---- parameters

    /// The number of parameters that are sharded, a tied one counted once.
    pub fn parameter_count(&self) -> Result<usize> {
        ffi::made(|out| unsafe { sys::fsdp2_shard_get_parameter_count(self.raw(), out) })
    }

    /// What a parameter is.
    pub fn parameter_info(&self, index: usize) -> Result<ParameterInfo> {
        ParameterInfo::get(|out| unsafe {
            sys::fsdp2_shard_get_parameter_info(self.raw(), index, out)
        })
    }

    /// A parameter's name: 0 is its own, the others are its ties.
    pub fn parameter_name(&self, index: usize, name_index: usize) -> Result<String> {
        ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_shard_get_parameter_name(self.raw(), index, name_index, buffer, cap, needed)
        })
    }

    /// Finds a parameter by any of its names.
    pub fn parameter_index(&self, name: &str) -> Result<usize> {
        let name = ffi::c_text(name)?;
        ffi::made(|out| unsafe {
            sys::fsdp2_shard_get_parameter_index(self.raw(), name.as_ptr(), out)
        })
    }

    /// A parameter or its gradient: this rank's rows, or a copy of the whole.
    pub fn parameter(&self, index: usize, which: Which) -> Result<Tensor> {
        Tensor::made(|out| unsafe {
            sys::fsdp2_shard_get_parameter(self.raw(), index, which.number(), out)
        })
    }

    /// Casts every shard to a floating-point dtype and forgets gradients. Optimizers made before keep the old shards.
    pub fn cast_parameters(&self, dtype: Dtype) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_shard_cast_parameters(self.raw(), dtype.number()) })
    }
}
