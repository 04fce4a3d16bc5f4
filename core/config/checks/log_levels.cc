#include "core/config/checks/log_levels.h"

#include <algorithm>
#include <array>

#include "core/config/checks/require.h"

namespace fsdp2::config {

namespace {

constexpr int32_t kInfo = 20, kWarning = 30;

const std::map<std::string, int32_t> kLevels = {
    {"debug", 10}, {"info", kInfo}, {"warning", kWarning}, {"error", 40}, {"off", 100}};

// As docs/troubleshooting.md lists them.
constexpr std::array kCategories = {"comm", "fsdp", "products", "data", "step", "checkpoint"};

int32_t level_in(const std::string& where, const std::string& word) {
  const auto level = kLevels.find(word);
  require(level != kLevels.end(),
          where + ": '" + word + "' is no level: expected debug, info, warning, error or off");
  return level->second;
}

void check_category(const std::string& where, const std::string& word) {
  std::string all;
  for (const char* category : kCategories) {
    all += (all.empty() ? "" : ", ") + std::string(category);
  }
  require(std::find(kCategories.begin(), kCategories.end(), word) != kCategories.end(),
          where + ": '" + word + "' is no category of the log: expected one of " + all);
}

}  // namespace

int32_t LogLevels::of(const std::string& category) const {
  const auto own = by_category.find(category);
  return own == by_category.end() ? others : own->second;
}

int32_t LogLevels::lowest() const {
  int32_t lowest = others;
  for (const auto& [category, level] : by_category) {
    lowest = std::min(lowest, level);
  }
  return lowest;
}

LogLevels read_log_levels(const std::string& source, const std::string& text) {
  const std::string where = source + " " + text;
  LogLevels levels{kWarning, {}};
  bool is_for_all = false;
  for (const std::string& part : parts_of(text)) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) {
      levels.others = level_in(where, part);
      require(!is_for_all, where + ": has two levels for all categories, expected one");
      is_for_all = true;
      continue;
    }
    const std::string category = part.substr(0, equals);
    check_category(where, category);
    const bool is_new =
        levels.by_category.emplace(category, level_in(where, part.substr(equals + 1))).second;
    require(is_new, where + ": has two levels for " + category + ", expected one");
  }
  if (!is_for_all) {
    levels.by_category.emplace("checkpoint", kInfo);
  }
  return levels;
}

}  // namespace fsdp2::config
