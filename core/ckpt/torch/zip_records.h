// The entries of a zip archive as PyTorch writes it, open for reading: small texts and tensors,
// compared with the checksums that the archive has of them.
//
// An archive may have been written without checksums: all are 0 then, and nothing is compared. Any
// thread may read if any may from the file's bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "core/ckpt/bytes/byte_source.h"
#include "core/ckpt/torch/zip.h"
#include "core/ckpt/value/python_value.h"

namespace fsdp2::ckpt {

class ZipRecords {
 public:
  // The archive in bytes [offset, offset + length) of a file; `label` is for messages.
  // Errors: those of read_zip_directory.
  ZipRecords(std::shared_ptr<const ByteSource> file, int64_t offset, int64_t length,
             std::string label, ZipEntries allowed = ZipEntries::kStored);

  const ByteSource& file() const { return *file_; }
  const std::string& label() const { return label_; }
  const std::unordered_map<std::string, ZipRecord>& all() const { return records_; }
  // nullptr if there is none.
  const ZipRecord* find(const std::string& name) const;

  // All of a record. Errors: kCorruptData if it is missing (then the file is no `expected`, as
  // "file of torch.save"), larger than max_bytes or damaged.
  std::string read_text(const std::string& name, int64_t max_bytes, const char* expected) const;
  // See TorchArchive::read_box. The tensor is in the record `name`, whatever its own storage says.
  // REQUIRES: the record is there, stored as it is, and the tensor lies inside it.
  void read_box(const std::string& name, const StoredTensor& tensor, at::IntArrayRef begin,
                const at::Tensor& out) const;

  // What tells the tensor, if it lies in this record, from others, as far as the directory does; ""
  // for an archive without checksums. REQUIRES: the record is there.
  std::string mark_of(const std::string& name, const StoredTensor& tensor) const;

  // Reads every record and compares checksums.
  void verify() const;

 private:
  std::string bytes_of(const std::string& name, const ZipRecord& record) const;
  void verify_record(const std::string& name, const ZipRecord& record) const;
  void verify_once(const std::string& name, const ZipRecord& record) const;

  const std::shared_ptr<const ByteSource> file_;
  const std::string label_;
  const std::unordered_map<std::string, ZipRecord> records_;
  mutable std::mutex mutex_;                          // of verified_
  mutable std::unordered_set<std::string> verified_;  // names of records
};

// The record's checksum; nullopt if the archive was written without.
std::optional<uint32_t> checksum_in(const ZipRecord& record);

}  // namespace fsdp2::ckpt
