#include "core/exported/script/script_archive.h"

#include <ATen/Functions.h>
#include <c10/util/accumulate.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/ckpt/bytes/byte_source.h"
#include "core/ckpt/pickle/reader.h"
#include "core/ckpt/value/printable_name.h"
#include "core/exported/script/script_calls.h"
#include "core/exported/script/script_source.h"

namespace fsdp2::exported {

namespace {

using ckpt::PythonValue;
using ckpt::StoredTensor;

constexpr char kExpected[] = "file of torch.jit.save";
constexpr char kData[] = "data";
constexpr char kConstants[] = "constants";
constexpr std::string_view kCode = "code/";
constexpr std::string_view kPython = ".py";
constexpr int64_t kMaxSourceBytes = int64_t{1} << 26;  // of all sources
constexpr int64_t kMaxSmallBytes = 64;
constexpr uint64_t kMaxVersion = 10;

ckpt::ZipRecords open_zip(const std::string& path) {
  auto file = std::make_shared<const ckpt::FileBytes>(path);
  const int64_t bytes = file->size();
  return {std::move(file), 0, bytes, path, ckpt::ZipEntries::kStoredOrPacked};
}

std::string record_name(const std::string& folder, const StoredTensor& tensor) {
  return folder + "/" + tensor.storage;
}

}  // namespace

ScriptArchive::ScriptArchive(const std::string& path)
    : zip_(open_zip(path)), version_(read_version()), root_(read_pickled(kData)) {
  if (zip_.find("byteorder") != nullptr) {
    const std::string order = zip_.read_text("byteorder", kMaxSmallBytes, kExpected);
    FSDP2_CHECK(order == "little", Code::kUnsupported, "{}: its byte order is {}, expected little",
                this->path(), ckpt::printable_name(order));
  }
}

uint64_t ScriptArchive::read_version() const {
  const char* name = zip_.find("version") != nullptr ? "version" : ".data/version";
  const std::string text = zip_.read_text(name, kMaxSmallBytes, kExpected);
  uint64_t version = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), version);
  FSDP2_CHECK(parsed.ec == std::errc() && version >= 1, Code::kCorruptData, "{}: {} says {}",
              path(), name, ckpt::printable_name(text));
  FSDP2_CHECK(version <= kMaxVersion, Code::kUnsupported,
              "{}: has version {} of TorchScript's operators, the newest known is {}", path(),
              version, kMaxVersion);
  return version;
}

PythonValue ScriptArchive::read_pickled(const std::string& name) const {
  const std::string record = name + ".pkl";
  PythonValue value =
      ckpt::read_pickle(zip_.read_text(record, ckpt::kMaxPickleBytes, kExpected),
                        ckpt::PickleNames::kTorchScript, fmt::format("{}: {}", path(), record));
  check_tensors(name, value);
  return value;
}

void ScriptArchive::check_tensors(const std::string& folder, const PythonValue& value) const {
  if (const auto* tensor = value.as<StoredTensor>()) {
    const std::string name = record_name(folder, *tensor);
    const ckpt::ZipRecord* record = zip_.find(name);
    FSDP2_CHECK(record != nullptr && record->packed_bytes == 0, Code::kCorruptData,
                "{}: a tensor is in record {}, which is {}", path(), name,
                record == nullptr ? "missing" : "compressed");
    const auto item_size = static_cast<int64_t>(c10::elementSize(tensor->dtype));
    FSDP2_CHECK(
        record->bytes % item_size == 0 && record->bytes / item_size == tensor->storage_numel,
        Code::kCorruptData, "{}: its record {} has {} bytes, expected {} elements of {} bytes",
        path(), name, record->bytes, tensor->storage_numel, item_size);
  }
  ckpt::for_each_child(value, [&](const PythonValue& child) { check_tensors(folder, child); });
}

std::map<std::string, std::string> ScriptArchive::read_sources() const {
  std::map<std::string, std::string> sources;
  int64_t bytes = 0;
  for (const auto& [name, record] : zip_.all()) {
    if (!starts_with(name, kCode) || !ends_with(name, kPython)) {
      continue;
    }
    std::string name_space = name.substr(kCode.size(), name.size() - kCode.size() - kPython.size());
    std::replace(name_space.begin(), name_space.end(), '/', '.');
    // LibTorch would take others for types, under names of which check_calls knows nothing.
    if (name_space != "__torch__" && !is_inside(name_space, "__torch__")) {
      continue;
    }
    std::string text = zip_.read_text(name, kMaxSourceBytes - bytes, kExpected);
    bytes += static_cast<int64_t>(text.size());
    check_nesting(text, fmt::format("{}: {}", path(), ckpt::printable_name(name)));
    sources[name_space] += text;
  }
  check_calls(sources, path());
  return sources;
}

std::vector<at::Tensor> ScriptArchive::read_constants() const {
  const PythonValue value = read_pickled(kConstants);
  const auto* constants = value.as<ckpt::PythonTuple>();
  FSDP2_CHECK(constants != nullptr, Code::kCorruptData, "{}: constants.pkl: expected a tuple",
              path());
  std::vector<at::Tensor> tensors;
  for (const PythonValue& constant : constants->items) {
    const auto* tensor = constant.as<StoredTensor>();
    FSDP2_CHECK(tensor != nullptr, Code::kUnsupported,
                "{}: a constant is {}, expected tensors: quantized modules are not read", path(),
                ckpt::kind_name(constant));
    tensors.push_back(read_from(kConstants, *tensor));
  }
  return tensors;
}

void ScriptArchive::read_box(const StoredTensor& tensor, at::IntArrayRef begin,
                             const at::Tensor& out) const {
  zip_.read_box(record_name(kData, tensor), tensor, begin, out);
}

std::string ScriptArchive::mark_of(const StoredTensor& tensor) const {
  return zip_.mark_of(record_name(kData, tensor), tensor);
}

at::Tensor ScriptArchive::read(const StoredTensor& tensor) const {
  return read_from(kData, tensor);
}

at::Tensor ScriptArchive::read_from(const std::string& folder, const StoredTensor& tensor) const {
  const at::IntArrayRef shape(tensor.shape);
  // Expanded views: a few bytes that claim to be many.
  FSDP2_CHECK(c10::multiply_integers(shape) <= tensor.storage_numel, Code::kUnsupported,
              "{}: a tensor of [{}] over {} stored elements: save it after contiguous()", path(),
              fmt::join(shape, ", "), tensor.storage_numel);
  const at::Tensor out = at::empty(shape, at::device(at::kCPU).dtype(tensor.dtype));
  zip_.read_box(record_name(folder, tensor), tensor, std::vector<int64_t>(shape.size(), 0), out);
  return out;
}

bool is_script_file(const std::string& path) {
  const ckpt::ZipRecords zip = open_zip(path);
  return zip.find("constants.pkl") != nullptr && zip.find("data.pkl") != nullptr;
}

}  // namespace fsdp2::exported
