// The hooks of a unit around its modules' forwards, and on what these return.
#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/comm/agreement.h"
#include "core/fsdp/parameter_values.h"
#include "core/fsdp/phase.h"
#include "core/fsdp/unit.h"
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
// Behind this, the former raises and the latter goes with the graph. What a forward passes on, and
// has not made, has its gradient only after all that the forward has made of it: behind this, the
// gradient of the output comes first, as that of every output should.
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
    // This may come before the hook of any output.
    scheduler.begin_backward(/*inside_root=*/true, /*node=*/nullptr);
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
  forwards_.push_back({at::sequence_number::peek(), watch_saved_weights()});
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

std::unique_ptr<nn::SavedTensorScope> Unit::watch_saved_weights() {
  // A checkpointed segment around this saves nothing, and its second run gathers what it uses.
  const bool watch = group_ && !group_->settings().unshard_in_backward &&
                     at::GradMode::is_enabled() && nn::SavedTensorScope::current() == nullptr;
  if (watch && !guard_) {
    guard_ = std::make_unique<FreedWeightGuard>(name(), group_);
  }
  return watch ? std::make_unique<nn::SavedTensorScope>(guard_.get()) : nullptr;
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
    Forward forward;
    forward.began_at = forwards_.back().began_at;
    forward.is_watched = forwards_.back().watched != nullptr;
    forward.root_forward = scheduler.root_forwards();
    forward.inside_root = scheduler.inside_root_forward();
    forwards_.pop_back();
    if (group_) {
      forward.place = scheduler.post_forward(member(), more_modules_to_run(module));
    }
    if (is_root()) {
      scheduler.end_forward();
    }
    if (at::GradMode::is_enabled()) {
      output = hook_outputs(output, forward);
    }
  }
  if (policy_.mixed_precision.output_dtype) {
    const Phase phase("FSDP::cast_forward_outputs");
    const at::ScalarType dtype = *policy_.mixed_precision.output_dtype;
    output = nn::map_tensors(output, [&](const at::Tensor& t) { return cast_floating(t, dtype); });
  }
}

c10::IValue Unit::hook_outputs(const c10::IValue& output, const Forward& forward) {
  std::unordered_map<const at::TensorImpl*, at::Tensor> hooked;  // a tensor that is there twice
  return nn::map_tensors(output, [&](const at::Tensor& tensor) {
    at::Tensor& out = hooked[tensor.unsafeGetTensorImpl()];
    if (!out.defined()) {
      out = hook_output(tensor, forward);
    }
    return out;
  });
}

at::Tensor Unit::hook_output(const at::Tensor& output, const Forward& forward) {
  if (!output.requires_grad()) {
    return output;
  }
  const bool is_made_here =
      !output.is_leaf() && output.grad_fn()->sequence_nr() >= forward.began_at;
  const at::Tensor hooked = is_made_here && !output.is_view() ? output : Identity::apply(output);
  const std::shared_ptr<torch::autograd::Node>& node = hooked.grad_fn();
  if (is_root()) {
    tree_->scheduler().add_root_output(node);
  }
  // The hook goes with the node.
  hooked.register_hook(
      [unit = shared_from_this(), forward, at = node.get()](const at::Tensor& grad) {
        unit->on_output_gradient(forward, at);
        return grad;
      });
  return hooked;
}

// A forward that was not watched has its parameters gathered in backward even if
// unshard_in_backward is off by then: nobody else would see that what it saved is freed.
void Unit::on_output_gradient(const Forward& forward, const torch::autograd::Node* node) {
  Scheduler& scheduler = tree_->scheduler();
  scheduler.begin_backward(forward.inside_root, node);
  if (is_root()) {
    scheduler.enter_root_backward(forward.root_forward);
  }
  if (group_) {
    scheduler.pre_backward(member(), forward.place);
    if (!forward.is_watched) {
      scheduler.need_in_backward(member());
    }
  }
}

void Unit::forward_failed(nn::Module& /*module*/) noexcept {
  // A recomputation ends early by an exception; if it has failed, so has backward, whose caller
  // resets.
  if (tree_ && !tree_->scheduler().recomputing()) {
    forwards_.pop_back();
    tree_->scheduler().reset();
  }
}

}  // namespace fsdp2::fsdp
