#include "core/ckpt/safetensors/detect.h"

#include <string>

#include "core/ckpt/safetensors/sharding.h"

namespace fsdp2::ckpt {

bool is_safetensors_file(const PathContent& content) {
  constexpr size_t kLengthBytes = 8;  // of the header, which is JSON and follows
  static_assert(kLengthBytes < PathContent::kBeginBytes);
  const std::string& begin = content.begin();
  return begin.size() > kLengthBytes && begin[kLengthBytes] == '{';
}

bool is_sharded_directory(const PathContent& content) { return content.has_name(is_shard_file); }

Replaceable replaceable_by_shards() { return {kShardedSafetensorsFormat, is_shard_file}; }

}  // namespace fsdp2::ckpt
