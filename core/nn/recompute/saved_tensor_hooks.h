// Says what autograd nodes keep of the tensors they save for backward. LibTorch's own switch for
// that (at::SavedTensorDefaultHooks) takes Python objects; its engine is asked first, though, and a
// subclass of the engine can answer.
//
//   install_saved_tensor_hooks();
//   {
//     const SavedTensorScope scope(&source);
//     y = f(x);  // each tensor that f saves goes through source.make()
//   }
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace fsdp2::nn {

class SavedTensorSource {
 public:
  virtual ~SavedTensorSource() = default;
  // Hooks for one tensor that is about to be saved. They go with the node that saves it, or with
  // what it saves, whichever is freed first, and may be called and freed on any engine thread.
  // call_pack_hook must not keep the tensor it is given, which may be an output of the node (then
  // the graph would keep itself alive), but tensor.detach(). May throw, out of the operation that
  // saves.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> make() = 0;
};

// While it lives, what this thread's operations save goes through the source; with a null source it
// is saved plainly. Scopes nest, the innermost counts.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorSource* source);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

  // The source that counts in this thread now, or null.
  static SavedTensorSource* current();

 private:
  SavedTensorSource* outer_;
};

// Makes scopes count, for the rest of the process. The first call puts an engine before LibTorch's
// that passes graphs on to it. Any thread. Error: kUnsupported if somebody else's engine is there,
// now or since the first call: that of a Python interpreter with torch in this process.
void install_saved_tensor_hooks();

}  // namespace fsdp2::nn
