#include "core/nn/kernels/adamw_loop.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

namespace fsdp2::nn::cpu_kernels {

namespace {

constexpr int64_t kMomentBlock = 512;    // elements, all of whose numbers stay in the first cache
constexpr int64_t kMomentGrain = 32768;  // elements that are worth a thread, as in ATen

// The numbers of a block. Loops always run over all of it: where the compiler makes one for what
// vectors leave over, that one may round otherwise.
struct MomentBlock {
  alignas(64) float param[kMomentBlock] = {};
  alignas(64) float grad[kMomentBlock] = {};
  alignas(64) float exp_avg[kMomentBlock] = {};
  alignas(64) float exp_avg_sq[kMomentBlock] = {};
  alignas(64) uint32_t random[kMomentBlock] = {};
  alignas(64) c10::BFloat16 narrow[kMomentBlock] = {};

  static void copy(const float* from, float* to, int64_t n) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
  }
  void widen(const c10::BFloat16* from, float* to, int64_t n) {
    std::memcpy(narrow, from, static_cast<size_t>(n) * sizeof(*from));
    simd::widen(narrow, to, kMomentBlock);
  }
  void write_narrow(c10::BFloat16* to, int64_t n) const {
    std::memcpy(to, narrow, static_cast<size_t>(n) * sizeof(*to));
  }
};

struct MomentShard {
  float* param;
  float* grad;
  c10::BFloat16* exp_avg;
  c10::BFloat16* exp_avg_sq;
};

// The random bits of the shard's elements from `begin` on.
void hash_elements(const ElementPlaces& places, simd::HashKeys keys, int64_t begin, int64_t n,
                   uint32_t* out) {
  for (int64_t done = 0; done < n;) {
    const int64_t run = (begin + done) / places.run;
    const int64_t within = (begin + done) % places.run;
    const int64_t count = std::min(n - done, places.run - within);
    const int64_t place = places.first + run * places.stride + within;
    simd::hash_places(keys, static_cast<uint64_t>(place), out + done, count);
    done += count;
  }
}

void update_block(const MomentShard& shard, const simd::AdamWNumbers& numbers, int64_t begin,
                  int64_t n, MomentBlock& block) {
  MomentBlock::copy(shard.param + begin, block.param, n);
  MomentBlock::copy(shard.grad + begin, block.grad, n);
  block.widen(shard.exp_avg + begin, block.exp_avg, n);
  block.widen(shard.exp_avg_sq + begin, block.exp_avg_sq, n);
  simd::adamw(numbers, block.param, block.grad, block.exp_avg, block.exp_avg_sq, kMomentBlock);
  MomentBlock::copy(block.param, shard.param + begin, n);
  if (numbers.divisor != 1) {
    MomentBlock::copy(block.grad, shard.grad + begin, n);
  }
  simd::narrow(block.exp_avg, block.narrow, kMomentBlock);
  block.write_narrow(shard.exp_avg + begin, n);
  simd::narrow_by_chance(block.exp_avg_sq, block.random, block.narrow, kMomentBlock);
  block.write_narrow(shard.exp_avg_sq + begin, n);
}

}  // namespace

void adamw_with_bf16_moments(const at::Tensor& param, const at::Tensor& grad,
                             const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                             const simd::AdamWNumbers& numbers, simd::HashKeys keys,
                             const ElementPlaces& places) {
  const MomentShard shard = {param.mutable_data_ptr<float>(), grad.mutable_data_ptr<float>(),
                             exp_avg.mutable_data_ptr<c10::BFloat16>(),
                             exp_avg_sq.mutable_data_ptr<c10::BFloat16>()};
  at::parallel_for(0, param.numel(), kMomentGrain, [&](int64_t begin, int64_t end) {
    MomentBlock block;
    for (int64_t i = begin; i < end; i += kMomentBlock) {
      const int64_t n = std::min(kMomentBlock, end - i);
      hash_elements(places, keys, i, n, block.random);
      update_block(shard, numbers, i, n, block);
    }
  });
}

}  // namespace fsdp2::nn::cpu_kernels
