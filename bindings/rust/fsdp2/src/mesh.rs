//! A device mesh: the ranks of a job as an n-D array, row-major, whose dims may have names.

use std::os::raw::c_char;
use std::ptr;

use crate::ffi::{self, Texts};
use crate::{sys, Dtype, Result};

numbers! {
    /// What ranks talk through.
    Backend {
        /// What fits the device.
        Auto = FSDP2_BACKEND_AUTO,
        /// For CPUs.
        Gloo = FSDP2_BACKEND_GLOO,
        /// For CUDA.
        Nccl = FSDP2_BACKEND_NCCL,
        /// Ranks are threads of this process, which meet at `thread://NAME`.
        Thread = FSDP2_BACKEND_THREAD,
        /// This process is one rank of many that do not exist: for planning.
        Fake = FSDP2_BACKEND_FAKE,
    }
}

options! {
    /// How to join the job. What is left open comes from the launcher's environment (`fsdp2 run`, torchrun, Slurm, Open MPI).
    #[derive(Debug, Clone, PartialEq)]
    MeshOptions: fsdp2_mesh_options, fsdp2_mesh_options_init {
        /// What ranks talk through.
        backend: Backend,
        /// This rank; -1: from the environment.
        rank: i32,
        /// The number of ranks; -1: from the environment.
        world_size: i32,
        /// This rank's number on its machine; -1: from the environment.
        local_rank: i32,
        /// How long every collective call may take, in milliseconds.
        timeout_ms: i64,
        /// Without a shape. 0, 1, or at least the world size: one dim, "fsdp". Less: "ddp" and "fsdp", of sizes
        /// (world_size / fsdp_size, fsdp_size). -1: replicas only.
        fsdp_size: i64,
        /// Without a shape. Above 1: so many consecutive ranks share sequences, along a last dim "cp"; 0 or 1: none do.
        ulysses_size: i64,
    } others |_raw| {
        /// Sizes whose product is the world size; one may be -1, for what is left. Empty: `fsdp_size` decides.
        shape: Vec<i64> = Vec::new(),
        /// As many distinct names of dims, or none.
        names: Vec<String> = Vec::new(),
        /// `env://` (default), `tcp://host:port`, `file:///path`, `thread://name` or `fake://`.
        rendezvous: Option<String> = None,
        /// With a shape: the ranks of this mesh, row-major, this rank among them.
        ranks: Vec<i32> = Vec::new(),
        /// "cpu" (default) or "cuda".
        device_type: Option<String> = None,
    }
}

impl MeshOptions {
    /// Calls with the struct that C takes, which lives that long.
    pub(crate) fn with_raw<R>(
        &self,
        call: impl FnOnce(&sys::fsdp2_mesh_options) -> Result<R>,
    ) -> Result<R> {
        let mut raw = self.raw();
        let rendezvous = self.rendezvous.as_deref().map(ffi::c_text).transpose()?;
        let device_type = self.device_type.as_deref().map(ffi::c_text).transpose()?;
        let names = Texts::new(&self.names)?;
        if !self.names.is_empty() && self.names.len() != self.shape.len() {
            let (n, sizes) = (self.names.len(), self.shape.len());
            return Err(crate::Error::new(
                crate::Status::InvalidArgument,
                format!("names: expected one for each of the {sizes} dims of shape, found {n}"),
            ));
        }
        raw.n_dims = self.shape.len() as i32;
        raw.shape = ffi::pointer(&self.shape);
        raw.names = names.as_ptr();
        raw.ranks = ffi::pointer(&self.ranks);
        raw.n_ranks = self.ranks.len();
        let text = |text: &Option<std::ffi::CString>| -> *const c_char {
            text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
        };
        raw.rendezvous = text(&rendezvous);
        raw.device_type = text(&device_type);
        call(&raw)
    }
}

info! {
    /// What a mesh is, and where this rank is in it.
    MeshInfo: fsdp2_mesh_info {
        /// What ranks talk through.
        backend: Backend,
        /// This rank's number in the job.
        rank: i32,
        /// The number of ranks in the job.
        world_size: i32,
        /// This rank's number on its machine.
        local_rank: i32,
    } others |raw| {
        /// The sizes of the dims.
        shape: Vec<i64> = ffi::dims(&raw.shape, raw.n_dims),
        /// Where this rank is in them.
        coordinate: Vec<i64> = ffi::dims(&raw.coordinate, raw.n_dims),
    }
}

info! {
    /// The ranks whose coordinates differ from this rank's in one dim only.
    GroupInfo: fsdp2_group_info {
        /// How many they are.
        size: i32,
        /// This rank's number among them.
        rank: i32,
        /// The same for the same group, however it was reached, while a mesh of it lives.
        id: u64,
    }
}

info! {
    /// What LibTorch's allocator has of a device's memory, in bytes.
    DeviceMemory: fsdp2_device_memory {
        /// What tensors of this process have.
        allocated_bytes: i64,
        /// The most that they had since the process began.
        peak_allocated_bytes: i64,
        /// What is taken from the device, whether or not a tensor has it now.
        reserved_bytes: i64,
        /// The most that was taken since the process began.
        peak_reserved_bytes: i64,
        /// What is free on the device, for all processes.
        free_bytes: i64,
        /// What the device has.
        total_bytes: i64,
    }
}

object! {
    /// The ranks of a job as an n-D array.
    ///
    /// A mesh may be shared between threads, so that one of them can end by [`Mesh::fail`] what another one waits for. Its
    /// collective calls (marked *collective*: all ranks make them, in the same order) belong to one thread at a time: a second
    /// thread gets [`Status::Busy`](crate::Status::Busy).
    Mesh: fsdp2_mesh, fsdp2_mesh_destroy, fsdp2_mesh_duplicate, ()
}

impl Mesh {
    /// Joins the job. *Collective.*
    pub fn create(options: &MeshOptions) -> Result<Self> {
        ffi::ready()?;
        options
            .with_raw(|raw| ffi::made(|out| unsafe { sys::fsdp2_mesh_create(raw, out) }))
            .map(Self::own)
    }

    /// Another mesh over the ranks of this one. The options that say how to join must keep their defaults. *Collective.*
    pub fn create_in(&self, options: &MeshOptions) -> Result<Self> {
        options
            .with_raw(|raw| {
                ffi::made(|out| unsafe { sys::fsdp2_mesh_create_in(self.raw(), raw, out) })
            })
            .map(Self::own)
    }

    /// The 1-D mesh of a group that exists: the group of a dim.
    pub fn from_group(&self, dim: i32, name: Option<&str>) -> Result<Self> {
        let name = name.map(ffi::c_text).transpose()?;
        let name = name.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        ffi::made(|out| unsafe { sys::fsdp2_mesh_from_group(self.raw(), dim, name, out) })
            .map(Self::own)
    }

    /// What this mesh is, and where this rank is in it.
    pub fn info(&self) -> Result<MeshInfo> {
        MeshInfo::get(|out| unsafe { sys::fsdp2_mesh_get_info(self.raw(), out) })
    }

    /// The name of a dim; empty if the dims have none.
    pub fn dim_name(&self, dim: i32) -> Result<String> {
        ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_mesh_get_dim_name(self.raw(), dim, buffer, cap, needed)
        })
    }

    /// The number of the dim of this name.
    pub fn dim_index(&self, name: &str) -> Result<i32> {
        let name = ffi::c_text(name)?;
        ffi::made(|out| unsafe { sys::fsdp2_mesh_get_dim_index(self.raw(), name.as_ptr(), out) })
    }

    /// All ranks of the mesh, row-major.
    pub fn ranks(&self) -> Result<Vec<i32>> {
        ffi::list(|ranks, cap, needed| unsafe {
            sys::fsdp2_mesh_get_ranks(self.raw(), ranks, cap, needed)
        })
    }

    /// The group of a dim.
    pub fn group(&self, dim: i32) -> Result<GroupInfo> {
        GroupInfo::get(|out| unsafe { sys::fsdp2_mesh_get_group(self.raw(), dim, out) })
    }

    /// The ranks of that group, in its order.
    pub fn group_ranks(&self, dim: i32) -> Result<Vec<i32>> {
        ffi::list(|ranks, cap, needed| unsafe {
            sys::fsdp2_mesh_get_group_ranks(self.raw(), dim, ranks, cap, needed)
        })
    }

    /// Are ranks, shape, names and device type equal?
    pub fn is_equal(&self, other: &Mesh) -> Result<bool> {
        ffi::made_flag(|out| unsafe { sys::fsdp2_mesh_is_equal(self.raw(), other.raw(), out) })
    }

    /// A number that is equal for equal meshes.
    pub fn hash(&self) -> Result<u64> {
        ffi::made(|out| unsafe { sys::fsdp2_mesh_get_hash(self.raw(), out) })
    }

    /// The memory of the device that the mesh has on this rank. [`Status::Unsupported`](crate::Status::Unsupported) for the
    /// host, whose memory the system counts.
    pub fn device_memory(&self) -> Result<DeviceMemory> {
        DeviceMemory::get(|out| unsafe { sys::fsdp2_mesh_get_device_memory(self.raw(), out) })
    }

    /// A `param_dtype` that the devices of all ranks compute fast in: bf16 where each has products of it, otherwise fp16
    /// where all are GPUs, which needs a loss scale, otherwise fp32. Collective.
    pub fn choose_dtype(&self) -> Result<Dtype> {
        ffi::made(|out| unsafe { sys::fsdp2_mesh_choose_dtype(self.raw(), out) })
            .map(Dtype::from_number)
    }

    /// The mesh and this rank as text: "Mesh(ddp=2, fsdp=4) rank 5 at (1, 1)".
    pub fn describe(&self) -> Result<String> {
        ffi::text(|buffer, cap, needed| unsafe {
            sys::fsdp2_mesh_describe(self.raw(), buffer, cap, needed)
        })
    }

    /// The sub-mesh along some dims that this rank is in. The names are in the mesh's order.
    pub fn submesh(&self, names: &[&str]) -> Result<Self> {
        let names = Texts::new(names)?;
        ffi::made(|out| unsafe {
            sys::fsdp2_mesh_get_submesh(self.raw(), names.as_ptr(), names.len(), out)
        })
        .map(Self::own)
    }

    /// Makes one dim of several, with a group of its own. Without a name it gets the dims' names, joined by "_". *Collective.*
    pub fn flatten(&self, names: &[&str], name: Option<&str>) -> Result<Self> {
        let names = Texts::new(names)?;
        let name = name.map(ffi::c_text).transpose()?;
        let name = name.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        ffi::made(|out| unsafe {
            sys::fsdp2_mesh_flatten(self.raw(), names.as_ptr(), names.len(), name, out)
        })
        .map(Self::own)
    }

    /// The mesh that this one is a sub-mesh of, and which of its dims the sub-mesh has.
    pub fn root(&self) -> Result<(Self, Vec<i32>)> {
        let mut dims = [0; sys::FSDP2_MAX_DIMS as usize];
        let mut n = 0;
        let root = ffi::made(|out| unsafe {
            sys::fsdp2_mesh_get_root(self.raw(), dims.as_mut_ptr(), dims.len(), &mut n, out)
        })?;
        Ok((Self::own(root), dims[..n].to_vec()))
    }

    /// Tells all ranks of the mesh that this one has failed, for a reason outside this library. Calls that wait on the mesh end
    /// with [`Status::PeerFailed`](crate::Status::PeerFailed) and this message, as do later ones. Any thread may call it.
    pub fn fail(&self, message: &str) -> Result<()> {
        let message = ffi::c_text(message)?;
        ffi::check(unsafe { sys::fsdp2_mesh_fail(self.raw(), message.as_ptr()) })
    }
}
