// A safetensors file, a directory with the files of several ranks, or tensors in whatever files, as
// a checkpoint to read boxes from. What is read is compared with the checksums that files of ours
// carry; the format has none of its own.
//
// Files are opened when they are first read, and a few stay open.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ckpt/bytes/open_files.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/ckpt/state/state_source.h"
#include "core/ckpt/value/chunked_tensor.h"

namespace fsdp2::ckpt {

enum class SafetensorsFiles {
  kOne,         // one file
  kOnePerRank,  // a directory with the files of several ranks; see sharding.h
};

struct PlacedSafetensors {
  std::string file;  // path
  SafetensorsEntry entry;
};

class SafetensorsSource final : public StateSource {
 public:
  SafetensorsSource(const std::string& path, SafetensorsFiles files);
  // Whole tensors, where they are; `path` is what the source is called.
  SafetensorsSource(const std::string& path, const std::vector<PlacedSafetensors>& tensors);

  void read(const StateEntry& entry, at::IntArrayRef begin, const at::Tensor& out) const override;
  PythonValue read_object(const StateEntry& entry) const override;
  void verify() const override;

 private:
  using Chunk = PlacedSafetensors;
  struct Tensor {
    std::string name;
    ChunkedTensor whole;
    std::vector<Chunk> chunks;  // as in whole.chunks
  };

  void add_whole(const SafetensorsEntry& entry, const std::string& file);
  void add_shards(const std::string& directory);
  void check_shards() const;
  void list_entries();
  std::shared_ptr<const MappedFile> open(const Chunk& chunk) const;

  std::vector<Tensor> tensors_;  // by StateEntry::index
  mutable OpenFiles files_;
};

}  // namespace fsdp2::ckpt
