#include "core/nn/recompute/saved_tensor_hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/base/libtorch_version.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::GraphTask;
using torch::autograd::InputBuffer;
using torch::autograd::SavedVariableHooks;
using torch::autograd::variable_list;

thread_local SavedTensorSource* current_source = nullptr;

// Only answers which hooks to use. LibTorch's own engine goes on running the graphs: it may have
// run some already, and device threads are started once in a process, for the engine that asks
// first.
class HookedEngine : public Engine {
 public:
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return current_source == nullptr ? nullptr : current_source->make();
  }

  variable_list execute(const edge_list& roots, const variable_list& inputs, bool keep_graph,
                        bool create_graph, bool accumulate_grad,
                        const edge_list& outputs) override {
    return get_base_engine().execute(roots, inputs, keep_graph, create_graph, accumulate_grad,
                                     outputs);
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<GraphTask>& graph_task, AutogradNodePtr graph_root,
      InputBuffer&& input_buffer) override {
    return get_base_engine().execute_with_graph_task(graph_task, std::move(graph_root),
                                                     std::move(input_buffer));
  }

  ~HookedEngine() override { stop(); }
};

Engine& hooked_engine() {
  // Never destroyed: threads may still save tensors when the statics of the library go.
  static auto* engine = new HookedEngine;
  return *engine;
}

}  // namespace

SavedTensorScope::SavedTensorScope(SavedTensorSource* source)
    : outer_(std::exchange(current_source, source)) {}

SavedTensorScope::~SavedTensorScope() { current_source = outer_; }

SavedTensorSource* SavedTensorScope::current() { return current_source; }

void install_saved_tensor_hooks() {
  if (&Engine::get_default_engine() == &hooked_engine()) {
    return;
  }
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const Engine* engine = &Engine::get_default_engine();
  FSDP2_CHECK(engine == &Engine::get_base_engine() || engine == &hooked_engine(),
              Code::kUnsupported,
              "activation checkpointing (or unshard_in_backward off): another autograd engine is "
              "installed, as by a Python interpreter with torch in this process; expected "
              "LibTorch's own: train without that option, or in a process of its own");
  torch::autograd::set_default_engine_stub(hooked_engine);
}

}  // namespace fsdp2::nn
