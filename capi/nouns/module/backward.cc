// Backwards, and the gradients of tensors that are not parameters.
#include <ATen/ops/ones_like.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/nouns/module/tensor.h"
#include "capi/object.h"
#include "core/nn/backward.h"
#include "include/fsdp2/tensor.h"

namespace fsdp2::capi {

namespace {

// Puts trees back into their sharded, idle state unless told that all went well.
class ResetUnlessDone {
 public:
  void add(const ModuleObject& module) {
    if (module.mesh) {
      roots_.push_back(fsdp::find_unit(*module.module));
    }
  }
  ~ResetUnlessDone() {
    for (const auto& root : roots_) {
      root->scheduler().reset();
    }
  }
  void done() { roots_.clear(); }

 private:
  std::vector<std::shared_ptr<fsdp::Unit>> roots_;
};

// Backward through a module's graph is a call inside that module.
void enter_producers(Call& call, const TensorObject& output) {
  for (const Producer& producer : output.producers) {
    enter_collective(call, *producer.module);
  }
}

void check_has_graph(const TensorObject& output, const std::string& name) {
  FSDP2_CHECK(output.tensor.requires_grad() && !output.tensor.is_leaf(), Code::kWrongState,
              "{}: expected a tensor that requires grad, found one without a graph (made under "
              "FSDP2_FORWARD_NO_GRAD or FSDP2_OP_NO_GRAD, or by neither a forward nor an operator)",
              name);
  FSDP2_CHECK(!output.spent, Code::kWrongState,
              "{}: backward has run from it already, which freed its graph (keep_graph keeps it)",
              name);
  const bool is_of_today =
      std::all_of(output.producers.begin(), output.producers.end(), [](const Producer& producer) {
        return producer.was_sharded == (producer.module->mesh != nullptr);
      });
  FSDP2_CHECK(is_of_today, Code::kWrongState,
              "{}: its graph was made before the model was sharded, with parameters that are gone: "
              "expected the output of a forward after fsdp2_shard_create",
              name);
}

// gradient: null: 1 for a scalar.
at::Tensor output_gradient(const at::Tensor& output, const fsdp2_tensor* gradient,
                           const std::string& name) {
  if (gradient == nullptr || gradient->id == 0) {
    FSDP2_CHECK(output.numel() == 1, Code::kInvalidArgument,
                "{}: expected a scalar, or a gradient to start with, found {} elements", name,
                output.numel());
    return at::ones_like(output);
  }
  at::Tensor given = pin(*gradient)->tensor;
  check_has_memory(given);
  FSDP2_CHECK(given.sizes() == output.sizes() && given.scalar_type() == output.scalar_type(),
              Code::kInvalidArgument,
              "{}: expected a gradient of shape [{}] and type {}, found [{}] and {}", name,
              fmt::join(output.sizes(), ", "), c10::toString(output.scalar_type()),
              fmt::join(given.sizes(), ", "), c10::toString(given.scalar_type()));
  return given.detach();
}

using Tensors = std::vector<at::Tensor>;

// Whether a part of the graph is freed only its nodes know, and they tell it by one text.
void run_engine(const Tensors& outputs, const Tensors& gradients, bool keep_graph) {
  const std::exception_ptr thrown =
      caught_in([&] { nn::run_backward(outputs, gradients, keep_graph); });
  if (thrown == nullptr) {
    return;
  }
  FSDP2_CHECK(libtorch_text(thrown).find(torch::autograd::ERR_BACKWARD_TWICE) == std::string::npos,
              Code::kWrongState,
              "backward has run through this graph already, from another output, which freed it: "
              "expected all outputs in one call, or keep_graph");
  std::rethrow_exception(thrown);
}

struct Output {
  std::shared_ptr<TensorObject> object;
  const fsdp2_tensor* gradient;
  std::string name;
};

void run_backward(Call& call, const std::vector<Output>& outputs, bool keep_graph) {
  for (const Output& output : outputs) {
    enter_producers(call, *output.object);
  }
  Tensors tensors;
  Tensors gradients;
  for (const Output& output : outputs) {
    check_has_graph(*output.object, output.name);
    tensors.push_back(output.object->tensor);
    gradients.push_back(output_gradient(tensors.back(), output.gradient, output.name));
  }
  call.share_failure();
  ResetUnlessDone reset;
  for (const Output& output : outputs) {
    output.object->spent = !keep_graph;
    for (const Producer& producer : output.object->producers) {
      reset.add(*producer.module);
    }
  }
  run_engine(tensors, gradients, keep_graph);
  reset.done();
}

std::vector<Output> read_outputs(const fsdp2_tensor* outputs, size_t n_outputs,
                                 const fsdp2_tensor* gradients) {
  check_array(outputs, n_outputs, "outputs");
  FSDP2_CHECK(n_outputs > 0, Code::kInvalidArgument, "outputs: expected one tensor at least");
  std::vector<Output> read;
  for (size_t i = 0; i < n_outputs; ++i) {
    read.push_back({pin(outputs[i]), gradients == nullptr ? nullptr : gradients + i,
                    fmt::format("outputs[{}]", i)});
  }
  return read;
}

void set_requires_grad(const at::Tensor& tensor, bool flag) {
  FSDP2_CHECK(tensor.is_leaf() && tensor.is_floating_point(), Code::kInvalidArgument,
              "tensor: expected a floating one that no forward has made, found {} {}",
              tensor.is_leaf() ? "one of" : "a result of", c10::toString(tensor.scalar_type()));
  tensor.set_requires_grad(flag);
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_tensor_set_requires_grad(fsdp2_tensor tensor, int32_t flag) {
  return guard(__func__, [&](Call&) {
    const auto object = pin(tensor);
    capi::set_requires_grad(object->tensor, capi::read_flag(flag, "flag"));
  });
}

fsdp2_status fsdp2_tensor_get_grad(fsdp2_tensor tensor, fsdp2_tensor* out) {
  return guard(__func__, [&](Call&) {
    const auto object = pin(tensor);
    capi::check_not_null(out, "out");
    FSDP2_CHECK(object->tensor.is_leaf() && object->tensor.grad().defined(), fsdp2::Code::kNotFound,
                "tensor: it has no gradient (fsdp2_tensor_set_requires_grad "
                "before the forward records one)");
    *out = capi::give_tensor(object->tensor.grad().detach());
  });
}

fsdp2_status fsdp2_tensor_backward(fsdp2_tensor loss) {
  return guard(__func__, [&](Call& call) {
    capi::run_backward(call, {{pin(loss), nullptr, "loss"}}, false);
  });
}

fsdp2_status fsdp2_tensor_run_backward(const fsdp2_tensor* outputs, size_t n_outputs,
                                       const fsdp2_tensor* gradients, int32_t keep_graph) {
  return guard(__func__, [&](Call& call) {
    const bool keep = capi::read_flag(keep_graph, "keep_graph");
    capi::run_backward(call, capi::read_outputs(outputs, n_outputs, gradients), keep);
  });
}
