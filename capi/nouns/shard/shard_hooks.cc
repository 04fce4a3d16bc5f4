// Functions of the caller inside a shard's own work.
#include <unordered_map>
#include <utility>

#include "capi/argument.h"
#include "capi/callback.h"
#include "capi/dtype.h"
#include "capi/nouns/module/module_path.h"
#include "capi/nouns/module/tensor.h"
#include "capi/release.h"
#include "core/fsdp/tree.h"
#include "include/fsdp2/hook.h"

namespace fsdp2::capi {

namespace {

// What a call takes over if it succeeds.
std::shared_ptr<UserData> hold(bool has_fn, void* user_data, fsdp2_release_fn release) {
  FSDP2_CHECK(has_fn || (user_data == nullptr && release == nullptr), Code::kNullArgument,
              "fn is NULL, but user_data or release is not");
  return std::make_shared<UserData>(user_data);
}

// Which parameter a callback is about, as unit.h and shard.h count.
struct Indices {
  int32_t unit;
  int32_t parameter;
};
using IndicesByParam = std::unordered_map<const fsdp::ShardedParam*, Indices>;

std::shared_ptr<const IndicesByParam> indices_in_tree_of(fsdp::Unit& unit) {
  const auto indices = std::make_shared<IndicesByParam>();
  int32_t index = 0;
  for (const fsdp::ShardedParam* param : unit.parameters()) {
    (*indices)[param].parameter = index++;
  }
  for (const auto& each : unit.units()) {
    if (each->group() != nullptr) {
      for (const fsdp::ShardedParam* param : each->group()->params()) {
        (*indices)[param].unit = static_cast<int32_t>(each->index());
      }
    }
  }
  return indices;
}

void set_all_reduce_hook(fsdp::Unit& unit, fsdp2_all_reduce_hook_fn fn, void* user_data,
                         fsdp2_release_fn release) {
  const auto held = hold(fn != nullptr, user_data, release);
  std::function<void(const at::Tensor&)> hook;
  if (fn != nullptr) {
    hook = [fn, held, title = unit_title(unit), name = unit.name(),
            index = static_cast<int32_t>(unit.index())](const at::Tensor& flat) {
      const LentTensor gradients(flat);
      const fsdp2_all_reduce_info info{sizeof(fsdp2_all_reduce_info), index, name.c_str()};
      call_back(
          "all-reduce hook of " + title,
          [&] { return fn(&info, gradients.handle(), held->data()); }, Nested::kCollectives);
    };
  }
  unit.set_all_reduce_hook(std::move(hook));
  held->release_by(release);
}

std::vector<std::shared_ptr<fsdp::Unit>> units_at(const std::shared_ptr<fsdp::Unit>& unit,
                                                  bool recurse) {
  if (!recurse) {
    return {unit};
  }
  std::vector<std::shared_ptr<fsdp::Unit>> units;
  for (const nn::Module* module : unit->modules()) {
    for (const fsdp::Tree::Found& found : fsdp::Tree::units_below(*module)) {
      units.push_back(found.unit);
    }
  }
  return units;
}

// Points to the parameter's own name, as does gather_info.
fsdp2_gradient_info gradient_info(const fsdp::ShardedParam& param, const Indices& indices) {
  fsdp2_gradient_info info{};
  info.struct_size = sizeof(info);
  info.unit_index = indices.unit;
  info.parameter_index = indices.parameter;
  info.parameter = param.name().c_str();
  return info;
}

void set_gradient_ready(const std::shared_ptr<fsdp::Unit>& unit, bool recurse,
                        fsdp2_gradient_ready_fn fn, void* user_data, fsdp2_release_fn release) {
  const auto held = hold(fn != nullptr, user_data, release);
  std::function<void(fsdp::ShardedParam&)> callback;
  if (fn != nullptr) {
    callback = [fn, held, indices = indices_in_tree_of(*unit)](fsdp::ShardedParam& param) {
      const LentTensor gradient(param.sharded().grad().detach());
      const fsdp2_gradient_info info = gradient_info(param, indices->at(&param));
      call_back("gradient-ready of parameter " + param.name(),
                [&] { return fn(&info, gradient.handle(), held->data()); });
    };
  }
  for (const auto& each : units_at(unit, recurse)) {
    each->set_on_sharded_grad(callback);
  }
  held->release_by(release);
}

struct AllGatherFunctions {
  fsdp2_pre_all_gather_fn pre;
  fsdp2_post_all_gather_fn post;
  std::shared_ptr<UserData> held;
  std::shared_ptr<const IndicesByParam> indices;
};

fsdp2_gather_info gather_info(const fsdp::ShardedParam& param, const Indices& indices) {
  fsdp2_gather_info info{};
  info.struct_size = sizeof(info);
  info.compute_dtype = dtype_number(param.compute_dtype());
  info.shard_rank = param.layout().rank;
  info.shard_ranks = param.layout().world;
  info.unit_index = indices.unit;
  info.parameter_index = indices.parameter;
  info.parameter = param.name().c_str();
  return info;
}

at::Tensor pre_all_gather(const AllGatherFunctions& functions, const fsdp::ShardedParam& param,
                          const at::Tensor& chunk) {
  const LentTensor lent(chunk.detach());
  fsdp2_tensor out{};
  const std::string what = "pre-all-gather of parameter " + param.name();
  const fsdp2_gather_info info = gather_info(param, functions.indices->at(&param));
  call_back(what,
            [&] { return functions.pre(&info, lent.handle(), &out, functions.held->data()); });
  const auto take_out = [&] {
    at::Tensor piece = pin(out)->tensor.detach();
    if (out.id != lent.handle().id) {
      HandleTable::global().remove(out.id, Kind::kTensor);
    }
    return piece;
  };
  return in_context(what + ": out", take_out, Code::kCallback);
}

void post_all_gather(const AllGatherFunctions& functions, const fsdp::ShardedParam& param,
                     const at::Tensor& pieces, const at::Tensor& chunks) {
  const LentTensor from(pieces.detach());
  const LentTensor to(chunks.detach());
  const fsdp2_gather_info info = gather_info(param, functions.indices->at(&param));
  call_back("post-all-gather of parameter " + param.name(), [&] {
    return functions.post(&info, from.handle(), to.handle(), functions.held->data());
  });
}

void set_all_gather_extension(fsdp::Unit& unit, fsdp2_pre_all_gather_fn pre,
                              fsdp2_post_all_gather_fn post, void* user_data,
                              fsdp2_release_fn release) {
  FSDP2_CHECK((pre == nullptr) == (post == nullptr), Code::kNullArgument,
              "pre and post: expected both or neither, found one of them NULL");
  const auto held = hold(pre != nullptr, user_data, release);
  fsdp::AllGatherExtension extension;
  if (pre != nullptr) {
    const AllGatherFunctions functions{pre, post, held, indices_in_tree_of(unit)};
    extension.pre_all_gather = [functions](const fsdp::ShardedParam& param, const at::Tensor& chunk,
                                           const Mesh& /*mesh*/) {
      return pre_all_gather(functions, param, chunk);
    };
    extension.post_all_gather = [functions](const fsdp::ShardedParam& param,
                                            const at::Tensor& pieces, const at::Tensor& out) {
      post_all_gather(functions, param, pieces, out);
    };
  }
  unit.set_all_gather_extension(std::move(extension));
  held->release_by(release);
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_shard_set_all_reduce_hook(fsdp2_shard shard, const char* unit,
                                             fsdp2_all_reduce_hook_fn fn, void* user_data,
                                             fsdp2_release_fn release) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    const auto found = capi::find_unit(object->module->module, unit, "unit");
    capi::set_all_reduce_hook(*found, fn, user_data, release);
  });
}

fsdp2_status fsdp2_shard_set_gradient_ready(fsdp2_shard shard, const char* unit, int32_t recurse,
                                            fsdp2_gradient_ready_fn fn, void* user_data,
                                            fsdp2_release_fn release) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    const bool below = capi::read_flag(recurse, "recurse");
    const auto found = capi::find_unit(object->module->module, unit, "unit");
    capi::set_gradient_ready(found, below, fn, user_data, release);
  });
}

fsdp2_status fsdp2_shard_set_all_gather_extension(fsdp2_shard shard, const char* unit,
                                                  fsdp2_pre_all_gather_fn pre,
                                                  fsdp2_post_all_gather_fn post, void* user_data,
                                                  fsdp2_release_fn release) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    const auto found = capi::find_unit(object->module->module, unit, "unit");
    capi::set_all_gather_extension(*found, pre, post, user_data, release);
  });
}
