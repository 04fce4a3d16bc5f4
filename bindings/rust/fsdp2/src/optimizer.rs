//! Optimizers on shards: their state lies beside the rank's own rows. At first every parameter is in one group.

use std::cell::Cell;

use crate::ffi::{self, Texts};
use crate::{sys, Dtype, Result, Shard, Tensor, Which};

options! {
    /// AdamW (Loshchilov and Hutter, 2019): decoupled decay, bias-corrected; or Adam.
    #[derive(Debug, Clone, PartialEq)]
    AdamwOptions: fsdp2_adamw_options, fsdp2_adamw_options_init {
        /// Adam, whose weight decay is added to the gradient.
        coupled_decay: bool,
        /// The learning rate.
        lr: f64,
        /// The decay of the first moment.
        beta1: f64,
        /// The decay of the second moment.
        beta2: f64,
        /// Added to the root of the second moment.
        eps: f64,
        /// Decoupled from the gradient, unless `coupled_decay`.
        weight_decay: f64,
        /// Dtype of both moments, such as bf16 beside parameters in fp32, in half the memory; `None`: each parameter's own
        /// or, for a group, the optimizer's.
        state_dtype: Option<Dtype>,
    }
}

options! {
    /// SGD with momentum, without dampening; weight decay is added to the gradient.
    #[derive(Debug, Clone, PartialEq)]
    SgdOptions: fsdp2_sgd_options, fsdp2_sgd_options_init {
        /// Look ahead along the momentum.
        nesterov: bool,
        /// The learning rate.
        lr: f64,
        /// The decay of the velocity.
        momentum: f64,
        /// Added to the gradient.
        weight_decay: f64,
    }
}

options! {
    /// Muon (Jordan, 2024) for the matrices of hidden layers, and AdamW for the rest.
    #[derive(Debug, Clone, PartialEq)]
    MuonOptions: fsdp2_muon_options, fsdp2_muon_options_init {
        /// Steps of the iteration that makes a matrix orthogonal: 1 to 99.
        newton_schulz_steps: i32,
        /// Whether momentum is plain.
        no_nesterov: bool,
        /// The learning rate of all groups.
        lr: f64,
        /// The decay of all groups, decoupled from the gradient.
        weight_decay: f64,
        /// The decay of the momentum of matrices.
        momentum: f64,
        /// The rate of a matrix is `lr` times this times the root of its longer side; 0: Jordan's own scale.
        matched_adamw_rms: f64,
        /// See [`AdamwOptions`].
        beta1: f64,
        /// See [`AdamwOptions`].
        beta2: f64,
        /// See [`AdamwOptions`].
        eps: f64,
    }
}

numbers! {
    /// What an optimizer computes.
    Algorithm {
        /// See [`AdamwOptions`].
        Adamw = FSDP2_OPTIMIZER_ADAMW,
        /// See [`SgdOptions`].
        Sgd = FSDP2_OPTIMIZER_SGD,
        /// See [`MuonOptions`].
        Muon = FSDP2_OPTIMIZER_MUON,
    }
}

info! {
    /// What an optimizer is.
    OptimizerInfo: fsdp2_optimizer_info {
        /// What it computes.
        algorithm: Algorithm,
        /// 1 until groups are added.
        n_groups: i32,
        /// Those of the shard that are not frozen, a tied parameter once.
        n_parameters: i32,
        /// Bytes of this rank's state.
        n_bytes: i64,
        /// Bytes from other ranks in all updates so far; 0 but for Muon.
        n_received_bytes: i64,
        /// What `n_bytes` is once every parameter has been updated.
        n_full_bytes: i64,
    }
}

info! {
    /// What a group is. A number is 0 where the algorithm has no such thing.
    OptimizerGroupInfo: fsdp2_optimizer_group_info {
        /// The number of its parameters.
        n_parameters: i32,
        /// The learning rate, now.
        lr: f64,
        /// See [`AdamwOptions`].
        beta1: f64,
        /// See [`AdamwOptions`].
        beta2: f64,
        /// See [`AdamwOptions`].
        eps: f64,
        /// See [`AdamwOptions`] and [`SgdOptions`].
        weight_decay: f64,
        /// See [`SgdOptions`].
        momentum: f64,
        /// See [`SgdOptions`].
        nesterov: bool,
        /// For a group of matrices of Muon; 0 for all other groups.
        newton_schulz_steps: i64,
        /// See [`MuonOptions`].
        matched_adamw_rms: f64,
    }
}

object! {
    /// Updates the parameters of a shard. It belongs to one thread at a time, together with its shard:
    ///
    /// ```compile_fail,E0277
    /// fn shared<T: Sync>() {}
    /// shared::<fsdp2::Optimizer>();
    /// ```
    Optimizer: fsdp2_optimizer, fsdp2_optimizer_destroy, fsdp2_optimizer_duplicate, Cell<()>
}

/// All ranks make the same calls.
impl Optimizer {
    /// AdamW for all parameters of a shard.
    pub fn create_adamw(shard: &Shard, options: &AdamwOptions) -> Result<Self> {
        ffi::made(|out| unsafe {
            sys::fsdp2_optimizer_create_adamw(shard.raw(), &options.raw(), out)
        })
        .map(Self::own)
    }

    /// SGD for all parameters of a shard.
    pub fn create_sgd(shard: &Shard, options: &SgdOptions) -> Result<Self> {
        ffi::made(|out| unsafe {
            sys::fsdp2_optimizer_create_sgd(shard.raw(), &options.raw(), out)
        })
        .map(Self::own)
    }

    /// Muon for the matrices of a shard's hidden layers, AdamW for the rest in a second group. Its [`run`](Self::run) is *collective*.
    pub fn create_muon(shard: &Shard, options: &MuonOptions) -> Result<Self> {
        ffi::made(|out| unsafe {
            sys::fsdp2_optimizer_create_muon(shard.raw(), &options.raw(), out)
        })
        .map(Self::own)
    }

    // ---- groups

    /// Moves parameters (by any of their names) out of the first group into a new one with its own options.
    pub fn add_adamw_group(&self, names: &[&str], options: &AdamwOptions) -> Result<()> {
        let names = Texts::new(names)?;
        ffi::check(unsafe {
            sys::fsdp2_optimizer_add_adamw_group(
                self.raw(),
                names.as_ptr(),
                names.len(),
                &options.raw(),
            )
        })
    }

    /// Moves parameters (by any of their names) out of the first group into a new one with its own options.
    pub fn add_sgd_group(&self, names: &[&str], options: &SgdOptions) -> Result<()> {
        let names = Texts::new(names)?;
        ffi::check(unsafe {
            sys::fsdp2_optimizer_add_sgd_group(
                self.raw(),
                names.as_ptr(),
                names.len(),
                &options.raw(),
            )
        })
    }

    /// Sets the weight decay of norms (modules whose class has "Norm" in its name), of biases, or of both to 0.
    pub fn exempt_from_decay(&self, norms: bool, biases: bool) -> Result<()> {
        let flag = |wanted, flag| if wanted { flag as u32 } else { 0 };
        let flags =
            flag(norms, sys::FSDP2_NO_DECAY_NORMS) | flag(biases, sys::FSDP2_NO_DECAY_BIASES);
        ffi::check(unsafe { sys::fsdp2_optimizer_exempt_from_decay(self.raw(), flags) })
    }

    /// Sets the weight decay of the parameters whose name one of these matches as a whole to 0. They may be patterns of the shell.
    pub fn exempt_named_from_decay(&self, names: &[&str]) -> Result<()> {
        self.exempt_these(names, 0)
    }

    /// Sets the weight decay of all parameters at and below modules of these classes to 0.
    pub fn exempt_classes_from_decay(&self, classes: &[&str]) -> Result<()> {
        self.exempt_these(classes, sys::FSDP2_NO_DECAY_BY_CLASS as u32)
    }

    fn exempt_these(&self, names: &[&str], flags: u32) -> Result<()> {
        let names = Texts::new(names)?;
        ffi::check(unsafe {
            sys::fsdp2_optimizer_exempt_named_from_decay(
                self.raw(),
                names.as_ptr(),
                names.len(),
                flags,
            )
        })
    }

    /// [`scale_lr`](Self::scale_lr) for the parameters that one of the patterns matches, each once and as one rule.
    pub fn scale_named_lr(&self, patterns: &[&str], factor: f64) -> Result<()> {
        let patterns = Texts::new(patterns)?;
        ffi::check(unsafe {
            sys::fsdp2_optimizer_scale_named_lr(
                self.raw(),
                patterns.as_ptr(),
                patterns.len(),
                factor,
            )
        })
    }

    /// Multiplies the learning rate of the parameters whose name a shell pattern matches as a whole, now and through schedules.
    pub fn scale_lr(&self, pattern: &str, factor: f64) -> Result<()> {
        let pattern = ffi::c_text(pattern)?;
        ffi::check(unsafe { sys::fsdp2_optimizer_scale_lr(self.raw(), pattern.as_ptr(), factor) })
    }

    /// What the optimizer is.
    pub fn info(&self) -> Result<OptimizerInfo> {
        OptimizerInfo::get(|out| unsafe { sys::fsdp2_optimizer_get_info(self.raw(), out) })
    }

    /// What a group is.
    pub fn group_info(&self, group: usize) -> Result<OptimizerGroupInfo> {
        OptimizerGroupInfo::get(|out| unsafe {
            sys::fsdp2_optimizer_get_group_info(self.raw(), group, out)
        })
    }

    /// A group's parameters by their indices in the shard, ascending.
    pub fn group_parameters(&self, group: usize) -> Result<Vec<usize>> {
        ffi::list(|parameters, cap, needed| unsafe {
            sys::fsdp2_optimizer_get_group_parameters(self.raw(), group, parameters, cap, needed)
        })
    }

    /// The state of a parameter by torch.optim's name for it: "exp_avg", "exp_avg_sq" and "step" of AdamW, "momentum_buffer" of
    /// SGD and of Muon's matrices. [`Which::Local`] shares memory with the optimizer; [`Which::Full`] is a copy, and *collective*.
    pub fn state(&self, parameter: usize, name: &str, which: Which) -> Result<Tensor> {
        let name = ffi::c_text(name)?;
        Tensor::made(|out| unsafe {
            sys::fsdp2_optimizer_get_state(
                self.raw(),
                parameter,
                name.as_ptr(),
                which.number(),
                out,
            )
        })
    }

    // ---- rates

    /// Sets the learning rate of the first group; those of the others follow in their ratios.
    pub fn set_lr(&self, lr: f64) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_optimizer_set_lr(self.raw(), lr) })
    }

    /// The learning rate of the first group.
    pub fn lr(&self) -> Result<f64> {
        ffi::made(|out| unsafe { sys::fsdp2_optimizer_get_lr(self.raw(), out) })
    }

    /// Sets the learning rate of one group, which from now on follows the first group's in the new ratio.
    pub fn set_group_lr(&self, group: usize, lr: f64) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_optimizer_set_group_lr(self.raw(), group, lr) })
    }

    /// Sets the weight decay of one group alone.
    pub fn set_group_weight_decay(&self, group: usize, weight_decay: f64) -> Result<()> {
        ffi::check(unsafe {
            sys::fsdp2_optimizer_set_group_weight_decay(self.raw(), group, weight_decay)
        })
    }

    /// Updates every shard that has a gradient, once. Muon's is *collective*; the others communicate nothing.
    pub fn run(&self) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_optimizer_run(self.raw()) })
    }
}
