#include "core/ckpt/safetensors/sharding.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "core/base/error.h"
#include "core/ckpt/bytes/json_number.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

using Json = nlohmann::json;

constexpr char kShardingInfo[] = "DCP_SHARDING_INFO";
constexpr char kOffsets[] = "saved_offsets";
constexpr char kShape[] = "shape";

// [2, 0]
std::optional<std::vector<int64_t>> numbers_in(const Json& shard, const char* key) {
  const auto found = shard.find(key);
  if (found == shard.end() || !found->is_array()) {
    return std::nullopt;
  }
  std::vector<int64_t> numbers;
  for (const Json& number : *found) {
    const auto whole = whole_number(number);
    if (!whole) {
      return std::nullopt;
    }
    numbers.push_back(*whole);
  }
  return numbers;
}

}  // namespace

std::string shard_file_name(int rank, int64_t number, int64_t count) {
  return fmt::format("shard-{:05}-model-{:05}-of-{:05}.safetensors", rank + 1, number, count);
}

bool is_shard_file(const std::string& name) {
  static const std::regex pattern("shard-[0-9]+-model-[0-9]+-of-[0-9]+\\.safetensors");
  return std::regex_match(name, pattern);
}

std::map<std::string, std::string> shard_metadata(const SafetensorsShards& shards) {
  // Not by way of a Json of the whole, whose destructor needs memory.
  std::string info = "{";
  for (const auto& [name, shard] : shards) {
    info += fmt::format("{}{}:{{\"{}\":[{}]", info.size() > 1 ? "," : "", Json(name).dump(),
                        kOffsets, fmt::join(shard.offsets, ","));
    if (shard.shape) {
      info += fmt::format(",\"{}\":[{}]", kShape, fmt::join(*shard.shape, ","));
    }
    info += "}";
  }
  return {{"format", "pt"}, {"DCP_VERSION", "1.0"}, {kShardingInfo, info + "}"}};
}

SafetensorsShards read_shards(const std::map<std::string, std::string>& metadata,
                              const std::string& file) {
  const auto found = metadata.find(kShardingInfo);
  if (found == metadata.end()) {
    return {};
  }
  const Json info = Json::parse(found->second, nullptr, /*allow_exceptions=*/false);
  FSDP2_CHECK(info.is_object(), Code::kCorruptData, "{}: {} is not a JSON object", file,
              kShardingInfo);
  SafetensorsShards shards;
  for (const auto& [name, shard] : info.items()) {
    const auto offsets = shard.is_object() ? numbers_in(shard, kOffsets) : std::nullopt;
    FSDP2_CHECK(offsets, Code::kCorruptData, "{}: {}.{} has no {}", file, kShardingInfo,
                printable_name(name), kOffsets);
    FSDP2_CHECK(!shard.contains(kShape) || numbers_in(shard, kShape), Code::kCorruptData,
                "{}: {}.{} has a {} that is none", file, kShardingInfo, printable_name(name),
                kShape);
    shards[name] = {*offsets, numbers_in(shard, kShape)};
  }
  return shards;
}

}  // namespace fsdp2::ckpt
