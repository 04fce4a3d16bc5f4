#include "core/train/infer/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"

namespace fsdp2::train {

namespace {

// The finaliser of splitmix64: neighbouring rows and seeds begin far from each other.
uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

uint64_t seed_of_row(uint64_t seed, int64_t row) {
  return mixed(mixed(seed) + static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15U);
}

at::Tensor keep_top_k(const at::Tensor& logits, int64_t top_k) {
  const at::Tensor lowest_kept = std::get<0>(at::topk(logits, top_k)).min();
  return logits.masked_fill(logits < lowest_kept, -std::numeric_limits<double>::infinity());
}

// A token stays while those more likely do not make up top_p; so the most likely one always does.
at::Tensor keep_top_p(const at::Tensor& probabilities, double top_p) {
  const auto [sorted, order] = at::sort(probabilities, 0, /*descending=*/true);
  const at::Tensor before = sorted.cumsum(0) - sorted;
  // A top_p below fp32's numbers would be 0 where they are compared.
  const double least = std::max(top_p, double{std::numeric_limits<float>::min()});
  return at::zeros_like(probabilities)
      .scatter_(0, order, sorted.masked_fill(before.ge(least), 0.0));
}

}  // namespace

void check_sampler(const SamplerOptions& options, int64_t vocab_size) {
  FSDP2_CHECK(options.top_k >= 0 && options.top_k <= vocab_size, Code::kInvalidArgument,
              "top_k: expected 0 to {} (the vocabulary), got {}", vocab_size, options.top_k);
  FSDP2_CHECK(options.top_p >= 0.0 && options.top_p <= 1.0, Code::kInvalidArgument,
              "top_p: expected 0 to 1, got {}", options.top_p);
  FSDP2_CHECK(std::isfinite(options.temperature) && options.temperature >= 0.0,
              Code::kInvalidArgument, "temperature: expected a finite number >= 0, got {}",
              options.temperature);
}

Sampler::Sampler(const SamplerOptions& options, int64_t row)
    : options_(options),
      generator_(at::detail::createCPUGenerator(seed_of_row(options.seed, row))) {}

int64_t Sampler::next(const at::Tensor& logits) {
  if (options_.temperature == 0.0) {
    return logits.argmax().item<int64_t>();
  }
  // None is above 0, and in fp64, so that no temperature makes them all infinite.
  at::Tensor scores = (logits - logits.max()).to(at::kDouble) / options_.temperature;
  if (options_.top_k > 0) {
    scores = keep_top_k(scores, options_.top_k);
  }
  at::Tensor probabilities = at::softmax(scores, -1, at::kFloat);
  if (options_.top_p > 0.0 && options_.top_p < 1.0) {
    probabilities = keep_top_p(probabilities, options_.top_p);
  }
  return at::multinomial(probabilities, 1, false, generator_).item<int64_t>();
}

}  // namespace fsdp2::train
