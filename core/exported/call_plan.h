// A call of a module, ready to run: its values have places in a frame that lives as long as the
// call, and each place is emptied by its last reader, as Python forgets what it no longer names.
#pragma once

#include <cstdint>
#include <vector>

#include "core/exported/fusions/fusion.h"
#include "core/exported/module_calls.h"
#include "core/exported/operators/operations.h"
#include "core/exported/program/program.h"

namespace fsdp2::exported {

struct ReadPlace {
  int32_t index = 0;
  bool is_bound = false;  // index is a value of what is bound before the program runs
  bool is_last = false;   // else a place in the frame; nothing reads it after this
};

struct Step {
  const Operation* operation = nullptr;  // or:
  int32_t call = -1;                     // or:
  const Fusion* fusion = nullptr;
  // An operation's values in order of its inputs; the inputs of a call or a fusion.
  std::vector<ReadPlace> reads;
  std::vector<int32_t> writes;  // places of results in order; -1: nobody reads it
  std::vector<Step> plain;      // a fusion's nodes, and calls that run no others
};

struct CallPlan {
  size_t frame_size = 0;
  std::vector<int32_t> inputs;  // places
  std::vector<Step> steps;
  std::vector<ReadPlace> outputs;
};

// One for each call.
std::vector<CallPlan> plan_calls(const Program& program, const std::vector<ModuleCall>& calls,
                                 const std::vector<Operation>& operations,
                                 const std::vector<Fusion>& fusions);

}  // namespace fsdp2::exported
