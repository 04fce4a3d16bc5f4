// Gradients of a whole shard: norms, clipping, overflow, scale.
#include <limits>

#include "capi/argument.h"
#include "capi/object.h"
#include "core/train/optim/grad_norm.h"
#include "include/fsdp2/shard.h"

namespace fsdp2::capi {

namespace {

void check_norm_type(double norm_type) {
  FSDP2_CHECK(norm_type > 0.0, Code::kInvalidArgument,
              "norm_type: expected a number > 0 or infinity, found {:g}", norm_type);
}

double grad_norm(Call& call, ShardObject& shard, double norm_type, const double* out) {
  enter_collective(call, *shard.module);
  check_on_all_ranks(call, *shard.module, [&] {
    check_not_null(out, "out");
    check_norm_type(norm_type);
  });
  call.share_failure();
  return train::global_grad_norm(*shard.root, norm_type);
}

double clip_grad_norm(Call& call, ShardObject& shard, double max_norm, double norm_type,
                      const double* out_norm) {
  enter_collective(call, *shard.module);
  check_on_all_ranks(call, *shard.module, [&] {
    check_not_null(out_norm, "out_norm");
    check_number(max_norm, 0.0, std::numeric_limits<double>::max(), "max_norm");
    check_norm_type(norm_type);
  });
  call.share_failure();
  const double norm = train::global_grad_norm(*shard.root, norm_type);
  train::divide_gradients(*shard.root, train::clip_divisor(norm, max_norm));
  return norm;
}

bool gradients_overflow(Call& call, ShardObject& shard, const int32_t* out) {
  enter_collective(call, *shard.module);
  check_on_all_ranks(call, *shard.module, [&] { check_not_null(out, "out"); });
  call.share_failure();
  return train::gradients_overflow(*shard.root);
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
    *out = capi::grad_norm(call, *object, norm_type, out);
  });
}

fsdp2_status fsdp2_shard_clip_grad_norm(fsdp2_shard shard, double max_norm, double norm_type,
                                        double* out_norm) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    *out_norm = capi::clip_grad_norm(call, *object, max_norm, norm_type, out_norm);
  });
}

fsdp2_status fsdp2_shard_get_grad_overflow(fsdp2_shard shard, int32_t* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    *out = capi::gradients_overflow(call, *object, out) ? 1 : 0;
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
