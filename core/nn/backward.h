// LibTorch's backward, without what a failed one leaves behind.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace fsdp2::nn {

// The output of a module that is its loss. Error: kInvalidArgument unless it is one floating-point
// number.
at::Tensor scalar_loss(const c10::IValue& output);

// Runs backward from `outputs`, starting with `gradients`, one for each; keep_graph as retain_graph
// of torch::autograd::backward. If a node or a hook throws, the exception goes on and nothing of
// the graph stays behind: LibTorch alone would keep the nodes that have not run, and so the whole
// model, until this thread's next backward.
void run_backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients,
                  bool keep_graph = false);

}  // namespace fsdp2::nn
