// .pth files as a checkpoint to read boxes from: one file with whole tensors, or one file a rank
// with what that rank held; see per_rank_files.h and rank_files.h.
//
// A tensor's checksum is compared before the first part of it is given out; a file that was written
// without checksums has none to compare.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/ckpt/bytes/open_files.h"
#include "core/ckpt/state/state_source.h"
#include "core/ckpt/torch/archive.h"
#include "core/ckpt/torch/per_rank_files.h"
#include "core/ckpt/value/box.h"

namespace fsdp2::ckpt {

enum class PthFiles {
  kOne,            // one file, whose tensors are whole
  kOnePerRank,     // a directory, of which all files of the highest step are read
  kOneOfEachRank,  // files that other trainers have written, whose DTensors say where they lie
};

class PthSource final : public StateSource {
 public:
  PthSource(const std::string& path, PthFiles files);
  // path: what messages name.
  PthSource(const std::string& path, PthFiles kind, const std::vector<std::string>& files);

  void read(const StateEntry& entry, at::IntArrayRef begin, const at::Tensor& out) const override;
  PythonValue read_object(const StateEntry& entry) const override;
  void verify() const override;

 private:
  struct Chunk {
    size_t archive;
    const StoredTensor* tensor;
  };
  struct Place {
    std::vector<Chunk> chunks;            // of a tensor; of equal ones the first
    std::vector<Box> boxes;               // of the chunks
    const PythonValue* object = nullptr;  // lives in its archive
  };

  void add_file(const std::string& file);
  void add_tensor(size_t archive, const StoredTensor& tensor, const StatePath& path,
                  const PythonValue* shards);
  void check_pieces() const;

  const PthFiles kind_;
  bool has_parts_ = false;  // of DTensors
  const std::shared_ptr<OpenFiles> files_ = std::make_shared<OpenFiles>();
  std::vector<std::unique_ptr<TorchArchive>> archives_;
  std::vector<StateEntry> listed_;  // while files are added
  std::unordered_map<std::string, size_t> index_of_;
  std::vector<Place> places_;  // by StateEntry::index
};

}  // namespace fsdp2::ckpt
