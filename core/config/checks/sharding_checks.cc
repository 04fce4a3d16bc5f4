#include "core/config/checks/sharding_checks.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/config/checks/require.h"

namespace fsdp2::config {

namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

void check_parts(const std::string& flag, const std::string& text) {
  const std::vector<std::string> parts = parts_of(text);
  require(std::find(parts.begin(), parts.end(), "") == parts.end(),
          flag + " " + text + ": expected names with one comma between them");
}

// ", 2, 4": those of shard groups that have replicas.
std::string smaller_sizes(int64_t world_size) {
  std::string sizes;
  for (int64_t size = 2; size <= world_size / 2; ++size) {
    sizes += world_size % size == 0 ? ", " + std::to_string(size) : "";
  }
  return sizes;
}

}  // namespace

void check_sharding(const Sharding& sharding) {
  const std::string& reshard = sharding.reshard_after_forward;
  const bool is_size = is_number(reshard) && reshard.size() < 10 && std::stol(reshard) >= 2;
  require(is_size || reshard == "default" || reshard == "true" || reshard == "false",
          "--reshard-after-forward " + reshard +
              ": expected default, true, false, or a number of ranks of at least 2");
  require_within("--fsdp-size", sharding.fsdp_size, 0, std::numeric_limits<int32_t>::max());
  require_within("--ulysses-size", sharding.ulysses_size, 1, std::numeric_limits<int32_t>::max());
  require(sharding.strategy != "no_shard" || sharding.ulysses_size == 1,
          "--strategy no_shard and --ulysses-size " + std::to_string(sharding.ulysses_size) +
              " contradict each other: ranks that share sequences are of one shard group");
  const std::string& strategy = sharding.strategy;
  const bool keeps = strategy == "shard_grad_op" || strategy == "hybrid_shard_zero2";
  require(!keeps || reshard == "default" || reshard == "false",
          "--strategy " + strategy + " and --reshard-after-forward " + reshard +
              " contradict each other");
  require(strategy != "no_shard" || sharding.fsdp_size <= 1,
          "--strategy no_shard and --fsdp-size " + std::to_string(sharding.fsdp_size) +
              " contradict each other");
  const bool hybrid = strategy == "hybrid_shard" || strategy == "hybrid_shard_zero2";
  require(!hybrid || sharding.fsdp_size >= 2,
          "--strategy " + strategy + " needs --fsdp-size, the number of ranks per shard group");
  require(!sharding.wrap.empty(), "--wrap '': expected default, none, or names of classes");
  check_parts("--wrap", sharding.wrap);
  check_parts("--wrap-names", sharding.wrap_names);
}

void check_sharding_for_world(const Sharding& sharding, int64_t world_size) {
  const int64_t size = sharding.fsdp_size;
  const bool has_replicas = size > 1 && size < world_size;
  require(!has_replicas || world_size % size == 0,
          "--fsdp-size " + std::to_string(size) + " does not divide the " +
              std::to_string(world_size) + " ranks: expected 0 for all of them" +
              smaller_sizes(world_size));
  const int64_t sharers = sharding.ulysses_size;
  require(world_size % sharers == 0, "--ulysses-size " + std::to_string(sharers) +
                                         " does not divide the " + std::to_string(world_size) +
                                         " ranks");
  require(!has_replicas || size % sharers == 0,
          "--ulysses-size " + std::to_string(sharers) + " does not divide --fsdp-size " +
              std::to_string(size) + ": ranks that share sequences are of one shard group");
  const std::string& reshard = sharding.reshard_after_forward;
  const int64_t shard_group = shard_group_size(sharding, world_size);
  require(!is_number(reshard) || shard_group % std::stol(reshard) == 0,
          "--reshard-after-forward " + reshard + " does not divide the shard group's " +
              std::to_string(shard_group) + (shard_group == 1 ? " rank" : " ranks"));
}

int64_t shard_group_size(const Sharding& sharding, int64_t world_size) {
  if (sharding.strategy == "no_shard") {
    return 1;
  }
  const int64_t size = sharding.fsdp_size;
  return size > 1 && size < world_size ? size : world_size;
}

}  // namespace fsdp2::config
