// A scripted forward in steps: code that LibTorch's interpreter runs, and calls of modules inside
// between them, which their owners make. Values go from step to step through a frame, whose places
// are emptied by their last readers, as Python forgets what it no longer names.
#pragma once

#include <ATen/core/class_type.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/exported/script/script_effects.h"
#include "core/nn/computation.h"

namespace fsdp2::exported {

struct FrameRead {
  int32_t place = 0;
  bool is_last = false;
};

struct ScriptStep {
  std::string call;  // dotted path of the module inside, below this one; "" for code
  std::shared_ptr<torch::jit::GraphExecutor> code;  // its first input is the module
  std::vector<std::string> parameters;              // that the code reads, by their paths
  std::vector<FrameRead> reads;
  std::vector<int32_t> writes;  // places of the outputs; -1: nobody reads it
};

struct ScriptPlan {
  std::vector<c10::Argument> arguments;  // of forward, the module left out
  std::vector<int32_t> inputs;           // their places
  std::vector<ScriptStep> steps;
  int32_t output = 0;
  size_t frame_size = 0;
  ScriptEffects effects;
  nn::ComputationLines lines;  // of the code
};

// title: of the module, for messages. Errors: those of flat_forward and find_effects.
ScriptPlan plan_script(const c10::ClassType& module, const std::string& title);

}  // namespace fsdp2::exported
