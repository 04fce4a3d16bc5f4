#include "core/nn/backward.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/base/error.h"
#include "core/device/plugin.h"

namespace fsdp2::nn {

namespace {

// Nodes of the graph that have not run wait in a queue of this thread, which LibTorch only empties
// of them when the thread runs its next backward: those without a task come first in it.
void empty_queue_of_thread() {
  const at::AutoGradMode grad_mode(true);
  const at::Tensor leaf = at::zeros({}, at::kCPU).set_requires_grad(true);
  torch::autograd::backward({leaf.view({1})}, {at::zeros({1}, at::kCPU)});
}

}  // namespace

at::Tensor scalar_loss(const c10::IValue& output) {
  FSDP2_CHECK(output.isTensor() && output.toTensor().defined() && output.toTensor().numel() == 1 &&
                  output.toTensor().is_floating_point(),
              Code::kInvalidArgument,
              "a training step needs a model whose output is its loss, one floating-point number, "
              "got {}; pass the labels with the inputs",
              output.isTensor() ? fmt::format("a tensor of {} elements", output.toTensor().numel())
                                : output.tagKind());
  return output.toTensor();
}

void run_backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients,
                  bool keep_graph) {
  note_backward();
  try {
    torch::autograd::backward(outputs, gradients, keep_graph);
  } catch (...) {
    empty_queue_of_thread();
    throw;
  }
}

}  // namespace fsdp2::nn
