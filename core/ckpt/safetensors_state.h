// A safetensors file, or the weights of a Hugging Face directory, as a checkpoint to read boxes
// from. The format has no checksums: only its header is checked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ckpt/checkpoint_format.h"
#include "core/ckpt/safetensors.h"
#include "core/ckpt/state_source.h"

namespace fsdp2::ckpt {

class SafetensorsState final : public StateSource {
 public:
  // format: kSafetensors or kHuggingFaceDirectory.
  SafetensorsState(const std::string& path, CheckpointFormat format);

  void read(const StateEntry& entry, at::IntArrayRef begin, const at::Tensor& out) const override;
  PickleValue read_object(const StateEntry& entry) const override;
  void verify() const override;

 private:
  struct Place {
    size_t file;
    SafetensorsEntry entry;
  };

  std::vector<std::unique_ptr<MappedFile>> files_;
  std::vector<Place> places_;  // by StateEntry::index
};

}  // namespace fsdp2::ckpt
