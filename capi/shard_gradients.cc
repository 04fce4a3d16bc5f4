// Gradients of a whole shard: norms, clipping, overflow, scale.
#include <limits>

#include "capi/argument.h"
#include "capi/object.h"
#include "core/train/grad_norm.h"
#include "include/fsdp2/shard.h"

namespace fsdp2::capi {

namespace {

double grad_norm(ShardObject& shard, double norm_type) {
  FSDP2_CHECK(norm_type > 0.0, Code::kInvalidArgument,
              "norm_type: expected a number > 0 or infinity, found {:g}", norm_type);
  return train::global_grad_norm(*shard.root, norm_type);
}

double clip_grad_norm(ShardObject& shard, double max_norm, double norm_type) {
  check_number(max_norm, 0.0, std::numeric_limits<double>::max(), "max_norm");
  const double norm = grad_norm(shard, norm_type);
  train::divide_gradients(*shard.root, train::clip_divisor(norm, max_norm));
  return norm;
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_shard_zero_grad(fsdp2_shard shard) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    object->root->zero_grad();
  });
}

fsdp2_status fsdp2_shard_get_grad_norm(fsdp2_shard shard, double norm_type, double* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);
    capi::check_not_null(out, "out");
    *out = capi::grad_norm(*object, norm_type);
  });
}

fsdp2_status fsdp2_shard_clip_grad_norm(fsdp2_shard shard, double max_norm, double norm_type,
                                        double* out_norm) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);
    capi::check_not_null(out_norm, "out_norm");
    *out_norm = capi::clip_grad_norm(*object, max_norm, norm_type);
  });
}

fsdp2_status fsdp2_shard_get_grad_overflow(fsdp2_shard shard, int32_t* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);
    capi::check_not_null(out, "out");
    *out = fsdp2::train::gradients_overflow(*object->root) ? 1 : 0;
  });
}

fsdp2_status fsdp2_shard_scale_grad(fsdp2_shard shard, double factor) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    constexpr double kMax = std::numeric_limits<double>::max();
    capi::check_number(factor, -kMax, kMax, "factor");
    capi::enter(call, *object->module);
    fsdp2::train::scale_gradients(*object->root, factor);
  });
}
