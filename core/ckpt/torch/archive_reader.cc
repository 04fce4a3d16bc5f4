#include <ATen/Functions.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/bytes/tensor_box.h"
#include "core/ckpt/pickle/reader.h"
#include "core/ckpt/torch/archive.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

constexpr char kPickle[] = "data.pkl";
constexpr int64_t kMaxVersion = 10;
constexpr int64_t kMaxSmallRecordBytes = 64;
constexpr int64_t kReadAtOnce = int64_t{1} << 22;
// torch.save before 1.6: a pickle of this number comes first.
constexpr std::string_view kOldMagic("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);

std::string record_name(const std::string& key) { return "data/" + key; }

void check_not_old_format(const ByteSource& file, int64_t offset, int64_t length,
                          const std::string& label) {
  if (length < static_cast<int64_t>(kOldMagic.size())) {
    return;
  }
  std::string begin(kOldMagic.size(), '\0');
  file.read(offset, static_cast<int64_t>(begin.size()), begin.data());
  FSDP2_CHECK(begin != kOldMagic, Code::kUnsupported,
              "{}: is in torch.save's format of before 1.6: load it in Python and save it again",
              label);
}

// torch.save can be told to compute no checksums: all are 0 then.
std::optional<uint32_t> checksum_in(const ZipRecord& record) {
  return record.checksum != 0 || record.bytes == 0 ? std::optional<uint32_t>(record.checksum)
                                                   : std::nullopt;
}

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

bool is_whole_record(const StoredTensor& tensor, const at::Tensor& out) {
  return out.numel() > 0 && tensor.storage_offset == 0 && tensor.storage_numel == out.numel() &&
         out.sizes() == at::IntArrayRef(tensor.shape) && out.is_cpu() && out.is_contiguous() &&
         out.scalar_type() == tensor.dtype && is_row_major(out.sizes(), tensor.stride);
}

}  // namespace

TorchArchive::TorchArchive(const std::string& path)
    : TorchArchive(std::make_shared<const FileBytes>(path)) {}

TorchArchive::TorchArchive(std::shared_ptr<const ByteSource> file)
    : file_(std::move(file)), label_(file_->path()) {
  open(0, file_->size());
}

TorchArchive::TorchArchive(std::shared_ptr<const ByteSource> file, int64_t offset, int64_t length,
                           const std::string& item)
    : file_(std::move(file)), label_(fmt::format("{}: {}", file_->path(), printable_name(item))) {
  FSDP2_CHECK(
      offset >= 0 && length >= 0 && offset <= file_->size() && length <= file_->size() - offset,
      Code::kCorruptData,
      "{}: expected at {} with {} bytes, the file has {}: incomplete, or of another "
      "checkpoint",
      label_, offset, length, file_->size());
  open(offset, length);
}

void TorchArchive::open(int64_t offset, int64_t length) {
  check_not_old_format(*file_, offset, length, label_);
  records_ = read_zip_directory(*file_, offset, length, label_);
  check_is_readable();
  root_ = read_pickle(read_small_record(kPickle, kMaxPickleBytes), PickleNames::kTorchSave, label_);
  check_tensors(root_);
}

std::string TorchArchive::read_small_record(const std::string& name, int64_t max_bytes) const {
  const auto found = records_.find(name);
  FSDP2_CHECK(found != records_.end(), Code::kCorruptData,
              "{}: has no record {}: not a file of torch.save", label_, name);
  FSDP2_CHECK(found->second.bytes <= max_bytes, Code::kCorruptData,
              "{}: its record {} has {} bytes, at most {} are accepted", label_, name,
              found->second.bytes, max_bytes);
  std::string text(static_cast<size_t>(found->second.bytes), '\0');
  file_->read(found->second.offset, found->second.bytes, text.data());
  check_checksum(label_, name, found->second, zip_checksum(text.data(), text.size()));
  return text;
}

void TorchArchive::check_is_readable() const {
  FSDP2_CHECK(records_.count("constants.pkl") == 0, Code::kUnsupported,
              "{}: is a TorchScript program, expected a file of torch.save", label_);
  const std::string version = read_small_record("version", kMaxSmallRecordBytes);
  int64_t number = 0;
  const auto parsed = std::from_chars(version.data(), version.data() + version.size(), number);
  FSDP2_CHECK(parsed.ec == std::errc() && number >= 1, Code::kCorruptData,
              "{}: its record version says {}", label_, printable_name(version));
  FSDP2_CHECK(number <= kMaxVersion, Code::kUnsupported,
              "{}: has version {} of torch.save's format, the newest known is {}", label_, number,
              kMaxVersion);
  if (records_.count("byteorder") != 0) {
    const std::string order = read_small_record("byteorder", kMaxSmallRecordBytes);
    FSDP2_CHECK(order == "little", Code::kUnsupported, "{}: its byte order is {}, expected little",
                label_, printable_name(order));
  }
}

void TorchArchive::check_tensors(const PythonValue& value) const {
  if (const auto* tensor = value.as<StoredTensor>()) {
    const ZipRecord& record = record_of(*tensor);
    const auto item_size = static_cast<int64_t>(c10::elementSize(tensor->dtype));
    FSDP2_CHECK(record.bytes % item_size == 0 && record.bytes / item_size == tensor->storage_numel,
                Code::kCorruptData,
                "{}: its record {} has {} bytes, expected {} elements of {} bytes", label_,
                record_name(tensor->storage), record.bytes, tensor->storage_numel, item_size);
  }
  for_each_child(value, [this](const PythonValue& child) { check_tensors(child); });
}

const ZipRecord& TorchArchive::record_of(const StoredTensor& tensor) const {
  const auto found = records_.find(record_name(tensor.storage));
  FSDP2_CHECK(found != records_.end(), Code::kCorruptData,
              "{}: a tensor is in record {}, which is missing", label_,
              printable_name(record_name(tensor.storage)));
  return found->second;
}

at::Tensor TorchArchive::read(const StoredTensor& tensor) const {
  const at::IntArrayRef shape(tensor.shape);
  const int64_t numel = c10::multiply_integers(shape);
  // Expanded views: a few bytes that claim to be many.
  FSDP2_CHECK(numel <= tensor.storage_numel, Code::kUnsupported,
              "{}: a tensor of [{}] over {} stored elements: save it after contiguous()", label_,
              fmt::join(shape, ", "), tensor.storage_numel);
  const at::Tensor out = at::empty(shape, at::device(at::kCPU).dtype(tensor.dtype));
  read_box(tensor, std::vector<int64_t>(shape.size(), 0), out);
  return out;
}

void TorchArchive::read_box(const StoredTensor& tensor, at::IntArrayRef begin,
                            const at::Tensor& out) const {
  const ZipRecord& record = record_of(tensor);
  const std::string name = record_name(tensor.storage);
  const bool compares = !file_->is_checked() && record.checksum != 0 && out.numel() > 0;
  const bool is_whole = is_whole_record(tensor, out);
  if (compares && !is_whole) {
    verify_once(name, record);
  }
  read_tensor_box(*file_, record.offset, tensor, begin, out, label_);
  if (compares && is_whole) {
    check_checksum(label_, name, record, zip_checksum(out.const_data_ptr(), out.nbytes()));
  }
}

void TorchArchive::verify_once(const std::string& name, const ZipRecord& record) const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (verified_.count(name) != 0) {
      return;
    }
  }
  check_checksum(label_, name, record, checksum_of(*file_, record));
  const std::lock_guard<std::mutex> lock(mutex_);
  verified_.insert(name);
}

void TorchArchive::verify() const {
  for (const auto& [name, record] : records_) {
    check_checksum(label_, name, record, checksum_of(*file_, record));
  }
}

std::optional<uint32_t> TorchArchive::checksum(const StoredTensor& tensor) const {
  return checksum_in(record_of(tensor));
}

std::optional<uint32_t> TorchArchive::checksum_of_objects() const {
  return checksum_in(records_.at(kPickle));
}

bool verify_torch_archive(const ByteSource& file, int64_t offset, int64_t length,
                          const std::string& label) {
  bool has_checksum = false;
  for (const auto& [name, record] : read_zip_directory(file, offset, length, label)) {
    check_checksum(label, name, record, checksum_of(file, record));
    has_checksum = has_checksum || (name == kPickle && checksum_in(record));
  }
  return has_checksum;
}

int64_t TorchArchive::file_offset(const StoredTensor& tensor) const {
  return record_of(tensor).offset +
         tensor.storage_offset * static_cast<int64_t>(c10::elementSize(tensor.dtype));
}

}  // namespace fsdp2::ckpt
