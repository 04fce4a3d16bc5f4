//! Models. A module has its structure at once and its memory later: the parameters get values when the module is sharded or,
//! without sharding, at its first forward.

use std::cell::Cell;
use std::path::Path;

use crate::ffi::{self, Texts};
use crate::{op, sys, Dtype, Error, Result, Status, Tensor};

options! {
    /// How a module begins.
    #[derive(Debug, Clone, PartialEq)]
    ModuleOptions: fsdp2_module_options, fsdp2_module_options_init {
        /// The parameters' dtype; none: fp32, or that of an exported program.
        dtype: Option<Dtype>,
        /// For dropout, and for the initial values, if there are no weights to read.
        seed: u64,
        /// A program of torch.export runs as the operators in its file: none of the library's, which are faster, differ by rounding
        /// alone and mostly have no second derivatives, takes their place.
        plain_operators: bool,
    } others |_raw| {
        /// The text of a JSON object: fields that are changed in config.json. Weights that are read must still fit.
        config_overrides: Option<String> = None,
    }
}

impl ModuleOptions {
    /// Calls with the struct that C takes, which lives that long.
    pub(crate) fn with_raw<R>(
        &self,
        call: impl FnOnce(&sys::fsdp2_module_options) -> Result<R>,
    ) -> Result<R> {
        let mut raw = self.raw();
        let overrides = self.config_overrides.as_deref();
        let overrides = overrides.map(ffi::c_text).transpose()?;
        raw.config_overrides = overrides
            .as_ref()
            .map_or(std::ptr::null(), |text| text.as_ptr());
        call(&raw)
    }
}

info! {
    /// What a module is.
    ModuleInfo: fsdp2_module_info {
        /// A tied parameter counts once.
        n_parameters: i32,
        /// Elements of all parameters, ties counted once.
        numel: i64,
        /// 0 for a module that is no language model.
        vocab_size: i64,
        /// 0 for a module that is no language model.
        max_positions: i64,
        /// What it takes on this rank now: parameters and their gradients.
        n_bytes: i64,
    }
}

info! {
    /// What a parameter of a module is. The indices are the module's own; [`Shard`](crate::Shard) has others.
    ModuleParameterInfo: fsdp2_module_parameter_info {
        /// With which the module was made.
        dtype: Dtype,
        /// Is it trained?
        requires_grad: bool,
        /// Is it sharded?
        is_sharded: bool,
        /// Has it a gradient? False if it is sharded.
        has_grad: bool,
        /// More than one: it is tied.
        n_names: i32,
    } others |raw| {
        /// Its global sizes.
        shape: Vec<i64> = ffi::dims(&raw.shape, raw.n_dims),
    }
}

numbers! {
    /// Which of a parameter's tensors.
    Which {
        /// This rank's rows, sharing their memory.
        Local = FSDP2_PARAMETER_LOCAL,
        /// Their gradient.
        LocalGrad = FSDP2_PARAMETER_LOCAL_GRAD,
        /// A copy of the gathered parameter. *Collective.*
        Full = FSDP2_PARAMETER_FULL,
        /// A copy of the gathered gradient. *Collective.*
        FullGrad = FSDP2_PARAMETER_FULL_GRAD,
    }
}

/// Modules inside a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen<'a> {
    /// Each of the model's own layers.
    Layers,
    /// The modules of these classes, such as "LlamaDecoderLayer".
    Kinds(&'a [&'a str]),
    /// The modules at these dotted paths, such as "model.layers.3", in any order.
    Paths(&'a [&'a str]),
}

/// Which modules [`Module::checkpoint_activations`] is for, and how they run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActivationOptions<'a> {
    /// The modules to choose from: by default, the model's own layers.
    pub modules: Chosen<'a>,
    /// The last of each so many of them, in the model's order; 1 for all.
    pub every: usize,
    /// The second run goes on to its end, so that collective calls inside are made as often on all ranks. Otherwise it stops once
    /// backward has what it needs.
    pub no_early_stop: bool,
}

impl Default for ActivationOptions<'_> {
    fn default() -> Self {
        Self {
            modules: Chosen::Layers,
            every: 1,
            no_early_stop: false,
        }
    }
}

object! {
    /// A model, or a part of one.
    ///
    /// A module, its shard, their optimizers and steps belong to one thread at a time. They may move to another thread, but
    /// threads do not share them:
    ///
    /// ```compile_fail,E0277
    /// fn share(module: &fsdp2::Module) {
    ///     std::thread::scope(|threads| {
    ///         threads.spawn(|| module.zero_grad());
    ///     });
    /// }
    /// ```
    Module: fsdp2_module, fsdp2_module_destroy, fsdp2_module_duplicate, Cell<()>
}

impl Module {
    /// The model of a Hugging Face directory: config.json and safetensors.
    pub fn from_pretrained(directory: impl AsRef<Path>, options: &ModuleOptions) -> Result<Self> {
        ffi::ready()?;
        let directory = ffi::c_path(directory.as_ref())?;
        options
            .with_raw(|raw| {
                ffi::made(|out| unsafe {
                    sys::fsdp2_module_from_pretrained(directory.as_ptr(), raw, out)
                })
            })
            .map(Self::own)
    }

    /// The model that the text of a config.json describes. The seed determines the initial values.
    pub fn from_config(json: &str, options: &ModuleOptions) -> Result<Self> {
        ffi::ready()?;
        let json = ffi::c_text(json)?;
        options
            .with_raw(|raw| {
                ffi::made(|out| unsafe { sys::fsdp2_module_from_config(json.as_ptr(), raw, out) })
            })
            .map(Self::own)
    }

    /// The model of any architecture that `torch.export` has written to a .pt2 file, or `torch.jit.save` to any file. Its first output
    /// is the loss.
    pub fn from_exported(path: impl AsRef<Path>, options: &ModuleOptions) -> Result<Self> {
        ffi::ready()?;
        let path = ffi::c_path(path.as_ref())?;
        options
            .with_raw(|raw| {
                ffi::made(|out| unsafe { sys::fsdp2_module_from_exported(path.as_ptr(), raw, out) })
            })
            .map(Self::own)
    }

    /// What the module is.
    pub fn info(&self) -> Result<ModuleInfo> {
        ModuleInfo::get(|out| unsafe { sys::fsdp2_module_get_info(self.raw(), out) })
    }

    // ---- parameters

    /// The number of parameters, a tied one counted once.
    pub fn parameter_count(&self) -> Result<usize> {
        ffi::made(|out| unsafe { sys::fsdp2_module_get_parameter_count(self.raw(), out) })
    }

    /// What a parameter is.
    pub fn parameter_info(&self, index: usize) -> Result<ModuleParameterInfo> {
        ModuleParameterInfo::get(|out| unsafe {
            sys::fsdp2_module_get_parameter_info(self.raw(), index, out)
        })
    }

    /// A parameter's name: 0 is its own, the others are its ties.
    pub fn parameter_name(&self, index: usize, name_index: usize) -> Result<String> {
        ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_module_get_parameter_name(self.raw(), index, name_index, buffer, cap, needed)
        })
    }

    /// Finds a parameter by any of its names.
    pub fn parameter_index(&self, name: &str) -> Result<usize> {
        let name = ffi::c_text(name)?;
        ffi::made(|out| unsafe {
            sys::fsdp2_module_get_parameter_index(self.raw(), name.as_ptr(), out)
        })
    }

    /// A parameter that sharding leaves alone, or its gradient, sharing its memory.
    pub fn parameter(&self, index: usize, which: Which) -> Result<Tensor> {
        Tensor::made(|out| unsafe {
            sys::fsdp2_module_get_parameter(self.raw(), index, which.number(), out)
        })
    }

    /// Forgets all gradients, those of ignored parameters included.
    pub fn zero_grad(&self) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_module_zero_grad(self.raw()) })
    }

    /// Freezes parameters, or lets them train again, before anything is sharded. A name is that of a parameter, or the path of a
    /// module; without names, the call is for the whole module.
    pub fn set_requires_grad(&self, names: &[&str], flag: bool) -> Result<()> {
        let names = Texts::new(names)?;
        ffi::check(unsafe {
            sys::fsdp2_module_set_requires_grad(
                self.raw(),
                names.as_ptr(),
                names.len(),
                i32::from(flag),
            )
        })
    }

    /// Turns on activation checkpointing: the modules that the options choose keep only their inputs in forward and run again in
    /// backward. The call may come before or after sharding, and changes no loss and no gradient. Errors, with nothing changed:
    /// [`Status::NotFound`] (a class or path that does not exist), [`Status::WrongState`] (checkpointed already),
    /// [`Status::InvalidArgument`] (`every`, no paths, the path of a container).
    ///
    /// ```no_run
    /// use fsdp2::{ActivationOptions, Chosen};
    ///
    /// # fn main() -> fsdp2::Result<()> {
    /// # let module = fsdp2::Module::from_config("", &Default::default())?;
    /// module.checkpoint_activations(&ActivationOptions {
    ///     modules: Chosen::Paths(&["model.layers.0", "lm_head"]),
    ///     ..Default::default()
    /// })?;
    /// # Ok(()) }
    /// ```
    pub fn checkpoint_activations(&self, options: &ActivationOptions<'_>) -> Result<()> {
        let (names, by_path) = match options.modules {
            Chosen::Layers => (Texts::new::<&str>(&[])?, 0),
            Chosen::Kinds(kinds) => (Texts::new(kinds)?, 0),
            Chosen::Paths(paths) => (Texts::new(paths)?, sys::FSDP2_ACTIVATIONS_BY_PATH),
        };
        let to_the_end = match options.no_early_stop {
            true => sys::FSDP2_ACTIVATIONS_NO_EARLY_STOP,
            false => 0,
        };
        ffi::check(unsafe {
            sys::fsdp2_module_checkpoint_activations(
                self.raw(),
                names.as_ptr(),
                names.len(),
                options.every,
                (by_path | to_the_end) as u32,
            )
        })
    }

    /// Makes the gated MLPs of a model from `config.json` run in tiles of tokens, each computed again in backward, so that what lies
    /// between their projections exists for one tile at a time; 4 is usual. Returns how many MLPs these are. The call may come
    /// before or after sharding. Errors, with nothing changed: [`Status::NotFound`] (no such MLP), [`Status::InvalidArgument`] (0).
    pub fn tile_mlps(&self, tiles: usize) -> Result<usize> {
        ffi::made(|out| unsafe { sys::fsdp2_module_tile_mlps(self.raw(), tiles, out) })
    }

    /// Puts the module and everything below it into training mode, in which modules begin, or evaluation mode.
    pub fn train(&self, mode: bool) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_module_train(self.raw(), i32::from(mode)) })
    }

    /// Is it in training mode?
    pub fn is_training(&self) -> Result<bool> {
        ffi::made_flag(|out| unsafe { sys::fsdp2_module_is_training(self.raw(), out) })
    }

    // ---- forward

    /// Runs the module. Inputs are tensors, or `Option`s of them where some are left out. A language model takes tokens
    /// `[B, S]`, labels `[B, S]`, positions and a mask, and images if it sees them (`fsdp2_module_forward` of module.h), and
    /// returns the loss, or logits `[B, S, V]` without labels. Gradients are recorded unless inside
    /// [`no_grad`](crate::no_grad). *Collective*, if the module is sharded.
    ///
    /// ```no_run
    /// # fn main() -> fsdp2::Result<()> {
    /// # let module = fsdp2::Module::from_config("", &Default::default())?;
    /// # let tokens = fsdp2::Tensor::from_slice(&[1i64, 2], &[1, 2])?;
    /// let logits = module.forward([&tokens])?.remove(0);
    /// let loss = module.forward_one([&tokens, &tokens])?;
    /// loss.backward()?;
    /// # Ok(()) }
    /// ```
    pub fn forward<'a, I>(&self, inputs: I) -> Result<Vec<Tensor>>
    where
        I: IntoIterator,
        I::Item: Into<Option<&'a Tensor>>,
    {
        let inputs = ffi::tensors(inputs);
        forwarded(|outputs, cap, n| unsafe {
            sys::fsdp2_module_forward(
                self.raw(),
                ffi::pointer(&inputs),
                inputs.len(),
                op::flags(sys::FSDP2_FORWARD_NO_GRAD),
                outputs,
                cap,
                n,
            )
        })
    }

    /// Like [`Module::forward`], for its first output.
    pub fn forward_one<'a, I>(&self, inputs: I) -> Result<Tensor>
    where
        I: IntoIterator,
        I::Item: Into<Option<&'a Tensor>>,
    {
        let mut outputs = self.forward(inputs)?;
        if outputs.is_empty() {
            let message = "expected an output of the module, found none";
            return Err(Error::new(Status::WrongState, message));
        }
        Ok(outputs.swap_remove(0))
    }

    /// Says what [`Module::forward`] would say of these inputs, with nothing computed and on this rank alone.
    pub fn check_inputs<'a, I>(&self, inputs: I) -> Result<()>
    where
        I: IntoIterator,
        I::Item: Into<Option<&'a Tensor>>,
    {
        let inputs = ffi::tensors(inputs);
        ffi::check(unsafe {
            sys::fsdp2_module_check_inputs(self.raw(), ffi::pointer(&inputs), inputs.len())
        })
    }

    /// Like [`Module::forward`], for a module inside this one, given by its dotted path.
    pub fn forward_submodule<'a, I>(&self, path: &str, inputs: I) -> Result<Vec<Tensor>>
    where
        I: IntoIterator,
        I::Item: Into<Option<&'a Tensor>>,
    {
        let inputs = ffi::tensors(inputs);
        let path = ffi::c_text(path)?;
        forwarded(|outputs, cap, n| unsafe {
            sys::fsdp2_module_forward_submodule(
                self.raw(),
                path.as_ptr(),
                ffi::pointer(&inputs),
                inputs.len(),
                op::flags(sys::FSDP2_FORWARD_NO_GRAD),
                outputs,
                cap,
                n,
            )
        })
    }
}

/// Room for more outputs than any module has had.
const MAX_OUTPUTS: usize = 256;

fn forwarded(
    call: impl FnOnce(*mut sys::fsdp2_tensor, usize, *mut usize) -> sys::fsdp2_status,
) -> Result<Vec<Tensor>> {
    let mut outputs = [sys::fsdp2_tensor::default(); MAX_OUTPUTS];
    let mut n = 0;
    ffi::check(call(outputs.as_mut_ptr(), outputs.len(), &mut n))?;
    Ok(outputs[..n]
        .iter()
        .copied()
        .filter_map(Tensor::own)
        .collect())
}
