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
constexpr char kExpected[] = "file of torch.save";
constexpr int64_t kMaxVersion = 10;
constexpr int64_t kMaxSmallRecordBytes = 64;
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

std::string label_of(const ByteSource& file, const std::string& item) {
  return fmt::format("{}: {}", file.path(), printable_name(item));
}

ZipRecords open_zip(std::shared_ptr<const ByteSource> file, int64_t offset, int64_t length,
                    const std::string& label) {
  FSDP2_CHECK(
      offset >= 0 && length >= 0 && offset <= file->size() && length <= file->size() - offset,
      Code::kCorruptData,
      "{}: expected at {} with {} bytes, the file has {}: incomplete, or of another "
      "checkpoint",
      label, offset, length, file->size());
  check_not_old_format(*file, offset, length, label);
  return {std::move(file), offset, length, label};
}

}  // namespace

TorchArchive::TorchArchive(const std::string& path)
    : TorchArchive(std::make_shared<const FileBytes>(path)) {}

TorchArchive::TorchArchive(std::shared_ptr<const ByteSource> file)
    : zip_(open_zip(file, 0, file->size(), file->path())) {
  read_root();
}

TorchArchive::TorchArchive(std::shared_ptr<const ByteSource> file, int64_t offset, int64_t length,
                           const std::string& item)
    : zip_(open_zip(file, offset, length, label_of(*file, item))) {
  read_root();
}

void TorchArchive::read_root() {
  check_is_readable();
  root_ = read_pickle(zip_.read_text(kPickle, kMaxPickleBytes, kExpected),
                      PickleNames::kAnyTorchSave, label());
  if (root_.as<PythonObject>() != nullptr) {
    check_is_read(root_, label());
  }
  check_tensors(root_);
}

void TorchArchive::check_is_readable() const {
  FSDP2_CHECK(zip_.find("constants.pkl") == nullptr, Code::kUnsupported,
              "{}: is a TorchScript program, expected a file of torch.save", label());
  const std::string version = zip_.read_text("version", kMaxSmallRecordBytes, kExpected);
  int64_t number = 0;
  const auto parsed = std::from_chars(version.data(), version.data() + version.size(), number);
  FSDP2_CHECK(parsed.ec == std::errc() && number >= 1, Code::kCorruptData,
              "{}: its record version says {}", label(), printable_name(version));
  FSDP2_CHECK(number <= kMaxVersion, Code::kUnsupported,
              "{}: has version {} of torch.save's format, the newest known is {}", label(), number,
              kMaxVersion);
  if (zip_.find("byteorder") != nullptr) {
    const std::string order = zip_.read_text("byteorder", kMaxSmallRecordBytes, kExpected);
    FSDP2_CHECK(order == "little", Code::kUnsupported, "{}: its byte order is {}, expected little",
                label(), printable_name(order));
  }
}

void TorchArchive::check_tensors(const PythonValue& value) const {
  if (const auto* tensor = value.as<StoredTensor>()) {
    const ZipRecord& record = record_of(*tensor);
    const auto item_size = static_cast<int64_t>(c10::elementSize(tensor->dtype));
    FSDP2_CHECK(record.bytes % item_size == 0 && record.bytes / item_size == tensor->storage_numel,
                Code::kCorruptData,
                "{}: its record {} has {} bytes, expected {} elements of {} bytes", label(),
                record_name(tensor->storage), record.bytes, tensor->storage_numel, item_size);
  }
  for_each_child(value, [this](const PythonValue& child) { check_tensors(child); });
}

const ZipRecord& TorchArchive::record_of(const StoredTensor& tensor) const {
  const ZipRecord* found = zip_.find(record_name(tensor.storage));
  FSDP2_CHECK(found != nullptr, Code::kCorruptData,
              "{}: a tensor is in record {}, which is missing", label(),
              printable_name(record_name(tensor.storage)));
  return *found;
}

at::Tensor TorchArchive::read(const StoredTensor& tensor) const {
  const at::IntArrayRef shape(tensor.shape);
  const int64_t numel = c10::multiply_integers(shape);
  // Expanded views: a few bytes that claim to be many.
  FSDP2_CHECK(numel <= tensor.storage_numel, Code::kUnsupported,
              "{}: a tensor of [{}] over {} stored elements: save it after contiguous()", label(),
              fmt::join(shape, ", "), tensor.storage_numel);
  const at::Tensor out = at::empty(shape, at::device(at::kCPU).dtype(tensor.dtype));
  read_box(tensor, std::vector<int64_t>(shape.size(), 0), out);
  return out;
}

void TorchArchive::read_box(const StoredTensor& tensor, at::IntArrayRef begin,
                            const at::Tensor& out) const {
  zip_.read_box(record_name(tensor.storage), tensor, begin, out);
}

std::optional<uint32_t> TorchArchive::checksum(const StoredTensor& tensor) const {
  return checksum_in(record_of(tensor));
}

std::optional<uint32_t> TorchArchive::checksum_of_objects() const {
  return checksum_in(*zip_.find(kPickle));
}

bool verify_torch_archive(std::shared_ptr<const ByteSource> file, int64_t offset, int64_t length,
                          const std::string& label) {
  const ZipRecords zip(std::move(file), offset, length, label);
  zip.verify();
  const ZipRecord* objects = zip.find(kPickle);
  return objects != nullptr && checksum_in(*objects);
}

int64_t TorchArchive::file_offset(const StoredTensor& tensor) const {
  return record_of(tensor).offset +
         tensor.storage_offset * static_cast<int64_t>(c10::elementSize(tensor.dtype));
}

}  // namespace fsdp2::ckpt
