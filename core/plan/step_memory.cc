#include "core/plan/step_memory.h"

#include <ATen/ops/ones_like.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/fsdp/held_bytes.h"
#include "core/fsdp/held_reductions.h"
#include "core/fsdp/scheduler.h"
#include "core/fsdp/tree.h"
#include "core/nn/backward.h"
#include "core/nn/loss_chunk.h"
#include "core/nn/meta_tensor.h"
#include "core/nn/value_map.h"
#include "core/plan/meta_bytes.h"
#include "core/plan/shape_rules.h"

namespace fsdp2::plan {

namespace {

// Parameters that sharding has left where they were would not meet what is on meta.
void move_ignored(const nn::Module& module) {
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(module)) {
    if (!parameter.tensor.is_meta()) {
      nn::turn_into_meta(parameter.tensor);
    }
  }
}

// Brings inputs to where the root would, before anything is counted: on the host a step takes them
// as they are.
nn::Values moved_to_meta(const nn::Module& module, nn::Values inputs) {
  for (size_t place = 0; place < inputs.size(); ++place) {
    inputs[place] = nn::map_tensors(inputs[place], [&](const at::Tensor& input) {
      return module.is_read_by_host(place, input) ? input : input.to(at::kMeta);
    });
  }
  return inputs;
}

// As if the parameters had values, until this ends.
class AssumedValues {
 public:
  explicit AssumedValues(fsdp::Unit& root) : root_(root) {
    for (fsdp::ShardedParam* param : root.parameters()) {
      if (!param->has_values()) {
        param->mark_has_values();
        marked_.push_back(param);
      }
    }
  }
  ~AssumedValues() {
    root_.scheduler().reset();
    root_.zero_grad();
    for (fsdp::ShardedParam* param : marked_) {
      param->mark_has_values(false);
    }
  }
  AssumedValues(const AssumedValues&) = delete;
  AssumedValues& operator=(const AssumedValues&) = delete;

 private:
  fsdp::Unit& root_;
  std::vector<fsdp::ShardedParam*> marked_;
};

// Gradients go as an optimizer that updates in backward takes them, until this ends.
class TakenInBackward {
 public:
  explicit TakenInBackward(fsdp::Unit& root) : root_(root) {}
  ~TakenInBackward() { root_.scheduler().set_on_reduced({}); }
  TakenInBackward(const TakenInBackward&) = delete;
  TakenInBackward& operator=(const TakenInBackward&) = delete;

  void begin() {
    root_.scheduler().set_on_reduced([](const fsdp::ParamGroup& group) {
      for (fsdp::ShardedParam* param : group.trainable()) {
        param->sharded().mutable_grad() = at::Tensor();
      }
    });
  }

 private:
  fsdp::Unit& root_;
};

// Leaves nothing behind.
void take_step(fsdp::Unit& root, const nn::Values& inputs, int64_t micro_batches) {
  const AssumedValues values(root);
  nn::Module& module = *root.modules().front();
  const fsdp::StepShape& shape = root.tree().step_shape();
  const nn::LossChunk chunk(module, shape.loss_chunk);
  fsdp::HeldReductions held(root, shape.reduced_last);
  TakenInBackward taken(root);
  try {
    for (int64_t micro = 0; micro < micro_batches; ++micro) {
      if (micro + 1 == micro_batches) {
        held.release();
      }
      const at::Tensor loss = nn::scalar_loss(module(inputs));
      if (shape.update_in_backward && micro + 1 == micro_batches) {
        taken.begin();
      }
      nn::run_backward({loss}, {at::ones_like(loss)});
    }
  } catch (const c10::NotImplementedError& error) {
    const std::string message = error.what_without_backtrace();
    const size_t name = message.find("::");
    FSDP2_CHECK(name != std::string::npos, Code::kUnsupported,
                "memory of a step: forward looks at values, which a plan does not have: leave "
                "positions out, or give the boundaries of sequences with them");
    fail(Code::kUnsupported, "memory of a step: no shapes are known of what an operator gives: {}",
         message.substr(0, message.find_first_of(":\n", name + 2)));
  }
}

int64_t held_by(const nn::Module& module) { return static_cast<int64_t>(fsdp::held_bytes(module)); }

template <typename Step>
int64_t peak_of(const Step& step) {
  const MetaBytes bytes;
  step();
  return bytes.peak();
}

}  // namespace

StepMemory rehearse_step(fsdp::Unit& root, const nn::Values& inputs, int64_t micro_batches) {
  FSDP2_CHECK(root.mesh().device().is_meta(), Code::kUnsupported,
              "memory of a step: expected a mesh of device type meta, found {}",
              root.mesh().device().str());
  const nn::Module& module = *root.modules().front();
  // The third micro batch meets what the second has met: gradients of those before. Where the last
  // alone reduces some, or frees them, it is one more.
  const fsdp::StepShape& shape = root.tree().step_shape();
  const bool is_last_alike =
      shape.reduced_last == fsdp::ReducedLast::kNone && !shape.update_in_backward;
  const int64_t different = is_last_alike ? 2 : 3;
  const nn::Values batch = moved_to_meta(module, inputs);
  const auto step = [&] { take_step(root, batch, std::min(micro_batches, different)); };
  // Where buffers are kept, the second one finds those that the first has taken.
  const auto settled_step = [&] {
    for (int steps = root.policy().keep_buffers ? 2 : 1; steps > 0; --steps) {
      step();
    }
    root.scheduler().release_buffers();
  };
  install_shape_rules();
  move_ignored(module);
  settled_step();  // the first one also makes what all others find
  const int64_t before = held_by(module);
  const int64_t peak = peak_of(settled_step);
  // Once more, to see at that moment whose memory it is.
  StepMemory memory;
  MetaBytes bytes;
  bytes.look_at(peak, [&] { memory.model = held_by(module); });
  settled_step();
  memory.activations = before + peak - memory.model;
  return memory;
}

}  // namespace fsdp2::plan
