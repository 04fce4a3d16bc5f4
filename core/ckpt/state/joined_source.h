// Several checkpoints as one: a model and its optimizer, which some trainers save apart.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ckpt/state/state_source.h"

namespace fsdp2::ckpt {

class JoinedSource final : public StateSource {
 public:
  struct Part {
    std::unique_ptr<StateSource> source;
    StatePath under;  // where its entries go: {"model"}; {}: as they are
  };

  // path: what messages name. Errors: kCorruptData for a name twice.
  JoinedSource(const std::string& path, std::vector<Part> parts);

  void read(const StateEntry& entry, at::IntArrayRef begin, const at::Tensor& out) const override;
  PythonValue read_object(const StateEntry& entry) const override;
  void verify() const override;

 private:
  struct Place {
    const StateSource* source;
    const StateEntry* entry;
  };

  const std::vector<Part> parts_;
  std::vector<Place> places_;  // by StateEntry::index
};

}  // namespace fsdp2::ckpt
