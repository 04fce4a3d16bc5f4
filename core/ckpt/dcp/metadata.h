// The .metadata file of a DCP directory (torch.distributed.checkpoint): which tensors and objects
// the checkpoint holds, how each tensor is cut into chunks, and where each chunk lies.
//
//   DcpMetadata metadata;
//   metadata.add({"model.w", {"model", "w"}, ChunkedTensor{at::kFloat, {4, 2}, {{{0, 0}, {4, 2}}}},
//                 {{"__0_0.distcp", 0, 1609, {}}}});
//   std::string bytes = encode_dcp_metadata(metadata);
//
// The file is a pickle of one torch.distributed.checkpoint.metadata.Metadata; see pickle/reader.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/ckpt/value/chunked_tensor.h"
#include "core/ckpt/value/state_path.h"

namespace fsdp2::ckpt {

// Where an item lies: `length` bytes from `offset` on in a file of the directory.
struct DcpStorage {
  std::string relative_path;  // a plain file name
  int64_t offset = 0;
  int64_t length = 0;
  // What was done to the bytes ("stream.zstd/1"), first to last; nearly always empty.
  std::vector<std::string> transforms;
};

struct DcpEntry {
  std::string name;  // the path joined by dots
  // How the name came about: {"optim", "param_groups", 0, "lr"}. Empty if the file has no such
  // data; the name is then the only key.
  StatePath path;
  std::optional<ChunkedTensor> tensor;  // none: a Python object ("bytes item")
  // One for each chunk, in the order of tensor->chunks; exactly one for an object.
  std::vector<DcpStorage> storage;
};

class DcpMetadata {
 public:
  // The version of the format, "1.0.0"; empty in files of old versions of torch.
  std::string version = "1.0.0";

  // In the order of the file.
  const std::vector<DcpEntry>& entries() const { return entries_; }
  // nullptr if there is none of that name. Valid until the next add.
  const DcpEntry* find(std::string_view name) const;
  // kInvalidArgument if the name is there already.
  void add(DcpEntry entry);

 private:
  std::vector<DcpEntry> entries_;
  std::unordered_map<std::string, size_t> index_;
};

// The bytes of a .metadata file that Python reads. Errors: kInvalidArgument, with the entry's name,
// for what decode_dcp_metadata would refuse.
std::string encode_dcp_metadata(const DcpMetadata& metadata);

// The checked content of a .metadata file; `file_name` is for messages. Checked: each chunk lies in
// its tensor and overlaps no other, each item has a place, every file name is a plain name. Not
// checked: that chunks cover their tensor (one rank's own metadata does not), that files exist.
// Errors: kCorruptData; kUnsupported for a newer major version, or a dtype or layout that is not
// handled.
DcpMetadata decode_dcp_metadata(std::string_view bytes, const std::string& file_name);

inline constexpr char kDcpMetadataName[] = ".metadata";
inline constexpr int64_t kMaxDcpMetadataBytes = int64_t{1} << 30;

}  // namespace fsdp2::ckpt
