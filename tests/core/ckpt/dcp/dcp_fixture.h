// DCP directories put together by hand, as other programs lay them out: without a manifest, over as
// many files as one likes.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/ckpt/dcp/item_file.h"
#include "core/ckpt/dcp/metadata.h"
#include "tests/core/ckpt/torch/zip_fixture.h"

namespace fsdp2::ckpt {

// A pickle that the safe reader refuses: it would make a numpy array.
inline const char kRefusedPickle[] =
    "\x80\x02"
    "cnumpy.core.multiarray\n_reconstruct\n.";

class DcpBuilder {
 public:
  explicit DcpBuilder(std::string directory) : directory_(std::move(directory)) {
    std::filesystem::create_directories(directory_);
  }

  // A tensor in so many chunks of rows, each in the next file; 0-d ones in one chunk.
  void add_tensor(std::vector<PathPart> path, const at::Tensor& tensor, int64_t chunks = 1,
                  bool with_checksums = true) {
    DcpEntry entry{joined(path), std::move(path), ChunkedTensor{}, {}};
    entry.tensor = ChunkedTensor{tensor.scalar_type(), tensor.sizes().vec(), {}};
    for (int64_t i = 0; i < chunks; ++i) {
      std::vector<int64_t> offsets(tensor.sizes().size(), 0);
      at::Tensor rows = tensor;
      if (tensor.dim() > 0) {
        const int64_t count = (tensor.size(0) + chunks - 1) / chunks;
        offsets[0] = i * count;
        rows = tensor.narrow(0, offsets[0], std::min(count, tensor.size(0) - offsets[0])).clone();
      }
      entry.tensor->chunks.push_back({offsets, rows.sizes().vec()});
      const std::string file = next_file();
      entry.storage.push_back(placed(file, write_tensor_item(sink_of(file), rows, with_checksums)));
    }
    entries_.push_back(std::move(entry));
  }

  void add_object(std::vector<PathPart> path, const PythonValue& value) {
    const std::string file = next_file();
    const DcpStorage storage = placed(file, write_object_item(sink_of(file), value));
    entries_.push_back({joined(path), std::move(path), std::nullopt, {storage}});
  }

  // One whose pickle has these bytes.
  void add_pickle(std::vector<PathPart> path, const std::string& pickle) {
    add_archive(std::move(path),
                zip_text({{"archive/data.pkl", pickle}, {"archive/version", "3\n"}}));
  }

  // An object that torch.save has written as these bytes.
  void add_archive(std::vector<PathPart> path, const std::string& archive) {
    const std::string file = next_file();
    sink_of(file)(archive.data(), archive.size());
    const DcpStorage storage = placed(file, static_cast<int64_t>(archive.size()));
    entries_.push_back({joined(path), std::move(path), std::nullopt, {storage}});
  }

  void write() {
    DcpMetadata metadata;
    for (DcpEntry& entry : entries_) {
      metadata.add(std::move(entry));
    }
    for (const auto& [name, bytes] : files_) {
      put(name, bytes);
    }
    put(kDcpMetadataName, encode_dcp_metadata(metadata));
  }

  // Items go to so many files in turn.
  void spread(int files) { file_count_ = files; }

 private:
  static std::string joined(const std::vector<PathPart>& path) {
    std::string name;
    for (const PathPart& part : path) {
      const auto* text = std::get_if<std::string>(&part);
      name += (name.empty() ? "" : ".") +
              (text != nullptr ? *text : std::to_string(std::get<int64_t>(part)));
    }
    return name;
  }

  std::string next_file() { return "__" + std::to_string(next_++ % file_count_) + "_0.distcp"; }

  ByteSink sink_of(const std::string& file) {
    std::string* bytes = &files_[file];
    return [bytes](const void* data, size_t count) {
      bytes->append(static_cast<const char*>(data), count);
    };
  }

  DcpStorage placed(const std::string& file, int64_t bytes) {
    return {file, static_cast<int64_t>(files_[file].size()) - bytes, bytes, {}};
  }

  void put(const std::string& name, const std::string& bytes) const {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << bytes;
  }

  std::string directory_;
  int file_count_ = 1;
  int next_ = 0;
  std::map<std::string, std::string> files_;
  std::vector<DcpEntry> entries_;
};

}  // namespace fsdp2::ckpt
