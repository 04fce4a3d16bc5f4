// The parameters of a shard, one by one.
#include <algorithm>
#include <utility>

#include "capi/argument.h"
#include "capi/dtype.h"
#include "capi/nouns/module/tensor.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/fsdp/parameter_values.h"
#include "core/fsdp/tree.h"
#include "include/fsdp2/shard.h"

namespace fsdp2::capi {

namespace {

const fsdp::ShardedParam& parameter_at(ShardObject& shard, size_t index) {
  const auto& params = shard.root->parameters();
  FSDP2_CHECK(index < params.size(), Code::kInvalidArgument,
              "index: there are {} parameters, found {}", params.size(), index);
  return *params[index];
}

size_t parameter_index(ShardObject& shard, const std::string& name) {
  const auto& params = shard.root->parameters();
  const auto found =
      std::find_if(params.begin(), params.end(), [&](const fsdp::ShardedParam* param) {
        return std::find(param->names().begin(), param->names().end(), name) !=
               param->names().end();
      });
  FSDP2_CHECK(found != params.end(), Code::kNotFound,
              "name: the shard has no parameter '{}' (ignored ones do not count)", name);
  return static_cast<size_t>(found - params.begin());
}

int32_t unit_of(ShardObject& shard, const fsdp::ShardedParam& param) {
  const auto units = shard.root->units();
  const auto found = std::find_if(units.begin(), units.end(), [&](const auto& unit) {
    if (unit->group() == nullptr) {
      return false;
    }
    const auto& params = unit->group()->params();
    return std::find(params.begin(), params.end(), &param) != params.end();
  });
  return static_cast<int32_t>(found - units.begin());
}

fsdp2_parameter_info parameter_info(ShardObject& shard, const fsdp::ShardedParam& param) {
  const fsdp::ShardLayout& layout = param.layout();
  const auto n_dims = layout.global_shape.size();
  FSDP2_CHECK(n_dims <= FSDP2_MAX_DIMS, Code::kUnsupported, "{}: {} dims are more than {}",
              param.name(), n_dims, FSDP2_MAX_DIMS);
  const Mesh& mesh = shard.root->tree().group_of(param).mesh();
  fsdp2_parameter_info info{};
  info.dtype = dtype_number(param.dtype());
  info.compute_dtype = dtype_number(param.compute_dtype());
  info.requires_grad = param.requires_grad() ? 1 : 0;
  info.n_dims = static_cast<int32_t>(n_dims);
  info.shard_dim = layout.world == 1 ? -1 : layout.dim;
  info.has_grad = param.has_values() && param.sharded().grad().defined() ? 1 : 0;
  info.n_names = static_cast<int32_t>(param.names().size());
  std::copy_n(layout.global_shape.begin(), n_dims, info.shape);
  std::copy_n(layout.local_shape().begin(), n_dims, info.local_shape);
  info.local_offset = layout.start;
  info.shard_ranks = layout.world;
  info.replica_ranks = mesh.ndim() == 2 ? static_cast<int32_t>(mesh.size(0)) : 1;
  info.unit = unit_of(shard, param);
  return info;
}

at::Tensor gradient_of(const fsdp::ShardedParam& param) {
  const at::Tensor grad = param.sharded().grad();
  FSDP2_CHECK(grad.defined(), Code::kNotFound, "{}: the parameter has no gradient", param.name());
  return grad.detach();
}

bool is_collective(int32_t which) {
  return which == FSDP2_PARAMETER_FULL || which == FSDP2_PARAMETER_FULL_GRAD;
}

// Whether a parameter has a gradient is settled before its ranks' parts are gathered.
fsdp2_tensor get_full(Call& call, ShardObject& shard, size_t index, int32_t which,
                      const fsdp2_tensor* out) {
  enter_collective(call, *shard.module);
  at::Tensor grad;
  check_on_all_ranks(call, *shard.module, [&] {
    check_not_null(out, "out");
    const fsdp::ShardedParam& param = parameter_at(shard, index);
    if (which == FSDP2_PARAMETER_FULL_GRAD) {
      grad = gradient_of(param);
    }
  });
  call.share_failure();
  const fsdp::ShardedParam& param = parameter_at(shard, index);
  return give_tensor(grad.defined() ? fsdp::full_value(*shard.root, param, grad)
                                    : fsdp::full_parameter(*shard.root, param));
}

fsdp2_tensor get_local(Call& call, ShardObject& shard, size_t index, int32_t which,
                       const fsdp2_tensor* out) {
  check_not_null(out, "out");
  enter(call, *shard.module);
  const fsdp::ShardedParam& param = parameter_at(shard, index);
  switch (which) {
    case FSDP2_PARAMETER_LOCAL:
      return give_tensor(param.sharded().detach());
    case FSDP2_PARAMETER_LOCAL_GRAD:
      return give_tensor(gradient_of(param));
    default:
      fail(Code::kInvalidArgument,
           "which: expected FSDP2_PARAMETER_LOCAL (0) to _FULL_GRAD (3), "
           "found {}",
           which);
  }
}

void cast_parameters(ShardObject& shard, int32_t dtype) {
  const auto cast_to = read_float_dtype_or_keep(dtype, "dtype");
  FSDP2_CHECK(cast_to.has_value(), Code::kInvalidArgument,
              "dtype: expected a floating dtype, found FSDP2_DTYPE_KEEP (0)");
  shard.root->cast_parameters(*cast_to);
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

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
    capi::fill_struct(out, capi::parameter_info(*object, capi::parameter_at(*object, index)));
  });
}

fsdp2_status fsdp2_shard_get_parameter_name(fsdp2_shard shard, size_t index, size_t name_index,
                                            char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    const auto& names = capi::parameter_at(*object, index).names();
    capi::check_count(name_index, 0, names.size() - 1, "name_index");
    capi::write_text(names[name_index], buf, cap, needed);
  });
}

fsdp2_status fsdp2_shard_get_parameter_index(fsdp2_shard shard, const char* name, size_t* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    const std::string text = capi::read_text(name, capi::kMaxName, "name");
    capi::check_not_null(out, "out");
    capi::enter(call, *object->module);
    *out = capi::parameter_index(*object, text);
  });
}

fsdp2_status fsdp2_shard_get_parameter(fsdp2_shard shard, size_t index, int32_t which,
                                       fsdp2_tensor* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    *out = capi::is_collective(which) ? capi::get_full(call, *object, index, which, out)
                                      : capi::get_local(call, *object, index, which, out);
  });
}

fsdp2_status fsdp2_shard_cast_parameters(fsdp2_shard shard, int32_t dtype) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);  // it may wait for a gather under way
    capi::cast_parameters(*object, dtype);
  });
}
