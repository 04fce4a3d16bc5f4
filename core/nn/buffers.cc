#include "core/nn/buffers.h"

namespace fsdp2::nn {

namespace {

void collect(const Module& module, const std::string& prefix, std::vector<NamedBuffer>& out) {
  const auto* some = dynamic_cast<const TransientBuffers*>(&module);
  for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
    if (some == nullptr || !some->is_transient(buffer.key())) {
      out.push_back({prefix + buffer.key(), buffer.value()});
    }
  }
  for (const auto& [name, child] : module.child_modules()) {
    collect(*child, prefix + name + ".", out);
  }
}

}  // namespace

std::vector<NamedBuffer> persistent_buffers(const Module& root) {
  std::vector<NamedBuffer> buffers;
  collect(root, "", buffers);
  return buffers;
}

}  // namespace fsdp2::nn
