// Layers of decoder models, with the parameter names and the numerics of the transformers library.
// Each works in fp32, bf16 and fp16. Parameters are deferred: they have no memory before
// `materialize` or sharding.
//
// Shapes: ... any leading dims, D features.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/layers/activation.h"
#include "core/nn/layers/normed_sum.h"
#include "core/nn/module.h"

namespace fsdp2::nn {

// y = x W^T + b: [..., in] -> [..., out]. Parameters: weight [out, in], bias [out] if asked for.
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, bool has_bias, at::ScalarType dtype);
  // Shares the weight of another layer (a tie); no bias.
  explicit Linear(const at::Tensor& weight);

  const at::Tensor& weight() const { return weight_; }
  const at::Tensor& bias() const { return bias_; }  // undefined without a bias
  InputCount input_count() const override { return {1, 1}; }

 protected:
  c10::IValue forward(Values inputs) override;

 private:
  at::Tensor weight_;
  at::Tensor bias_;
};

// What each layer makes of the same x. Devices whose products are fast compute the gradients
// together, where no hook wants to see a layer by itself.
std::vector<at::Tensor> outputs_of_each(at::ArrayRef<Linear*> layers, const at::Tensor& x);

// y = x W + b, with a weight that is stored transposed, as GPT-2's are: [..., in] -> [..., out].
// Parameters: weight [in, out], bias [out].
class Conv1D : public Module {
 public:
  Conv1D(int64_t in_features, int64_t out_features, at::ScalarType dtype);
  InputCount input_count() const override { return {1, 1}; }

 protected:
  c10::IValue forward(Values inputs) override;

 private:
  at::Tensor weight_;
  at::Tensor bias_;
};

// Rows of a table [count, dim] by indices that nobody has looked at: [...] int64 -> [..., dim],
// with NaN in the rows of those that are outside of the table. On a device, LibTorch's own lookup
// would end the work of the whole process there, and the host would have to wait to look before.
at::Tensor unchecked_embedding(const at::Tensor& weight, const at::Tensor& indices,
                               int64_t padding);

// The same, but the lookup checks indices that are on the host. Error: kInvalidArgument.
at::Tensor embedding_of(const at::Tensor& weight, const at::Tensor& indices, int64_t padding);

// embedding_of() by its parameter weight [count, dim]. The row of `padding` gets no gradient from
// here; -1: all do.
class Embedding : public Module {
 public:
  Embedding(int64_t count, int64_t dim, at::ScalarType dtype, int64_t padding = -1);

  const at::Tensor& weight() const { return weight_; }
  InputCount input_count() const override { return {1, 1}; }

 protected:
  c10::IValue forward(Values inputs) override;

 private:
  at::Tensor weight_;
  int64_t padding_;
};

// y = weight * (x / sqrt(mean(x^2) + eps)) over the last dim; the parenthesis is computed in fp32
// and cast to x's dtype before it is multiplied. With adds_one the factor is 1 + weight, and all is
// computed in fp32 and cast at the end. Parameter: weight [D].
class RMSNorm : public Module {
 public:
  RMSNorm(std::string kind, int64_t size, double eps, at::ScalarType dtype, bool adds_one = false);
  // x + addend, or x where that is undefined, and this norm of it: a residual sum costs no pass
  // over memory of its own, but where hooks want to see the norm by itself.
  NormedSum of_sum(const at::Tensor& x, const at::Tensor& addend);
  InputCount input_count() const override { return {1, 1}; }

 protected:
  c10::IValue forward(Values inputs) override;

 private:
  at::Tensor weight_;
  double eps_;
  bool adds_one_;
};

// y = weight * (x - mean) / sqrt(variance + eps) + bias over the last dim. Parameters: weight [D],
// bias [D].
class LayerNorm : public Module {
 public:
  LayerNorm(int64_t size, double eps, at::ScalarType dtype);
  // As RMSNorm's.
  NormedSum of_sum(const at::Tensor& x, const at::Tensor& addend);
  InputCount input_count() const override { return {1, 1}; }

 protected:
  c10::IValue forward(Values inputs) override;

 private:
  at::Tensor weight_;
  at::Tensor bias_;
  double eps_;
};

struct GatedMlpNames {
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  const char* gate_and_up = nullptr;  // of one layer for both, whose first half is the gate's
};

struct GatedMlpWeights;  // tiled_mlp.h

// down_proj(activation(gate_proj(x)) * up_proj(x)).
class GatedMlp : public Module {
 public:
  GatedMlp(std::string kind, int64_t hidden_size, int64_t intermediate_size, bool has_bias,
           at::ScalarType dtype, const GatedMlpNames& names = {},
           Activation activation = Activation::kSilu);
  // Tiles that tokens are cut into (tiled_mlp.h); 0: none, all tokens at once.
  void set_tiles(int64_t tiles) { tiles_ = tiles; }
  InputCount input_count() const override { return {1, 1}; }

  Activation activation() const { return activation_; }
  GatedMlpWeights weights() const;
  // Whether whoever computes with its weights has done all that calling it does: it is in no tiles,
  // and neither it nor a layer inside is a unit, checkpointed or otherwise hooked by itself.
  bool is_its_weights() const;

 protected:
  c10::IValue forward(Values inputs) override;

 private:
  at::Tensor forward_in_tiles(const at::Tensor& x);

  Activation activation_;
  std::shared_ptr<Linear> gate_and_up_proj_;  // null where each has a layer
  std::shared_ptr<Linear> gate_proj_;         // null where they share one
  std::shared_ptr<Linear> up_proj_;
  std::shared_ptr<Linear> down_proj_;
  int64_t tiles_ = 0;
};

// The differentiable functions behind RMSNorm and GatedMlp. They save less for backward than the
// same expressions out of ATen operators; second derivatives are refused (kUnsupported).
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps,
                    bool adds_one = false);
// activation(gate) * up.
at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, Activation activation);
// The gradients of gate and up, both contiguous, from that of the product; none is recorded.
std::pair<at::Tensor, at::Tensor> gated_gradients(const at::Tensor& dy, const at::Tensor& gate,
                                                  const at::Tensor& up, Activation activation);

// Throws kWrongState if a layer's parameter has no memory: elementwise operators would crash on it.
void check_has_memory(const at::Tensor& parameter, const Module& owner, const char* name);
// Throws kUnsupported inside a backward that itself records gradients.
void refuse_second_derivatives(const char* function);

}  // namespace fsdp2::nn
