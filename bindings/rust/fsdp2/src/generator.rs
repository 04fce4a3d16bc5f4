//! Random numbers by object.

use crate::{ffi, sys, Result, Tensor};

object! {
    /// A source of random numbers. An operator that draws takes one as its argument `generator`, and what it draws then depends on
    /// that one alone. Threads may share it: each operator has it for itself.
    ///
    /// A forward that draws draws the same again under activation checkpointing. Ranks that are to draw the same begin with the same
    /// seed.
    ///
    /// ```no_run
    /// # fn main() -> fsdp2::Result<()> {
    /// let generator = fsdp2::Generator::create(7)?;
    /// let noise = fsdp2::op!("aten::randn.generator", &[2i64, 3], &generator)?;
    /// # Ok(()) }
    /// ```
    Generator: fsdp2_generator, fsdp2_generator_destroy, fsdp2_generator_duplicate, ()
}

impl Generator {
    /// A generator that begins with a seed.
    pub fn create(seed: u64) -> Result<Self> {
        ffi::ready()?;
        ffi::made(|out| unsafe { sys::fsdp2_generator_create(seed, out) }).map(Self::own)
    }

    /// All that the next numbers depend on, as bytes.
    pub fn state(&self) -> Result<Tensor> {
        Tensor::made(|out| unsafe { sys::fsdp2_generator_get_state(self.raw(), out) })
    }

    /// Goes on from a [`Generator::state`], of this generator or another.
    pub fn set_state(&self, state: &Tensor) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_generator_set_state(self.raw(), state.raw()) })
    }
}
