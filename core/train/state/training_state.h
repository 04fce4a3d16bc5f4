// All that a training run must bring back to go on as if it had never stopped, as a checkpoint's
// state dict, with the names that Python's get_state_dict gives them:
//
//   model.<parameter>                            each of its names; persistent buffers, too
//   optim.state.<parameter>.<slot>, optim.param_groups.0.<hyper-parameter>
//   step                                         the number of the next step
//   fsdp2.data.{epoch, window, window_count, sequence_length, shuffle_seed, steps}
//   fsdp2.data.own_order                         of a mixture
//   fsdp2.rng.<rank>                             of the model's generator, uint8; LibTorch's on the
//                                                CPU where the model has none of its own
//   fsdp2.frozen                                 names of what the optimizer leaves alone, if any
//   fsdp2.scaler.{scale, _growth_tracker}        with loss scaling; GradScaler's names
//   fsdp2.world_size
//
// The schedule has no state beside the step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ckpt/state/state_dict.h"
#include "core/ckpt/state/state_source.h"
#include "core/train/data/data_loader.h"
#include "core/train/optim/optimizer.h"
#include "core/train/step/train_step.h"

namespace fsdp2::train {

// What takes part beside the model; null: left out of a checkpoint, or as it is at a load.
struct TrainingObjects {
  fsdp::Unit* root = nullptr;  // must be set
  Optimizer* optimizer = nullptr;
  TrainStep* step = nullptr;
  DataLoader* loader = nullptr;
  bool rng = true;
};

// How the optimizer's hyper-parameters are listed; its state has the same names by both.
enum class OptimizerKeys {
  kByGroup,      // nested: optim.param_groups.0.lr and, once, the group's parameters
  kByParameter,  // flat: optim.param_groups.<parameter>.lr of each parameter
};

// Tensors share memory with the run: they hold its values when they are written, or gathered
// (gathered_state.h).
ckpt::StateDict state_to_save(const TrainingObjects& objects,
                              OptimizerKeys keys = OptimizerKeys::kByGroup);

struct LoadReport {
  std::vector<std::string> missing;     // names of ours that the checkpoint lacks, also without
                                        // an error: "fsdp2.rng", "fsdp2.data", "step", and
                                        // state of parameters that were frozen when it was saved
  std::vector<std::string> unexpected;  // names of the model or optimizer in it that are not ours
  int64_t step = -1;                    // the next one; -1: the checkpoint does not say
};

// Collective; the outcome is the same on all ranks. `path`: a checkpoint of any format, or a
// directory of a series, whose newest complete one is taken. Each rank reads its own parts,
// whatever world size and mesh the checkpoint was written with; floats are converted to the run's
// dtypes. Gradients are dropped. Names, shapes and checksums of the description are checked before
// the first value is changed. After a later error (a damaged item, a disk that fails) values are
// undefined until the next load that succeeds.
//
// The step that the checkpoint stands at is "step", else "train_state.step", "scheduler.last_epoch"
// or what the optimizer itself has counted. The optimizer takes the checkpoint's hyper-parameters
// of each of its groups (Optimizer::set_hyper_parameters), from the saved group that has its
// parameters, as Python's does; where they differ from the run's, it is logged.
//
// partial: what is missing stays as it is and what is unexpected is ignored, both are reported;
// otherwise they are errors (kNotFound, kInvalidArgument), and so are, of a run with an optimizer
// and a step, a checkpoint that says no step, and of one with a loader, a position in other data or
// in another order of it. Random generators and data that are missing alone are no error: a run of
// more ranks, or of another trainer. Nor is the state of parameters that were frozen when it was
// saved and are trained now: it begins anew, and rank 0 warns of that.
LoadReport load_training_state(const TrainingObjects& objects, const std::string& path,
                               bool partial);
// The same from what is open or in memory: each rank its own copy of the same state
// (state/memory_source.h), or all together what rank 0 has (ranks/broadcast_source.h).
LoadReport load_training_state(const TrainingObjects& objects, const ckpt::StateSource& source,
                               bool partial);

}  // namespace fsdp2::train
