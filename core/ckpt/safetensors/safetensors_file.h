// The safetensors format, reader and writer.
//
//   offset 0   8 bytes  N, the length of the header, little-endian unsigned
//   offset 8   N bytes  the header, a JSON object in UTF-8 that starts with '{'; spaces may follow
//   8 + N      the data: the tensors' bytes, little-endian, row-major, to the end of the file
//
//   {"__metadata__": {"format": "pt"},                        optional, string -> string
//    "model.norm.weight": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}, ...}
//
// data_offsets are [begin, end) in the data. The tensors' ranges cover the data exactly: no holes,
// no overlap, nothing behind the last. An empty tensor has begin == end; a 0-dim one has shape [].
//
// The format has no checksums; files of ours carry them in the metadata (safetensors/checksums.h),
// and a reader compares the blocks that it reads.
//
// dtypes: BOOL U8 I8 U16 I16 U32 I32 U64 I64 F8_E4M3 F8_E5M2 F8_E8M0 F16 BF16 F32 F64 C64.
//
// A file is data from strangers: the reader checks all of the above, refuses duplicate names and
// headers above 100 MB, and never trusts a length before it has been compared with the file's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/file.h"
#include "core/ckpt/bytes/byte_source.h"
#include "core/ckpt/safetensors/checksums.h"
#include "core/ckpt/state/planned_tensors.h"
#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

struct SafetensorsEntry : TensorSpec {
  int64_t offset;  // from the start of the file
  int64_t bytes;
  std::vector<uint64_t> checksums = {};  // of its blocks (checksum.h); empty if the file has none
};

// A checked file. Immutable: any thread may read from it.
class SafetensorsFile {
 public:
  // Errors: kNotFound, kIo, kCorruptData, kUnsupported (a dtype that is not in the list above),
  // naming the file and, where there is one, the tensor.
  explicit SafetensorsFile(std::string path);

  const std::string& path() const { return file_->path(); }
  // By their place in the file.
  const std::vector<SafetensorsEntry>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // nullptr if there is none of that name. Lives as long as this object, wherever it is moved.
  const SafetensorsEntry* find(const std::string& name) const;

  // The bytes of one of this file's tensors, not aligned to anything; see MappedFile on files that
  // shrink.
  ByteSpan data(const SafetensorsEntry& entry) const;
  // The same to be read, with the bytes of the file around them if the tensor has no checksums.
  std::unique_ptr<ByteSource> source(const SafetensorsEntry& entry) const;
  // Copies `count` of its bytes from `first` on, compared with checksums if there are any.
  // REQUIRES: the range is inside the tensor.
  void read(const SafetensorsEntry& entry, int64_t first, int64_t count, void* out) const;

 private:
  void add_checksums();

  std::shared_ptr<const MappedFile> file_;
  std::map<std::string, std::string> metadata_;  // without the checksums
  std::vector<SafetensorsEntry> tensors_;
  std::unordered_map<std::string, size_t> index_;
};

// The bytes of one tensor of an open file; see SafetensorsFile::source.
std::unique_ptr<ByteSource> source_of(std::shared_ptr<const MappedFile> file,
                                      const SafetensorsEntry& entry);

// Writes a file tensor by tensor, holding no more than the one at hand. Checksums go to their place
// in the header at the end. The file appears when it is complete; see AtomicFile.
//
//   SafetensorsWriter writer(path, {{"a", at::kFloat, {2, 3}}, {"b", at::kBFloat16, {4}}});
//   writer.append("a", a);
//   writer.append("b", b);
//   writer.finish();
class SafetensorsWriter {
 public:
  using Metadata = std::map<std::string, std::string>;

  // The plan's order is the order in the file. Errors: kInvalidArgument for a name twice or
  // reserved, a negative size, or a tensor that would not be aligned to its item size (Python could
  // not read it; `sort_by_item_size` cures it); kUnsupported for a dtype the format lacks; kIo.
  SafetensorsWriter(std::string path, std::vector<TensorSpec> plan,
                    const Metadata& metadata = {{"format", "pt"}});

  // The next tensor of the plan, on any device and in any layout. Errors: those of PlannedTensors.
  void append(const std::string& name, const at::Tensor& tensor);
  // Those of PlannedTensors if tensors are missing.
  void finish();

 private:
  // Nothing is created before the plan has been checked.
  SafetensorsWriter(std::string path, std::vector<TensorSpec> plan, Metadata metadata,
                    TensorChecksums checksums, const std::string& header);

  AtomicFile file_;
  PlannedTensors planned_;
  Metadata metadata_;
  TensorChecksums checksums_;  // zeros until a tensor has been written
};

// Largest item size first, otherwise in the order given: every tensor is then aligned.
void sort_by_item_size(std::vector<TensorSpec>& plan);

}  // namespace fsdp2::ckpt
