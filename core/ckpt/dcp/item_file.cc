#include "core/ckpt/dcp/item_file.h"

#include <fmt/ranges.h>

#include <utility>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

std::string item_name(const DcpEntry& entry, size_t index) {
  return entry.tensor ? fmt::format("{} at [{}]", printable_name(entry.name),
                                    fmt::join(entry.tensor->chunks[index].offsets, ", "))
                      : printable_name(entry.name);
}

int64_t write_item(const ByteSink& sink, const PythonValue& value,
                   const std::vector<at::Tensor>& tensors, bool with_checksums) {
  TorchArchiveWriter writer(sink, value, with_checksums);
  for (const at::Tensor& tensor : tensors) {
    writer.append(tensor);
  }
  writer.finish();
  return writer.bytes_written();
}

// The item's one tensor, which must be what the metadata says.
const StoredTensor& tensor_of(const TorchArchive& archive, const DcpEntry& entry, size_t chunk) {
  const auto* tensor = archive.root().as<StoredTensor>();
  FSDP2_CHECK(tensor != nullptr, Code::kCorruptData, "{}: holds {}, the metadata says a tensor",
              archive.label(), kind_name(archive.root()));
  const Box& expected = entry.tensor->chunks[chunk];
  FSDP2_CHECK(tensor->dtype == entry.tensor->dtype && tensor->shape == expected.sizes,
              Code::kCorruptData, "{}: holds {} [{}], the metadata says {} [{}]", archive.label(),
              c10::toString(tensor->dtype), fmt::join(tensor->shape, ", "),
              c10::toString(entry.tensor->dtype), fmt::join(expected.sizes, ", "));
  return *tensor;
}

}  // namespace

int64_t write_tensor_item(const ByteSink& sink, const at::Tensor& chunk, bool with_checksums) {
  return write_item(sink, describe_tensor(0, chunk.scalar_type(), chunk.sizes()), {chunk},
                    with_checksums);
}

int64_t write_object_item(const ByteSink& sink, const PythonValue& object,
                          const std::vector<at::Tensor>& tensors) {
  return write_item(sink, object, tensors, true);
}

DcpItemFile::DcpItemFile(const std::string& path)
    : DcpItemFile(std::make_shared<const FileBytes>(path)) {}

const DcpStorage& DcpItemFile::place(const DcpEntry& entry, size_t index) const {
  FSDP2_CHECK(index < entry.storage.size(), Code::kInternal, "{}: item {} of {}",
              printable_name(entry.name), index, entry.storage.size());
  const DcpStorage& storage = entry.storage[index];
  FSDP2_CHECK(storage.transforms.empty(), Code::kUnsupported,
              "{}: {} is stored after {}, which is not read here: save it in Python without "
              "extensions",
              path(), item_name(entry, index), printable_name(storage.transforms[0]));
  FSDP2_CHECK(storage.offset >= 0 && storage.length >= 0 && storage.offset <= file_->size() &&
                  storage.length <= file_->size() - storage.offset,
              Code::kCorruptData, "{}: {}: expected at {} with {} bytes, the file has {}", path(),
              item_name(entry, index), storage.offset, storage.length, file_->size());
  return storage;
}

TorchArchive DcpItemFile::open(const DcpEntry& entry, size_t index) const {
  const DcpStorage& storage = place(entry, index);
  return TorchArchive(file_, storage.offset, storage.length, item_name(entry, index));
}

bool DcpItemFile::read_box(const DcpEntry& entry, size_t chunk, at::IntArrayRef begin,
                           const at::Tensor& out) const {
  FSDP2_CHECK(entry.tensor.has_value(), Code::kInvalidArgument, "{}: {} is no tensor", path(),
              printable_name(entry.name));
  const TorchArchive archive = open(entry, chunk);
  const StoredTensor& tensor = tensor_of(archive, entry, chunk);
  archive.read_box(tensor, begin, out);
  return archive.has_checksum(tensor);
}

DcpItemFile::Object DcpItemFile::read_object(const DcpEntry& entry) const {
  FSDP2_CHECK(!entry.tensor.has_value(), Code::kInvalidArgument, "{}: {} is a tensor", path(),
              printable_name(entry.name));
  return {open(entry, 0)};
}

bool DcpItemFile::verify(const DcpEntry& entry, size_t index) const {
  if (!entry.tensor) {
    const DcpStorage& storage = place(entry, index);
    return verify_torch_archive(file_, storage.offset, storage.length,
                                fmt::format("{}: {}", path(), item_name(entry, index))) ||
           file_->is_checked();
  }
  const TorchArchive archive = open(entry, index);
  const bool is_compared = archive.has_checksum(tensor_of(archive, entry, index));
  archive.verify();
  return is_compared;
}

std::optional<uint32_t> DcpItemFile::checksum(const DcpEntry& entry, size_t index) const {
  const TorchArchive archive = open(entry, index);
  return entry.tensor ? archive.checksum(tensor_of(archive, entry, index))
                      : archive.checksum_of_objects();
}

}  // namespace fsdp2::ckpt
