// What checks of options are made of.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace fsdp2::config {

// Throws ConfigError unless `condition` holds.
void require(bool condition, const std::string& message);

// Throws ConfigError, which names the flag, unless `value` lies in the range.
void require_within(const std::string& flag, int64_t value, int64_t least,
                    int64_t most = std::numeric_limits<int64_t>::max());

// The most CPU threads that the library takes for a process of this machine.
int64_t most_threads();

// The parts between commas, which may be empty; none of an empty text.
std::vector<std::string> parts_of(const std::string& text);

}  // namespace fsdp2::config
