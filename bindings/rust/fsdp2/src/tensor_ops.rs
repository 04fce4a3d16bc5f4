//! The common operators as methods. [`op::call`](crate::op::call) has all of them.

use crate::op::{tensor, Value};
use crate::{Dtype, Result, Tensor};

impl Tensor {
    // ---- shapes

    /// The elements in another shape; one size may be -1, for what is left.
    pub fn reshape(&self, shape: &[i64]) -> Result<Tensor> {
        op!("aten::reshape", self, shape)
    }

    /// Like [`Tensor::reshape`], without a copy, or not at all.
    pub fn view(&self, shape: &[i64]) -> Result<Tensor> {
        op!("aten::view", self, shape)
    }

    /// With two dims swapped.
    pub fn transpose(&self, dim0: i64, dim1: i64) -> Result<Tensor> {
        op!("aten::transpose.int", self, dim0, dim1)
    }

    /// With its dims in another order.
    pub fn permute(&self, dims: &[i64]) -> Result<Tensor> {
        op!("aten::permute", self, dims)
    }

    /// One index of a dim, which is gone.
    pub fn select(&self, dim: i64, index: i64) -> Result<Tensor> {
        op!("aten::select.int", self, dim, index)
    }

    /// `length` indices of a dim.
    pub fn narrow(&self, dim: i64, start: i64, length: i64) -> Result<Tensor> {
        op!("aten::narrow", self, dim, start, length)
    }

    /// With a new dim of size 1.
    pub fn unsqueeze(&self, dim: i64) -> Result<Tensor> {
        op!("aten::unsqueeze", self, dim)
    }

    /// Tensors one after the other along a dim.
    pub fn cat(tensors: &[&Tensor], dim: i64) -> Result<Tensor> {
        op!("aten::cat", tensors, dim)
    }

    /// The elements as another type.
    pub fn to_dtype(&self, dtype: Dtype) -> Result<Tensor> {
        op!("aten::to.dtype", self, dtype)
    }

    /// The same elements without a history.
    pub fn detach(&self) -> Result<Tensor> {
        op!("aten::detach", self)
    }

    // ---- products and reductions

    /// The matrix product, over the leading dims.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        op!("aten::matmul", self, other)
    }

    /// `self @ weight.T + bias`
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        op!("aten::linear", self, weight, bias)
    }

    /// The sum of all elements.
    pub fn sum(&self) -> Result<Tensor> {
        op!("aten::sum", self)
    }

    /// The sums over some dims, which are gone unless they are kept with size 1.
    pub fn sum_dims(&self, dims: &[i64], keep: bool) -> Result<Tensor> {
        op!("aten::sum.dim_IntList", self, dims, keep)
    }

    /// The mean of all elements.
    pub fn mean(&self) -> Result<Tensor> {
        op!("aten::mean", self)
    }

    /// The means over some dims, which are gone unless they are kept with size 1.
    pub fn mean_dims(&self, dims: &[i64], keep: bool) -> Result<Tensor> {
        op!("aten::mean.dim", self, dims, keep)
    }

    // ---- functions of each element

    /// e to the power of each element.
    pub fn exp(&self) -> Result<Tensor> {
        op!("aten::exp", self)
    }

    /// The natural logarithm of each element.
    pub fn log(&self) -> Result<Tensor> {
        op!("aten::log", self)
    }

    /// The square root of each element.
    pub fn sqrt(&self) -> Result<Tensor> {
        op!("aten::sqrt", self)
    }

    /// Each element to a power.
    pub fn pow(&self, exponent: f64) -> Result<Tensor> {
        op!("aten::pow.Tensor_Scalar", self, exponent)
    }

    /// The hyperbolic tangent of each element.
    pub fn tanh(&self) -> Result<Tensor> {
        op!("aten::tanh", self)
    }

    /// The logistic function of each element.
    pub fn sigmoid(&self) -> Result<Tensor> {
        op!("aten::sigmoid", self)
    }

    /// Each element, or 0 if that is more.
    pub fn relu(&self) -> Result<Tensor> {
        op!("aten::relu", self)
    }

    /// `x * Phi(x)`
    pub fn gelu(&self) -> Result<Tensor> {
        op!("aten::gelu", self)
    }

    /// `x * sigmoid(x)`
    pub fn silu(&self) -> Result<Tensor> {
        op!("aten::silu", self)
    }

    // ---- layers

    /// Probabilities along a dim.
    pub fn softmax(&self, dim: i64) -> Result<Tensor> {
        op!("aten::softmax.int", self, dim)
    }

    /// Logarithms of probabilities along a dim.
    pub fn log_softmax(&self, dim: i64) -> Result<Tensor> {
        op!("aten::log_softmax.int", self, dim)
    }

    /// Normalizes over the last dims, which have this shape.
    pub fn layer_norm(
        &self,
        shape: &[i64],
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        op!("aten::layer_norm", self, shape, weight, bias, eps)
    }

    /// Normalizes by the root of the mean square over the last dims, which have this shape. Without `eps`, it is the dtype's.
    pub fn rms_norm(
        &self,
        shape: &[i64],
        weight: Option<&Tensor>,
        eps: Option<f64>,
    ) -> Result<Tensor> {
        let eps = eps.map_or(Value::None, Value::Double);
        op!("aten::rms_norm", self, shape, weight, eps)
    }

    /// The rows of this table at the indices.
    pub fn embedding(&self, indices: &Tensor) -> Result<Tensor> {
        op!("aten::embedding", self, indices)
    }

    /// The mean cross-entropy of logits `[N, classes]` against labels `[N]`; labels of -100 do not count.
    pub fn cross_entropy(&self, labels: &Tensor) -> Result<Tensor> {
        op!("aten::cross_entropy_loss", self, labels)
    }

    /// Attention of queries (this tensor), keys and values, `[.., S, D]`; causal, or with a mask.
    pub fn scaled_dot_product_attention(
        &self,
        key: &Tensor,
        value: &Tensor,
        mask: Option<&Tensor>,
        is_causal: bool,
    ) -> Result<Tensor> {
        tensor(
            "aten::scaled_dot_product_attention",
            &[
                self.into(),
                key.into(),
                value.into(),
                mask.into(),
                Value::Double(0.0), // no dropout
                is_causal.into(),
            ],
        )
    }

    /// Zeroes elements with this probability and scales the others, by the process's default random generator.
    pub fn dropout(&self, probability: f64, is_training: bool) -> Result<Tensor> {
        op!("aten::dropout", self, probability, is_training)
    }
}
