#include "core/nn/random/row_keys.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>

#include <mutex>

#include "core/base/error.h"
#include "core/nn/random/recorded_draws.h"

namespace fsdp2::nn {

namespace {

constexpr int kHashBits = 32;

}  // namespace

// The "lowbias32" of Chris Wellons. Products wrap.
at::Tensor hashed(const at::Tensor& x) {
  const auto fold = [&](int64_t bits) {
    const int64_t unsigned_bits = (int64_t{1} << (kHashBits - bits)) - 1;
    x.bitwise_xor_(x.bitwise_right_shift(bits).bitwise_and_(unsigned_bits));
  };
  fold(16);
  x.mul_(0x7feb352d);
  fold(15);
  x.mul_(static_cast<int32_t>(0x846ca68bU));
  fold(16);
  return x;
}

at::Tensor hashed_indices(int64_t count, const at::Tensor& like, int64_t first) {
  return hashed(at::arange(first, first + count, at::device(like.device()).dtype(at::kInt)));
}

at::Tensor hash_rows(const at::Tensor& batch) {
  FSDP2_CHECK(batch.dim() >= 1 && batch.numel() > 0, Code::kInvalidArgument,
              "dropout: expected rows of a batch, found a tensor of {} dims and {} elements",
              batch.dim(), batch.numel());
  const at::Tensor rows = batch.detach().reshape({batch.size(0), -1});
  const at::Tensor bits = rows.is_floating_point() ? rows.to(at::kFloat).contiguous().view(at::kInt)
                                                   : rows.to(at::kInt);
  const at::Tensor of_element = hashed(bits.bitwise_xor(hashed_indices(bits.size(1), bits)));
  return of_element.sum(1, /*keepdim=*/false, at::kInt);
}

int32_t draw_number(at::Generator& generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return static_cast<int32_t>(at::check_generator<at::CPUGeneratorImpl>(generator)->random());
}

at::Tensor draw_keys(at::Generator& generator, const at::Tensor& rows) {
  if (RecordedDraws* draws = RecordedDraws::of(generator)) {
    return hashed(rows.bitwise_xor(draws->next()));
  }
  FSDP2_CHECK(!is_recording(rows.device()), Code::kUnsupported,
              "dropout: a recorded step draws from a generator that is not the model's");
  return hashed(rows.bitwise_xor(draw_number(generator)));
}

}  // namespace fsdp2::nn
