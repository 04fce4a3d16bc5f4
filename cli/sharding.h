// What --strategy, --fsdp-size and --reshard-after-forward mean, to every command that has them.
#pragma once

#include <cstdint>
#include <string>

#include "fsdp2/fsdp2.h"

namespace fsdp2::cli {

struct Sharding {
  std::string strategy = "full_shard";
  int64_t fsdp_size = 0;
  std::string reshard_after_forward = "default";  // also "true", "false" or a number from 2 on
};

inline constexpr const char* kReshardHelp =
    "default (layers yes, root no), true, false, or N: keep a 1/N slice";

// Throws UsageError unless they can be and do not contradict each other.
void check_sharding(const Sharding& sharding);

// reshard_after_forward in the library's numbers; `by_strategy` unless the user says otherwise.
int32_t reshard_number(const Sharding& sharding, int32_t by_strategy);

}  // namespace fsdp2::cli
