// Base class of the modules that can be sharded. LibTorch's C++ modules have no forward hooks:
// calling a Module runs its hooks around `forward`.
//
// Modules are single-device code that knows nothing of sharding. They register parameters,
// buffers and children with torch::nn::Module's register_*; a parameter registered in two places
// is one tensor (a tie).
//
// Values are IValues, so that inputs and outputs may be nested lists, tuples and dicts.
//
// Deferred parameters: `deferred` makes parameters with a shape and no memory. They get memory and
// values from the module tree's ParameterSource: rank by rank when the tree is sharded, or whole
// by `materialize`.
//
// One thread at a time per module tree.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/api/include/torch/nn/module.h>

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/nn/parameter_source.h"

namespace fsdp2::nn {

class Module;
using Values = std::vector<c10::IValue>;
using ForwardBody = std::function<c10::IValue(Values inputs)>;

// Inputs by position: the first `required` must be there, those after them may be None or left out.
struct InputCount {
  size_t required = 0;
  size_t most = std::numeric_limits<size_t>::max();
};

// Runs around a module's forward. Hooks run in the order added before forward, in reverse after.
class ForwardHooks {
 public:
  virtual ~ForwardHooks() = default;
  // May replace inputs.
  virtual void pre_forward(Module& module, Values& inputs) = 0;
  // May replace the output.
  virtual void post_forward(Module& module, c10::IValue& output) = 0;
  // Instead of post_forward if forward threw; in backward a recomputation of forward also throws
  // once it has all that is needed. Must not throw.
  virtual void forward_failed(Module& module) noexcept = 0;
};

// Runs a module's forward in its stead, inside all hooks.
class ForwardWrapper {
 public:
  virtual ~ForwardWrapper() = default;
  // forward: the module's own. May be kept and called again while the module lives.
  virtual c10::IValue run(Module& module, const ForwardBody& forward, Values inputs) = 0;
};

class Module : public torch::nn::Module {
 public:
  // kind: class name as in the transformers library ("LlamaDecoderLayer"); wrapping policies and
  // messages use it.
  explicit Module(std::string kind) : torch::nn::Module(kind), kind_(std::move(kind)) {}

  const std::string& kind() const { return kind_; }

  // Another name under which callers may choose modules of this kind: the transformers library's
  // class, where that does not tell apart what kinds here do.
  void add_class_alias(std::string name) { class_aliases_.push_back(std::move(name)); }
  // Whether a caller who chooses modules by these class names means this one: kind or alias.
  bool is_of_class(const std::string& name) const;
  bool is_of_any_class(const std::vector<std::string>& names) const;

  // Hooks, forward (wrapped if there is a wrapper), hooks.
  c10::IValue operator()(Values inputs);
  // The hooks around another entry point than forward.
  c10::IValue run(Values inputs, const ForwardBody& body);
  // The common case: one tensor in, one out.
  at::Tensor operator()(const at::Tensor& input) { return (*this)(Values{input}).toTensor(); }

  void add_hooks(std::shared_ptr<ForwardHooks> hooks) { hooks_.push_back(std::move(hooks)); }
  void remove_hooks(const ForwardHooks* hooks);
  const std::vector<std::shared_ptr<ForwardHooks>>& hooks() const { return hooks_; }

  // At most one; null takes it away.
  void set_forward_wrapper(std::shared_ptr<ForwardWrapper> wrapper) {
    wrapper_ = std::move(wrapper);
  }
  const std::shared_ptr<ForwardWrapper>& forward_wrapper() const { return wrapper_; }

  // Which inputs forward takes, so that a caller is refused before hooks run and ranks wait for
  // each other. By default any, and all of them may be None.
  virtual InputCount input_count() const { return {}; }
  // Throws what forward would throw for these inputs by themselves: values out of range, say.
  virtual void check_inputs(const Values& /*inputs*/) const {}
  // Which modules inside run for these inputs, where that follows from them: "images=none". Ranks
  // that gather what they use, when they use it, must have it alike. REQUIRES: check_inputs.
  virtual std::string path_of(const Values& /*inputs*/) const { return {}; }

  // Whether the host reads this input of forward, so that it stays there, and stays as it is, in
  // whatever dtype and wherever the module runs.
  virtual bool is_read_by_host(size_t /*place*/, const at::Tensor& /*input*/) const {
    return false;
  }
  // Whether a unit of this module leaves floating-point inputs in their dtype even where its policy
  // casts them: some are to be more exact than what the module computes in.
  virtual bool keeps_input_dtypes() const { return false; }

  // Names of module kinds below (and including) this one that a wrapping policy should keep whole.
  virtual std::vector<std::string> no_split_kinds() const { return {}; }

  // Children that are fsdp2::nn::Module, in registration order, with their names.
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> child_modules() const;

 protected:
  virtual c10::IValue forward(Values inputs) = 0;

 private:
  std::string kind_;
  std::vector<std::string> class_aliases_;
  std::vector<std::shared_ptr<ForwardHooks>> hooks_;
  std::shared_ptr<ForwardWrapper> wrapper_;
};

// A parameter with a shape and no memory (a tensor over an empty storage, requires_grad set).
// Models are made on the host, and fully_shard moves them to the mesh's device.
at::Tensor deferred_parameter(at::IntArrayRef shape, at::ScalarType dtype,
                              at::Device device = at::kCPU);
// True for a tensor with elements whose storage is empty: deferred, or freed by FSDP.
bool has_no_memory(const at::Tensor& tensor);
// Gives the storage exactly `bytes` bytes, uninitialised (0 frees), keeping the tensor object, its
// views and its autograd identity. The old contents are lost.
void resize_storage(const at::Tensor& tensor, int64_t bytes);

// The memory of a tensor that has none so far: given at once, and taken away again at the end of
// this object unless the values have come.
class MemoryForValues {
 public:
  explicit MemoryForValues(const at::Tensor& tensor);
  MemoryForValues(MemoryForValues&&) = default;
  MemoryForValues& operator=(MemoryForValues&&) = delete;
  ~MemoryForValues();

  void keep() { tensor_.reset(); }

 private:
  at::Tensor tensor_;
};

// Gives every deferred parameter below `root` memory and its values from `source`, each tied
// parameter once, under its name_in().
void materialize(Module& root, ParameterSource& source);

// Every parameter below root once, under its first name in registration order, with all its names.
struct NamedParameter {
  std::vector<std::string> names;  // dotted; names[0] is the parameter's own, the rest are ties
  at::Tensor tensor;
};
std::vector<NamedParameter> named_unique_parameters(const torch::nn::Module& root);

}  // namespace fsdp2::nn
