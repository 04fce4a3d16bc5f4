#include "core/train/step/generate.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace fsdp2::train {

void check_generation(const models::LanguageModel& model, const std::vector<int64_t>& prompt,
                      const GenerateOptions& options) {
  FSDP2_CHECK(!prompt.empty(), Code::kInvalidArgument,
              "generation needs a prompt of at least one token");
  FSDP2_CHECK(options.max_new_tokens >= 0, Code::kInvalidArgument,
              "max_new_tokens: expected >= 0, got {}", options.max_new_tokens);
  FSDP2_CHECK(options.top_k >= 0 && options.top_k <= model.vocab_size(), Code::kInvalidArgument,
              "top_k: expected 0 to {} (the vocabulary), got {}", model.vocab_size(),
              options.top_k);
  FSDP2_CHECK(std::isfinite(options.temperature) && options.temperature >= 0.0,
              Code::kInvalidArgument, "temperature: expected a finite number >= 0, got {}",
              options.temperature);
}

namespace {

int64_t sample(at::Tensor logits, const GenerateOptions& options, const at::Generator& generator) {
  if (options.temperature == 0.0) {
    return logits.argmax().item<int64_t>();
  }
  logits = logits / options.temperature;
  if (options.top_k > 0) {
    const at::Tensor lowest_kept = std::get<0>(at::topk(logits, options.top_k)).min();
    logits = logits.masked_fill(logits < lowest_kept, -INFINITY);
  }
  return at::multinomial(at::softmax(logits, -1), 1, false, generator).item<int64_t>();
}

}  // namespace

std::vector<int64_t> generate(nn::Module& module, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options) {
  const models::LanguageModel& model = models::language_model(module, "generation");
  check_generation(model, prompt, options);
  const at::NoGradGuard no_grad;
  const at::Generator generator = at::detail::createCPUGenerator(options.seed);
  std::vector<int64_t> tokens = prompt;
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    const auto total = static_cast<int64_t>(tokens.size());
    const int64_t length = std::min(total, model.max_positions());
    const at::Tensor window = at::from_blob(tokens.data() + (total - length), {1, length},
                                            at::device(at::kCPU).dtype(at::kLong))
                                  .clone();
    const at::Tensor logits = module(window);
    tokens.push_back(sample(logits[0][length - 1].to(at::kCPU, at::kFloat), options, generator));
  }
  return {tokens.begin() + static_cast<int64_t>(prompt.size()), tokens.end()};
}

}  // namespace fsdp2::train
