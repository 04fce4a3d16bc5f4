#include "core/fsdp/unit.h"

#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/fsdp/sequence_group.h"

namespace fsdp2::fsdp {

void UnshardHandle::wait() {
  if (unit_) {
    std::exchange(unit_, nullptr)->unshard();
  }
}

Unit::Unit(std::vector<nn::Module*> modules, std::shared_ptr<Mesh> mesh, const Policy& policy,
           std::shared_ptr<ParamGroup> group)
    : modules_(std::move(modules)),
      mesh_(std::move(mesh)),
      policy_(policy),
      group_(std::move(group)) {}

std::shared_ptr<Unit> find_unit(const nn::Module& module) {
  for (const auto& hooks : module.hooks()) {
    if (auto unit = std::dynamic_pointer_cast<Unit>(hooks)) {
      return unit;
    }
  }
  return nullptr;
}

// ---- the tree

Tree& Unit::tree() {
  if (!tree_) {
    Tree::make(*this);
  }
  return *tree_;
}

void Unit::enter_tree(std::shared_ptr<Tree> tree, size_t index) {
  tree_ = std::move(tree);
  index_ = index;
}

CommCounters Unit::comm_counters() {
  CommCounters counters = tree().comm_counters();
  if (const auto sequences = sequence_group_of(*modules_.front())) {
    counters.all_to_alls += sequences->counters().all_to_alls;
    counters.all_to_all_bytes += sequences->counters().all_to_all_bytes;
  }
  return counters;
}

const std::string& Unit::name() const {
  static const std::string unknown;
  return tree_ ? tree_->name(index_) : unknown;
}

// ---- by hand

UnshardHandle Unit::unshard(bool async_op) {
  if (group_ && tree_) {
    Scheduler& scheduler = tree_->scheduler();
    async_op ? scheduler.start_unshard(member()) : scheduler.unshard(member());
  } else if (group_) {
    group_->start_unshard();
    if (!async_op) {
      group_->wait_unshard();
    }
  }
  return UnshardHandle(async_op ? shared_from_this() : nullptr);
}

void Unit::reshard() {
  if (group_ && tree_) {
    tree_->scheduler().reshard(member());
  } else if (group_) {
    group_->reshard();
  }
}

void Unit::reset() {
  if (tree_) {
    tree_->scheduler().reset();
  } else if (group_) {
    group_->abandon();
  }
}

// ---- settings

void Unit::each_setting(bool recurse, const std::function<void(GroupSettings&)>& set) {
  if (!recurse) {
    if (group_) {
      set(group_->settings());
    }
    return;
  }
  for (const nn::Module* module : modules_) {
    for (const Tree::Found& found : Tree::units_below(*module)) {
      if (found.unit->group_) {
        set(found.unit->group_->settings());
      }
    }
  }
}

void Unit::set_requires_gradient_sync(bool flag, bool recurse) {
  each_setting(recurse, [&](GroupSettings& settings) {
    settings.requires_gradient_sync = flag;
    settings.requires_all_reduce = flag;
  });
}

void Unit::set_requires_all_reduce(bool flag, bool recurse) {
  each_setting(recurse, [&](GroupSettings& settings) { settings.requires_all_reduce = flag; });
}

void Unit::set_reshard_after_forward(std::optional<bool> flag, bool recurse) {
  each_setting(recurse, [&](GroupSettings& settings) { settings.reshard_after_forward = flag; });
}

void Unit::set_reshard_after_backward(bool flag, bool recurse) {
  each_setting(recurse, [&](GroupSettings& settings) { settings.reshard_after_backward = flag; });
}

void Unit::set_reduce_unused_parameters(bool flag, bool recurse) {
  each_setting(recurse, [&](GroupSettings& settings) { settings.reduce_unused_parameters = flag; });
}

void Unit::set_unshard_in_backward(bool flag) {
  if (!flag) {
    nn::install_saved_tensor_hooks();  // for the guard
  }
  each_setting(false, [&](GroupSettings& settings) { settings.unshard_in_backward = flag; });
}

void Unit::set_force_sum_reduction_for_comms(bool flag) {
  each_setting(false, [&](GroupSettings& settings) { settings.force_sum_reduction = flag; });
}

void Unit::set_allocate_memory_from_process_group_for_comm(bool flag) {
  if (flag) {
    check_groups_give_memory();
  }
  each_setting(
      false, [&](GroupSettings& settings) { settings.allocate_memory_from_process_group = flag; });
}

void Unit::check_groups_give_memory() const {
  FSDP2_CHECK(in_tree(), Code::kWrongState,
              "allocate_memory_from_process_group: expected a unit whose root has been used, so "
              "that its groups are connected");
  if (group_) {
    group_->check_groups_give_memory(name());
  }
}

void Unit::set_gradient_divide_factor(std::optional<double> factor) {
  FSDP2_CHECK(!factor || (std::isfinite(*factor) && *factor > 0), Code::kInvalidArgument,
              "gradient divide factor: expected a positive number, found {}", *factor);
  each_setting(false, [&](GroupSettings& settings) { settings.gradient_divide_factor = factor; });
}

void Unit::set_all_reduce_hook(std::function<void(const at::Tensor& flat)> hook) {
  each_setting(false, [&](GroupSettings& settings) { settings.all_reduce_hook = std::move(hook); });
}

void Unit::set_on_sharded_grad(std::function<void(ShardedParam& param)> callback) {
  each_setting(false,
               [&](GroupSettings& settings) { settings.on_sharded_grad = std::move(callback); });
}

void Unit::set_all_gather_extension(AllGatherExtension extension) {
  FSDP2_CHECK(
      static_cast<bool>(extension.pre_all_gather) == static_cast<bool>(extension.post_all_gather),
      Code::kInvalidArgument,
      "all-gather extension: expected both pre_all_gather and post_all_gather, or neither");
  std::shared_ptr<const AllGatherExtension> shared;
  if (extension.pre_all_gather) {
    shared = std::make_shared<const AllGatherExtension>(std::move(extension));
  }
  each_setting(false, [&](GroupSettings& settings) { settings.all_gather_extension = shared; });
}

std::vector<std::weak_ptr<ParamGroup>> Unit::groups_of(
    const std::vector<std::shared_ptr<Unit>>& units) {
  std::vector<std::weak_ptr<ParamGroup>> groups;
  for (const auto& unit : units) {
    FSDP2_CHECK(unit != nullptr, Code::kInvalidArgument,
                "prefetch: expected modules that fully_shard was applied to, found one that is not "
                "sharded");
    if (unit->group_) {
      groups.push_back(unit->group_);
    }
  }
  return groups;
}

void Unit::set_modules_to_forward_prefetch(const std::vector<std::shared_ptr<Unit>>& units) {
  each_setting(false,
               [&](GroupSettings& settings) { settings.forward_prefetch = groups_of(units); });
}

void Unit::set_modules_to_backward_prefetch(const std::vector<std::shared_ptr<Unit>>& units) {
  each_setting(false,
               [&](GroupSettings& settings) { settings.backward_prefetch = groups_of(units); });
}

}  // namespace fsdp2::fsdp
