//! How a module is sharded.

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use crate::callback::{self, CallbackResult};
use crate::ffi::{self, Field, Texts};
use crate::{sys, Dtype, MeshOptions, Result};

numbers! {
    /// Which modules are units.
    Wrap {
        /// Each module of the model's no-split classes.
        Default = FSDP2_WRAP_DEFAULT,
        /// No class makes units.
        None = FSDP2_WRAP_NONE,
        /// Each module of the classes in `wrap_kinds`.
        Kinds = FSDP2_WRAP_KINDS,
    }
}

numbers! {
    /// How parameters travel.
    CommPath {
        /// Per parameter, by size and layout.
        Auto = FSDP2_COMM_PATH_AUTO,
        /// Each parameter straight into its storage where its layout allows.
        Direct = FSDP2_COMM_PATH_DIRECT,
        /// One buffer and one collective per unit.
        Packed = FSDP2_COMM_PATH_PACKED,
    }
}

numbers! {
    /// When parameters travel.
    CommSchedule {
        /// Every unit once per forward and once per backward, in one order on all ranks.
        Agreed = FSDP2_COMM_SCHEDULE_AGREED,
        /// PyTorch's rule: what this rank uses, when it uses it.
        OnUse = FSDP2_COMM_SCHEDULE_ON_USE,
    }
}

/// What forward leaves of a unit's gathered parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reshard {
    /// Nothing, but the root keeps everything.
    Auto,
    /// Nothing.
    Always,
    /// Everything.
    Never,
    /// A slice of one in so many, which is then gathered over as many neighbours; at least 2.
    Slices(i32),
}

impl Field<i32> for Reshard {
    fn from_c(number: i32) -> Self {
        match number {
            sys::FSDP2_RESHARD_AUTO => Self::Auto,
            sys::FSDP2_RESHARD_ALWAYS => Self::Always,
            sys::FSDP2_RESHARD_NEVER => Self::Never,
            n => Self::Slices(n),
        }
    }

    fn to_c(&self) -> i32 {
        match *self {
            Self::Auto => sys::FSDP2_RESHARD_AUTO,
            Self::Always => sys::FSDP2_RESHARD_ALWAYS,
            Self::Never => sys::FSDP2_RESHARD_NEVER,
            Self::Slices(n) if n < 2 => i32::MIN, // which the library refuses, as it would not refuse 1
            Self::Slices(n) => n,
        }
    }
}

/// A parameter that is to be sharded.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ShardDimInfo<'a> {
    /// The module's.
    pub dtype: Dtype,
    /// The shape of the whole parameter.
    pub shape: &'a [i64],
    /// Its dotted path in the module.
    pub parameter: &'a str,
}

/// Chooses the dim to shard a parameter on. A negative dim counts from the end. All ranks must give the same answer.
pub type ShardDimFn = Arc<dyn Fn(&ShardDimInfo<'_>) -> CallbackResult<i32> + Send + Sync>;

options! {
    /// How a module is sharded. Names are dotted paths below the module, such as "model.layers.0.mlp".
    #[derive(Clone)]
    ShardOptions: fsdp2_shard_options, fsdp2_shard_options_init {
        /// What forward leaves of a unit's gathered parameters.
        reshard_after_forward: Reshard,
        /// For gathering and computing; none: the shard's.
        param_dtype: Option<Dtype>,
        /// For reducing gradients; none: the gradient's.
        reduce_dtype: Option<Dtype>,
        /// For floating-point outputs of the root, or of the units made by hand; none: as they are.
        output_dtype: Option<Dtype>,
        /// Leave floating-point inputs in their dtype.
        no_cast_forward_inputs: bool,
        /// Keep shards, their gradients and optimizer states in host memory.
        cpu_offload: bool,
        /// Which modules are units.
        wrap: Wrap,
        /// How parameters travel.
        comm_path: CommPath,
        /// Units that the agreed schedule gathers ahead of use; -1: none, 0: one.
        prefetch: i32,
        /// `cpu_offload` uses ordinary memory, not pinned.
        no_pin_memory: bool,
        /// When parameters travel.
        comm_schedule: CommSchedule,
        /// Rank 0 alone reads the weights, and broadcasts them.
        load_from_rank0: bool,
        /// How many consecutive siblings of the wrapped classes make one unit; 0: one.
        modules_per_unit: i32,
        /// Each embedding table is a unit.
        wrap_embeddings: bool,
        /// The language-model head ("lm_head") is a unit.
        wrap_head: bool,
        /// [`Shard::load_values`](crate::Shard::load_values) or a checkpoint gives the parameters their values later.
        defer_values: bool,
        /// The memory of gathered parameters, and of what gathers and reductions pass through, is kept from step to step;
        /// see [`Shard::release_buffers`](crate::Shard::release_buffers).
        keep_buffers: bool,
        /// Reductions share the connections of the gathers, in one order on all ranks.
        one_communicator: bool,
        /// Above 0: a module is also a unit if it has this many elements that no module inside it has taken.
        wrap_min_numel: i64,
    } others |_raw| {
        /// With [`Wrap::Kinds`]: class names.
        wrap_kinds: Vec<String> = Vec::new(),
        /// More modules, each of which is a unit.
        wrap_names: Vec<String> = Vec::new(),
        /// Parameters to leave alone: not sharded, not reduced, whole on every rank.
        ignored_names: Vec<String> = Vec::new(),
        /// The dim to shard each parameter on; none: 0.
        shard_dim: Option<ShardDimFn> = None,
    }
}

impl fmt::Debug for ShardOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardOptions")
            .field("numbers", &self.raw())
            .field("wrap_kinds", &self.wrap_kinds)
            .field("wrap_names", &self.wrap_names)
            .field("ignored_names", &self.ignored_names)
            .field("shard_dim", &self.shard_dim.is_some())
            .finish()
    }
}

impl ShardOptions {
    /// Applies a strategy of PyTorch's older FullyShardedDataParallel by its name: FULL_SHARD, SHARD_GRAD_OP, NO_SHARD,
    /// HYBRID_SHARD, HYBRID_SHARD_ZERO2. Sets the `fsdp_size` of the mesh, which must have no shape, and
    /// `reshard_after_forward`. `fsdp_size` is the number of ranks of a shard group, which the hybrid strategies need; 0: all.
    pub fn apply_strategy(
        &mut self,
        name: &str,
        fsdp_size: i64,
        mesh: &mut MeshOptions,
    ) -> Result<()> {
        let name = ffi::c_text(name)?;
        let mut shard = self.raw();
        mesh.fsdp_size = mesh.with_raw(|raw| {
            let mut raw = *raw;
            ffi::check(unsafe {
                sys::fsdp2_shard_apply_strategy(name.as_ptr(), fsdp_size, &mut raw, &mut shard)
            })?;
            Ok(raw.fsdp_size)
        })?;
        self.reshard_after_forward = Reshard::from_c(shard.reshard_after_forward);
        Ok(())
    }

    /// Calls with the struct that C takes, which lives that long.
    pub(crate) fn with_raw<R>(
        &self,
        call: impl FnOnce(&sys::fsdp2_shard_options) -> Result<R>,
    ) -> Result<R> {
        let kinds = Texts::new(&self.wrap_kinds)?;
        let names = Texts::new(&self.wrap_names)?;
        let ignored = Texts::new(&self.ignored_names)?;
        let mut raw = self.raw();
        (raw.wrap_kinds, raw.n_wrap_kinds) = (kinds.as_ptr(), kinds.len());
        (raw.wrap_names, raw.n_wrap_names) = (names.as_ptr(), names.len());
        (raw.ignored_names, raw.n_ignored_names) = (ignored.as_ptr(), ignored.len());
        if let Some(shard_dim) = &self.shard_dim {
            raw.shard_dim = Some(choose_dim);
            raw.shard_dim_user_data = ptr::addr_of!(*shard_dim) as *mut c_void;
        }
        call(&raw)
    }
}

unsafe extern "C" fn choose_dim(
    info: *const sys::fsdp2_shard_dim_info,
    out: *mut i32,
    user_data: *mut c_void,
) -> sys::fsdp2_status {
    callback::run(|| {
        let shard_dim = &*(user_data as *const ShardDimFn);
        let info = &*info;
        *out = shard_dim(&ShardDimInfo {
            dtype: Dtype::from_number(info.dtype),
            shape: &info.shape[..info.n_dims as usize],
            parameter: ffi::borrowed(info.parameter),
        })?;
        Ok(())
    })
}
