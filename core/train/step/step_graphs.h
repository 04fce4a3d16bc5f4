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
// graph.
//
// Note [Recording together]
// The ranks record, and replay, together: NCCL may lay a recorded collective out in another way, on
// all ranks alike. While it records, NCCL may exchange things between ranks, too, so a rank that
// breaks off would leave the others waiting. Therefore a step is rehearsed before it is recorded:
// without its collectives, so that each rank finds by itself whatever else cannot be recorded, and
// all learn of it before anybody waits for anybody. Steps of that key then run as they are. What
// fails only once collectives are recorded is an error of the step as any other: it is published,
// and ends the job on all ranks at once.
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

  // What a rank knows of the step ahead: run() takes the sums over all ranks, exact in fp64. Empty
  // once no step will be a replay, on all ranks alike.
  std::vector<double> part_of_key(const std::vector<nn::Values>& batch) const;

  // A step's forwards and backwards for these micro batches: returns their losses and leaves
  // gradients on the shards.
  using Work = std::function<std::vector<at::Tensor>(const std::vector<nn::Values>& batch,
                                                     const StepFactors& factors)>;
  // What `work` returns and leaves, by a replay where there can be one. Collective. The losses are
  // the graph's until the next call.
  std::vector<at::Tensor> run(const std::vector<nn::Values>& batch,
                              const std::vector<double>& numbers,
                              const std::vector<double>& parts_of_key, const Work& work);
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

  bool can_be_replayed(const std::vector<nn::Values>& batch) const;
  uint64_t own_key(const std::vector<nn::Values>& batch) const;
  enum class Take { kRehearsal, kRecording };
  // What a step of this key is from here on; null if some rank could not record it.
  std::unique_ptr<Recorded> record(const std::vector<nn::Values>& batch,
                                   const std::vector<double>& numbers, const Work& work);
  // Why it could not be made on this rank; empty if it could. A recording that fails before its
  // last collective throws.
  std::string make(Recorded& into, Take take, const std::vector<nn::Values>& batch,
                   const std::vector<double>& numbers, const Work& work);
  void record_into(Recorded& into, Take take, const std::vector<nn::Values>& batch,
                   const std::vector<double>& numbers, const Work& work, bool& has_ended);
  // Whether it has none on any rank; otherwise says so, and leaves nothing of it behind.
  bool is_without(const std::string& problem);
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
