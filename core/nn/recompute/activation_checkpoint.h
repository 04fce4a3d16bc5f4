// Activation checkpointing: modules whose forward is run again in backward, instead of keeping what
// it computed. The non-reentrant kind: backward, accumulation, retain_graph, hooks and torch-style
// grad() work as without it.
//
//   checkpoint_by_kind(*model, {"LlamaDecoderLayer"});
//
// A module's forward is the segment (checkpoint_segment.h), without the hooks around it. So a
// module may be checkpointed before or after it is sharded, with the same result: the unit outside,
// the segment inside. A segment around units (a module whose children are sharded) gathers each of
// them once more in backward, when it runs again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/nn/module.h"

namespace fsdp2::nn {

struct ActivationCheckpointOptions {
  // For messages; empty: the module's kind.
  std::string name;
  // Whether the second run ends once backward has what it needs. Off, it runs to its end, so that
  // collectives inside are made as often on all ranks.
  bool early_stop = true;
};

// From now on the module's forward is a segment. Errors: kWrongState if it is one already or has
// another wrapper; kUnsupported if another autograd engine is installed, or by
// SecondRun::check_may_run_again.
void checkpoint_activations(Module& module, const ActivationCheckpointOptions& options = {});
bool checkpoints_activations(const Module& module);

// checkpoint_activations, with early_stop, for every `every`-th module of these classes (Module::
// is_of_class) at or below root, counted in registration order: the last of each `every`. Returns
// how many that are. Errors, before anything is changed: kInvalidArgument for every < 1; kNotFound
// for a kind that is not there, and for no kinds; kWrongState and kUnsupported as above.
int64_t checkpoint_by_kind(Module& root, const std::vector<std::string>& kinds, int64_t every = 1,
                           bool early_stop = true);

// Like checkpoint_by_kind, for every `every`-th of these modules at or below root, whatever their
// order and however often they are given. Errors, before anything is changed: kInvalidArgument for
// every < 1, and for a container, which has no forward; kNotFound for a module that is not there;
// kWrongState and kUnsupported as above.
int64_t checkpoint_modules(Module& root, const std::vector<std::shared_ptr<Module>>& modules,
                           int64_t every = 1, bool early_stop = true);

}  // namespace fsdp2::nn
