//! States: named tensors, of which each rank holds chunks, and small values. They are saved, loaded and gathered like the
//! checkpoints of shards, and are for what is not part of a shard, and for full states in memory.

use std::cell::Cell;
use std::path::Path;
use std::ptr;

use crate::{ffi, sys, Error, Mesh, Result, Status, Tensor};

info! {
    /// What is in a state.
    StateInfo: fsdp2_state_info {
        /// Entries that are tensors, one for each chunk.
        n_tensors: i32,
        /// Entries that are values.
        n_values: i32,
        /// Bytes of this rank's chunks.
        n_bytes: i64,
    }
}

options! {
    /// How a state is saved.
    #[derive(Debug, Clone, PartialEq)]
    StateSaveOptions: fsdp2_state_save_options, fsdp2_state_save_options_init {
        /// Sharded safetensors: tensors only, one chunk of each per rank.
        safetensors: bool,
        /// Writers on each rank, each with files of its own; not safetensors.
        threads: i32,
        /// One file for each tensor; not safetensors.
        file_per_tensor: bool,
        /// Fail if anything exists there.
        no_overwrite: bool,
    }
}

object! {
    /// Named tensors and values. It shares memory with the tensors that are added. It belongs to one thread at a time:
    ///
    /// ```compile_fail,E0277
    /// fn shared<T: Sync>() {}
    /// shared::<fsdp2::State>();
    /// ```
    State: fsdp2_state, fsdp2_state_destroy, fsdp2_state_duplicate, Cell<()>
}

/// All ranks add the same names in the same order, with the same dtypes and global shapes.
impl State {
    /// An empty state over all ranks of the mesh.
    pub fn create(mesh: &Mesh) -> Result<Self> {
        ffi::made(|out| unsafe { sys::fsdp2_state_create(mesh.raw(), out) }).map(Self::own)
    }

    /// Adds a tensor that every rank holds whole.
    pub fn add_tensor(&self, name: &str, tensor: &Tensor) -> Result<()> {
        let n_dims = tensor.shape()?.len();
        self.add(name, ptr::null(), ptr::null(), n_dims, tensor)
    }

    /// Adds this rank's chunk, at `offsets`, of a tensor of the global shape `shape`.
    pub fn add_chunk(
        &self,
        name: &str,
        shape: &[i64],
        offsets: &[i64],
        chunk: &Tensor,
    ) -> Result<()> {
        if shape.len() != offsets.len() {
            let (sizes, n) = (shape.len(), offsets.len());
            let message = format!("{name}: expected {sizes} offsets, one for each dim, found {n}");
            return Err(Error::new(Status::InvalidArgument, message));
        }
        if shape.is_empty() {
            return self.add_tensor(name, chunk);
        }
        self.add(name, shape.as_ptr(), offsets.as_ptr(), shape.len(), chunk)
    }

    fn add(
        &self,
        name: &str,
        shape: *const i64,
        offsets: *const i64,
        n_dims: usize,
        chunk: &Tensor,
    ) -> Result<()> {
        let name = ffi::c_text(name)?;
        ffi::check(unsafe {
            sys::fsdp2_state_add_tensor(
                self.raw(),
                name.as_ptr(),
                shape,
                offsets,
                n_dims,
                chunk.raw(),
            )
        })
    }

    /// Adds a value as JSON: null, a flag, a number, a text, or a list of these; the same on all ranks.
    pub fn add_value(&self, name: &str, json: &str) -> Result<()> {
        let (name, json) = (ffi::c_text(name)?, ffi::c_text(json)?);
        ffi::check(unsafe { sys::fsdp2_state_add_value(self.raw(), name.as_ptr(), json.as_ptr()) })
    }

    /// What is in the state.
    pub fn info(&self) -> Result<StateInfo> {
        StateInfo::get(|out| unsafe { sys::fsdp2_state_get_info(self.raw(), out) })
    }

    /// The number of entries: first the tensors, one for each chunk, then the values.
    pub fn count(&self) -> Result<usize> {
        ffi::made(|out| unsafe { sys::fsdp2_state_get_count(self.raw(), out) })
    }

    /// The name of an entry.
    pub fn name(&self, index: usize) -> Result<String> {
        ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_state_get_name(self.raw(), index, buffer, cap, needed)
        })
    }

    /// This rank's (first) chunk of a tensor, sharing its memory.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let name = ffi::c_text(name)?;
        Tensor::made(|out| unsafe { sys::fsdp2_state_get_tensor(self.raw(), name.as_ptr(), out) })
    }

    /// A value as JSON.
    pub fn value(&self, name: &str) -> Result<String> {
        let name = ffi::c_text(name)?;
        ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_state_get_value(self.raw(), name.as_ptr(), buffer, cap, needed)
        })
    }

    /// Writes a directory in PyTorch's DCP format. *Collective.*
    pub fn save(&self, path: impl AsRef<Path>, options: &StateSaveOptions) -> Result<()> {
        let path = ffi::c_path(path.as_ref())?;
        ffi::check(unsafe { sys::fsdp2_state_save(self.raw(), path.as_ptr(), &options.raw()) })
    }

    /// Overwrites the state's tensors and values from a checkpoint of any format. *Collective.*
    pub fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = ffi::c_path(path.as_ref())?;
        ffi::check(unsafe { sys::fsdp2_state_load(self.raw(), path.as_ptr()) })
    }

    /// A state of whole tensors, copied to the CPU: on every rank or on rank 0 only, while the others get empty states.
    /// *Collective.*
    pub fn gather(&self, rank0_only: bool) -> Result<State> {
        ffi::made(|out| unsafe { sys::fsdp2_state_gather(self.raw(), i32::from(rank0_only), out) })
            .map(State::own)
    }
}
