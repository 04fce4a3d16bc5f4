#include "core/train/optim/bf16_moments.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/nn/kernels/adamw_loop.h"
#include "core/nn/kernels/simd_rows.h"
#include "core/nn/random/row_keys.h"

namespace fsdp2::train {

namespace {

using nn::cpu_kernels::ElementPlaces;

constexpr int64_t kSlice = 1 << 22;  // elements whose numbers in between have memory at a time
constexpr int kPlaceBits = 32;
constexpr auto kOfHighBits = static_cast<int32_t>(0x9e3779b9U);  // as hash_places

uint32_t low_bits(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t high_bits(uint64_t x) { return static_cast<uint32_t>(x >> kPlaceBits); }

nn::simd::HashKeys keys_of(uint64_t key, float step) {
  const uint32_t first = nn::simd::hash_of(static_cast<uint32_t>(step) ^ low_bits(key));
  return {first, nn::simd::hash_of(first + high_bits(key))};
}

nn::simd::AdamWNumbers numbers_of(const AdamWOptions& options, double lr, double divisor,
                                  double step) {
  const bool decoupled = options.decoupled_weight_decay;
  const double correction1 = 1 - std::pow(options.beta1, step);
  const double correction2 = 1 - std::pow(options.beta2, step);
  nn::simd::AdamWNumbers numbers{};
  numbers.divisor = static_cast<float>(divisor);
  numbers.coupled_decay = static_cast<float>(decoupled ? 0 : options.weight_decay);
  numbers.kept = static_cast<float>(decoupled ? 1 - lr * options.weight_decay : 1);
  numbers.beta1_rest = static_cast<float>(1 - options.beta1);
  numbers.beta2 = static_cast<float>(options.beta2);
  numbers.beta2_rest = static_cast<float>(1 - options.beta2);
  numbers.root_of_correction2 = static_cast<float>(std::sqrt(correction2));
  numbers.eps = static_cast<float>(options.eps);
  numbers.step_size = static_cast<float>(lr / correction1);
  return numbers;
}

// ---- by ATen's operators

// The keys where the step is counted, which the host does not wait for.
struct KeyTensors {
  at::Tensor first;
  at::Tensor second;
};

KeyTensors key_tensors(uint64_t key, const at::Tensor& step) {
  const at::Tensor first =
      nn::hashed(step.to(at::kInt).bitwise_xor(static_cast<int32_t>(low_bits(key))));
  return {first, nn::hashed(first + static_cast<int32_t>(high_bits(key)))};
}

at::Tensor random_bits(const KeyTensors& keys, const ElementPlaces& places, int64_t begin,
                       int64_t end) {
  const at::Tensor element =
      at::arange(begin, end, at::device(keys.first.device()).dtype(at::kLong));
  const at::Tensor run = element.div(places.run, "floor");
  const at::Tensor place = element + run * (places.stride - places.run) + places.first;
  const at::Tensor first = nn::hashed(place.to(at::kInt).bitwise_xor(keys.first));
  const at::Tensor high = place.bitwise_right_shift(kPlaceBits).to(at::kInt);
  return nn::hashed(first + keys.second + high * kOfHighBits);
}

// In fp32, with the 16 low bits 0.
at::Tensor rounded_by_chance(const at::Tensor& x, const at::Tensor& random) {
  const at::Tensor bits = x.view(at::kInt);
  const at::Tensor rounded = (bits + random.bitwise_and(0xffff)).bitwise_and(~0xffff);
  return at::where(at::isfinite(x), rounded, bits).view(at::kFloat);
}

struct Flat {
  at::Tensor param, grad, exp_avg, exp_avg_sq;

  Flat slice(int64_t begin, int64_t end) const {
    return {param.slice(0, begin, end), grad.slice(0, begin, end), exp_avg.slice(0, begin, end),
            exp_avg_sq.slice(0, begin, end)};
  }
};

void update_slice(const Flat& part, const AdamWOptions& options, double lr, const GradScale& scale,
                  const at::Tensor& step, const at::Tensor& random) {
  const bool decoupled = options.decoupled_weight_decay;
  const at::Tensor steps = step.to(at::kDouble);
  const at::Tensor step_size = (lr / (1 - at::pow(options.beta1, steps))).to(at::kFloat);
  const at::Tensor root2 = (1 - at::pow(options.beta2, steps)).sqrt_().to(at::kFloat);
  if (scale) {
    part.grad.div_(*scale);
  }
  const at::Tensor gradient = decoupled || options.weight_decay == 0
                                  ? part.grad
                                  : part.grad + part.param * options.weight_decay;
  at::Tensor exp_avg = part.exp_avg.to(at::kFloat);
  exp_avg.add_(gradient - exp_avg, 1 - options.beta1);
  at::Tensor exp_avg_sq = part.exp_avg_sq.to(at::kFloat).mul_(options.beta2);
  exp_avg_sq.add_(gradient * gradient, 1 - options.beta2);
  const at::Tensor size = (exp_avg_sq.sqrt() / root2).add_(options.eps);
  if (decoupled) {
    part.param.mul_(1 - lr * options.weight_decay);
  }
  part.param.sub_((exp_avg / size).mul_(step_size));
  part.exp_avg.copy_(exp_avg);
  part.exp_avg_sq.copy_(rounded_by_chance(exp_avg_sq, random));
}

void update_by_operators(const Flat& shard, const AdamWOptions& options, double lr,
                         const GradScale& scale, const at::Tensor& step,
                         const ChanceOfElements& chance) {
  const KeyTensors keys = key_tensors(chance.key, step);
  for (int64_t begin = 0; begin < shard.param.numel(); begin += kSlice) {
    const int64_t end = std::min(begin + kSlice, shard.param.numel());
    update_slice(shard.slice(begin, end), options, lr, scale, step,
                 random_bits(keys, chance.places, begin, end));
  }
}

// Calls update(shard, step, chance) for each of the lists' tensors; gradients may be strided.
template <typename Update>
void for_each_shard(FusedLists& lists, const GradScale& scale, const Update& update) {
  for (size_t i = 0; i < lists.params.size(); ++i) {
    const at::Tensor grad = lists.grads[i].contiguous();
    update(Flat{lists.params[i].view(-1), grad.view(-1), lists.first_state[i].view(-1),
                lists.second_state[i].view(-1)},
           lists.steps[i], lists.chances[i]);
    if (scale && !grad.is_same(lists.grads[i])) {
      lists.grads[i].copy_(grad);
    }
    // As operators that write in place do: autograd tells if it has saved what was there before.
    lists.params[i].unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace

ChanceOfElements chance_of(const fsdp::ShardedParam& param) {
  const fsdp::ShardLayout& layout = param.layout();
  ChanceOfElements chance;
  chance.key = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : param.name()) {
    chance.key = (chance.key ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  int64_t row = 1;  // elements of the dims behind the sharded one
  const auto dim = static_cast<size_t>(layout.dim);
  for (size_t i = dim + 1; i < layout.global_shape.size(); ++i) {
    row *= layout.global_shape[i];
  }
  chance.places = {layout.start * row, std::max<int64_t>(1, layout.length * row),
                   layout.global_shape[dim] * row};
  return chance;
}

void update_adamw_with_bf16_moments(FusedLists& lists, const AdamWOptions& options, double lr,
                                    const GradScale& scale) {
  if (!lists.params.front().is_cpu()) {
    update_adamw_by_operators(lists, options, lr, scale);
    return;
  }
  const double divisor = scale ? *scale->const_data_ptr<float>() : 1.0;
  for_each_shard(
      lists, scale, [&](const Flat& shard, const at::Tensor& step, const ChanceOfElements& chance) {
        const float steps = *step.const_data_ptr<float>();
        nn::cpu_kernels::adamw_with_bf16_moments(
            shard.param, shard.grad, shard.exp_avg, shard.exp_avg_sq,
            numbers_of(options, lr, divisor, steps), keys_of(chance.key, steps), chance.places);
      });
}

void update_adamw_by_operators(FusedLists& lists, const AdamWOptions& options, double lr,
                               const GradScale& scale) {
  for_each_shard(lists, scale,
                 [&](const Flat& shard, const at::Tensor& step, const ChanceOfElements& chance) {
                   update_by_operators(shard, options, lr, scale, step, chance);
                 });
}

}  // namespace fsdp2::train
