// A safetensors file, the weights of a Hugging Face directory, or a directory with the files of
// several ranks, as a checkpoint to read boxes from. The format has no checksums: only its header
// is checked.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/ckpt/checkpoint_format.h"
#include "core/ckpt/dcp_metadata.h"
#include "core/ckpt/safetensors.h"
#include "core/ckpt/state_source.h"

namespace fsdp2::ckpt {

class SafetensorsState final : public StateSource {
 public:
  // format: kSafetensors, kHuggingFaceDirectory or kShardedSafetensors.
  SafetensorsState(const std::string& path, CheckpointFormat format);

  void read(const StateEntry& entry, at::IntArrayRef begin, const at::Tensor& out) const override;
  PickleValue read_object(const StateEntry& entry) const override;
  void verify() const override;

 private:
  void add_whole(const SafetensorsEntry& entry, const std::string& file);
  void add_shards(const std::string& directory);
  void add_chunk(DcpEntry& tensor, const SafetensorsEntry& chunk, std::vector<int64_t> offsets,
                 const std::string& file);
  void check_shards() const;

  std::map<std::string, std::unique_ptr<MappedFile>> files_;  // by path
  // By StateEntry::index: each tensor's chunks, and in which file (its path) and where.
  std::vector<DcpEntry> tensors_;
};

}  // namespace fsdp2::ckpt
