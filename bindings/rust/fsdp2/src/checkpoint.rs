//! Checkpoints. All ranks together save a run, in the background if asked, in the format of Python's
//! `torch.distributed.checkpoint` (DCP); rank 0 saves a whole model. [`offline`] looks at files without a mesh.
//!
//! ```no_run
//! # use fsdp2::*;
//! # fn save(shard: &Shard, optimizer: &Optimizer, step: &Step, loader: &Loader) -> Result<()> {
//! let run = Checkpoint::of(shard).optimizer(optimizer).step(step).loader(loader);
//! run.save("checkpoints/step-00000100", &SaveOptions { background: true, ..Default::default() })?;
//! run.wait()?;
//! run.load("checkpoints", &Default::default())?; // the newest one
//! # Ok(()) }
//! ```

use std::path::Path;

use crate::{ffi, sys, Dtype, Loader, Optimizer, Result, Shard, State, Step};

pub mod offline;

numbers! {
    /// What a checkpoint is on disk.
    CheckpointFormat {
        /// A DCP directory with everything; each rank writes its part.
        Sharded = FSDP2_CHECKPOINT_SHARDED,
        /// One file with the model.
        Safetensors = FSDP2_CHECKPOINT_SAFETENSORS,
        /// One file with the model, for `torch.load`.
        Pth = FSDP2_CHECKPOINT_PTH,
        /// config.json and safetensors, as transformers has it.
        ModelDirectory = FSDP2_CHECKPOINT_MODEL_DIRECTORY,
        /// A directory with one .pth file per rank.
        PthPerRank = FSDP2_CHECKPOINT_PTH_PER_RANK,
    }
}

options! {
    /// How a run is saved.
    #[derive(Debug, Clone, PartialEq)]
    SaveOptions: fsdp2_save_options, fsdp2_save_options_init {
        /// What to write.
        format: CheckpointFormat,
        /// Return once a copy has been made; sharded only.
        background: bool,
        /// Above 0: keep only so many of the newest of a series DIR/step-00000100, DIR/step-00000200, ...; sharded only.
        keep_last: i32,
        /// Leave out the random generator; sharded only.
        no_rng: bool,
        /// To which the file rounds floating-point parameters; not sharded, not per rank.
        dtype: Option<Dtype>,
        /// Model directory: split the weights above this size; 0: 5 GiB.
        max_file_bytes: i64,
        /// Fail if anything exists there; not per rank.
        no_overwrite: bool,
        /// Save even what [`NotFinite::Apply`](crate::NotFinite::Apply) has made infinite or NaN.
        allow_not_finite: bool,
    }
}

options! {
    /// How a run is restored.
    #[derive(Debug, Clone, PartialEq)]
    LoadOptions: fsdp2_load_options, fsdp2_load_options_init {
        /// Skip names that only the run or only the checkpoint has.
        partial: bool,
        /// Leave the random generator as it is.
        no_rng: bool,
        /// Rank 0 alone reads, and sends one tensor after the other, whole.
        from_rank0: bool,
    }
}

/// A run to save or to restore: a shard and what belongs to it.
#[derive(Debug, Clone, Copy)]
pub struct Checkpoint<'a> {
    shard: &'a Shard,
    optimizer: Option<&'a Optimizer>,
    step: Option<&'a Step>,
    loader: Option<&'a Loader>,
}

impl<'a> Checkpoint<'a> {
    /// The model alone.
    pub fn of(shard: &'a Shard) -> Self {
        Self {
            shard,
            optimizer: None,
            step: None,
            loader: None,
        }
    }

    /// With an optimizer's state.
    pub fn optimizer(mut self, optimizer: &'a Optimizer) -> Self {
        self.optimizer = Some(optimizer);
        self
    }

    /// With the position of a step.
    pub fn step(mut self, step: &'a Step) -> Self {
        self.step = Some(step);
        self
    }

    /// With the position of a loader.
    pub fn loader(mut self, loader: &'a Loader) -> Self {
        self.loader = Some(loader);
        self
    }

    fn raw(&self) -> Raw {
        (
            self.shard.raw(),
            self.optimizer.map(Optimizer::raw).unwrap_or_default(),
            self.step.map(Step::raw).unwrap_or_default(),
            self.loader.map(Loader::raw).unwrap_or_default(),
        )
    }

    /// Saves the run. *Collective.*
    pub fn save(&self, path: impl AsRef<Path>, options: &SaveOptions) -> Result<()> {
        let path = ffi::c_path(path.as_ref())?;
        let (shard, optimizer, step, loader) = self.raw();
        ffi::check(unsafe {
            let options = options.raw();
            sys::fsdp2_checkpoint_save(shard, optimizer, step, loader, path.as_ptr(), &options)
        })
    }

    /// Takes the memory into which background saves copy before the first of them needs it. Call it after the first step.
    pub fn prepare(&self) -> Result<()> {
        let (shard, optimizer, step, loader) = self.raw();
        ffi::check(unsafe { sys::fsdp2_checkpoint_prepare(shard, optimizer, step, loader) })
    }

    /// Waits until the save in the background has ended, and returns its error, once. *Collective.*
    pub fn wait(&self) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_checkpoint_wait(self.shard.raw()) })
    }

    /// Is no save under way on this rank?
    pub fn poll(&self) -> Result<bool> {
        ffi::made_flag(|out| unsafe { sys::fsdp2_checkpoint_poll(self.shard.raw(), out) })
    }

    /// Restores the run from a checkpoint of any format, world size and mesh, ours or Python's, or from the newest complete one
    /// of a series. *Collective.*
    pub fn load(&self, path: impl AsRef<Path>, options: &LoadOptions) -> Result<()> {
        let path = ffi::c_path(path.as_ref())?;
        let (shard, optimizer, step, loader) = self.raw();
        ffi::check(unsafe {
            let options = options.raw();
            sys::fsdp2_checkpoint_load(shard, optimizer, step, loader, path.as_ptr(), &options)
        })
    }

    /// Describes the last load, as JSON: "path", "step", "missing" and "unexpected".
    pub fn report(&self) -> Result<String> {
        ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_checkpoint_get_report(self.shard.raw(), buffer, cap, needed)
        })
    }

    /// What [`Checkpoint::save`] would write, as a state that shares memory with the run. With `flat_optimizer_keys`,
    /// hyper-parameters go by the names of parameters, not by the numbers of groups. *Collective.*
    pub fn state(&self, flat_optimizer_keys: bool) -> Result<State> {
        let (shard, optimizer, step, loader) = self.raw();
        let flat = i32::from(flat_optimizer_keys);
        ffi::made(|out| unsafe {
            sys::fsdp2_checkpoint_get_state(shard, optimizer, step, loader, flat, out)
        })
        .map(State::own)
    }

    /// Like [`Checkpoint::load`], but from a full state ([`State::gather`]): each rank's own or, with `from_rank0`, that of rank
    /// 0, while the other ranks pass none. *Collective.*
    pub fn set_state(&self, state: Option<&State>, options: &LoadOptions) -> Result<()> {
        let (shard, optimizer, step, loader) = self.raw();
        let state = state.map(State::raw).unwrap_or_default();
        ffi::check(unsafe {
            let options = options.raw();
            sys::fsdp2_checkpoint_set_state(shard, optimizer, step, loader, state, &options)
        })
    }

    /// Saves the model as one file: for `torch.load` if the path ends in .pth, .pt or .bin, otherwise as safetensors.
    /// *Collective.*
    pub fn save_full(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = ffi::c_path(path.as_ref())?;
        ffi::check(unsafe { sys::fsdp2_checkpoint_save_full(self.shard.raw(), path.as_ptr()) })
    }

    /// Loads the model's parameters from any format. *Collective.*
    pub fn load_full(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = ffi::c_path(path.as_ref())?;
        ffi::check(unsafe { sys::fsdp2_checkpoint_load_full(self.shard.raw(), path.as_ptr()) })
    }

    /// Saves config.json and the model's safetensors in a directory, which is created if missing. *Collective.*
    pub fn save_pretrained(&self, directory: impl AsRef<Path>) -> Result<()> {
        let directory = ffi::c_path(directory.as_ref())?;
        ffi::check(unsafe {
            sys::fsdp2_checkpoint_save_pretrained(self.shard.raw(), directory.as_ptr())
        })
    }
}

type Raw = (
    sys::fsdp2_shard,
    sys::fsdp2_optimizer,
    sys::fsdp2_step,
    sys::fsdp2_loader,
);
