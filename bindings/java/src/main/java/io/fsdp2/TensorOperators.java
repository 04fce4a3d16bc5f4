package io.fsdp2;

/** The common operators as methods of a tensor; each makes a new tensor. */
abstract sealed class TensorOperators permits Tensor {
  abstract Tensor self();

  /**
   * Calls an operator by its name, with this tensor as the first argument; see {@link Operator}.
   */
  public Tensor op(String name, Object... arguments) {
    Object[] all = new Object[arguments.length + 1];
    all[0] = self();
    System.arraycopy(arguments, 0, all, 1, arguments.length);
    return Operator.call(name, all);
  }

  /** The sum, element by element; sizes of 1 stretch. */
  public Tensor add(Tensor other) {
    return Operator.call("aten::add.Tensor", self(), other);
  }

  /** The sum, for a number. */
  public Tensor add(double number) {
    return Operator.call("aten::add.Tensor", self(), number);
  }

  /** The difference, element by element; sizes of 1 stretch. */
  public Tensor sub(Tensor other) {
    return Operator.call("aten::sub.Tensor", self(), other);
  }

  /** The difference, for a number. */
  public Tensor sub(double number) {
    return Operator.call("aten::sub.Tensor", self(), number);
  }

  /** The product, element by element; sizes of 1 stretch. */
  public Tensor mul(Tensor other) {
    return Operator.call("aten::mul.Tensor", self(), other);
  }

  /** The product, for a number. */
  public Tensor mul(double number) {
    return Operator.call("aten::mul.Tensor", self(), number);
  }

  /** The quotient, element by element; sizes of 1 stretch. */
  public Tensor div(Tensor other) {
    return Operator.call("aten::div.Tensor", self(), other);
  }

  /** The quotient, for a number. */
  public Tensor div(double number) {
    return Operator.call("aten::div.Tensor", self(), number);
  }

  /** Each element to the power of a number. */
  public Tensor pow(double exponent) {
    return Operator.call("aten::pow.Tensor_Scalar", self(), exponent);
  }

  /** The negative of each element. */
  public Tensor neg() {
    return Operator.call("aten::neg", self());
  }

  /** e to the power of each element. */
  public Tensor exp() {
    return Operator.call("aten::exp", self());
  }

  /** The natural logarithm of each element. */
  public Tensor log() {
    return Operator.call("aten::log", self());
  }

  /** The square root of each element. */
  public Tensor sqrt() {
    return Operator.call("aten::sqrt", self());
  }

  /** 1 by the square root of each element. */
  public Tensor rsqrt() {
    return Operator.call("aten::rsqrt", self());
  }

  /** The absolute value of each element. */
  public Tensor abs() {
    return Operator.call("aten::abs", self());
  }

  /** The hyperbolic tangent of each element. */
  public Tensor tanh() {
    return Operator.call("aten::tanh", self());
  }

  /** 1 / (1 + exp(-x)) of each element. */
  public Tensor sigmoid() {
    return Operator.call("aten::sigmoid", self());
  }

  /** Each element, or 0 if it is negative. */
  public Tensor relu() {
    return Operator.call("aten::relu", self());
  }

  /** The Gaussian error linear unit of each element. */
  public Tensor gelu() {
    return Operator.call("aten::gelu", self());
  }

  /** x * sigmoid(x) of each element. */
  public Tensor silu() {
    return Operator.call("aten::silu", self());
  }

  /** The matrix product; leading dims are batches. */
  public Tensor matmul(Tensor other) {
    return Operator.call("aten::matmul", self(), other);
  }

  /** x * weight^T. */
  public Tensor linear(Tensor weight) {
    return Operator.call("aten::linear", self(), weight);
  }

  /** x * weight^T + bias. */
  public Tensor linear(Tensor weight, Tensor bias) {
    return Operator.call("aten::linear", self(), weight, bias);
  }

  /**
   * The same elements in other sizes, in the same memory if that is possible; one size may be -1.
   */
  public Tensor reshape(long... shape) {
    return Operator.call("aten::reshape", self(), shape);
  }

  /** The same memory in other sizes; one may be -1. */
  public Tensor view(long... shape) {
    return Operator.call("aten::view", self(), shape);
  }

  /** Two dims exchanged, in the same memory. */
  public Tensor transpose(long dim0, long dim1) {
    return Operator.call("aten::transpose.int", self(), dim0, dim1);
  }

  /** The dims in another order, in the same memory. */
  public Tensor permute(long... dims) {
    return Operator.call("aten::permute", self(), dims);
  }

  /** With one more dim of size 1. */
  public Tensor unsqueeze(long dim) {
    return Operator.call("aten::unsqueeze", self(), dim);
  }

  /** Without a dim of size 1. */
  public Tensor squeeze(long dim) {
    return Operator.call("aten::squeeze.dim", self(), dim);
  }

  /** One index along a dim, which goes away. */
  public Tensor select(long dim, long index) {
    return Operator.call("aten::select.int", self(), dim, index);
  }

  /** The indices from start to end, without end, along a dim. */
  public Tensor slice(long dim, long start, long end) {
    return Operator.call("aten::slice.Tensor", self(), dim, start, end);
  }

  /** A copy whose elements lie row-major, or the tensor itself if they do. */
  public Tensor contiguous() {
    return Operator.call("aten::contiguous", self());
  }

  /** The elements in another type. */
  public Tensor to(DType dtype) {
    return Operator.call("aten::to.dtype", self(), dtype);
  }

  /** The same values, of which autograd knows nothing. */
  public Tensor detach() {
    return Operator.call("aten::detach", self());
  }

  /** The sum of all elements. */
  public Tensor sum() {
    return Operator.call("aten::sum", self());
  }

  /** The sum along dims, which go away. */
  public Tensor sum(long... dims) {
    return Operator.call("aten::sum.dim_IntList", self(), dims);
  }

  /** The mean of all elements. */
  public Tensor mean() {
    return Operator.call("aten::mean", self());
  }

  /** The mean along dims, which go away. */
  public Tensor mean(long... dims) {
    return Operator.call("aten::mean.dim", self(), dims);
  }

  /** The largest element. */
  public Tensor max() {
    return Operator.call("aten::max", self());
  }

  /** The index of the largest element along a dim. */
  public Tensor argmax(long dim) {
    return Operator.call("aten::argmax", self(), dim);
  }

  /** exp(x) along a dim, divided by its sum. */
  public Tensor softmax(long dim) {
    return Operator.call("aten::softmax.int", self(), dim);
  }

  /** The logarithm of {@link #softmax}. */
  public Tensor logSoftmax(long dim) {
    return Operator.call("aten::log_softmax.int", self(), dim);
  }

  /** Normalized over the last dims, which have the given sizes; weight and bias may be null. */
  public Tensor layerNorm(long[] shape, Tensor weight, Tensor bias, double eps) {
    return Operator.call("aten::layer_norm", self(), shape, weight, bias, eps);
  }

  /**
   * Divided by its root mean square over the last dims, which have the given sizes; weight may be
   * null.
   */
  public Tensor rmsNorm(long[] shape, Tensor weight, double eps) {
    return Operator.call("aten::rms_norm", self(), shape, weight, eps);
  }

  /** The rows of a table at these indices. */
  public Tensor embedding(Tensor table) {
    return Operator.call("aten::embedding", table, self());
  }

  /** The mean cross-entropy of these logits [N,C] and class indices [N]. */
  public Tensor crossEntropy(Tensor labels) {
    return Operator.call("aten::cross_entropy_loss", self(), labels);
  }

  /**
   * Attention of these queries [..,S,D] to keys and values. mask: what is added to the scores or
   * seen, or null; causal: only what came before is seen.
   */
  public Tensor scaledDotProductAttention(Tensor key, Tensor value, Tensor mask, boolean causal) {
    return Operator.call(
        "aten::scaled_dot_product_attention", self(), key, value, mask, 0.0, causal);
  }
}
