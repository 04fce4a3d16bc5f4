#include "core/ckpt/safetensors/checksums.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/bytes/checksum.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

using Json = nlohmann::json;

constexpr char kBlockSize[] = "block_bytes";
constexpr char kTensors[] = "tensors";

}  // namespace

std::string tensor_checksums_text(const TensorChecksums& checksums) {
  // Not by way of a Json of the whole, whose destructor needs memory.
  std::string text = fmt::format("{{\"{}\":{},\"{}\":{{", kBlockSize, kBlockBytes, kTensors);
  const char* separator = "";
  for (const auto& [name, blocks] : checksums) {
    // Names that are no UTF-8 are refused where they stand for tensors.
    const std::string quoted =
        Json(name).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
    text += fmt::format("{}{}:\"{}\"", separator, quoted, checksums_text(blocks));
    separator = ",";
  }
  return text + "}}";
}

TensorChecksums parse_tensor_checksums(const std::string& text, const std::string& file) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  FSDP2_CHECK(json.is_object() && json.contains(kBlockSize) && json.contains(kTensors) &&
                  json[kTensors].is_object(),
              Code::kCorruptData, "{}: {} is not what was written", file, kSafetensorsChecksums);
  FSDP2_CHECK(json[kBlockSize] == kBlockBytes, Code::kUnsupported,
              "{}: {} is of other blocks than of {} bytes: written by a newer version?", file,
              kSafetensorsChecksums, kBlockBytes);
  TensorChecksums checksums;
  for (const auto& [name, value] : json[kTensors].items()) {
    auto blocks =
        value.is_string() ? parse_checksums(value.get_ref<const std::string&>()) : std::nullopt;
    FSDP2_CHECK(blocks, Code::kCorruptData, "{}: {} of {} are not what was written", file,
                kSafetensorsChecksums, printable_name(name));
    checksums.emplace(name, std::move(*blocks));
  }
  return checksums;
}

}  // namespace fsdp2::ckpt
