// A model of any architecture, exported in Python with torch.export: a .pt2 file becomes a module
// tree that is sharded and trained like any other. So does a file of TorchScript, see
// script/scripted_model.h.
//
//   ExportedModel model = load_exported("model.pt2");
//   auto root = fsdp::fully_shard_by_kind(model.module, mesh, policy, {"GPT2Block"});
//   fsdp::load_parameters(*root, *model.values);
//
// The program runs as it was exported: train or eval mode, the dtype of its parameters, and the
// ranges of its input sizes are fixed in it. Random nodes (dropout) draw from LibTorch's default
// generators in the order of eager Python.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string>

#include "core/nn/module.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::exported {

struct ExportedModel {
  std::shared_ptr<nn::Module> module;           // with deferred parameters
  std::shared_ptr<nn::ParameterSource> values;  // of the file
  bool has_values = true;                       // false: exported without
  bool draws_random_numbers = false;
};

struct LoadOptions {
  // The floating parameters get it; unset: they keep the program's. It need not be what the program
  // computes in, if sharding casts to that.
  std::optional<at::ScalarType> dtype;
  // Whether our own operators may run in place of a program's nodes: RMSNorm, rotary embedding,
  // gated MLP and linear layers, which differ from them by rounding alone, and refuse second
  // derivatives. They never do in a script.
  bool fuses = true;
};

// Errors: kNotFound, kIo; kCorruptData, kUnsupported, naming the file and the key or node.
ExportedModel load_exported(const std::string& path, const LoadOptions& options = {});

}  // namespace fsdp2::exported
