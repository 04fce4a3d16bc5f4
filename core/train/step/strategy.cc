#include "core/train/step/strategy.h"

#include <algorithm>
#include <cctype>

#include "core/base/error.h"

namespace fsdp2::train {

namespace {

std::string canonical(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name == "_HYBRID_SHARD_ZERO2" ? name.substr(1) : name;
}

}  // namespace

Strategy read_strategy(const std::string& name, int64_t fsdp_size) {
  FSDP2_CHECK(fsdp_size >= 0, Code::kInvalidArgument,
              "strategy {}: expected a shard group of 0 (all) or more ranks, found {}", name,
              fsdp_size);
  const std::string strategy = canonical(name);
  const bool is_hybrid = strategy == "HYBRID_SHARD" || strategy == "HYBRID_SHARD_ZERO2";
  FSDP2_CHECK(!is_hybrid || fsdp_size >= 2, Code::kInvalidArgument,
              "strategy {}: expected the ranks of a shard group (2 or more, say those of a node), "
              "found {}",
              name, fsdp_size);
  if (strategy == "FULL_SHARD" || strategy == "HYBRID_SHARD") {
    return {fsdp_size, fsdp::ReshardAfterForward::kAuto};
  }
  if (strategy == "SHARD_GRAD_OP" || strategy == "HYBRID_SHARD_ZERO2") {
    return {fsdp_size, fsdp::ReshardAfterForward::kNever};
  }
  FSDP2_CHECK(strategy == "NO_SHARD", Code::kInvalidArgument,
              "strategy '{}': expected FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or "
              "HYBRID_SHARD_ZERO2",
              name);
  FSDP2_CHECK(fsdp_size <= 1, Code::kInvalidArgument,
              "strategy {}: every rank holds everything: expected no shard group, found one of {} "
              "ranks",
              name, fsdp_size);
  return {kReplicasOnly, fsdp::ReshardAfterForward::kAuto};
}

}  // namespace fsdp2::train
