#include "include/fsdp2/shard.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "capi/argument.h"
#include "capi/dtype.h"
#include "capi/object.h"
#include "capi/shard_create.h"
#include "capi/sized_struct.h"
#include "capi/tensor.h"
#include "core/train/grad_norm.h"

namespace fsdp2::capi {

namespace {

constexpr fsdp2_shard_options kDefaults = FSDP2_SHARD_OPTIONS_INIT;

const fsdp::ShardedParam& parameter_at(ShardObject& shard, size_t index) {
  const auto& params = shard.root->parameters();
  FSDP2_CHECK(index < params.size(), Code::kInvalidArgument,
              "index: there are {} parameters, found {}", params.size(), index);
  return *params[index];
}

fsdp2_parameter_info parameter_info(const fsdp::ShardedParam& param) {
  const fsdp::ShardLayout& layout = param.layout();
  const auto n_dims = layout.global_shape.size();
  FSDP2_CHECK(n_dims <= FSDP2_MAX_DIMS, Code::kUnsupported, "{}: {} dims are more than {}",
              param.name(), n_dims, FSDP2_MAX_DIMS);
  fsdp2_parameter_info info{};
  info.dtype = dtype_number(param.dtype());
  info.compute_dtype = dtype_number(param.compute_dtype());
  info.requires_grad = param.requires_grad() ? 1 : 0;
  info.n_dims = static_cast<int32_t>(n_dims);
  info.shard_dim = layout.world == 1 ? -1 : layout.dim;
  info.has_grad = param.sharded().grad().defined() ? 1 : 0;
  info.n_names = static_cast<int32_t>(param.names().size());
  std::copy_n(layout.global_shape.begin(), n_dims, info.shape);
  std::copy_n(param.sharded().sizes().begin(), n_dims, info.local_shape);
  info.local_offset = layout.start;
  return info;
}

at::Tensor require_gradient(at::Tensor grad, const fsdp::ShardedParam& param) {
  FSDP2_CHECK(grad.defined(), Code::kNotFound, "{}: the parameter has no gradient", param.name());
  return grad.detach();
}

bool is_collective(int32_t which) {
  return which == FSDP2_PARAMETER_FULL || which == FSDP2_PARAMETER_FULL_GRAD;
}

fsdp2_tensor get_parameter(ShardObject& shard, size_t index, int32_t which) {
  const fsdp::ShardedParam& param = parameter_at(shard, index);
  switch (which) {
    case FSDP2_PARAMETER_LOCAL:
      return give_tensor(param.sharded().detach());
    case FSDP2_PARAMETER_LOCAL_GRAD:
      return give_tensor(require_gradient(param.sharded().grad(), param));
    case FSDP2_PARAMETER_FULL:
      return give_tensor(fsdp::full_parameter(*shard.root, param));
    case FSDP2_PARAMETER_FULL_GRAD:
      return give_tensor(require_gradient(fsdp::full_gradient(*shard.root, param), param));
    default:
      fail(Code::kInvalidArgument,
           "which: expected FSDP2_PARAMETER_LOCAL (0) to _FULL_GRAD (3), "
           "found {}",
           which);
  }
}

double clip_grad_norm(ShardObject& shard, double max_norm) {
  check_number(max_norm, 0.0, std::numeric_limits<double>::max(), "max_norm");
  const double norm = train::global_grad_norm(*shard.root);
  train::divide_gradients(*shard.root, train::clip_divisor(norm, max_norm));
  return norm;
}

fsdp2_shard_stats shard_stats(ShardObject& shard) {
  fsdp::Scheduler& tree = shard.root->tree();
  const fsdp::Stats& stats = tree.stats();
  const CommCounters now = shard.root->comm_counters();
  const CommCounters& before = shard.counters_at_reset;
  fsdp2_shard_stats out{};
  out.n_units = static_cast<int32_t>(tree.members().size());
  out.all_gathers = stats.all_gathers;
  out.reduce_scatters = stats.reduce_scatters;
  out.all_reduces = stats.all_reduces;
  out.all_gather_bytes = now.all_gather_bytes - before.all_gather_bytes;
  out.reduce_scatter_bytes = now.reduce_scatter_bytes - before.reduce_scatter_bytes;
  out.all_reduce_bytes = now.all_reduce_bytes - before.all_reduce_bytes;
  out.unsharded_bytes = stats.unsharded_bytes;
  out.peak_unsharded_bytes = stats.peak_unsharded_bytes;
  return out;
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_shard_options_init(fsdp2_shard_options* options, size_t struct_size) {
  return guard(__func__,
               [&](Call&) { capi::init_struct(options, struct_size, capi::kDefaults, "options"); });
}

fsdp2_status fsdp2_shard_create(fsdp2_module module, fsdp2_mesh mesh,
                                const fsdp2_shard_options* options, fsdp2_shard* out) {
  return guard(__func__,
               [&](Call& call) { out->id = capi::create_shard(call, module, mesh, options, out); });
}

fsdp2_status fsdp2_shard_destroy(fsdp2_shard shard) {
  return capi::destroy(__func__, capi::Kind::kShard, shard.id);
}

fsdp2_status fsdp2_shard_set_requires_gradient_sync(fsdp2_shard shard, int32_t flag) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    object->root->set_requires_gradient_sync(capi::read_flag(flag, "flag"));
  });
}

fsdp2_status fsdp2_shard_zero_grad(fsdp2_shard shard) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    object->root->zero_grad();
  });
}

fsdp2_status fsdp2_shard_clip_grad_norm(fsdp2_shard shard, double max_norm, double* out_norm) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);
    capi::check_not_null(out_norm, "out_norm");
    *out_norm = capi::clip_grad_norm(*object, max_norm);
  });
}

fsdp2_status fsdp2_shard_get_parameter_count(fsdp2_shard shard, size_t* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::check_not_null(out, "out");
    capi::enter(call, *object->module);
    *out = object->root->parameters().size();
  });
}

fsdp2_status fsdp2_shard_get_parameter_info(fsdp2_shard shard, size_t index,
                                            fsdp2_parameter_info* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::check_out_struct(out, "out");
    capi::enter(call, *object->module);
    capi::fill_struct(out, capi::parameter_info(capi::parameter_at(*object, index)));
  });
}

fsdp2_status fsdp2_shard_get_parameter_name(fsdp2_shard shard, size_t index, int32_t name,
                                            char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    const auto& names = capi::parameter_at(*object, index).names();
    capi::check_integer(name, 0, static_cast<int64_t>(names.size()) - 1, "name");
    capi::write_text(names[static_cast<size_t>(name)], buf, cap, needed);
  });
}

fsdp2_status fsdp2_shard_get_parameter(fsdp2_shard shard, size_t index, int32_t which,
                                       fsdp2_tensor* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    if (capi::is_collective(which)) {
      capi::enter_collective(call, *object->module);
    } else {
      capi::enter(call, *object->module);
    }
    capi::check_not_null(out, "out");
    *out = capi::get_parameter(*object, index, which);
  });
}

fsdp2_status fsdp2_shard_get_stats(fsdp2_shard shard, fsdp2_shard_stats* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::check_out_struct(out, "out");
    capi::enter(call, *object->module);
    capi::fill_struct(out, capi::shard_stats(*object));
  });
}

fsdp2_status fsdp2_shard_reset_stats(fsdp2_shard shard) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    object->root->tree().reset_stats();
    object->counters_at_reset = object->root->comm_counters();
  });
}

fsdp2_status fsdp2_shard_describe(fsdp2_shard shard, char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    capi::write_text(object->root->describe(), buf, cap, needed);
  });
}
