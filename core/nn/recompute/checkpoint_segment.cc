#include "core/nn/recompute/checkpoint_segment.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/DimVector.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/nn/recompute/foreign_frame.h"
#include "core/nn/recompute/forward_context.h"
#include "core/nn/recompute/saved_tensor_hooks.h"
#include "core/nn/value_map.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::SavedVariable;
using torch::autograd::SavedVariableHooks;

thread_local bool recomputing = false;

class FirstRun;
thread_local FirstRun* innermost_first_run = nullptr;

// Thrown out of the second run once everything is recorded.
struct Stop {};

class RecomputingScope {
 public:
  RecomputingScope() : outer_(std::exchange(recomputing, true)) {}
  ~RecomputingScope() { recomputing = outer_; }
  RecomputingScope(const RecomputingScope&) = delete;
  RecomputingScope& operator=(const RecomputingScope&) = delete;

 private:
  bool outer_;
};

// What is known of a tensor that the first run saved.
struct Slot {
  explicit Slot(const at::Tensor& tensor)
      : sizes(tensor.sizes()), dtype(tensor.scalar_type()), device(tensor.device()) {}

  bool fits(const at::Tensor& tensor) const {
    return tensor.sizes() == at::IntArrayRef(sizes) && tensor.scalar_type() == dtype &&
           tensor.device() == device;
  }

  at::DimVector sizes;
  at::ScalarType dtype;
  at::Device device;
  std::atomic<bool> in_use{true};  // its node is there and may ask for it
};

struct Recorded {
  at::Tensor tensor;
  int64_t version = 0;
};

// Inputs, with their tensors kept as an operation's are: through the hooks of a segment around this
// one, if there is one, so that that one drops them.
class KeptInputs {
 public:
  explicit KeptInputs(const Values& inputs) {
    const at::NoGradGuard no_grad;
    const at::Tensor gap = at::empty({0}, at::device(at::kCPU));
    for (const c10::IValue& input : inputs) {
      structure_.push_back(map_tensors(input, [&](const at::Tensor& tensor) {
        // Without its graph, which would reach the segment again if an input is changed in place.
        tensors_.emplace_back(tensor.detach(), /*is_output=*/false);
        requires_grad_.push_back(tensor.requires_grad());
        note_device(tensor.device());
        return gap;
      }));
    }
  }

  // Fresh leaves, so that the second run's graph ends at them.
  Values unpack() const {
    Values inputs;
    size_t next = 0;
    for (const c10::IValue& value : structure_) {
      inputs.push_back(map_tensors(value, [&](const at::Tensor& /*gap*/) {
        const at::Tensor tensor = tensors_[next].unpack().detach();
        return tensor.set_requires_grad(requires_grad_[next++]);
      }));
    }
    return inputs;
  }

  const std::vector<at::Device>& devices() const { return devices_; }

 private:
  void note_device(at::Device device) {
    if (std::find(devices_.begin(), devices_.end(), device) == devices_.end()) {
      devices_.push_back(device);
    }
  }

  Values structure_;
  std::vector<SavedVariable> tensors_;
  std::vector<bool> requires_grad_;
  std::vector<at::Device> devices_;
};

class Segment : public SavedTensorSource, public std::enable_shared_from_this<Segment> {
 public:
  Segment(std::string name, ForwardBody body, const Values& inputs,
          const std::vector<at::Generator>& generators, bool early_stop)
      : name_(std::move(name)),
        body_(std::move(body)),
        early_stop_(early_stop),
        inputs_(inputs),
        context_(inputs_.devices(), generators) {}

  c10::IValue run(Values inputs);
  void note_generator(const at::Generator& generator) { context_.add_generator(generator); }
  std::unique_ptr<SavedVariableHooks> make() override;

  size_t add_slot(const at::Tensor& tensor);
  void leave_slot(size_t index) { slots_[index].in_use = false; }
  at::Tensor take(size_t index);

  const std::string& name() const { return name_; }
  bool early_stop() const { return early_stop_; }
  const std::deque<Slot>& slots() const { return slots_; }

 private:
  using Record = std::vector<Recorded>;  // by slot

  Record recompute() const;
  void drop_record(int64_t task);

  // Constant once the first run is over.
  const std::string name_;
  const ForwardBody body_;
  const bool early_stop_;
  const KeptInputs inputs_;
  ForwardContext context_;
  std::deque<Slot> slots_;

  std::mutex mutex_;  // held while recomputing, for others that wait for the record
  std::map<int64_t, Record> records_;  // by the engine's id of the backward
};

class SlotHooks : public SavedVariableHooks {
 public:
  explicit SlotHooks(std::shared_ptr<Segment> segment) : segment_(std::move(segment)) {}
  ~SlotHooks() override {
    if (packed_) {
      segment_->leave_slot(index_);
    }
  }
  SlotHooks(const SlotHooks&) = delete;
  SlotHooks& operator=(const SlotHooks&) = delete;

  void call_pack_hook(const at::Tensor& tensor) override {
    index_ = segment_->add_slot(tensor);
    packed_ = true;
  }
  at::Tensor call_unpack_hook() override { return segment_->take(index_); }

 private:
  std::shared_ptr<Segment> segment_;
  size_t index_ = 0;
  bool packed_ = false;
};

// Records what the second run saves, and ends it after the last slot in use if it may.
class Recording : public SavedTensorSource {
 public:
  explicit Recording(const Segment& segment)
      : segment_(segment),
        slots_(segment.slots()),
        foreign_frames_(ForeignFrame::depth()),
        values_(slots_.size()) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      wanted_ = slots_[i].in_use ? i + 1 : wanted_;
    }
  }

  std::unique_ptr<SavedVariableHooks> make() override;

  void add(const at::Tensor& tensor);
  bool has_stopped() const { return has_stopped_; }
  void check_complete() const {
    FSDP2_CHECK(
        has_stopped_ || count_ == slots_.size(), Code::kWrongState,
        "recomputing {} in backward: its forward saved {} tensors, the second time only {}; "
        "it must do the same both times, given the same inputs and parameters",
        segment_.name(), slots_.size(), count_);
  }
  std::vector<Recorded> release() { return std::move(values_); }

 private:
  void stop_if_complete();

  const Segment& segment_;
  const std::deque<Slot>& slots_;
  const int foreign_frames_;  // on the stack when the second run begins
  std::vector<Recorded> values_;
  size_t wanted_ = 0;
  size_t count_ = 0;
  bool has_stopped_ = false;
};

class RecordingHooks : public SavedVariableHooks {
 public:
  explicit RecordingHooks(Recording& recording) : recording_(&recording) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    kept_ = tensor.detach();
    recording_->add(kept_);
  }
  // For a backward that the segment's own forward runs.
  at::Tensor call_unpack_hook() override { return kept_; }

 private:
  Recording* recording_;  // only to pack: the second run's graph may outlive it
  at::Tensor kept_;
};

std::unique_ptr<SavedVariableHooks> Recording::make() {
  return std::make_unique<RecordingHooks>(*this);
}

void Recording::stop_if_complete() {
  const bool may_stop = segment_.early_stop() && ForeignFrame::depth() == foreign_frames_;
  if (may_stop && count_ >= wanted_) {
    has_stopped_ = true;
    throw Stop{};
  }
}

void Recording::add(const at::Tensor& tensor) {
  stop_if_complete();  // something in the body has caught it, or a foreign frame was in the way
  const size_t index = count_;
  FSDP2_CHECK(index < slots_.size(), Code::kWrongState,
              "recomputing {} in backward: its forward saved {} tensors, the second time more; it "
              "must do the same both times, given the same inputs and parameters",
              segment_.name(), slots_.size());
  const Slot& slot = slots_[index];
  FSDP2_CHECK(
      slot.fits(tensor), Code::kWrongState,
      "recomputing {} in backward: tensor {} that its forward saved was {} [{}], the second "
      "time it is {} [{}]; it must do the same both times, given the same inputs and "
      "parameters",
      segment_.name(), index, c10::toString(slot.dtype), fmt::join(slot.sizes, ", "),
      c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
  if (slot.in_use) {
    values_[index] = {tensor, tensor._version()};
  }
  ++count_;
  stop_if_complete();
}

// While it lives, a segment is in its first run on this thread, which may be in those of others.
class FirstRun {
 public:
  explicit FirstRun(Segment& of) : segment(of), outer(std::exchange(innermost_first_run, this)) {}
  ~FirstRun() { innermost_first_run = outer; }
  FirstRun(const FirstRun&) = delete;
  FirstRun& operator=(const FirstRun&) = delete;

  Segment& segment;
  FirstRun* const outer;
};

c10::IValue Segment::run(Values inputs) {
  const SavedTensorScope scope(this);
  const FirstRun first_run(*this);
  c10::IValue output = body_(std::move(inputs));
  context_.forget_unused_generators();
  return output;
}

std::unique_ptr<SavedVariableHooks> Segment::make() {
  return std::make_unique<SlotHooks>(shared_from_this());
}

size_t Segment::add_slot(const at::Tensor& tensor) {
  slots_.emplace_back(tensor);
  return slots_.size() - 1;
}

at::Tensor Segment::take(size_t index) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t task = torch::autograd::get_current_graph_task_id();
  auto found = records_.find(task);
  if (found == records_.end()) {
    found = records_.emplace(task, recompute()).first;
    if (task >= 0) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [segment = weak_from_this(), task] {
            if (const auto alive = segment.lock()) {
              alive->drop_record(task);
            }
          });
    }
  } else if (index >= found->second.size() || !found->second[index].tensor.defined()) {
    found->second = recompute();
  }
  const Recorded value = std::exchange(found->second[index], {});
  FSDP2_CHECK(
      value.tensor._version() == value.version, Code::kWrongState,
      "{}: a tensor of {} [{}] that backward needs was changed in place by the segment after "
      "it had been saved",
      name_, c10::toString(value.tensor.scalar_type()), fmt::join(value.tensor.sizes(), ", "));
  return value.tensor;
}

Segment::Record Segment::recompute() const {
  Recording recording(*this);
  Values inputs = inputs_.unpack();
  const ForwardContext::Restored context(context_);
  const at::AutoGradMode with_grad(true);
  const SavedTensorScope scope(&recording);
  const RecomputingScope running_again;
  try {
    body_(std::move(inputs));
  } catch (...) {
    // However the stop came through the body (a callback may have put an error of its own in its
    // place), nothing more was needed.
    if (!recording.has_stopped()) {
      throw;
    }
  }
  recording.check_complete();
  return recording.release();
}

void Segment::drop_record(int64_t task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  records_.erase(task);
}

}  // namespace

c10::IValue run_as_segment(const std::string& name, const ForwardBody& body, Values inputs,
                           const std::vector<at::Generator>& generators, bool early_stop) {
  if (!at::GradMode::is_enabled()) {
    return body(std::move(inputs));
  }
  install_saved_tensor_hooks();
  return std::make_shared<Segment>(name, body, inputs, generators, early_stop)
      ->run(std::move(inputs));
}

void about_to_draw_from(const at::Generator& generator) {
  for (FirstRun* run = innermost_first_run; run != nullptr; run = run->outer) {
    run->segment.note_generator(generator);
  }
}

bool is_recomputing() { return recomputing; }

}  // namespace fsdp2::nn
