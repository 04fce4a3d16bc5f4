#include "core/ckpt/torch/zip_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/bytes/tensor_box.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

constexpr int64_t kReadAtOnce = int64_t{1} << 22;

void check_checksum(const std::string& label, const std::string& name, const ZipRecord& record,
                    uint32_t found) {
  FSDP2_CHECK(record.checksum == 0 || record.checksum == found, Code::kCorruptData,
              "{}: record {} is damaged: its checksum is {:08x}, expected {:08x}", label,
              printable_name(name), found, record.checksum);
}

// Reads all of it.
uint32_t checksum_of(const ByteSource& file, const ZipRecord& record) {
  std::vector<char> part(static_cast<size_t>(std::min(record.bytes, kReadAtOnce)));
  uint32_t checksum = 0;
  for (int64_t done = 0; done < record.bytes;) {
    const int64_t now = std::min(record.bytes - done, kReadAtOnce);
    file.read(record.offset + done, now, part.data());
    checksum = zip_checksum(part.data(), static_cast<size_t>(now), checksum);
    done += now;
  }
  return checksum;
}

bool is_whole_record(const ZipRecord& record, const StoredTensor& tensor, const at::Tensor& out) {
  return out.numel() > 0 && tensor.storage_offset == 0 &&
         record.bytes == static_cast<int64_t>(out.nbytes()) &&
         out.sizes() == at::IntArrayRef(tensor.shape) && out.is_cpu() && out.is_contiguous() &&
         out.scalar_type() == tensor.dtype && is_row_major(out.sizes(), tensor.stride);
}

}  // namespace

// torch.save can be told to compute no checksums: all are 0 then.
std::optional<uint32_t> checksum_in(const ZipRecord& record) {
  return record.checksum != 0 || record.bytes == 0 ? std::optional<uint32_t>(record.checksum)
                                                   : std::nullopt;
}

ZipRecords::ZipRecords(std::shared_ptr<const ByteSource> file, int64_t offset, int64_t length,
                       std::string label, ZipEntries allowed)
    : file_(std::move(file)),
      label_(std::move(label)),
      records_(read_zip_directory(*file_, offset, length, label_, allowed)) {}

const ZipRecord* ZipRecords::find(const std::string& name) const {
  const auto found = records_.find(name);
  return found == records_.end() ? nullptr : &found->second;
}

std::string ZipRecords::read_text(const std::string& name, int64_t max_bytes,
                                  const char* expected) const {
  const ZipRecord* record = find(name);
  FSDP2_CHECK(record != nullptr, Code::kCorruptData, "{}: has no record {}: not a {}", label_,
              printable_name(name), expected);
  FSDP2_CHECK(record->bytes <= max_bytes, Code::kCorruptData,
              "{}: its record {} has {} bytes, at most {} are accepted", label_,
              printable_name(name), record->bytes, max_bytes);
  std::string text = bytes_of(name, *record);
  check_checksum(label_, name, *record, zip_checksum(text.data(), text.size()));
  return text;
}

std::string ZipRecords::bytes_of(const std::string& name, const ZipRecord& record) const {
  std::string bytes(static_cast<size_t>(record.bytes), '\0');
  if (record.packed_bytes == 0) {
    file_->read(record.offset, record.bytes, bytes.data());
    return bytes;
  }
  std::string packed(static_cast<size_t>(record.packed_bytes), '\0');
  file_->read(record.offset, record.packed_bytes, packed.data());
  FSDP2_CHECK(zip_unpack(packed, bytes), Code::kCorruptData,
              "{}: record {} is damaged: it does not unpack to {} bytes", label_,
              printable_name(name), record.bytes);
  return bytes;
}

void ZipRecords::read_box(const std::string& name, const StoredTensor& tensor,
                          at::IntArrayRef begin, const at::Tensor& out) const {
  const ZipRecord& record = records_.at(name);
  const bool compares = !file_->is_checked() && record.checksum != 0 && out.numel() > 0;
  const bool is_whole = is_whole_record(record, tensor, out);
  if (compares && !is_whole) {
    verify_once(name, record);
  }
  read_tensor_box(*file_, record.offset, tensor, begin, out, label_);
  if (compares && is_whole) {
    check_checksum(label_, name, record, zip_checksum(out.const_data_ptr(), out.nbytes()));
  }
}

std::string ZipRecords::mark_of(const std::string& name, const StoredTensor& tensor) const {
  const std::optional<uint32_t> checksum = checksum_in(records_.at(name));
  return !checksum ? std::string()
                   : fmt::format("{} from {} on of bytes with checksum {:08x}",
                                 c10::toString(tensor.dtype), tensor.storage_offset, *checksum);
}

void ZipRecords::verify_once(const std::string& name, const ZipRecord& record) const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (verified_.count(name) != 0) {
      return;
    }
  }
  verify_record(name, record);
  const std::lock_guard<std::mutex> lock(mutex_);
  verified_.insert(name);
}

void ZipRecords::verify_record(const std::string& name, const ZipRecord& record) const {
  if (record.packed_bytes == 0) {
    check_checksum(label_, name, record, checksum_of(*file_, record));
  } else {
    const std::string bytes = bytes_of(name, record);
    check_checksum(label_, name, record, zip_checksum(bytes.data(), bytes.size()));
  }
}

void ZipRecords::verify() const {
  for (const auto& [name, record] : records_) {
    verify_record(name, record);
  }
}

}  // namespace fsdp2::ckpt
