#include "cli/sharding.h"

#include "cli/arguments.h"

namespace fsdp2::cli {

namespace {

void need(bool condition, const std::string& message) {
  if (!condition) {
    throw UsageError(message);
  }
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

void check_sharding(const Sharding& sharding) {
  const std::string& reshard = sharding.reshard_after_forward;
  const bool is_size = is_number(reshard) && reshard.size() < 10 && std::stol(reshard) >= 2;
  need(is_size || reshard == "default" || reshard == "true" || reshard == "false",
       "--reshard-after-forward " + reshard +
           " is none of default, true, false, or a number of ranks from 2 on");
  need(sharding.fsdp_size >= 0, "--fsdp-size must not be negative");
  const std::string& strategy = sharding.strategy;
  const bool keeps = strategy == "shard_grad_op" || strategy == "hybrid_shard_zero2";
  need(!keeps || reshard == "default" || reshard == "false",
       "--strategy " + strategy + " and --reshard-after-forward " + reshard +
           " contradict each other");
  need(strategy != "no_shard" || sharding.fsdp_size <= 1, "--strategy no_shard and --fsdp-size " +
                                                              std::to_string(sharding.fsdp_size) +
                                                              " contradict each other");
  const bool hybrid = strategy == "hybrid_shard" || strategy == "hybrid_shard_zero2";
  need(!hybrid || sharding.fsdp_size >= 2,
       "--strategy " + strategy + " needs --fsdp-size, the ranks of a shard group");
}

int32_t reshard_number(const Sharding& sharding, int32_t by_strategy) {
  const std::string& text = sharding.reshard_after_forward;
  if (text == "true") {
    return FSDP2_RESHARD_ALWAYS;
  }
  if (text == "false") {
    return FSDP2_RESHARD_NEVER;
  }
  return text == "default" ? by_strategy : static_cast<int32_t>(std::stol(text));
}

}  // namespace fsdp2::cli
