#include "core/fsdp/unit.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/comm/agreement.h"
#include "core/comm/mesh_numbers.h"
#include "core/fsdp/parameter_values.h"
#include "core/fsdp/phase.h"
#include "core/fsdp/sequence_group.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/nn/value_map.h"

namespace fsdp2::fsdp {

namespace {

at::Tensor cast_floating(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.is_floating_point() ? tensor.to(dtype) : tensor;
}

// The host goes on; what reads pageable memory has read it by then.
at::Tensor moved_from_host(const at::Tensor& tensor, at::Device device) {
  return tensor.is_cpu() ? tensor.to(device, /*non_blocking=*/true) : tensor;
}

// What the host reads stays as it is, and where it is.
void change_inputs(const nn::Module& module, nn::Values& inputs,
                   const std::function<at::Tensor(const at::Tensor&)>& change) {
  for (size_t place = 0; place < inputs.size(); ++place) {
    inputs[place] = nn::map_tensors(inputs[place], [&](const at::Tensor& input) {
      return module.is_read_by_host(place, input) ? input : change(input);
    });
  }
}

// A hook on a view is lost when the view is changed in place, and one on a leaf outlives the graph.
// Behind this, the former raises and the latter goes with the graph.
struct Identity : torch::autograd::Function<Identity> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/,
                            const at::Tensor& input) {
    return input;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 torch::autograd::variable_list gradients) {
    return gradients;
  }
};

constexpr const char* kForward = "the first forward";

}  // namespace

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

// ---- forward and backward

void Unit::pre_forward(nn::Module& module, nn::Values& inputs) {
  Scheduler& scheduler = this->scheduler();
  if (is_root() && !mesh_->device().is_cpu()) {
    const Phase phase("FSDP::inputs_to_device");
    const at::Device device = mesh_->device();
    change_inputs(module, inputs,
                  [&](const at::Tensor& input) { return moved_from_host(input, device); });
  }
  if (policy_.mixed_precision.cast_forward_inputs && policy_.mixed_precision.param_dtype) {
    const Phase phase("FSDP::cast_forward_inputs");
    const at::ScalarType dtype = *policy_.mixed_precision.param_dtype;
    change_inputs(module, inputs,
                  [&](const at::Tensor& input) { return cast_floating(input, dtype); });
  }
  if (scheduler.recomputing()) {
    scheduler.begin_backward(is_root());  // this may come before the hook of any output
    if (group_) {
      scheduler.need_again(member());
    }
    return;
  }
  if (is_root()) {
    check_have_values(scheduler.members(), kForward);
  } else if (group_) {
    check_have_values({scheduler.members()[member()]}, kForward);
  }
  check_runs_once();
  if (is_root()) {
    scheduler.begin_forward();
  }
  if (group_) {
    scheduler.pre_forward(member());
  }
  watch_saved_weights();
}

bool Unit::forward_is_collective() {
  const std::vector<Scheduler::Member>& members = scheduler().members();
  return std::any_of(members.begin(), members.end(), [](const Scheduler::Member& member) {
    return member.group->shard_comm(Lane::kGather).size() > 1;
  });
}

void Unit::check_forward(const std::vector<nn::Values>& inputs, bool in_step) {
  const nn::Module& module = *modules_.front();
  const bool gathers_on_use = policy_.schedule == Schedule::kOnUse;
  const auto check = [&] {
    check_have_values(scheduler().members(), kForward);
    std::string paths;
    for (size_t i = 0; i < inputs.size(); ++i) {
      module.check_inputs(inputs[i]);
      const std::string path = gathers_on_use ? module.path_of(inputs[i]) : "";
      paths += path.empty() ? "" : fmt::format("micro batch {}: {}\n", i, path);
    }
    return paths;
  };
  if (in_step || forward_is_collective()) {
    agree(mesh_->team(),
          fmt::format("the inputs of {}{}", module.kind(),
                      gathers_on_use ? ", whose units are gathered on use" : ""),
          check);
  } else {
    check();
  }
}

// A segment's second run comes below the hooks of the unit that it is in, and would find its
// parameters freed.
void Unit::check_runs_once() const {
  if (!group_ || group_->settings().unshard_in_backward) {
    return;
  }
  std::set<const at::TensorImpl*> own;
  for (const ShardedParam* param : group_->params()) {
    own.insert(param->unsharded().unsafeGetTensorImpl());
  }
  const auto check = [&](const nn::Module& module) {
    const std::vector<at::Tensor> parameters = module.parameters();
    const bool reads_own =
        std::any_of(parameters.begin(), parameters.end(), [&](const at::Tensor& parameter) {
          return own.count(parameter.unsafeGetTensorImpl()) > 0;
        });
    FSDP2_CHECK(!reads_own || !nn::checkpoints_activations(module), Code::kWrongState,
                "unit '{}': unshard_in_backward is off, but {}, which has parameters of it, is an "
                "activation checkpoint that runs again in backward: leave one of the two",
                name(), module.kind());
  };
  for (const nn::Module* module : modules_) {
    check(*module);
    for (const auto& below : module->modules(/*include_self=*/false)) {
      if (const auto* child = dynamic_cast<const nn::Module*>(below.get())) {
        check(*child);
      }
    }
  }
}

void Unit::watch_saved_weights() {
  // A checkpointed segment around this saves nothing, and its second run gathers what it uses.
  const bool watch = group_ && !group_->settings().unshard_in_backward &&
                     at::GradMode::is_enabled() && nn::SavedTensorScope::current() == nullptr;
  if (watch && !guard_) {
    guard_ = std::make_unique<FreedWeightGuard>(name(), group_);
  }
  watched_forwards_.push_back(watch ? std::make_unique<nn::SavedTensorScope>(guard_.get())
                                    : nullptr);
}

// A list's parameters stay gathered until the last of its modules has run, if a forward through the
// root is to bring the others.
bool Unit::more_modules_to_run(const nn::Module& module) {
  const Scheduler& scheduler = tree_->scheduler();
  if (modules_.size() == 1 || !scheduler.inside_root_forward()) {
    return false;
  }
  if (std::exchange(run_in_forward_, scheduler.root_forwards()) != run_in_forward_) {
    have_run_.clear();
  }
  if (std::find(have_run_.begin(), have_run_.end(), &module) == have_run_.end()) {
    have_run_.push_back(&module);
  }
  return have_run_.size() < modules_.size();
}

void Unit::post_forward(nn::Module& module, c10::IValue& output) {
  Scheduler& scheduler = tree_->scheduler();
  if (!scheduler.recomputing()) {
    const bool is_watched = watched_forwards_.back() != nullptr;
    watched_forwards_.pop_back();
    size_t place = 0;
    if (group_) {
      place = scheduler.post_forward(member(), more_modules_to_run(module));
    }
    if (is_root()) {
      scheduler.end_forward();
    }
    if (at::GradMode::is_enabled()) {
      output = nn::map_tensors(
          output, [&](const at::Tensor& t) { return hook_output(t, place, is_watched); });
    }
  }
  if (policy_.mixed_precision.output_dtype) {
    const Phase phase("FSDP::cast_forward_outputs");
    const at::ScalarType dtype = *policy_.mixed_precision.output_dtype;
    output = nn::map_tensors(output, [&](const at::Tensor& t) { return cast_floating(t, dtype); });
  }
}

// A forward that was not watched has its parameters gathered in backward even if
// unshard_in_backward is off by then: nobody else would see that what it saved is freed.
at::Tensor Unit::hook_output(const at::Tensor& output, size_t place, bool is_watched) {
  if (!output.requires_grad()) {
    return output;
  }
  at::Tensor hooked = output.is_view() || output.is_leaf() ? Identity::apply(output) : output;
  hooked.register_hook([unit = shared_from_this(), place, is_watched](const at::Tensor& grad) {
    Scheduler& scheduler = unit->tree_->scheduler();
    scheduler.begin_backward(unit->is_root());
    if (unit->group_) {
      scheduler.pre_backward(unit->member(), place);
      if (!is_watched) {
        scheduler.need_in_backward(unit->member());
      }
    }
    return grad;
  });
  return hooked;
}

void Unit::forward_failed(nn::Module& /*module*/) noexcept {
  // A recomputation ends early by an exception; if it has failed, so has backward, whose caller
  // resets.
  if (tree_ && !tree_->scheduler().recomputing()) {
    watched_forwards_.pop_back();
    tree_->scheduler().reset();
  }
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
