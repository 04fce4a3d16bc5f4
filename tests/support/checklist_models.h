// The models that the tests of tests/parity/checklist train: FSDP2's own test models over plain
// ATen, so that nothing of the core but the module base is under test with them.
//
// Constructors leave weights at zero and norms at one; `seed` gives every parameter its values,
// which are the same on every rank and in every copy.
//
// Shapes: N rows, T positions, D features, V tokens.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "core/nn/module.h"

namespace fsdp2::checklist {

using ModulePtr = std::shared_ptr<nn::Module>;

// Gives each parameter below `module` once, in module order, its start value plus uniform noise
// of at most 1 / sqrt(last size). Returns the module.
template <class Model>
std::shared_ptr<Model> seed(std::shared_ptr<Model> module, uint64_t number = 42);
void seed_parameters(nn::Module& module, uint64_t number);

// [..., in] -> [..., out]. Parameters weight [out, in] and, unless left out, bias [out].
class Linear : public nn::Module {
 public:
  Linear(int64_t in, int64_t out, bool has_bias = true);
  // Makes another module's parameter this one's weight too.
  void tie_weight(const at::Tensor& other);
  at::Tensor weight;
  at::Tensor bias;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

class Relu : public nn::Module {
 public:
  Relu() : nn::Module("Relu") {}

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

// Over the last dim. Parameters weight [D] and, unless left out, bias [D].
class LayerNorm : public nn::Module {
 public:
  explicit LayerNorm(int64_t size, bool has_bias = true);
  at::Tensor weight;
  at::Tensor bias;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

class RmsNorm : public nn::Module {
 public:
  explicit RmsNorm(int64_t size);
  at::Tensor weight;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

// [N, D] -> [N, D] by the batch's own mean and variance.
class BatchNorm : public nn::Module {
 public:
  explicit BatchNorm(int64_t size);
  at::Tensor weight;
  at::Tensor bias;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

// [...] int64 -> [..., D]. Parameter weight [V, D].
class Embedding : public nn::Module {
 public:
  Embedding(int64_t count, int64_t dim);
  at::Tensor weight;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

struct MlpOptions {
  int64_t width = 8;     // d
  int64_t multiple = 4;  // k
  bool has_bias = true;
  bool has_buffer = false;  // "buffer" [d], added to the output
};

// MLP(d, k): Linear d -> k d, ReLU, Linear k d -> d, ReLU.
class Mlp : public nn::Module {
 public:
  explicit Mlp(const MlpOptions& options);
  explicit Mlp(int64_t width, int64_t multiple = 4) : Mlp(MlpOptions{width, multiple}) {}
  std::shared_ptr<Linear> in_proj;
  std::shared_ptr<Linear> out_proj;
  at::Tensor buffer;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

// Runs its children "0", "1", ... one after the other; one object may stand at several places.
class Sequence : public nn::Module {
 public:
  explicit Sequence(const std::vector<ModulePtr>& children);
  std::vector<ModulePtr> items;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

// Stack3(d): three MLP(d).
std::shared_ptr<Sequence> make_stack3(int64_t width);
// Linears of these sizes in a row with ReLU between: {in, ..., out}.
std::shared_ptr<Sequence> make_linears(const std::vector<int64_t>& sizes);
// SimpleEven: 5 -> 8 -> 4 -> 12, SimpleUneven: 5 -> 10 -> 15 -> 30 -> 5.
std::shared_ptr<Sequence> make_simple_even();
std::shared_ptr<Sequence> make_simple_uneven();

// Causal attention with 4 heads and no biases: [N, T, D] -> [N, T, D].
class Attention : public nn::Module {
 public:
  explicit Attention(int64_t width);
  std::shared_ptr<Linear> wq, wk, wv, wo;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

// Linear d -> 4 d, GELU, Linear 4 d -> d.
class FeedForward : public nn::Module {
 public:
  explicit FeedForward(int64_t width);
  std::shared_ptr<Linear> w1, w2;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

class TransformerBlock : public nn::Module {
 public:
  explicit TransformerBlock(int64_t width);
  std::shared_ptr<LayerNorm> attention_norm, ffn_norm;
  std::shared_ptr<Attention> attention;
  std::shared_ptr<FeedForward> feed_forward;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

struct TransformerOptions {
  int64_t layers = 2;
  int64_t tokens = 8;
  int64_t positions = 16;
  bool tied = true;  // the output's weight is the token embedding's
};

// TinyTransformer(L): [N, T] int64 -> [N, T, V].
class TinyTransformer : public nn::Module {
 public:
  explicit TinyTransformer(const TransformerOptions& options);
  std::shared_ptr<Embedding> tok_embeddings, pos_embeddings;
  std::vector<std::shared_ptr<TransformerBlock>> blocks;  // below "layers"
  std::shared_ptr<LayerNorm> norm;
  std::shared_ptr<Linear> output;

 protected:
  c10::IValue forward(nn::Values inputs) override;

 private:
  std::shared_ptr<Sequence> layers_;
};

// embedding 128 x 32, "body" 32 -> 32, "norm", "head" 32 -> 128: [N, T] int64 -> [N, T, 128], or
// [N, T, 32] with a second input of true, which stops after norm; head can be called alone.
class ChunkedHead : public nn::Module {
 public:
  explicit ChunkedHead(bool tied);
  std::shared_ptr<Embedding> embedding;
  std::shared_ptr<Linear> body;
  std::shared_ptr<RmsNorm> norm;
  std::shared_ptr<Linear> head;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

// Linear 100 -> 100, two units Linear-ReLU-Linear-ReLU-Linear of width 100, times a free 100 x 100
// factor.
class Composite100 : public nn::Module {
 public:
  Composite100();
  std::shared_ptr<Linear> linear;
  std::shared_ptr<Sequence> unit1, unit2;
  at::Tensor factor;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

// Inputs of a step, different per rank: normal values, or tokens below `count`.
at::Tensor random_input(at::IntArrayRef sizes, int step, int rank);
at::Tensor random_tokens(at::IntArrayRef sizes, int64_t count, int step, int rank);

template <class Model>
std::shared_ptr<Model> seed(std::shared_ptr<Model> module, uint64_t number) {
  seed_parameters(*module, number);
  return module;
}

}  // namespace fsdp2::checklist
