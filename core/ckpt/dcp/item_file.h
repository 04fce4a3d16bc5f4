// The items of a DCP directory's data files (__R_N.distcp): one archive (torch/archive.h) for each
// tensor chunk or Python object, back to back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/ckpt/bytes/byte_source.h"
#include "core/ckpt/dcp/metadata.h"
#include "core/ckpt/torch/archive.h"
#include "core/ckpt/value/python_value.h"

namespace fsdp2::ckpt {

// Write one item and return its length in bytes. A chunk may be on any device and have any strides.
// with_checksums: see TorchArchiveWriter.
int64_t write_tensor_item(const ByteSink& sink, const at::Tensor& chunk,
                          bool with_checksums = true);
// An object without tensors in it, or with `tensors` as its records.
int64_t write_object_item(const ByteSink& sink, const PythonValue& object,
                          const std::vector<at::Tensor>& tensors = {});

// A data file that is open for reading, or one item of it. Any thread may read if any may read its
// bytes.
// Errors of all functions name the file and the item: kNotFound, kIo; kCorruptData for an item that
// is not where or what the metadata says; kUnsupported, also for transformed (compressed) items.
class DcpItemFile {
 public:
  explicit DcpItemFile(const std::string& path);
  explicit DcpItemFile(std::shared_ptr<const ByteSource> file) : file_(std::move(file)) {}

  const std::string& path() const { return file_->path(); }
  int64_t size() const { return file_->size(); }

  // Fills `out` with the box that begins at `begin` within chunk `chunk` of a tensor entry: out's
  // sizes from there on; see TorchArchive::read_box. Whether it was compared with a checksum.
  // REQUIRES: entry.storage[chunk] is in this file.
  bool read_box(const DcpEntry& entry, size_t chunk, at::IntArrayRef begin,
                const at::Tensor& out) const;

  // An object entry. The tensors in it, if there are any, are read from `archive`.
  struct Object {
    TorchArchive archive;
    const PythonValue& value() const { return archive.root(); }
  };
  Object read_object(const DcpEntry& entry) const;

  // Compares the checksums of one item, and for a tensor its dtype and shape with the entry.
  // Whether there was one.
  bool verify(const DcpEntry& entry, size_t index) const;
  // CRC-32 of a chunk's values or of an object; nullopt if it was written without. Does not read
  // a tensor's values.
  std::optional<uint32_t> checksum(const DcpEntry& entry, size_t index) const;

 private:
  // Checked: inside the file, and not transformed.
  const DcpStorage& place(const DcpEntry& entry, size_t index) const;
  TorchArchive open(const DcpEntry& entry, size_t index) const;

  std::shared_ptr<const ByteSource> file_;
};

}  // namespace fsdp2::ckpt
