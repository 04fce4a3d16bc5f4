#include "core/config/checks/require.h"

#include <algorithm>
#include <cstddef>
#include <thread>

#include "core/config/config_error.h"

namespace fsdp2::config {

void require(bool condition, const std::string& message) {
  if (!condition) {
    throw ConfigError(message);
  }
}

void require_within(const std::string& flag, int64_t value, int64_t least, int64_t most) {
  const std::string found = flag + " " + std::to_string(value);
  require(value >= least, found + " is below " + std::to_string(least));
  require(value <= most, found + " is above " + std::to_string(most));
}

int64_t most_threads() { return std::max<int64_t>(64, std::thread::hardware_concurrency()); }

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; !text.empty() && begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace fsdp2::config
