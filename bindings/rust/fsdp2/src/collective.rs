//! What the ranks of a mesh do together. All of it is *collective*: all ranks make the call, in the same order.

use crate::{ffi, sys, Mesh, Result, Tensor};

numbers! {
    /// What becomes of the values of all ranks.
    ReduceOp {
        /// Their sum.
        Sum = FSDP2_REDUCE_SUM,
        /// Their mean.
        Average = FSDP2_REDUCE_AVERAGE,
        /// The largest.
        Max = FSDP2_REDUCE_MAX,
    }
}

/// Those on tensors are among the ranks of one dim's group, and record no gradients. Pieces have ceil(n / ranks) elements along
/// `tensor_dim`; the last ones may have fewer or none.
impl Mesh {
    /// Returns once all ranks have called it.
    pub fn barrier(&self) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_mesh_barrier(self.raw()) })
    }

    /// Reduces numbers over all ranks, in place.
    pub fn all_reduce(&self, values: &mut [f64], op: ReduceOp) -> Result<()> {
        ffi::check(unsafe {
            sys::fsdp2_mesh_all_reduce(self.raw(), values.as_mut_ptr(), values.len(), op.number())
        })
    }

    /// Overwrites the tensor with that of the group's first rank.
    pub fn broadcast(&self, dim: i32, tensor: &Tensor) -> Result<()> {
        ffi::check(unsafe { sys::fsdp2_mesh_broadcast(self.raw(), dim, tensor.raw()) })
    }

    /// This rank's piece of the tensor that the group's first rank passes; the other ranks pass none.
    pub fn scatter(&self, dim: i32, whole: Option<&Tensor>, tensor_dim: i32) -> Result<Tensor> {
        Tensor::made(|out| unsafe {
            sys::fsdp2_mesh_scatter(self.raw(), dim, ffi::optional(whole), tensor_dim, out)
        })
    }

    /// Concatenates all ranks' tensors along `tensor_dim`, in which their sizes may differ.
    pub fn all_gather(&self, dim: i32, piece: &Tensor, tensor_dim: i32) -> Result<Tensor> {
        Tensor::made(|out| unsafe {
            sys::fsdp2_mesh_all_gather(self.raw(), dim, piece.raw(), tensor_dim, out)
        })
    }

    /// This rank's piece of the sum, or of another reduction, of all ranks' tensors.
    pub fn reduce_scatter(
        &self,
        dim: i32,
        whole: &Tensor,
        tensor_dim: i32,
        op: ReduceOp,
    ) -> Result<Tensor> {
        Tensor::made(|out| unsafe {
            sys::fsdp2_mesh_reduce_scatter(
                self.raw(),
                dim,
                whole.raw(),
                tensor_dim,
                op.number(),
                out,
            )
        })
    }

    /// Reduces a tensor over the group, in place.
    pub fn all_reduce_tensor(&self, dim: i32, tensor: &Tensor, op: ReduceOp) -> Result<()> {
        ffi::check(unsafe {
            sys::fsdp2_mesh_all_reduce_tensor(self.raw(), dim, tensor.raw(), op.number())
        })
    }

    /// Compares a text of "key=value" lines between the ranks. If the texts differ, the call fails on all ranks and names the
    /// first line that differs. `what` says what is compared.
    pub fn agree(&self, what: &str, text: &str) -> Result<()> {
        let (what, text) = (ffi::c_text(what)?, ffi::c_text(text)?);
        ffi::check(unsafe { sys::fsdp2_mesh_agree(self.raw(), what.as_ptr(), text.as_ptr()) })
    }
}
