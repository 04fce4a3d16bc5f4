package fsdp2

// The operators that models are mostly made of. Everything else is a Call away.

// Add returns t + other.
func (t *Tensor) Add(other *Tensor) *Tensor { return t.op("aten::add.Tensor", other) }

// AddScalar returns t + number.
func (t *Tensor) AddScalar(number float64) *Tensor { return t.op("aten::add.Scalar", number) }

// Sub returns t - other.
func (t *Tensor) Sub(other *Tensor) *Tensor { return t.op("aten::sub.Tensor", other) }

// Mul returns the product, element by element.
func (t *Tensor) Mul(other *Tensor) *Tensor { return t.op("aten::mul.Tensor", other) }

// MulScalar returns t * number.
func (t *Tensor) MulScalar(number float64) *Tensor { return t.op("aten::mul.Scalar", number) }

// Div returns the quotient, element by element.
func (t *Tensor) Div(other *Tensor) *Tensor { return t.op("aten::div.Tensor", other) }

// DivScalar returns t / number.
func (t *Tensor) DivScalar(number float64) *Tensor { return t.op("aten::div.Scalar", number) }

// Neg returns -t.
func (t *Tensor) Neg() *Tensor { return t.op("aten::neg") }

// Pow returns t to the power of exponent.
func (t *Tensor) Pow(exponent float64) *Tensor { return t.op("aten::pow.Tensor_Scalar", exponent) }

// Exp returns e to the power of t.
func (t *Tensor) Exp() *Tensor { return t.op("aten::exp") }

// Log returns the natural logarithm.
func (t *Tensor) Log() *Tensor { return t.op("aten::log") }

// Sqrt returns the square root.
func (t *Tensor) Sqrt() *Tensor { return t.op("aten::sqrt") }

// Matmul returns the matrix product, batched over the dims before the last two.
func (t *Tensor) Matmul(other *Tensor) *Tensor { return t.op("aten::matmul", other) }

// Linear returns t x weight^T + bias; weight is [out, in], bias [out] or nil.
func (t *Tensor) Linear(weight, bias *Tensor) *Tensor { return t.op("aten::linear", weight, bias) }

// Reshape returns the elements in another shape, copied where they do not lie so. One size may be -1, for what is left.
func (t *Tensor) Reshape(shape ...int) *Tensor { return t.op("aten::reshape", shape) }

// View is Reshape without a copy, and fails where it would need one.
func (t *Tensor) View(shape ...int) *Tensor { return t.op("aten::view", shape) }

// Transpose swaps two dims.
func (t *Tensor) Transpose(dim0, dim1 int) *Tensor { return t.op("aten::transpose.int", dim0, dim1) }

// Permute puts the dims into another order.
func (t *Tensor) Permute(dims ...int) *Tensor { return t.op("aten::permute", dims) }

// Select returns what is at one index of a dim, which falls away.
func (t *Tensor) Select(dim, index int) *Tensor { return t.op("aten::select.int", dim, index) }

// Narrow returns length elements of a dim, from start on.
func (t *Tensor) Narrow(dim, start, length int) *Tensor {
	return t.op("aten::narrow", dim, start, length)
}

// Unsqueeze adds a dim of size 1.
func (t *Tensor) Unsqueeze(dim int) *Tensor { return t.op("aten::unsqueeze", dim) }

// Squeeze removes a dim of size 1.
func (t *Tensor) Squeeze(dim int) *Tensor { return t.op("aten::squeeze.dim", dim) }

// Contiguous returns a tensor that is row-major in memory, copied if t is not.
func (t *Tensor) Contiguous() *Tensor { return t.op("aten::contiguous") }

// To returns the tensor in another dtype.
func (t *Tensor) To(dtype Dtype) *Tensor { return t.op("aten::to.dtype", dtype) }

// Detach returns the same memory without its history of gradients.
func (t *Tensor) Detach() *Tensor { return t.op("aten::detach") }

// Clone returns a copy.
func (t *Tensor) Clone() *Tensor { return t.op("aten::clone") }

// Sum returns the sum over some dims, which fall away, or over all.
func (t *Tensor) Sum(dims ...int) *Tensor {
	if len(dims) == 0 {
		return t.op("aten::sum")
	}
	return t.op("aten::sum.dim_IntList", dims)
}

// Mean returns the mean over some dims, which fall away, or over all.
func (t *Tensor) Mean(dims ...int) *Tensor {
	if len(dims) == 0 {
		return t.op("aten::mean")
	}
	return t.op("aten::mean.dim", dims)
}

// Argmax returns the indices of the largest elements along a dim, which falls away.
func (t *Tensor) Argmax(dim int) *Tensor { return t.op("aten::argmax", dim) }

// Softmax returns the softmax over a dim.
func (t *Tensor) Softmax(dim int) *Tensor { return t.op("aten::softmax.int", dim) }

// LogSoftmax returns the logarithm of the softmax over a dim.
func (t *Tensor) LogSoftmax(dim int) *Tensor { return t.op("aten::log_softmax.int", dim) }

// Relu returns max(t, 0).
func (t *Tensor) Relu() *Tensor { return t.op("aten::relu") }

// Gelu returns the exact Gaussian error linear unit.
func (t *Tensor) Gelu() *Tensor { return t.op("aten::gelu") }

// Silu returns t * sigmoid(t).
func (t *Tensor) Silu() *Tensor { return t.op("aten::silu") }

// Sigmoid returns 1 / (1 + e^-t).
func (t *Tensor) Sigmoid() *Tensor { return t.op("aten::sigmoid") }

// Tanh returns the hyperbolic tangent.
func (t *Tensor) Tanh() *Tensor { return t.op("aten::tanh") }

// LayerNorm normalizes over the last dims, which have the weight's shape; without a weight (nil), over the last dim. bias may be nil.
func (t *Tensor) LayerNorm(weight, bias *Tensor, eps float64) *Tensor {
	shape, err := t.normalized(weight)
	if err != nil {
		return failed(err)
	}
	return t.op("aten::layer_norm", shape, weight, bias, eps)
}

// RMSNorm divides by the root of the mean square over the last dims, which have the weight's shape; without one, over the last dim.
func (t *Tensor) RMSNorm(weight *Tensor, eps float64) *Tensor {
	shape, err := t.normalized(weight)
	if err != nil {
		return failed(err)
	}
	return t.op("aten::rms_norm", shape, weight, eps)
}

func (t *Tensor) normalized(weight *Tensor) ([]int, error) {
	if weight != nil {
		return weight.Shape()
	}
	shape, err := t.Shape()
	if err == nil && len(shape) > 0 {
		shape = shape[len(shape)-1:]
	}
	return shape, err
}

// Embedding returns the rows of the table t at the indices, which are i64.
func (t *Tensor) Embedding(indices *Tensor) *Tensor { return t.op("aten::embedding", indices) }

// CrossEntropy returns the mean cross-entropy of logits [N, classes] against labels [N] i64, without labels of -100.
func (t *Tensor) CrossEntropy(labels *Tensor) *Tensor {
	return t.op("aten::cross_entropy_loss", labels)
}

// Attention is what ScaledDotProductAttention takes besides query, key and value.
type Attention struct {
	Mask    *Tensor // bool, or floats to add; nil: none
	Dropout float64
	Causal  bool
}

// ScaledDotProductAttention returns softmax(t x key^T / sqrt(size)) x value, for a query t of [..., length, size].
func (t *Tensor) ScaledDotProductAttention(key, value *Tensor, how Attention) *Tensor {
	return t.op("aten::scaled_dot_product_attention", key, value, how.Mask, how.Dropout, how.Causal)
}

// Dropout sets elements to zero with a probability and scales the others up, if training is true.
func (t *Tensor) Dropout(probability float64, training bool) *Tensor {
	return t.op("aten::dropout", probability, training)
}

// Cat joins tensors along a dim.
func Cat(tensors []*Tensor, dim int) *Tensor { return Call("aten::cat", tensors, dim) }

// Stack joins tensors along a new dim.
func Stack(tensors []*Tensor, dim int) *Tensor { return Call("aten::stack", tensors, dim) }

// op calls an operator whose first argument is t.
func (t *Tensor) op(name string, arguments ...any) *Tensor {
	if err := t.Err(); err != nil {
		return failed(err)
	}
	return Operator{Name: name}.tensor(t, arguments)
}
