#include "core/ckpt/safetensors/safetensors_file.h"

#include <ATen/Functions.h>
#include <c10/core/DeviceType.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/bytes/checked_item.h"
#include "core/ckpt/bytes/checksum.h"
#include "core/ckpt/safetensors/dtype.h"
#include "core/ckpt/safetensors/header.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

// Bytes are moved between tensors and files as they are.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors is little-endian");

// The header may have 100 MB, which are the checksums of 6 TB; such a file is written without.
constexpr int64_t kMaxChecksummedBytes = int64_t{1} << 42;

std::string little_endian_length(size_t length) {
  std::string bytes;
  for (int64_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    bytes += static_cast<char>(static_cast<uint64_t>(length) >> (8 * i) & 0xFF);
  }
  return bytes;
}

// The header's length, checked against the file.
int64_t header_length(const MappedFile& file) {
  FSDP2_CHECK(file.size() >= kSafetensorsLengthBytes, Code::kCorruptData,
              "{}: has {} bytes, expected at least {}: not a safetensors file, or incomplete",
              file.path(), file.size(), kSafetensorsLengthBytes);
  uint64_t length = 0;
  file.read(0, kSafetensorsLengthBytes, &length);
  FSDP2_CHECK(
      length <= static_cast<uint64_t>(kMaxSafetensorsHeaderBytes), Code::kCorruptData,
      "{}: says that its header has {} bytes, at most {} are allowed: not a safetensors file",
      file.path(), length, kMaxSafetensorsHeaderBytes);
  const auto bytes = static_cast<int64_t>(length);
  FSDP2_CHECK(bytes <= file.size() - kSafetensorsLengthBytes, Code::kCorruptData,
              "{}: says that its header has {} bytes, but the file has {} in all: incomplete (an "
              "interrupted download?) or not a safetensors file",
              file.path(), bytes, file.size());
  return bytes;
}

std::string json_text(const nlohmann::json& value, const std::string& file) {
  try {
    return value.dump();
  } catch (const nlohmann::json::type_error&) {
    fail(Code::kInvalidArgument, "{}: a name or metadata is not UTF-8", file);
  }
}

// Tensors are laid out in the plan's order; the text is padded so that the data is aligned to 8
// bytes.
std::string header_text(const std::vector<TensorSpec>& plan,
                        const std::map<std::string, std::string>& metadata,
                        const std::string& file) {
  std::string text = "{";
  std::unordered_set<std::string> names{kSafetensorsMetadataKey};
  int64_t offset = 0;
  if (!metadata.empty()) {
    text +=
        fmt::format("{}:{}", json_text(kSafetensorsMetadataKey, file), json_text(metadata, file));
  }
  for (const TensorSpec& spec : plan) {
    const char* dtype = safetensors_dtype_name(spec.dtype);
    FSDP2_CHECK(dtype != nullptr, Code::kUnsupported, "{}: tensor {}: safetensors has no dtype {}",
                file, printable_name(spec.name), c10::toString(spec.dtype));
    FSDP2_CHECK(names.insert(spec.name).second, Code::kInvalidArgument,
                "{}: the name {} is planned twice or reserved", file, printable_name(spec.name));
    const int64_t bytes = tensor_bytes(spec.dtype, spec.shape);
    int64_t end = 0;
    FSDP2_CHECK(spec.shape.size() <= kMaxSafetensorsDims && bytes >= 0 &&
                    !__builtin_add_overflow(offset, bytes, &end),
                Code::kInvalidArgument, "{}: tensor {}: a shape of [{}] cannot be stored", file,
                printable_name(spec.name), fmt::join(spec.shape, ", "));
    const auto item_size = static_cast<int64_t>(c10::elementSize(spec.dtype));
    FSDP2_CHECK(offset % item_size == 0, Code::kInvalidArgument,
                "{}: tensor {} of dtype {} would begin at byte {} of the data: plan larger dtypes "
                "first",
                file, printable_name(spec.name), dtype, offset);
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        text.size() > 1 ? "," : "", json_text(spec.name, file), dtype,
                        fmt::join(spec.shape, ","), offset, end);
    offset = end;
  }
  text += '}';
  // Readers map the file: with the length's own 8 bytes this aligns the data.
  text.append(
      (kSafetensorsLengthBytes - text.size() % kSafetensorsLengthBytes) % kSafetensorsLengthBytes,
      ' ');
  FSDP2_CHECK(text.size() <= static_cast<size_t>(kMaxSafetensorsHeaderBytes),
              Code::kInvalidArgument,
              "{}: {} tensors make a header of {} bytes, the format allows {}", file, plan.size(),
              text.size(), kMaxSafetensorsHeaderBytes);
  return text;
}

// Zeros, to be replaced by as many digits. Nothing for a plan that header_text refuses.
TensorChecksums empty_checksums(const std::vector<TensorSpec>& plan) {
  TensorChecksums checksums;
  for (const TensorSpec& spec : plan) {
    const int64_t bytes = tensor_bytes(spec.dtype, spec.shape);
    if (bytes > kMaxChecksummedBytes) {
      return {};
    }
    if (bytes > 0) {
      checksums[spec.name].resize(static_cast<size_t>(block_count(bytes)));
    }
  }
  return checksums;
}

std::map<std::string, std::string> with_checksums(std::map<std::string, std::string> metadata,
                                                  const TensorChecksums& checksums) {
  if (!checksums.empty()) {
    metadata[kSafetensorsChecksums] = tensor_checksums_text(checksums);
  }
  return metadata;
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::string path)
    : file_(std::make_shared<const MappedFile>(std::move(path))) {
  const int64_t length = header_length(*file_);
  std::string text(static_cast<size_t>(length), '\0');
  file_->read(kSafetensorsLengthBytes, length, text.data());
  const int64_t data_begin = kSafetensorsLengthBytes + length;
  SafetensorsHeader header =
      parse_safetensors_header(text, file_->size() - data_begin, file_->path());
  metadata_ = std::move(header.metadata);
  tensors_ = std::move(header.tensors);
  index_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].offset += data_begin;
    index_.emplace(tensors_[i].name, i);
  }
  add_checksums();
}

void SafetensorsFile::add_checksums() {
  const auto found = metadata_.find(kSafetensorsChecksums);
  if (found == metadata_.end()) {
    return;
  }
  TensorChecksums checksums = parse_tensor_checksums(found->second, path());
  metadata_.erase(found);
  for (SafetensorsEntry& entry : tensors_) {
    std::vector<uint64_t>& blocks = checksums[entry.name];
    FSDP2_CHECK(static_cast<int64_t>(blocks.size()) == block_count(entry.bytes), Code::kCorruptData,
                "{}: tensor {} has {} bytes, but checksums of {} blocks: the file was changed by a "
                "program that kept {} in its metadata",
                path(), printable_name(entry.name), entry.bytes, blocks.size(),
                kSafetensorsChecksums);
    entry.checksums = std::move(blocks);
  }
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

ByteSpan SafetensorsFile::data(const SafetensorsEntry& entry) const {
  return file_->bytes().slice(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes));
}

void SafetensorsFile::read(const SafetensorsEntry& entry, int64_t first, int64_t count,
                           void* out) const {
  FSDP2_CHECK(first >= 0 && count >= 0 && first <= entry.bytes && count <= entry.bytes - first,
              Code::kInternal, "{}: tensor {}: read of {} bytes at {} of {}", path(),
              printable_name(entry.name), count, first, entry.bytes);
  source(entry)->read(entry.offset + first, count, out);
}

std::unique_ptr<ByteSource> SafetensorsFile::source(const SafetensorsEntry& entry) const {
  return source_of(file_, entry);
}

std::unique_ptr<ByteSource> source_of(std::shared_ptr<const MappedFile> file,
                                      const SafetensorsEntry& entry) {
  if (entry.checksums.empty()) {
    return std::make_unique<FileBytes>(std::move(file));
  }
  ManifestItem item{file->path(), entry.offset, entry.bytes, printable_name(entry.name),
                    entry.checksums};
  return std::make_unique<CheckedItem>(std::move(file), std::move(item));
}

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<TensorSpec> plan,
                                     const Metadata& metadata)
    : SafetensorsWriter(path, plan, metadata, empty_checksums(plan),
                        header_text(plan, with_checksums(metadata, empty_checksums(plan)), path)) {}

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<TensorSpec> plan,
                                     Metadata metadata, TensorChecksums checksums,
                                     const std::string& header)
    : file_(std::move(path)),
      planned_(std::move(plan), file_.path()),
      metadata_(std::move(metadata)),
      checksums_(std::move(checksums)) {
  const std::string length = little_endian_length(header.size());
  file_.write(length.data(), length.size());
  file_.write(header.data(), header.size());
}

void SafetensorsWriter::append(const std::string& name, const at::Tensor& tensor) {
  planned_.check_next(name, tensor);
  const at::Tensor bytes = tensor.detach().to(at::kCPU).contiguous().resolve_conj().resolve_neg();
  file_.write(bytes.const_data_ptr(), bytes.nbytes());
  if (const auto place = checksums_.find(name); place != checksums_.end()) {
    BlockChecksums sums;
    sums.add(bytes.const_data_ptr(), bytes.nbytes());
    place->second = sums.finish();
  }
  planned_.advance();
}

void SafetensorsWriter::finish() {
  planned_.check_complete();
  const std::string header =
      header_text(planned_.plan(), with_checksums(metadata_, checksums_), file_.path());
  file_.overwrite(kSafetensorsLengthBytes, header.data(), header.size());
  file_.commit();
}

void sort_by_item_size(std::vector<TensorSpec>& plan) {
  std::stable_sort(plan.begin(), plan.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return c10::elementSize(a.dtype) > c10::elementSize(b.dtype);
  });
}

}  // namespace fsdp2::ckpt
