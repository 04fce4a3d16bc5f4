//! The library itself: its version, its live handles, and the process-wide settings that it changes when asked to.

use crate::{ffi, sys, Result};

/// The library's version: `major << 16 | minor`.
pub fn version() -> u32 {
    unsafe { sys::fsdp2_version() }
}

/// Is the library of the version that this crate was made for? The first object that a program makes asks as well.
pub fn check_version() -> Result<()> {
    ffi::ready()
}

/// The number of handles given out in this process and not destroyed yet.
pub fn live_handles() -> i64 {
    unsafe { sys::fsdp2_live_handles() }
}

/// Describes what runs here in "key: value" lines: version, LibTorch, CPU, threads, product engine, matmul
/// precision.
pub fn describe() -> Result<String> {
    ffi::ready()?;
    ffi::text(|buffer, cap, needed| unsafe { sys::fsdp2_runtime_describe(buffer, cap, needed) })
}

/// Sets the number of CPU threads per LibTorch operation, for this thread and for later threads of the process: 1 to the number
/// of processors, or to 64 if there are fewer.
pub fn set_threads(n: usize) -> Result<()> {
    ffi::ready()?;
    ffi::check(unsafe { sys::fsdp2_runtime_set_threads(n) })
}

numbers! {
    /// What computes the fp32 products of the library's linear layers on a CPU.
    ProductEngine {
        /// The faster one, measured once where it is not known.
        Auto = FSDP2_PRODUCT_ENGINE_AUTO,
        /// Intel MKL.
        Mkl = FSDP2_PRODUCT_ENGINE_MKL,
        /// oneDNN.
        Onednn = FSDP2_PRODUCT_ENGINE_ONEDNN,
    }
}

/// Chooses the engine.
pub fn set_product_engine(engine: ProductEngine) -> Result<()> {
    ffi::ready()?;
    ffi::check(unsafe { sys::fsdp2_runtime_set_product_engine(engine.number()) })
}

/// Makes LibTorch's operators in this process give the same bits in every run on the same machines, with as many ranks and threads.
/// On a CPU they do anyway once an engine is named. On a GPU a call that cannot fails, and products need
/// `CUBLAS_WORKSPACE_CONFIG=:4096:8` in the environment.
pub fn set_deterministic(on: bool) -> Result<()> {
    ffi::ready()?;
    ffi::check(unsafe { sys::fsdp2_runtime_set_deterministic(i32::from(on)) })
}

/// Whether the memory of large CPU tensors that are freed stays with the process, for those that are made next: a training step then
/// takes the memory of the one before. `false`, as a process begins, gives back what is kept. What is kept and what is in use are
/// together never more than was in use at once.
pub fn keep_memory(on: bool) -> Result<()> {
    ffi::ready()?;
    ffi::check(unsafe { sys::fsdp2_runtime_keep_memory(i32::from(on)) })
}

numbers! {
    /// What the fp32 products of the library's linear layers may round on a CPU, by the words of `torch.set_float32_matmul_precision`.
    MatmulPrecision {
        /// Nothing: strict fp32.
        Highest = FSDP2_MATMUL_HIGHEST,
        /// Operands are sums of two bf16 numbers where this CPU is measured to be faster at that.
        High = FSDP2_MATMUL_HIGH,
        /// Operands are rounded to bf16 where this CPU is measured to be faster at that.
        Medium = FSDP2_MATMUL_MEDIUM,
        /// As `High`, however slow.
        HighAlways = FSDP2_MATMUL_HIGH_ALWAYS,
        /// As `Medium`, however slow.
        MediumAlways = FSDP2_MATMUL_MEDIUM_ALWAYS,
    }
}

/// Chooses the precision for the whole process. All ranks must have the same when they shard a module.
pub fn set_matmul_precision(precision: MatmulPrecision) -> Result<()> {
    ffi::ready()?;
    ffi::check(unsafe { sys::fsdp2_runtime_set_matmul_precision(precision.number()) })
}
