#include "core/ckpt/formats/inspect.h"

#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/ckpt/dcp/dcp_source.h"
#include "core/ckpt/formats/listing.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/formats/origin.h"
#include "core/ckpt/state/state_source.h"
#include "core/ckpt/store/checkpoint_directory.h"
#include "core/ckpt/store/find_checkpoint.h"
#include "core/ckpt/store/steady_path.h"
#include "core/ckpt/torch/per_rank_files.h"

namespace fsdp2::ckpt {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongestValue = 2000;

std::string python_text(const PythonValue& value);

struct PythonText {
  std::string operator()(const std::monostate& /*none*/) const { return "None"; }
  std::string operator()(bool flag) const { return flag ? "True" : "False"; }
  std::string operator()(int64_t number) const { return fmt::to_string(number); }
  std::string operator()(double number) const {
    return std::isfinite(number) ? Json(number).dump() : fmt::to_string(number);  // nan, inf, -inf
  }
  // In ASCII: a terminal obeys some characters, and a cut may fall inside of others.
  std::string operator()(const std::string& text) const {
    return Json(text).dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  }
  std::string operator()(const PythonBytes& bytes) const {
    return fmt::format("<{} bytes>", bytes.bytes.size());
  }
  std::string operator()(const PythonList& list) const { return "[" + joined(list.items) + "]"; }
  std::string operator()(const PythonTuple& tuple) const { return "(" + joined(tuple.items) + ")"; }
  std::string operator()(const PythonSet& set) const { return "{" + joined(set.items) + "}"; }
  std::string operator()(const PythonDict& dict) const {
    std::string text;
    for (const PythonItem& item : dict.items) {
      text += (text.empty() ? "" : ", ") + python_text(item.key) + ": " + python_text(item.value);
    }
    return "{" + text + "}";
  }
  std::string operator()(const StoredTensor& tensor) const {
    return fmt::format("<tensor [{}]>", fmt::join(tensor.shape, ", "));
  }
  std::string operator()(const PythonObject& object) const { return "<" + object.name + ">"; }

  static std::string joined(const std::vector<PythonValue>& items) {
    std::string text;
    for (const PythonValue& item : items) {
      text += (text.empty() ? "" : ", ") + python_text(item);
    }
    return text;
  }
};

std::string python_text(const PythonValue& value) { return std::visit(PythonText{}, value.value); }

std::string value_text(const PythonValue& value) {
  const std::string text = python_text(value);
  return text.size() <= kLongestValue ? text : text.substr(0, kLongestValue) + "...";
}

Json checksum_or_null(const std::optional<std::string>& checksum) {
  return checksum ? Json(*checksum) : Json(nullptr);
}

// One that is not read (it is damaged, or uses more than data needs) is told, and hinders nothing.
Json list_object(const StateSource& source, const StateEntry& entry) {
  try {
    return {{"name", entry.name}, {"value", value_text(source.read_object(entry))}};
  } catch (const Error& error) {
    return {{"name", entry.name}, {"error", error.message()}};
  }
}

// An item's checksum, or none of one that cannot be opened: reading it says why.
Json item_checksum(const DcpSource& run, const DcpEntry& entry, size_t index) {
  try {
    return checksum_or_null(run.item_checksum(entry, index));
  } catch (const Error&) {
    return nullptr;
  }
}

Json list_run(const DcpSource& run) {
  Json out = {{"tensors", Json::array()}, {"objects", Json::array()}};
  int64_t total = 0;
  for (const StateEntry& listed : run.entries()) {
    const DcpEntry& entry = run.metadata().entries()[listed.index];
    if (!entry.tensor) {
      Json object = list_object(run, listed);
      object["file"] = entry.storage[0].relative_path;
      object["checksum"] = item_checksum(run, entry, 0);
      out["objects"].push_back(std::move(object));
      continue;
    }
    Json chunks = Json::array();
    int64_t bytes = 0;
    for (size_t i = 0; i < entry.tensor->chunks.size(); ++i) {
      const Box& chunk = entry.tensor->chunks[i];
      auto size = static_cast<int64_t>(c10::elementSize(entry.tensor->dtype));
      for (const int64_t n : chunk.sizes) {
        size *= n;
      }
      bytes += size;
      chunks.push_back({{"offsets", chunk.offsets},
                        {"sizes", chunk.sizes},
                        {"bytes", size},
                        {"file", entry.storage[i].relative_path},
                        {"checksum", item_checksum(run, entry, i)}});
    }
    total += bytes;
    out["tensors"].push_back({{"name", entry.name},
                              {"dtype", c10::toString(entry.tensor->dtype)},
                              {"shape", entry.tensor->shape},
                              {"bytes", bytes},
                              {"chunks", std::move(chunks)}});
  }
  out["bytes"] = total;
  return out;
}

// The listing knows those of DCP metadata, by name; .pth files have theirs in the pickle. source:
// null for a DCP directory with metadata of each rank, which is listed without being read.
void list_objects(const StateSource* source, const CheckpointListing& listing, Json* out) {
  if (source == nullptr) {
    for (const ListedTensor& entry : listing.tensors) {
      if (!entry.dtype) {
        (*out)["objects"].push_back({{"name", entry.name}, {"checksum", nullptr}});
      }
    }
    return;
  }
  for (const StateEntry& entry : source->entries()) {
    if (!entry.dtype) {
      (*out)["objects"].push_back(list_object(*source, entry));
    }
  }
}

Json list_other(const std::string& path, const StateSource* source) {
  const CheckpointListing listing = list_checkpoint(path);
  Json out = {{"tensors", Json::array()}, {"objects", Json::array()}, {"bytes", listing.bytes}};
  for (const ListedTensor& tensor : listing.tensors) {
    Json chunks = Json::array();
    for (const ListedChunk& chunk : tensor.chunks) {
      const std::string file = std::filesystem::path(chunk.file).filename().string();
      chunks.push_back({{"offsets", chunk.offsets},
                        {"sizes", chunk.sizes},
                        {"bytes", chunk.bytes},
                        {"file", file},
                        {"checksum", checksum_or_null(chunk.checksum)}});
    }
    if (tensor.dtype) {
      out["tensors"].push_back({{"name", tensor.name},
                                {"dtype", c10::toString(*tensor.dtype)},
                                {"shape", tensor.shape},
                                {"bytes", tensor.bytes},
                                {"chunks", std::move(chunks)}});
    }
  }
  list_objects(source, listing, &out);
  return out;
}

Json number_or_null(const std::optional<int64_t>& number) {
  return number ? Json(*number) : Json(nullptr);
}

// A directory of each rank's .pth files may hold several steps: only those that are read count.
std::vector<std::string> names_of_files(const std::string& path, CheckpointFormat format) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    return {};
  }
  if (format != CheckpointFormat::kPthPerRankDirectory) {
    return names_in(path);
  }
  std::vector<std::string> names = per_rank_files(path);
  for (std::string& name : names) {
    name = last_name_of(name);
  }
  return names;
}

void add_origin(const StateSource* source, const std::string& path, CheckpointFormat format,
                Json* out) {
  std::optional<int64_t> step;
  std::optional<int64_t> world_size;
  if (source != nullptr) {
    const std::vector<std::string> files = names_of_files(path, format);
    step = step_of(*source, files);
    world_size = world_size_of(*source, files);
  }
  (*out)["step"] = number_or_null(step);
  (*out)["world_size"] = number_or_null(world_size);
}

std::string inspect_found(const std::string& path) {
  const CheckpointFormat format = detect_format(path);
  const auto source =
      format == CheckpointFormat::kDcpPartDirectory ? nullptr : open_checkpoint(path);
  const auto* run = dynamic_cast<const DcpSource*>(source.get());
  Json out = {{"path", path}, {"format", format_name(format)}};
  out["complete"] = run == nullptr || is_complete_checkpoint(path);
  out["manifest"] = run != nullptr && run->manifest().has_value();
  add_origin(source.get(), path, format, &out);
  Json listed = run != nullptr ? list_run(*run) : list_other(path, source.get());
  for (const char* key : {"bytes", "tensors", "objects"}) {
    out[key] = std::move(listed[key]);
  }
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string inspect_checkpoint(const std::string& given) {
  const std::string path = find_checkpoint(given);
  const SteadyPath steady(path);
  std::string found = steady.explain([&] { return inspect_found(path); });
  steady.check();
  return found;
}

void verify_checkpoint(const std::string& given) {
  const std::string path = find_checkpoint(given);
  const SteadyPath steady(path);
  steady.explain([&] { open_checkpoint(path)->verify(); });
  steady.check();
}

}  // namespace fsdp2::ckpt
