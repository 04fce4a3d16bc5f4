#include "core/exported/program/program_archive.h"

#include <ATen/Functions.h>
#include <fmt/ranges.h>

#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/ckpt/bytes/byte_source.h"
#include "core/ckpt/value/printable_name.h"
#include "core/exported/program/json_document.h"
#include "core/exported/program/serialized_types.h"

namespace fsdp2::exported {

namespace {

using ckpt::printable_name;

constexpr char kExpected[] = "program of torch.export.save";
constexpr char kModel[] = "models/model.json";
constexpr char kTies[] = "extra/fsdp2.json";
constexpr int64_t kMaxTextBytes = int64_t{1} << 28;
constexpr int64_t kMaxSmallBytes = 64;
constexpr size_t kMaxDims = 64;

ckpt::ZipRecords open_zip(const std::string& path) {
  auto file = std::make_shared<const ckpt::FileBytes>(path);
  const int64_t bytes = file->size();
  return {std::move(file), 0, bytes, path};
}

// One entry of a config: what a tensor is, and which bytes it has.
class PayloadReader {
 public:
  PayloadReader(const JsonDocument& document, const ckpt::ZipRecords& zip, std::string folder)
      : document_(document), zip_(zip), folder_(std::move(folder)) {}

  NamedValue read(const json& payload) const {
    if (document_.flag(document_.member(payload, "use_pickle"))) {
      document_.refuse(Code::kUnsupported, payload, "is pickled (a subclass of tensors)");
    }
    const json& meta = document_.member(payload, "tensor_meta");
    check_strided(document_, document_.member(meta, "layout"));
    NamedValue value;
    value.tensor.dtype = read_dtype(document_, document_.member(meta, "dtype"));
    value.tensor.shape = read_sizes(document_.member(meta, "sizes"));
    value.tensor.stride = read_sizes(document_.member(meta, "strides"));
    value.tensor.storage_offset = read_size(document_.member(meta, "storage_offset"));
    value.tensor.requires_grad = document_.flag(document_.member(meta, "requires_grad"));
    place(document_.member(payload, "path_name"), value);
    return value;
  }

 private:
  int64_t read_size(const json& size) const {
    const json& number = document_.member(size, "as_int");
    const int64_t value = document_.integer(number);
    if (value < 0) {
      document_.refuse(Code::kCorruptData, number, "expected a size, found {}", value);
    }
    return value;
  }

  std::vector<int64_t> read_sizes(const json& list) const {
    std::vector<int64_t> sizes;
    for (const json& size : document_.array(list)) {
      sizes.push_back(read_size(size));
    }
    if (sizes.size() > kMaxDims) {
      document_.refuse(Code::kCorruptData, list, "more than {} dims", kMaxDims);
    }
    return sizes;
  }

  // Finds the record and checks that the tensor lies inside it.
  void place(const json& name, NamedValue& value) const {
    const std::string& text = document_.text(name);
    const std::string record_name = folder_ + text;
    const ckpt::ZipRecord* record = zip_.find(record_name);
    if (text.find('/') != std::string::npos || record == nullptr) {
      document_.refuse(Code::kCorruptData, name, "there is no record {}",
                       printable_name(record_name));
    }
    ckpt::StoredTensor& tensor = value.tensor;
    tensor.storage = record_name;
    const auto item_size = static_cast<int64_t>(c10::elementSize(tensor.dtype));
    tensor.storage_numel = record->bytes / item_size;
    value.end = end_of(tensor, name);
    value.has_values = record->bytes > 0 || value.end == 0;
    if (value.has_values && value.end > tensor.storage_numel) {
      document_.refuse(Code::kCorruptData, name, "the tensor ends at element {} of {} in {}",
                       value.end, tensor.storage_numel, printable_name(record_name));
    }
  }

  // One past the tensor's last element in its storage.
  int64_t end_of(const ckpt::StoredTensor& tensor, const json& where) const {
    bool fits = tensor.shape.size() == tensor.stride.size();
    int64_t numel = 1;
    int64_t last = tensor.storage_offset;
    for (size_t dim = 0; fits && dim < tensor.shape.size(); ++dim) {
      int64_t reach = 0;
      fits = !__builtin_mul_overflow(numel, tensor.shape[dim], &numel) &&
             !__builtin_mul_overflow(tensor.shape[dim], tensor.stride[dim], &reach) &&
             !__builtin_add_overflow(last, reach - (reach > 0 ? tensor.stride[dim] : 0), &last);
    }
    if (!fits || __builtin_add_overflow(last, 1, &last)) {
      document_.refuse(Code::kCorruptData, where,
                       "its sizes and strides are not those of a tensor");
    }
    return numel == 0 ? 0 : last;
  }

  const JsonDocument& document_;
  const ckpt::ZipRecords& zip_;
  const std::string folder_;
};

const NamedValue* find_in(const std::map<std::string, NamedValue>& values,
                          const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? nullptr : &found->second;
}

}  // namespace

ProgramArchive::ProgramArchive(const std::string& path) : zip_(open_zip(path)) {
  check_format();
  weights_ = read_config(kWeightsConfig);
  constants_ = read_config(kConstantsConfig);
  read_ties();
}

std::string ProgramArchive::read_text(const std::string& name) const {
  return zip_.read_text(name, kMaxTextBytes, kExpected);
}

void ProgramArchive::check_format() const {
  FSDP2_CHECK(zip_.find("archive_format") != nullptr || zip_.find("data.pkl") == nullptr,
              Code::kUnsupported,
              "{}: holds values alone, as torch.save writes them, and no program: expected a file "
              "of torch.export.save or torch.jit.save",
              path());
  FSDP2_CHECK(zip_.find(".data/extern_modules") == nullptr, Code::kUnsupported,
              "{}: is a torch.package, whose modules are Python: expected a file of "
              "torch.export.save or torch.jit.save",
              path());
  const auto check = [this](const std::string& name, const std::string& expected) {
    const std::string found = zip_.read_text(name, kMaxSmallBytes, kExpected);
    FSDP2_CHECK(found == expected, Code::kUnsupported, "{}: {}: expected \"{}\", found \"{}\"",
                path(), name, expected, printable_name(found));
  };
  check("archive_format", "pt2");
  check("archive_version", "0");
  check("byteorder", "little");
  for (const auto& [name, record] : zip_.all()) {
    FSDP2_CHECK(!starts_with(name, "models/") || name == kModel, Code::kUnsupported,
                "{}: expected one program, {}, found {} too", path(), kModel, printable_name(name));
  }
}

std::string ProgramArchive::program() const { return read_text(kModel); }

ProgramArchive::Values ProgramArchive::read_config(const std::string& name) const {
  const JsonDocument document(read_text(name), fmt::format("{}: {}", path(), name));
  const PayloadReader reader(document, zip_, name.substr(0, name.rfind('/') + 1));
  Values values;
  for (const auto& [key, payload] : document.object(document.member(document.root(), "config"))) {
    values.emplace(key, reader.read(payload));
  }
  return values;
}

void ProgramArchive::read_ties() {
  if (zip_.find(kTies) == nullptr) {
    return;
  }
  const JsonDocument document(read_text(kTies), fmt::format("{}: {}", path(), kTies));
  const json* ties = document.find(document.root(), "ties");
  if (ties == nullptr) {
    return;
  }
  for (const json& names : document.array(*ties)) {
    for (const json& name : document.array(names)) {
      listed_ties_[document.text(name)] = document.text(names.front());
    }
  }
}

const NamedValue* ProgramArchive::find_weight(const std::string& name) const {
  return find_in(weights_, name);
}

const NamedValue* ProgramArchive::find_constant(const std::string& name) const {
  return find_in(constants_, name);
}

std::string ProgramArchive::identity_of(const std::string& name, const NamedValue& value) const {
  const auto listed = listed_ties_.find(name);
  if (listed != listed_ties_.end()) {
    return "listed " + listed->second;
  }
  const ckpt::StoredTensor& tensor = value.tensor;
  if (!value.has_values || tensor.storage_numel == 0) {
    return "alone " + name;
  }
  return fmt::format("{} {} {} {} {}", tensor.storage, static_cast<int>(tensor.dtype),
                     tensor.storage_offset, fmt::join(tensor.shape, "x"),
                     fmt::join(tensor.stride, "x"));
}

void ProgramArchive::read_box(const NamedValue& value, at::IntArrayRef begin,
                              const at::Tensor& out) const {
  zip_.read_box(value.tensor.storage, value.tensor, begin, out);
}

void ProgramArchive::check_is_stored(const NamedValue& value, const std::string& name) const {
  const at::IntArrayRef shape(value.tensor.shape);
  FSDP2_CHECK(value.has_values, Code::kUnsupported,
              "{}: {} has no values: export with real buffers and constants", path(),
              printable_name(name));
  // Expanded views: a few bytes that claim to be many.
  FSDP2_CHECK(c10::multiply_integers(shape) <= value.tensor.storage_numel, Code::kUnsupported,
              "{}: {} is a tensor of [{}] over {} stored elements: export it after contiguous()",
              path(), printable_name(name), fmt::join(shape, ", "), value.tensor.storage_numel);
}

at::Tensor ProgramArchive::read(const NamedValue& value, const std::string& name) const {
  check_is_stored(value, name);
  const at::IntArrayRef shape(value.tensor.shape);
  const at::Tensor out = at::empty(shape, at::device(at::kCPU).dtype(value.tensor.dtype));
  read_box(value, std::vector<int64_t>(shape.size(), 0), out);
  return out;
}

}  // namespace fsdp2::exported
