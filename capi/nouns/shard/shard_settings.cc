// What may be changed about the units of a shard, and what is done with them by hand.
#include "capi/argument.h"
#include "capi/nouns/module/module_path.h"
#include "capi/object.h"
#include "include/fsdp2/unit.h"

namespace fsdp2::capi {

namespace {

// Set: a method of Unit that takes the flag and whether to recurse.
template <typename Set>
fsdp2_status set_flag(const char* function, fsdp2_shard shard, const char* unit, int32_t flag,
                      int32_t recurse, Set set) {
  return guard(function, [&](Call& call) {
    const auto object = pin(shard);
    enter(call, *object->module);
    const bool on = read_flag(flag, "flag");
    const bool below = read_flag(recurse, "recurse");
    (*find_unit(object->module->module, unit, "unit").*set)(on, below);
  });
}

fsdp2_status set_own_flag(const char* function, fsdp2_shard shard, const char* unit, int32_t flag,
                          void (fsdp::Unit::*set)(bool flag)) {
  return guard(function, [&](Call& call) {
    const auto object = pin(shard);
    enter(call, *object->module);
    const bool on = read_flag(flag, "flag");
    (*find_unit(object->module->module, unit, "unit").*set)(on);
  });
}

using Units = std::vector<std::shared_ptr<fsdp::Unit>>;

fsdp2_status set_prefetch(const char* function, fsdp2_shard shard, const char* unit,
                          const char* const* units, size_t n_units,
                          void (fsdp::Unit::*set)(const Units& units)) {
  return guard(function, [&](Call& call) {
    const auto object = pin(shard);
    enter(call, *object->module);
    const auto& root = object->module->module;
    const Units ahead = find_units(root, units, n_units, "units");
    (*find_unit(root, unit, "unit").*set)(ahead);
  });
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
using fsdp2::fsdp::Unit;
namespace capi = fsdp2::capi;

// ---- settings

fsdp2_status fsdp2_shard_set_requires_gradient_sync(fsdp2_shard shard, const char* unit,
                                                    int32_t flag, int32_t recurse) {
  return capi::set_flag(__func__, shard, unit, flag, recurse, &Unit::set_requires_gradient_sync);
}

fsdp2_status fsdp2_shard_set_requires_all_reduce(fsdp2_shard shard, const char* unit, int32_t flag,
                                                 int32_t recurse) {
  return capi::set_flag(__func__, shard, unit, flag, recurse, &Unit::set_requires_all_reduce);
}

fsdp2_status fsdp2_shard_set_is_last_backward(fsdp2_shard shard, int32_t flag) {
  return capi::set_own_flag(__func__, shard, nullptr, flag, &Unit::set_is_last_backward);
}

fsdp2_status fsdp2_shard_set_reshard_after_forward(fsdp2_shard shard, const char* unit,
                                                   int32_t flag, int32_t recurse) {
  return capi::set_flag(__func__, shard, unit, flag, recurse, &Unit::set_reshard_after_forward);
}

fsdp2_status fsdp2_shard_set_reshard_after_backward(fsdp2_shard shard, const char* unit,
                                                    int32_t flag, int32_t recurse) {
  return capi::set_flag(__func__, shard, unit, flag, recurse, &Unit::set_reshard_after_backward);
}

fsdp2_status fsdp2_shard_set_unshard_in_backward(fsdp2_shard shard, const char* unit,
                                                 int32_t flag) {
  return capi::set_own_flag(__func__, shard, unit, flag, &Unit::set_unshard_in_backward);
}

fsdp2_status fsdp2_shard_set_reduce_unused_parameters(fsdp2_shard shard, const char* unit,
                                                      int32_t flag, int32_t recurse) {
  return capi::set_flag(__func__, shard, unit, flag, recurse, &Unit::set_reduce_unused_parameters);
}

fsdp2_status fsdp2_shard_set_gradient_divide_factor(fsdp2_shard shard, const char* unit,
                                                    double factor) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    capi::find_unit(object->module->module, unit, "unit")->set_gradient_divide_factor(factor);
  });
}

fsdp2_status fsdp2_shard_set_force_sum_reduction(fsdp2_shard shard, const char* unit,
                                                 int32_t flag) {
  return capi::set_own_flag(__func__, shard, unit, flag, &Unit::set_force_sum_reduction_for_comms);
}

fsdp2_status fsdp2_shard_set_allocate_memory_from_process_group(fsdp2_shard shard, const char* unit,
                                                                int32_t flag) {
  return capi::set_own_flag(__func__, shard, unit, flag,
                            &Unit::set_allocate_memory_from_process_group_for_comm);
}

fsdp2_status fsdp2_shard_set_forward_prefetch(fsdp2_shard shard, const char* unit,
                                              const char* const* units, size_t n_units) {
  return capi::set_prefetch(__func__, shard, unit, units, n_units,
                            &Unit::set_modules_to_forward_prefetch);
}

fsdp2_status fsdp2_shard_set_backward_prefetch(fsdp2_shard shard, const char* unit,
                                               const char* const* units, size_t n_units) {
  return capi::set_prefetch(__func__, shard, unit, units, n_units,
                            &Unit::set_modules_to_backward_prefetch);
}

// ---- by hand

fsdp2_status fsdp2_shard_unshard(fsdp2_shard shard, const char* unit, int32_t async_op) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);
    const bool async = capi::read_flag(async_op, "async_op");
    const auto found = capi::find_unit(object->module->module, unit, "unit");
    call.share_failure();
    found->unshard(async);
  });
}

fsdp2_status fsdp2_shard_wait_unshard(fsdp2_shard shard, const char* unit) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);
    const auto found = capi::find_unit(object->module->module, unit, "unit");
    call.share_failure();
    found->unshard();
  });
}

fsdp2_status fsdp2_shard_reshard(fsdp2_shard shard, const char* unit) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);  // it may wait for a gather under way
    capi::find_unit(object->module->module, unit, "unit")->reshard();
  });
}

fsdp2_status fsdp2_shard_finalize_backward(fsdp2_shard shard) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);
    call.share_failure();
    object->root->finalize_backward();
  });
}

fsdp2_status fsdp2_shard_reset(fsdp2_shard shard) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    object->root->reset();
  });
}

fsdp2_status fsdp2_shard_release_buffers(fsdp2_shard shard) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    object->root->scheduler().release_buffers();
  });
}
