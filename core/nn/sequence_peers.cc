#include "core/nn/sequence_peers.h"

#include "core/base/error.h"

namespace fsdp2::nn {

void make_inputs_alike(const Module& module, Values& inputs) {
  const auto* sharer = dynamic_cast<const SequenceSharer*>(&module);
  if (sharer != nullptr && sharer->peers() != nullptr) {
    sharer->peers()->make_alike(inputs);
  }
}

int64_t sequence_ranks(const Module& module) {
  const auto* sharer = dynamic_cast<const SequenceSharer*>(&module);
  return sharer == nullptr || sharer->peers() == nullptr ? 1 : sharer->peers()->size();
}

void check_sequence_ranks(const Module& root, int64_t ranks) {
  FSDP2_CHECK(dynamic_cast<const SequenceSharer*>(&root) != nullptr, Code::kUnsupported,
              "sequences shared by {} ranks: expected a language model of a config.json, whose "
              "attention can be shared, found {}",
              ranks, root.kind());
  for (const auto& module : root.modules(/*include_self=*/true)) {
    if (const auto* sharer = dynamic_cast<const SequenceSharer*>(module.get())) {
      sharer->check_peers(ranks);
    }
  }
}

void set_sequence_peers(Module& root, const std::shared_ptr<SequencePeers>& peers) {
  for (const auto& module : root.modules(/*include_self=*/true)) {
    if (auto* sharer = dynamic_cast<SequenceSharer*>(module.get())) {
      sharer->set_peers(peers);
    }
  }
}

}  // namespace fsdp2::nn
