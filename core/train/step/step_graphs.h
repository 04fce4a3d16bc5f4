// The forwards and backwards of training steps as graphs of a device: after a few steps of one
// shape, one is recorded, and those that follow are replays of it, for which the host gives the
// device one piece of work instead of thousands.
//
// Note [What a replay sees]
// A replay has the addresses and the host's numbers of the recording. So inputs are copied to where
// the recorded step had them; numbers that change from step to step (shares of the loss, its scale,
// random numbers of the model's generator) lie on the device, in places that are written before
// each replay; and the gradients lie where the recorded step left them. All else that decides about
// the work is in the step's key, to which each rank adds its part: a step of another key is another
// graph. The ranks record, and replay, together: where one alone cannot record, the others may
// stand in what NCCL exchanges while it records, until the time-out ends the job.
//
// The rest of the step, from the gradients' norm on, is the host's as ever.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device/device_graphs.h"
#include "core/fsdp/fully_shard.h"
#include "core/nn/module.h"
#include "core/nn/random/recorded_draws.h"
#include "core/train/step/graph_turns.h"

namespace fsdp2::train {

// Numbers that a step's losses are multiplied by. In recorded work they are read from the device.
struct StepFactors {
  std::vector<double> numbers;
  at::Tensor on_device;  // [numbers] fp64; undefined: the numbers themselves count

  // loss * numbers[index], in the loss's dtype and rounded as that product is.
  at::Tensor times(const at::Tensor& loss, size_t index) const;
};

class StepGraphs {
 public:
  // Errors: kUnsupported, with what to do about it, for a device without graphs, a transport of the
  // host, compared collectives, shards on the host, shared sequences, modules whose forward or
  // hooks are a caller's functions, and parameters that are trained and not sharded.
  StepGraphs(nn::Module& module, fsdp::Unit& root);

  // A step's forwards and backwards for these micro batches: returns their losses and leaves
  // gradients on the shards.
  using Work = std::function<std::vector<at::Tensor>(const std::vector<nn::Values>& batch,
                                                     const StepFactors& factors)>;
  // What `work` returns and leaves, by a replay where there can be one. Collective. The losses are
  // the graph's until the next call.
  std::vector<at::Tensor> run(const std::vector<nn::Values>& batch,
                              const std::vector<double>& numbers, const Work& work);
  // After an error of the step. Communicators end only when their graphs have.
  void drop_all();

 private:
  struct Recorded {
    explicit Recorded(nn::RecordedDraws of_generator) : draws(std::move(of_generator)) {}

    std::vector<nn::Values> batch;
    StepFactors factors;
    nn::RecordedDraws draws;
    std::vector<at::Tensor> losses;
    std::vector<std::pair<fsdp::ShardedParam*, at::Tensor>> gradients;
    fsdp::Counted counted;
    std::unique_ptr<DeviceGraph> graph;
  };

  // None: some rank's step cannot be a replay.
  std::optional<StepKey> agreed_key(const std::vector<nn::Values>& batch) const;
  bool can_be_replayed(const std::vector<nn::Values>& batch) const;
  uint64_t own_key(const std::vector<nn::Values>& batch) const;
  // Why it could not; empty if it could.
  std::string record(Recorded& into, const std::vector<nn::Values>& batch,
                     const std::vector<double>& numbers, const Work& work);
  bool all_have_recorded(bool here) const;
  void give_up(const std::string& problem);
  std::vector<at::Tensor> replay(Recorded& recorded, const std::vector<nn::Values>& batch,
                                 const std::vector<double>& numbers);

  nn::Module& module_;
  fsdp::Unit& root_;
  const at::Device device_;
  const DeviceGraphs* graphs_;
  std::vector<const torch::nn::Module*> modules_;
  GraphTurns turns_;
  std::map<StepKey, std::unique_ptr<Recorded>> recorded_;
};

}  // namespace fsdp2::train
