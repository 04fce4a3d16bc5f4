// How much a run shows of the library's own messages.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace fsdp2::config {

// The numbers of levels are those of include/fsdp2/log.h.
struct LogLevels {
  int32_t others = 0;  // of categories that have none of their own
  std::map<std::string, int32_t> by_category;

  // The least level that is shown of a category.
  int32_t of(const std::string& category) const;
  // The least level of any.
  int32_t lowest() const;
};

// "info", "comm=debug,checkpoint=off" or "error,data=info": a level for all categories, and levels
// of single ones. Those that a text does not name have the levels of "warning,checkpoint=info",
// which is what an empty text means; a level for all is also that of checkpoint. Throws
// ConfigError, which names `source`, a flag or a variable.
LogLevels read_log_levels(const std::string& source, const std::string& text);

}  // namespace fsdp2::config
