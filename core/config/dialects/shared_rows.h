// Readings of keys that dialects have in common.
#pragma once

#include <cstdint>
#include <string>

#include "core/config/dialect.h"

namespace fsdp2::config {

// true, false, or the size of the groups that keep a slice; 1 is false.
Row reads_reshard(const std::string& path);
// Ranks per shard group: auto (all of them) or a number.
Row reads_shard_size(const std::string& path);
// A boolean that a text key takes: cast_forward_inputs.
Row reads_flag(const std::string& path, const std::string& key);
// A boolean that turns one of ours off.
Row reads_opposite(const std::string& path, const std::string& key);
// A boolean that a key with choices takes.
Row reads_choice(const std::string& path, const std::string& key, const char* if_true,
                 const char* if_false);
// How many units ahead both passes gather, which is one number here; 0 is 1.
Row reads_prefetch(const std::string& path);

// A number of epochs, which transformers writes with or without a point: 3 or 3.0.
int64_t epochs_in(const Value& value);

}  // namespace fsdp2::config
