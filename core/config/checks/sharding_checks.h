// Whether the options that say how a model is sharded are possible.
#pragma once

#include <cstdint>

#include "core/config/sharding.h"

namespace fsdp2::config {

// Throws ConfigError unless they are possible and do not contradict each other.
void check_sharding(const Sharding& sharding);

// Throws ConfigError unless they divide so many ranks evenly.
void check_sharding_for_world(const Sharding& sharding, int64_t world_size);

// How many ranks a parameter is cut over. REQUIRES: check_sharding_for_world.
int64_t shard_group_size(const Sharding& sharding, int64_t world_size);

}  // namespace fsdp2::config
