// What differs between the versions of LibTorch that libfsdp2 builds with, 2.11 to 2.15: the one
// file that asks for the version. third_party/libtorch.sh lists them.
#pragma once

#include <torch/headeronly/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 11 || TORCH_VERSION_MINOR > 15
#error "libfsdp2 builds with LibTorch 2.11 to 2.15"
#endif

#if TORCH_VERSION_MINOR >= 13
#include <c10/util/intrusive_ptr.h>
#else
#include <memory>
#endif

namespace torch::autograd {
struct Node;
}

namespace fsdp2 {

// How autograd holds the nodes of its graphs.
#if TORCH_VERSION_MINOR >= 13
using AutogradNodePtr = c10::intrusive_ptr<torch::autograd::Node>;
#else
using AutogradNodePtr = std::shared_ptr<torch::autograd::Node>;
#endif

}  // namespace fsdp2
