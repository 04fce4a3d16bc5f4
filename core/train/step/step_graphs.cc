#include "core/train/step/step_graphs.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/fsdp/group/param_group.h"
#include "core/nn/own_generator.h"
#include "core/nn/value_map.h"
#include "core/train/step/graph_support.h"

namespace fsdp2::train {

namespace {

// A hash of the words that decide about a step's work.
class KeyHash {
 public:
  void add(uint64_t word) {
    // The mixing of Sebastiano Vigna's splitmix64.
    state_ += word + 0x9e3779b97f4a7c15U;
    state_ = (state_ ^ (state_ >> 30U)) * 0xbf58476d1ce4e5b9U;
    state_ = (state_ ^ (state_ >> 27U)) * 0x94d049bb133111ebU;
    state_ ^= state_ >> 31U;
  }
  void add_sizes(at::IntArrayRef sizes) {
    add(sizes.size());
    for (const int64_t size : sizes) {
      add(static_cast<uint64_t>(size));
    }
  }
  void add_place(const at::Tensor& tensor) {
    add(reinterpret_cast<uint64_t>(tensor.const_data_ptr()));
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

void add_input(const c10::IValue& input, KeyHash& hash) {
  if (!input.isTensor() || !input.toTensor().defined()) {
    hash.add(0);
    return;
  }
  const at::Tensor& tensor = input.toTensor();
  hash.add(1 + static_cast<uint64_t>(tensor.scalar_type()));
  hash.add_sizes(tensor.sizes());
}

void add_settings(const fsdp::GroupSettings& settings, KeyHash& hash) {
  const auto number_of = [](const std::optional<bool>& flag) { return flag ? 1 + int{*flag} : 0; };
  hash.add((settings.requires_gradient_sync ? 1U : 0U) | (settings.requires_all_reduce ? 2U : 0U) |
           (settings.reshard_after_backward ? 4U : 0U) | (settings.unshard_in_backward ? 8U : 0U) |
           (settings.force_sum_reduction ? 16U : 0U) |
           (settings.reduce_unused_parameters ? 32U : 0U) |
           (settings.allocate_memory_from_process_group ? 64U : 0U));
  hash.add(static_cast<uint64_t>(number_of(settings.reshard_after_forward)));
  hash.add(std::hash<double>()(settings.gradient_divide_factor.value_or(0.0)));
  for (const auto* list : {&settings.forward_prefetch, &settings.backward_prefetch}) {
    hash.add(list->size());
    for (const std::weak_ptr<fsdp::ParamGroup>& group : *list) {
      hash.add(reinterpret_cast<uint64_t>(group.lock().get()));
    }
  }
}

bool has_hooks(const fsdp::GroupSettings& settings) {
  return settings.all_reduce_hook || settings.on_sharded_grad ||
         settings.all_gather_extension != nullptr;
}

// None: some rank's step cannot be a replay.
std::optional<StepKey> key_of(const std::vector<double>& sums) {
  if (sums.empty() || sums.at(3) > 0.0) {
    return std::nullopt;
  }
  return StepKey{static_cast<int64_t>(sums[0]), static_cast<int64_t>(sums[1]),
                 static_cast<int64_t>(sums[2])};
}

// What reads pageable memory has read it when the call returns.
void write_inputs(const std::vector<nn::Values>& batch, const std::vector<nn::Values>& places) {
  for (size_t micro = 0; micro < batch.size(); ++micro) {
    for (size_t i = 0; i < batch[micro].size(); ++i) {
      const c10::IValue& place = places[micro][i];
      if (place.isTensor() && place.toTensor().defined()) {
        place.toTensor().copy_(batch[micro][i].toTensor(), /*non_blocking=*/true);
      }
    }
  }
}

}  // namespace

at::Tensor StepFactors::times(const at::Tensor& loss, size_t index) const {
  if (!on_device.defined()) {
    return loss * numbers.at(index);
  }
  const at::ScalarType wide = loss.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor number = on_device.select(0, static_cast<int64_t>(index)).to(wide);
  return (loss.to(wide) * number).to(loss.scalar_type());
}

StepGraphs::StepGraphs(nn::Module& module, fsdp::Unit& root)
    : module_(module),
      root_(root),
      device_(root.mesh().device()),
      graphs_(find_device_graphs(device_.type())) {
  check_graphs_are_supported(module, root, graphs_);
  for (const auto& each : module.modules()) {
    modules_.push_back(each.get());
  }
}

bool StepGraphs::can_be_replayed(const std::vector<nn::Values>& batch) const {
  const fsdp::Scheduler& scheduler = root_.scheduler();
  if (!scheduler.is_at_rest() || !scheduler.is_last_backward()) {
    return false;
  }
  for (const fsdp::Scheduler::Member& member : scheduler.members()) {
    if (has_hooks(member.group->settings())) {
      return false;
    }
    for (const fsdp::ShardedParam* param : member.group->trainable()) {
      if (param->sharded().grad().defined()) {
        return false;  // the caller adds to gradients of its own
      }
    }
  }
  for (const nn::Values& inputs : batch) {
    for (size_t place = 0; place < inputs.size(); ++place) {
      const c10::IValue& input = inputs[place];
      const bool is_plain = input.isTensor() || input.isNone();
      if (!is_plain || (input.isTensor() && input.toTensor().defined() &&
                        (module_.is_read_by_host(place, input.toTensor()) ||
                         input.toTensor().requires_grad()))) {
        return false;
      }
    }
  }
  return true;
}

uint64_t StepGraphs::own_key(const std::vector<nn::Values>& batch) const {
  KeyHash hash;
  hash.add(static_cast<uint64_t>(root_.mesh().team().rank()));
  for (const nn::Values& inputs : batch) {
    hash.add(inputs.size());
    for (const c10::IValue& input : inputs) {
      add_input(input, hash);
    }
  }
  for (const fsdp::Scheduler::Member& member : root_.scheduler().members()) {
    add_settings(member.group->settings(), hash);
    for (const fsdp::ShardedParam* param : member.group->params()) {
      hash.add_place(param->sharded());
      hash.add(static_cast<uint64_t>(param->dtype()));
      hash.add(param->requires_grad() ? 1 : 0);
    }
  }
  for (const torch::nn::Module* each : modules_) {
    hash.add(each->is_training() ? 1 : 0);
    for (const at::Tensor& parameter : each->parameters(/*recurse=*/false)) {
      if (parameter.defined() && !fsdp::ShardedParam::manages(parameter)) {
        hash.add_place(parameter);  // frozen, and whole on every rank
      }
    }
    for (const at::Tensor& buffer : each->buffers(/*recurse=*/false)) {
      if (buffer.defined()) {
        hash.add_place(buffer);
      }
    }
  }
  hash.add(static_cast<uint64_t>(at::globalContext().float32MatmulPrecision()));
  hash.add(at::globalContext().deterministicAlgorithms() ? 1 : 0);
  return hash.value();
}

std::vector<double> StepGraphs::part_of_key(const std::vector<nn::Values>& batch) const {
  if (turns_.has_given_up()) {
    return {};
  }
  constexpr uint64_t kPieceBits = 21;
  constexpr uint64_t kPiece = (uint64_t{1} << kPieceBits) - 1;
  const uint64_t own = own_key(batch);
  return {static_cast<double>(own & kPiece), static_cast<double>((own >> kPieceBits) & kPiece),
          static_cast<double>(own >> (2 * kPieceBits)), can_be_replayed(batch) ? 0.0 : 1.0};
}

std::vector<at::Tensor> StepGraphs::run(const std::vector<nn::Values>& batch,
                                        const std::vector<double>& numbers,
                                        const std::vector<double>& parts_of_key, const Work& work) {
  const auto run_as_it_is = [&] { return work(batch, {numbers, at::Tensor()}); };
  const std::optional<StepKey> key = key_of(parts_of_key);
  const GraphTurns::Turn turn = key ? turns_.next(*key) : GraphTurns::Turn::kRun;
  if (turn == GraphTurns::Turn::kRun) {
    if (turns_.is_newly_full() && root_.mesh().team().rank() == 0) {
      log(LogLevel::kWarning, "step",
          "cuda_graph: steps of more than {} shapes come in turn: only those of the first {} are "
          "replayed; batches of one shape are best",
          GraphTurns::kMostGraphs, GraphTurns::kMostGraphs);
    }
    return run_as_it_is();
  }
  for (const nn::Values& inputs : batch) {
    module_.check_inputs(inputs);  // as forward would, which a replay does not call
  }
  if (turn == GraphTurns::Turn::kRecord) {
    std::unique_ptr<Recorded> recorded = record(batch, numbers, work);
    if (recorded == nullptr) {
      turns_.refuse(*key);
      return run_as_it_is();
    }
    recorded_[*key] = std::move(recorded);
    turns_.has_recorded(*key);
  }
  return replay(*recorded_.at(*key), batch, numbers);
}

std::unique_ptr<StepGraphs::Recorded> StepGraphs::record(const std::vector<nn::Values>& batch,
                                                         const std::vector<double>& numbers,
                                                         const Work& work) {
  const auto make_one = [&](Take take) {
    auto made =
        std::make_unique<Recorded>(nn::RecordedDraws(nn::own_generator_of(module_), device_));
    if (!is_without(make(*made, take, batch, numbers, work))) {
      made.reset();
    }
    return made;
  };
  if (root_.mesh().team().size() > 1) {
    const std::unique_ptr<Recorded> rehearsal = make_one(Take::kRehearsal);
    if (rehearsal == nullptr) {
      return nullptr;
    }
    root_.zero_grad();
  }
  return make_one(Take::kRecording);
}

std::string StepGraphs::make(Recorded& into, Take take, const std::vector<nn::Values>& batch,
                             const std::vector<double>& numbers, const Work& work) {
  bool has_ended = false;
  std::string problem;
  nn::RecordedDraws::Scope scope(into.draws);
  try {
    record_into(into, take, batch, numbers, work, has_ended);
  } catch (...) {
    const Error error = current_exception_as_error();
    into.losses.clear();
    into.gradients.clear();
    root_.scheduler().release_buffers();
    if (take == Take::kRecording && !has_ended && root_.mesh().team().size() > 1) {
      if (error.code() == Code::kPeerFailed) {
        throw;
      }
      throw Error(error.code(),
                  fmt::format("cuda_graph: the recording of a step broke off, although its "
                              "rehearsal had not: {}",
                              error.message()),
                  error.native_code());
    }
    problem = error.message().empty() ? "unknown" : error.message();
  }
  scope.end();  // else the step would draw other numbers than without graphs
  return problem;
}

void StepGraphs::record_into(Recorded& into, Take take, const std::vector<nn::Values>& batch,
                             const std::vector<double>& numbers, const Work& work,
                             bool& has_ended) {
  const auto place_for = [&](const at::Tensor& input) {
    return at::empty(input.sizes(), at::device(device_).dtype(input.scalar_type()));
  };
  for (const nn::Values& inputs : batch) {
    nn::Values places;
    for (const c10::IValue& input : inputs) {
      places.push_back(nn::map_tensors(input, place_for));
    }
    into.batch.push_back(std::move(places));
  }
  write_inputs(batch, into.batch);
  into.factors = {numbers, at::tensor(numbers, at::device(at::kCPU).dtype(at::kDouble))
                               .to(device_, /*non_blocking=*/true)};
  fsdp::Scheduler& scheduler = root_.scheduler();
  const DeviceGraph* const shares =
      recorded_.empty() ? nullptr : recorded_.begin()->second->graph.get();
  // What is kept must not be in a recording that it outlives, nor outlive the recording it is of.
  scheduler.release_buffers();
  const auto do_work = [&] {
    const auto with_streams = [&] { into.losses = work(into.batch, into.factors); };
    if (take == Take::kRehearsal) {
      scheduler.in_rehearsal(with_streams);
    } else {
      scheduler.in_recording(with_streams);
    }
    has_ended = true;
  };
  into.counted =
      scheduler.counted_apart([&] { into.graph = graphs_->record(device_, shares, do_work); });
  for (fsdp::ShardedParam* param : root_.parameters()) {
    if (const at::Tensor gradient = param->sharded().grad(); gradient.defined()) {
      into.gradients.emplace_back(param, gradient);
    }
  }
  scheduler.release_buffers();
}

bool StepGraphs::is_without(const std::string& problem) {
  const at::Tensor failed =
      at::tensor({problem.empty() ? 0.0 : 1.0}, at::device(at::kCPU).dtype(at::kDouble));
  root_.mesh().team().control().all_reduce(failed, ReduceOp::kSum).wait();
  if (*failed.const_data_ptr<double>() == 0.0) {
    return true;
  }
  root_.scheduler().reset();
  root_.zero_grad();
  log(LogLevel::kWarning, "step",
      "cuda_graph: a step could not be recorded, so those of its shape run as without it: {}",
      problem.empty() ? "another rank could not" : problem);
  return false;
}

void StepGraphs::drop_all() {
  recorded_.clear();
  turns_.forget();
}

std::vector<at::Tensor> StepGraphs::replay(Recorded& recorded, const std::vector<nn::Values>& batch,
                                           const std::vector<double>& numbers) {
  root_.scheduler().check_streams();  // a collective that has failed would not be told of any more
  write_inputs(batch, recorded.batch);
  recorded.factors.on_device.copy_(at::tensor(numbers, at::device(at::kCPU).dtype(at::kDouble)),
                                   /*non_blocking=*/true);
  recorded.draws.refill();
  recorded.graph->replay();
  root_.scheduler().count(recorded.counted);
  for (const auto& [param, gradient] : recorded.gradients) {
    param->sharded().mutable_grad() = gradient;
  }
  return recorded.losses;
}

}  // namespace fsdp2::train
