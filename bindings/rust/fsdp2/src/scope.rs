//! Scopes: tensors that are destroyed together.
//!
//! A [`Tensor`] is destroyed when it is dropped, so that a forward frees what it makes by itself. A scope is for tensors that
//! are to last until a certain end, and costs one call for all of them.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::op::{self, Value};
use crate::{ffi, sys, Result, Tensor};

object! {
    /// Destroys the tensors in it with its last handle. Threads may share it.
    ///
    /// ```compile_fail,E0505
    /// # fn main() -> fsdp2::Result<()> {
    /// let scope = fsdp2::Scope::create()?;
    /// let x = scope.add(fsdp2::Tensor::from_slice(&[1f32], &[1])?)?;
    /// drop(scope);
    /// x.value()?; // the tensor went with its scope
    /// # Ok(()) }
    /// ```
    Scope: fsdp2_scope, fsdp2_scope_destroy, fsdp2_scope_duplicate, ()
}

/// A tensor in a scope.
#[derive(Debug)]
pub struct Scoped<'a> {
    tensor: ManuallyDrop<Tensor>, // the scope destroys it
    scope: PhantomData<&'a Scope>,
}

impl Deref for Scoped<'_> {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

impl<'a> From<&'a Scoped<'_>> for Value<'a> {
    fn from(tensor: &'a Scoped<'_>) -> Self {
        Value::Tensor(tensor)
    }
}

impl Scope {
    /// An empty scope.
    pub fn create() -> Result<Self> {
        ffi::ready()?;
        ffi::made(|out| unsafe { sys::fsdp2_scope_create(out) }).map(Self::own)
    }

    /// Leaves a tensor to the scope.
    pub fn add(&self, tensor: Tensor) -> Result<Scoped<'_>> {
        ffi::check(unsafe { sys::fsdp2_scope_add(self.raw(), &tensor.raw(), 1) })?;
        Ok(self.scoped(tensor))
    }

    /// Takes a tensor out of the scope.
    pub fn keep(&self, tensor: Scoped<'_>) -> Result<Tensor> {
        ffi::check(unsafe { sys::fsdp2_scope_keep(self.raw(), &tensor.raw(), 1) })?;
        Ok(ManuallyDrop::into_inner(tensor.tensor))
    }

    /// Calls an operator whose result is one tensor, which goes into the scope.
    pub fn call(&self, name: &str, inputs: &[Value<'_>]) -> Result<Scoped<'_>> {
        op::tensor_in(self.raw(), name, inputs).map(|tensor| self.scoped(tensor))
    }

    fn scoped(&self, tensor: Tensor) -> Scoped<'_> {
        Scoped {
            tensor: ManuallyDrop::new(tensor),
            scope: PhantomData,
        }
    }
}
