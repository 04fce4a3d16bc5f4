#include "tests/support/checklist_models.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

namespace fsdp2::checklist {

namespace {

constexpr int64_t kWidth = 16;
constexpr int64_t kHeads = 4;
constexpr double kNormEps = 1e-5;

at::Tensor call(nn::Module& module, const at::Tensor& x) { return module(x); }

}  // namespace

void seed_parameters(nn::Module& module, uint64_t number) {
  const at::NoGradGuard no_grad;
  const at::Generator generator = at::detail::createCPUGenerator(number);
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(module)) {
    const at::Tensor& tensor = parameter.tensor;
    const double bound = 1.0 / std::sqrt(static_cast<double>(tensor.size(-1)));
    // Drawn in fp32, so that copies of other dtypes start from the same numbers.
    const at::Tensor noise = at::empty(tensor.sizes(), at::kFloat);
    tensor.add_(noise.uniform_(-bound, bound, generator));
  }
}

Linear::Linear(int64_t in, int64_t out, bool has_bias) : nn::Module("Linear") {
  weight = register_parameter("weight", at::zeros({out, in}));
  if (has_bias) {
    bias = register_parameter("bias", at::zeros({out}));
  }
}

void Linear::tie_weight(const at::Tensor& other) {
  TORCH_CHECK(other.sizes() == weight.sizes(), "a tie needs equal shapes");
  parameters_["weight"] = other;
  weight = other;
}

c10::IValue Linear::forward(nn::Values inputs) {
  return at::linear(inputs[0].toTensor(), weight, bias);
}

c10::IValue Relu::forward(nn::Values inputs) { return inputs[0].toTensor().relu(); }

LayerNorm::LayerNorm(int64_t size, bool has_bias) : nn::Module("LayerNorm") {
  weight = register_parameter("weight", at::ones({size}));
  if (has_bias) {
    bias = register_parameter("bias", at::zeros({size}));
  }
}

c10::IValue LayerNorm::forward(nn::Values inputs) {
  return at::layer_norm(inputs[0].toTensor(), {weight.size(0)}, weight, bias, kNormEps);
}

RmsNorm::RmsNorm(int64_t size) : nn::Module("RmsNorm") {
  weight = register_parameter("weight", at::ones({size}));
}

c10::IValue RmsNorm::forward(nn::Values inputs) {
  const at::Tensor x = inputs[0].toTensor();
  return x * at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + kNormEps) * weight;
}

BatchNorm::BatchNorm(int64_t size) : nn::Module("BatchNorm") {
  weight = register_parameter("weight", at::ones({size}));
  bias = register_parameter("bias", at::zeros({size}));
}

c10::IValue BatchNorm::forward(nn::Values inputs) {
  return at::batch_norm(inputs[0].toTensor(), weight, bias, {}, {},
                        /*training=*/true, /*momentum=*/0.1, kNormEps, /*cudnn_enabled=*/false);
}

Embedding::Embedding(int64_t count, int64_t dim) : nn::Module("Embedding") {
  weight = register_parameter("weight", at::zeros({count, dim}));
}

c10::IValue Embedding::forward(nn::Values inputs) {
  return at::embedding(weight, inputs[0].toTensor());
}

Mlp::Mlp(const MlpOptions& options) : nn::Module("Mlp") {
  const int64_t inner = options.multiple * options.width;
  in_proj =
      register_module("in_proj", std::make_shared<Linear>(options.width, inner, options.has_bias));
  out_proj =
      register_module("out_proj", std::make_shared<Linear>(inner, options.width, options.has_bias));
  if (options.has_buffer) {
    buffer = register_buffer("buffer", at::full({options.width}, 0.5));
  }
}

c10::IValue Mlp::forward(nn::Values inputs) {
  const at::Tensor hidden = call(*in_proj, inputs[0].toTensor()).relu();
  const at::Tensor output = call(*out_proj, hidden).relu();
  return buffer.defined() ? output + buffer : output;
}

Sequence::Sequence(const std::vector<ModulePtr>& children)
    : nn::Module("Sequence"), items(children) {
  for (size_t i = 0; i < items.size(); ++i) {
    register_module(std::to_string(i), items[i]);
  }
}

c10::IValue Sequence::forward(nn::Values inputs) {
  c10::IValue value = inputs[0];
  for (const ModulePtr& item : items) {
    value = (*item)({value});
  }
  return value;
}

std::shared_ptr<Sequence> make_stack3(int64_t width) {
  return std::make_shared<Sequence>(std::vector<ModulePtr>{
      std::make_shared<Mlp>(width), std::make_shared<Mlp>(width), std::make_shared<Mlp>(width)});
}

std::shared_ptr<Sequence> make_linears(const std::vector<int64_t>& sizes) {
  std::vector<ModulePtr> children;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    if (i > 0) {
      children.push_back(std::make_shared<Relu>());
    }
    children.push_back(std::make_shared<Linear>(sizes[i], sizes[i + 1]));
  }
  return std::make_shared<Sequence>(children);
}

std::shared_ptr<Sequence> make_simple_even() { return make_linears({5, 8, 4, 12}); }
std::shared_ptr<Sequence> make_simple_uneven() { return make_linears({5, 10, 15, 30, 5}); }

Attention::Attention(int64_t width) : nn::Module("Attention") {
  wq = register_module("wq", std::make_shared<Linear>(width, width, false));
  wk = register_module("wk", std::make_shared<Linear>(width, width, false));
  wv = register_module("wv", std::make_shared<Linear>(width, width, false));
  wo = register_module("wo", std::make_shared<Linear>(width, width, false));
}

c10::IValue Attention::forward(nn::Values inputs) {
  const at::Tensor x = inputs[0].toTensor();
  const int64_t rows = x.size(0);
  const int64_t length = x.size(1);
  const int64_t head = x.size(2) / kHeads;
  const auto by_head = [&](Linear& projection) {
    return call(projection, x).view({rows, length, kHeads, head}).transpose(1, 2);
  };
  const at::Tensor q = by_head(*wq);
  const at::Tensor k = by_head(*wk);
  const at::Tensor v = by_head(*wv);
  const at::Tensor future = at::ones({length, length}, at::kBool).triu(1);
  const at::Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(double(head));
  const at::Tensor weights = scores.masked_fill(future, -INFINITY).softmax(-1);
  return call(*wo, at::matmul(weights, v).transpose(1, 2).reshape({rows, length, x.size(2)}));
}

FeedForward::FeedForward(int64_t width) : nn::Module("FeedForward") {
  w1 = register_module("w1", std::make_shared<Linear>(width, 4 * width));
  w2 = register_module("w2", std::make_shared<Linear>(4 * width, width));
}

c10::IValue FeedForward::forward(nn::Values inputs) {
  return call(*w2, at::gelu(call(*w1, inputs[0].toTensor())));
}

TransformerBlock::TransformerBlock(int64_t width) : nn::Module("TransformerBlock") {
  attention_norm = register_module("attention_norm", std::make_shared<LayerNorm>(width));
  attention = register_module("attention", std::make_shared<Attention>(width));
  ffn_norm = register_module("ffn_norm", std::make_shared<LayerNorm>(width));
  feed_forward = register_module("feed_forward", std::make_shared<FeedForward>(width));
}

c10::IValue TransformerBlock::forward(nn::Values inputs) {
  const at::Tensor x = inputs[0].toTensor();
  const at::Tensor h = x + call(*attention, call(*attention_norm, x));
  return h + call(*feed_forward, call(*ffn_norm, h));
}

TinyTransformer::TinyTransformer(const TransformerOptions& options)
    : nn::Module("TinyTransformer") {
  tok_embeddings =
      register_module("tok_embeddings", std::make_shared<Embedding>(options.tokens, kWidth));
  pos_embeddings =
      register_module("pos_embeddings", std::make_shared<Embedding>(options.positions, kWidth));
  for (int64_t i = 0; i < options.layers; ++i) {
    blocks.push_back(std::make_shared<TransformerBlock>(kWidth));
  }
  layers_ = register_module(
      "layers", std::make_shared<Sequence>(std::vector<ModulePtr>(blocks.begin(), blocks.end())));
  norm = register_module("norm", std::make_shared<LayerNorm>(kWidth));
  output = register_module("output", std::make_shared<Linear>(kWidth, options.tokens, false));
  if (options.tied) {
    output->tie_weight(tok_embeddings->weight);
  }
}

c10::IValue TinyTransformer::forward(nn::Values inputs) {
  const at::Tensor tokens = inputs[0].toTensor();
  const at::Tensor positions = at::arange(tokens.size(1), at::kLong);
  const at::Tensor x = call(*tok_embeddings, tokens) + call(*pos_embeddings, positions);
  return call(*output, call(*norm, call(*layers_, x)));
}

ChunkedHead::ChunkedHead(bool tied) : nn::Module("ChunkedHead") {
  embedding = register_module("embedding", std::make_shared<Embedding>(128, 32));
  body = register_module("body", std::make_shared<Linear>(32, 32, false));
  norm = register_module("norm", std::make_shared<RmsNorm>(32));
  head = register_module("head", std::make_shared<Linear>(32, 128, false));
  if (tied) {
    head->tie_weight(embedding->weight);
  }
}

c10::IValue ChunkedHead::forward(nn::Values inputs) {
  const at::Tensor hidden = call(*norm, call(*body, call(*embedding, inputs[0].toTensor())));
  const bool stops = inputs.size() > 1 && inputs[1].toBool();
  return stops ? hidden : call(*head, hidden);
}

Composite100::Composite100() : nn::Module("Composite100") {
  linear = register_module("linear", std::make_shared<Linear>(100, 100));
  unit1 = register_module("unit1", make_linears({100, 100, 100, 100}));
  unit2 = register_module("unit2", make_linears({100, 100, 100, 100}));
  factor = register_parameter("factor", at::zeros({100, 100}));
}

c10::IValue Composite100::forward(nn::Values inputs) {
  return at::matmul(call(*unit2, call(*unit1, call(*linear, inputs[0].toTensor()))), factor);
}

at::Tensor random_input(at::IntArrayRef sizes, int step, int rank) {
  const auto number = static_cast<uint64_t>(1000 + 100 * step + rank);
  return at::randn(sizes, at::detail::createCPUGenerator(number));
}

at::Tensor random_tokens(at::IntArrayRef sizes, int64_t count, int step, int rank) {
  const auto number = static_cast<uint64_t>(1000 + 100 * step + rank);
  return at::randint(count, sizes, at::detail::createCPUGenerator(number), at::kLong);
}

}  // namespace fsdp2::checklist
