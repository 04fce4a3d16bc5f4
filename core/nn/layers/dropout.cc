#include "core/nn/layers/dropout.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/nn/random/row_keys.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kKeyBits = 32;

at::Tensor masked(const at::Tensor& x, const at::Tensor& keys, double probability, int64_t part) {
  const int64_t of_row = x.numel() / x.size(0);
  FSDP2_CHECK(of_row <= std::numeric_limits<int32_t>::max() / (part + 1), Code::kUnsupported,
              "dropout: rows of {} elements are too long", of_row * (part + 1));
  const at::Tensor number =
      hashed(hashed_indices(of_row, x, part * of_row).unsqueeze(0).bitwise_xor(keys.unsqueeze(1)));
  const double numbers = std::ldexp(1.0, kKeyBits);
  const auto first_kept =
      static_cast<int64_t>(std::floor(probability * numbers)) - (int64_t{1} << (kKeyBits - 1));
  return x.mul(number.ge(first_kept).view(x.sizes())).div_(1 - probability);
}

// The gradient goes through the same mask.
struct Masking : torch::autograd::Function<Masking> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& keys,
                            double probability, int64_t part) {
    context->save_for_backward({keys});
    context->saved_data["probability"] = probability;
    context->saved_data["part"] = part;
    return masked(x, keys, probability, part);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const double probability = context->saved_data["probability"].toDouble();
    const int64_t part = context->saved_data["part"].toInt();
    return {masked(gradients[0], context->get_saved_variables()[0], probability, part),
            at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor draw_row_keys(at::Generator& generator, const at::Tensor& tokens) {
  return draw_keys(generator, hash_rows(tokens));
}

at::Tensor keys_for(const at::Tensor& keys, int64_t use) {
  // A number far from the indices of elements, which are hashed as well.
  constexpr int32_t kFar = 0x3c6ef372;
  return keys.defined() ? hashed(keys.bitwise_xor(static_cast<int32_t>(use) + kFar)) : keys;
}

at::Tensor with_dropout(const at::Tensor& x, const at::Tensor& keys, double probability,
                        int64_t part) {
  FSDP2_CHECK(probability >= 0 && probability < 1, Code::kInvalidArgument,
              "dropout: expected a probability from 0 to below 1, got {}", probability);
  if (!keys.defined() || probability == 0) {
    return x;
  }
  FSDP2_CHECK(x.dim() >= 1 && x.numel() > 0 && keys.dim() == 1 && keys.size(0) == x.size(0) &&
                  keys.scalar_type() == at::kInt,
              Code::kInvalidArgument, "dropout: expected one key for each row of x, got {} for {}",
              keys.numel(), x.dim() > 0 ? x.size(0) : 0);
  return Masking::apply(x, keys, probability, part);
}

}  // namespace fsdp2::nn
